"""The books of durable stores: the declarations of `check_journal.pyx`."""

from xump_ext.check_structure cimport Books

cdef int check_journal(Books books) except -1
