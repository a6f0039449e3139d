"""Declarations of `journal.pyx`."""

from xump_ext.check.structure cimport Books

cdef int check_journal(Books books) except -1
