"""Declarations of `write_named_headers.pyx`."""

from libc.stdint cimport int64_t

from xump_ext.arrow.column_writer cimport batch_row_t
from xump_ext.arrow.export cimport written_t

# The headers that are `wanted`, of which it says by name whether they are wanted as text. Null if no row has one of them.
# `small_bytes_max` is as in `write.pxd`. Cost: two passes over the headers.
cdef int write_named_headers(
    written_t* column, const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max, dict wanted) except -1
