"""Reads the fields of a table that `scan_properties` has checked, one behind the other."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from xump_ext.amqp.wire cimport read_u16, read_u32, read_u64

cdef struct Field:
    const unsigned char *name
    const unsigned char *value          # behind the letter of its type, and behind the length of what has one
    uint32_t value_bytes
    uint8_t name_bytes
    uint8_t kind                        # the letter


cdef inline uint32_t fixed_bytes(uint8_t kind) noexcept nogil:
    """The size of a value whose type says it."""
    if kind == b"t" or kind == b"b" or kind == b"B":
        return 1
    if kind == b"s" or kind == b"u":
        return 2
    if kind == b"I" or kind == b"i" or kind == b"f":
        return 4
    if kind == b"D":
        return 5
    return 0 if kind == b"V" else 8


cdef inline bint is_sized(uint8_t kind) noexcept nogil:
    """Whether a length of four octets stands before values of this type."""
    return kind == b"S" or kind == b"x" or kind == b"F" or kind == b"A"


cdef inline const unsigned char *read_value(const unsigned char *at, Field *field) noexcept nogil:
    """Read the type and value that begin there, an item of an array, say; returns where the next one begins."""
    field.kind = at[0]
    at += 1
    if is_sized(field.kind):
        field.value_bytes = read_u32(at)
        at += 4
    else:
        field.value_bytes = fixed_bytes(field.kind)
    field.value = at
    return at + field.value_bytes


cdef inline const unsigned char *read_field(const unsigned char *at, Field *field) noexcept nogil:
    """Read the field that begins there; returns where the next one begins."""
    field.name_bytes = at[0]
    field.name = at + 1
    return read_value(at + 1 + field.name_bytes, field)


cdef inline bint integer_of(const Field *field, int64_t *number) noexcept nogil:
    """The value of a field that is a whole number; False: it is none."""
    cdef uint8_t kind = field.kind
    if kind == b"I":
        number[0] = <int> read_u32(field.value)
    elif kind == b"l" or kind == b"L":
        number[0] = <int64_t> read_u64(field.value)
    elif kind == b"i":
        number[0] = read_u32(field.value)
    elif kind == b"s":
        number[0] = <short> read_u16(field.value)
    elif kind == b"u":
        number[0] = read_u16(field.value)
    elif kind == b"b":
        number[0] = <signed char> field.value[0]
    elif kind == b"B":
        number[0] = field.value[0]
    else:
        return False
    return True


cdef inline double real_of(const Field *field) noexcept nogil:
    """The value of a field of the types `d` and `f`."""
    cdef uint64_t bits
    cdef uint32_t half
    cdef double real
    cdef float single
    if field.kind == b"d":
        bits = read_u64(field.value)
        memcpy(&real, &bits, 8)
        return real
    half = read_u32(field.value)
    memcpy(&single, &half, 4)
    return single
