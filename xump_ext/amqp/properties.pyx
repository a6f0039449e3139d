"""The property list of a message: checked in one pass, and what a broker needs of it found. The bytes stay as they came.

A list is two octets of flags, the highest bit for the first property, and then the properties that are there:

    15 content-type   text     11 priority        octet    7 message-id  text     3 app-id      text
    14 content-encoding text   10 correlation-id  text     6 timestamp   8 octets 2 cluster-id  text
    13 headers        table     9 reply-to        text     5 type        text
    12 delivery-mode  octet     8 expiration      text     4 user-id     text

A text is an octet of length and the bytes. A table is four octets of length and fields: a name (a text), a letter for the type,
and the value. Tables and arrays nest; 100 levels are allowed, since each level is one call on the stack of C.
"""

from libc.stdint cimport int16_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcmp, memset

from xump_ext.amqp.wire cimport read_u16, read_u32

cdef enum:
    LEVELS_MAX = 100

    HAS_CONTENT_TYPE = 1 << 15
    HAS_CONTENT_ENCODING = 1 << 14
    HAS_HEADERS = 1 << 13
    HAS_DELIVERY_MODE = 1 << 12
    HAS_PRIORITY = 1 << 11
    HAS_CORRELATION_ID = 1 << 10
    HAS_REPLY_TO = 1 << 9
    HAS_EXPIRATION = 1 << 8
    HAS_MESSAGE_ID = 1 << 7
    HAS_TIMESTAMP = 1 << 6
    HAS_TYPE = 1 << 5
    HAS_USER_ID = 1 << 4
    HAS_APP_ID = 1 << 3
    HAS_CLUSTER_ID = 1 << 2
    HAS_ANY = 0xFFFC                    # what the lowest two bits say, nobody looks at


cdef inline const unsigned char *after_text(const unsigned char *at, const unsigned char *end) noexcept nogil:
    """Where the text at `at` ends; NULL if it is longer than what there is."""
    if at == NULL or at >= end or end - at - 1 < at[0]:
        return NULL
    return at + 1 + at[0]


cdef inline const unsigned char *after_bytes(const unsigned char *at, const unsigned char *end, size_t size) noexcept nogil:
    if at == NULL or <size_t> (end - at) < size:
        return NULL
    return at + size


cdef const unsigned char *after_value(const unsigned char *at, const unsigned char *end, int level) noexcept nogil:
    """Where the value at `at`, which begins with the letter of its type, ends; NULL if it is none."""
    cdef uint32_t size
    cdef unsigned char kind
    if at >= end:
        return NULL
    kind = at[0]
    at += 1
    if kind == b"V":
        return at
    if kind == b"t" or kind == b"b" or kind == b"B":
        return after_bytes(at, end, 1)
    if kind == b"s" or kind == b"u":
        return after_bytes(at, end, 2)
    if kind == b"I" or kind == b"i" or kind == b"f":
        return after_bytes(at, end, 4)
    if kind == b"D":
        return after_bytes(at, end, 5)
    if kind == b"l" or kind == b"L" or kind == b"d" or kind == b"T":
        return after_bytes(at, end, 8)
    if kind == b"S" or kind == b"x" or kind == b"F" or kind == b"A":
        if end - at < 4:
            return NULL
        size = read_u32(at)
        at += 4
        if <size_t> (end - at) < size:
            return NULL
        if kind == b"F":
            return at + size if table_holds(at, at + size, level, NULL) else NULL
        if kind == b"A":
            return at + size if array_holds(at, at + size, level) else NULL
        return at + size
    return NULL


cdef bint array_holds(const unsigned char *at, const unsigned char *end, int level) noexcept nogil:
    if level == LEVELS_MAX:
        return False
    while at != end:
        at = after_value(at, end, level + 1)
        if at == NULL:
            return False
    return True


cdef bint table_holds(const unsigned char *at, const unsigned char *end, int level, Properties *found) noexcept nogil:
    """Whether these bytes are fields; for the table of headers, `found` says whether it names further recipients."""
    cdef const unsigned char *name
    if level == LEVELS_MAX:
        return False
    while at != end:
        name = at
        at = after_text(at, end)
        if at == NULL:
            return False
        if found != NULL and (
                name[0] == 2 and memcmp(name + 1, b"CC", 2) == 0 or name[0] == 3 and memcmp(name + 1, b"BCC", 3) == 0):
            found.has_copies = True
        at = after_value(at, end, level + 1)
        if at == NULL:
            return False
    return True


cdef inline const unsigned char *after_headers(
    const unsigned char *at, const unsigned char *end, Properties *found
) noexcept nogil:
    """Where the table of headers ends, which is noted; NULL if it is none."""
    cdef uint32_t size
    if at == NULL or end - at < 4:
        return NULL
    size = read_u32(at)
    at += 4
    if <size_t> (end - at) < size or not table_holds(at, at + size, 0, found):
        return NULL
    found.headers, found.headers_bytes = at, size
    return at + size


cdef inline const unsigned char *after_octet(const unsigned char *at, const unsigned char *end, int16_t *value) noexcept nogil:
    """Where the octet at `at` ends, which is noted; NULL if there is none."""
    if at == NULL or at == end:
        return NULL
    value[0] = at[0]
    return at + 1


cdef inline const unsigned char *after_noted(
    const unsigned char *at, const unsigned char *end, const unsigned char **text, uint8_t *size
) noexcept nogil:
    """Where the text at `at` ends, which is noted; NULL as for `after_text`."""
    cdef const unsigned char *after = after_text(at, end)
    if after != NULL:
        text[0], size[0] = at + 1, at[0]
    return after


cdef bint scan_properties(const unsigned char *at, const unsigned char *end, Properties *found) noexcept nogil:
    """Check the flags and the list from `at` to `end`, and fill `found`. Returns whether they are right."""
    cdef uint16_t flags
    memset(found, 0, sizeof(Properties))
    found.priority = found.delivery_mode = -1
    if end - at < 2:
        return False
    flags = read_u16(at) & HAS_ANY
    at += 2
    if flags == 0:
        return at == end
    if flags & HAS_CONTENT_TYPE:
        at = after_text(at, end)
    if flags & HAS_CONTENT_ENCODING:
        at = after_text(at, end)
    if flags & HAS_HEADERS:
        at = after_headers(at, end, found)
    if flags & HAS_DELIVERY_MODE:
        at = after_octet(at, end, &found.delivery_mode)
    if flags & HAS_PRIORITY:
        at = after_octet(at, end, &found.priority)
    if flags & HAS_CORRELATION_ID:
        at = after_text(at, end)
    if flags & HAS_REPLY_TO:
        at = after_noted(at, end, &found.reply_to, &found.reply_to_bytes)
    if flags & HAS_EXPIRATION:
        at = after_noted(at, end, &found.expiration, &found.expiration_bytes)
    if flags & HAS_MESSAGE_ID:
        at = after_text(at, end)
    if flags & HAS_TIMESTAMP:
        at = after_bytes(at, end, 8)
    if flags & HAS_TYPE:
        at = after_text(at, end)
    if flags & HAS_USER_ID:
        at = after_noted(at, end, &found.user_id, &found.user_id_bytes)
    if flags & HAS_APP_ID:
        at = after_text(at, end)
    if flags & HAS_CLUSTER_ID:
        at = after_text(at, end)
    return at == end
