"""The books of durable stores: the declarations of `check/journal.pyx`."""

from xump_ext.check.structure cimport Books

cdef int check_journal(Books books) except -1
