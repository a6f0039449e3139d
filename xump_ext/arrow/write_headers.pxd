"""Inline code that writes a header's value; declarations of `write_headers.pyx`."""

from libc.stdint cimport int64_t

from xump_ext.arrow.column_writer cimport batch_row_t, bit_set, valid_set, writer_t
from xump_ext.arrow.export cimport written_t
from xump_ext.message.headers cimport HEADER_INT, HEADER_TRUE, content_t, header_t

# The headers as a struct, or what is there instead. `small_bytes_max` is as in `write.pxd`.
cdef int write_headers(written_t* column, const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max) except -1
# A map; `as_text`: of texts, also if there are bytes.
cdef int write_map(
    written_t* column, const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max, bint as_text) except -1

# Where the headers of a message start, and where they end.
cdef const char* headers_from(const content_t* content, const char** end) noexcept

# A field of a struct of headers: its name is copied, its values are null until they are written. `writer` is of texts and bytes.
cdef int field_start(
    written_t* column, writer_t* writer, const char* name, Py_ssize_t name_bytes, const char* format) except -1
# The field is whole.
cdef void field_finish(written_t* column, writer_t* writer, int64_t small_bytes_max) noexcept

# A header's value as text; a bytes value as it is.
cdef int put_value(writer_t* writer, int64_t row, const header_t* header) except -1


cdef inline int write_value(written_t* column, writer_t* writer, int64_t row, const header_t* header) except -1:
    """Writes the value in the type that the field has."""
    cdef char format = column.format[0]
    valid_set(column, row)
    if format == c"l":
        (<int64_t*> column.buffers[1])[row] = header.integer
    elif format == c"g":
        (<double*> column.buffers[1])[row] = <double> header.integer if header.type == HEADER_INT else header.real
    elif format == c"b":
        if header.type == HEADER_TRUE:
            bit_set(column.buffers[1], row)
    else:
        put_value(writer, row, header)
    return 0
