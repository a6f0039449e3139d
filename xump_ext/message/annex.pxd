"""For compiled readers of annexes: cimport this, register the reader, and let it put fields.

    from xump_ext.message.annex cimport annex_reader, fields_t, put_int

    cdef int read(const char* data, uint32_t bytes, fields_t* fields) noexcept:
        return put_int(fields, "size", 4, bytes)

    annex_reader(300, "sized", read)
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from xump_ext.message.headers cimport (
    HEADER_BYTES, HEADER_FALSE, HEADER_FLOAT, HEADER_INT, HEADER_STR, HEADER_TRUE, annex_reader_t, fields_t,
)

# Registers a compiled reader for a kind of annexes. Raises as `register_annex`.
cdef int annex_reader(int kind, str name, annex_reader_t reader) except -1

# Room for a field, with its type and name; returns where its value goes, or NULL without memory.
cdef char* field_begin(fields_t* fields, int type, const char* name, uint16_t name_bytes, uint32_t value_bytes) noexcept

# Each of these puts a field behind the others and returns 0, or -1 without memory. Names are of 1 to 65,535 bytes of UTF-8, each
# different; texts are UTF-8, too.

cdef inline int put_bool(fields_t* fields, const char* name, uint16_t name_bytes, bint value) noexcept:
    return 0 if field_begin(fields, HEADER_TRUE if value else HEADER_FALSE, name, name_bytes, 0) != NULL else -1

cdef inline int put_int(fields_t* fields, const char* name, uint16_t name_bytes, int64_t value) noexcept:
    cdef char* at = field_begin(fields, HEADER_INT, name, name_bytes, 8)
    if at == NULL:
        return -1
    memcpy(at, &value, 8)
    return 0

cdef inline int put_float(fields_t* fields, const char* name, uint16_t name_bytes, double value) noexcept:
    cdef char* at = field_begin(fields, HEADER_FLOAT, name, name_bytes, 8)
    if at == NULL:
        return -1
    memcpy(at, &value, 8)
    return 0

cdef inline int put_sized(
    fields_t* fields, int type, const char* name, uint16_t name_bytes, const char* value, uint32_t value_bytes
) noexcept:
    cdef char* at = field_begin(fields, type, name, name_bytes, 4 + value_bytes)
    if at == NULL:
        return -1
    memcpy(at, &value_bytes, 4)
    memcpy(at + 4, value, value_bytes)
    return 0

cdef inline int put_text(fields_t* fields, const char* name, uint16_t name_bytes, const char* value, uint32_t size) noexcept:
    return put_sized(fields, HEADER_STR, name, name_bytes, value, size)

cdef inline int put_bytes(fields_t* fields, const char* name, uint16_t name_bytes, const char* value, uint32_t size) noexcept:
    return put_sized(fields, HEADER_BYTES, name, name_bytes, value, size)
