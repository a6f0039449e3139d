"""That nothing is left to be done: the declarations of `check_quiet.pyx`."""

from xump_ext.check_structure cimport Books

cdef int check_quiet(Books books) except -1
