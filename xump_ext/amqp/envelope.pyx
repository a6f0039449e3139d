"""The envelope of a body in the engine: the exchange that it was published to and its properties as they came, an annex.

The reader of these annexes yields the fields of the table of headers, so conditions, filters and programs see what clients sent:
texts, numbers, bool and bytes; a timestamp is its seconds. Lists, tables, decimals and void are no headers of Xump's;
`xump.broker.properties_of` has them. Of a name that is there twice the last value counts, as with clients' dicts. A text that is
not UTF-8 is bytes, and a name that is not, or is empty, is passed over.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp

from xump_ext.amqp.properties cimport Properties, scan_properties
from xump_ext.amqp.table cimport Field, integer_of, read_field, real_of
from xump_ext.amqp.wire cimport read_u16, read_u32, read_u64
from xump_ext.arrow.column cimport utf8_valid
from xump_ext.message.annex cimport annex_reader, fields_t, put_bool, put_bytes, put_float, put_int, put_text
from xump_ext.message.headers cimport annex_addressed

KIND = AMQP_ANNEX
"""The kind of these annexes."""
KEYS_KIND = AMQP_KEYS_ANNEX
"""The kind of those with the routing keys of CC and BCC."""


cdef int read_annex(const char *data, uint32_t size, fields_t *fields) noexcept:
    """The reader: the fields of the table of headers."""
    cdef Envelope envelope
    if not read_envelope(<const unsigned char *> data, size, &envelope):
        return -1
    return read_list(&envelope, fields)


cdef int read_keyed_annex(const char *data, uint32_t size, fields_t *fields) noexcept:
    cdef Envelope envelope
    if not read_keyed_envelope(<const unsigned char *> data, size, &envelope):
        return -1
    return read_list(&envelope, fields)


cdef int read_list(const Envelope *envelope, fields_t *fields) noexcept:
    cdef Properties properties
    if not scan_properties(envelope.list, envelope.list + envelope.list_bytes, &properties):
        return -1
    if properties.headers_bytes == 0:
        return 0
    return put_fields(properties.headers, properties.headers + properties.headers_bytes, fields)


cdef int put_fields(const unsigned char *at, const unsigned char *end, fields_t *fields) noexcept:
    cdef uint32_t count = 0, number
    cdef Field *found
    cdef Field one
    cdef const unsigned char *next = at
    cdef int failed = 0
    while next != end:
        next = read_field(next, &one)
        count += 1
    found = <Field *> malloc(count * sizeof(Field))
    if found == NULL:
        return -1
    for number in range(count):
        at = read_field(at, &found[number])
    if drop_repeated(found, count):
        failed = -1
    for number in range(count):
        if failed == 0 and found[number].name_bytes:
            failed = put_field(&found[number], fields)
    free(found)
    return failed


cdef int put_field(const Field *field, fields_t *fields) noexcept:
    cdef const char *name = <const char *> field.name
    cdef const char *value = <const char *> field.value
    cdef int64_t number
    if not utf8_valid(name, field.name_bytes):
        return 0
    if integer_of(field, &number):
        return put_int(fields, name, field.name_bytes, number)
    if field.kind == b"S" and utf8_valid(value, field.value_bytes):
        return put_text(fields, name, field.name_bytes, value, field.value_bytes)
    if field.kind == b"S" or field.kind == b"x":
        return put_bytes(fields, name, field.name_bytes, value, field.value_bytes)
    if field.kind == b"t":
        return put_bool(fields, name, field.name_bytes, field.value[0] != 0)
    if field.kind == b"T" and read_u64(field.value) >> 63 == 0:
        return put_int(fields, name, field.name_bytes, <int64_t> read_u64(field.value))
    if field.kind == b"d" or field.kind == b"f":
        return put_float(fields, name, field.name_bytes, real_of(field))
    return 0


# ---- names that are there twice

cdef inline int compare_names(const Field *one, const Field *other) noexcept nogil:
    if one.name_bytes != other.name_bytes:
        return -1 if one.name_bytes < other.name_bytes else 1
    return memcmp(one.name, other.name, one.name_bytes)


cdef int compare_places(const void *one, const void *other) noexcept nogil:
    """By name, and by place among those of one name."""
    cdef const Field *first = (<const Field **> one)[0]
    cdef const Field *second = (<const Field **> other)[0]
    cdef int order = compare_names(first, second)
    return order if order else -1 if first < second else first > second


cdef int drop_repeated(Field *found, uint32_t count) noexcept:
    """Of each name the first place stays, with the last value; the others lose their name. A sort, since whoever sends names
    may send many."""
    cdef Field **sorted_fields = <Field **> malloc(count * sizeof(Field *))
    cdef Field *first
    cdef uint32_t number
    if sorted_fields == NULL:
        return -1
    for number in range(count):
        sorted_fields[number] = &found[number]
    qsort(sorted_fields, count, sizeof(Field *), compare_places)
    first = sorted_fields[0]
    for number in range(1, count):
        if compare_names(first, sorted_fields[number]):
            first = sorted_fields[number]
            continue
        first.kind = sorted_fields[number].kind
        first.value = sorted_fields[number].value
        first.value_bytes = sorted_fields[number].value_bytes
        sorted_fields[number].name = NULL
    for number in range(count):
        if found[number].name == NULL:
            found[number].name_bytes = 0
    free(sorted_fields)
    return 0


cdef list keys_in(object annex):
    """The routing keys of CC and BCC."""
    cdef const unsigned char *at = <const unsigned char *> PyBytes_AS_STRING(annex)
    cdef const unsigned char *end
    cdef Envelope envelope
    cdef list keys = []
    if read_keyed_envelope(at, <uint32_t> len(annex), &envelope):
        end = at + 4 + read_u32(at)
        at += 4
        while end - at >= 2 and end - at - 2 >= read_u16(at):
            keys.append((<const char *> at)[2:2 + read_u16(at)].decode("utf-8", "replace"))
            at += 2 + read_u16(at)
    return keys


annex_reader(AMQP_ANNEX, "amqp", read_annex)
annex_reader(AMQP_KEYS_ANNEX, "amqp-keys", read_keyed_annex)
annex_addressed(AMQP_KEYS_ANNEX, keys_in)
