"""Declarations of `write.pyx`."""

from libc.stdint cimport int64_t, uint32_t

from xump_ext.arrow.column_writer cimport batch_row_t
from xump_ext.arrow.export cimport ArrowBatch

# Copies these rows into columns; `browsed` ones have more. A column with more bytes than `small_bytes_max` gets offsets of 64
# bits; only a test gives another limit than 2**31 - 1. With `map_headers` the headers are a map of texts, whichever they are, so
# that the columns of all batches have the same types; `named_headers`: `write_named_headers.pyx`. Columns that are not `wanted`
# may hold anything. Raises MemoryError.
# Cost: two passes over the headers and one over the rest.
cdef ArrowBatch batch_of_rows(const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max, bint browsed,
                              bint map_headers=*, uint32_t wanted=*, dict named_headers=*)
# What `wanted` is for columns of these names.
cdef uint32_t columns_named(names) except 0
