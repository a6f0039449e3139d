"""Declarations of `quiescence.pyx`."""

from xump_ext.check.structure cimport Books

cdef int check_quiet(Books books) except -1
