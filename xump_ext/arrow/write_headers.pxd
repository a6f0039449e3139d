"""Declarations of `write_headers.pyx`."""

from libc.stdint cimport int64_t, uint32_t

from xump_ext.arrow.column_writer cimport batch_row_t
from xump_ext.arrow.export cimport written_t

# The headers as a struct, or what is there instead. `small_bytes_max` is as in `write.pxd`.
cdef int write_headers(written_t* column, const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max) except -1
# A map; `as_text`: of texts, also if there are bytes.
cdef int write_map(
    written_t* column, const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max, bint as_text) except -1
