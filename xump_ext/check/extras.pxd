"""Declarations of `extras.pyx`."""

from xump_ext.check.structure cimport Books

cdef int check_extras(Books books) except -1
