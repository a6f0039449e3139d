"""The annex of messages that came by AMQP.

    octet   0      1         1 + n
            n      exchange  property flags and list, as they came

A message that was published with CC or BCC has an annex of another kind, with those routing keys before the same:

    octet   0      4    6     6 + m
            size   m    key   ... and so on, so many octets as `size` says, then as above
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t

from xump_ext.amqp.wire cimport read_u32
from xump_ext.message.headers cimport annex_t

cdef enum:
    AMQP_ANNEX = 1                      # the kinds; stores keep them
    AMQP_KEYS_ANNEX = 2
    EXCHANGE_BYTES_MAX = 255

cdef struct Envelope:
    const unsigned char *exchange
    const unsigned char *list           # property flags and list
    uint32_t list_bytes
    uint8_t exchange_bytes


cdef inline bint read_envelope(const unsigned char *annex, uint32_t size, Envelope *found) noexcept nogil:
    """Where the parts of an annex without keys are. False: it is none; the list is not looked into."""
    if size < 3 or size - 3 < annex[0]:
        return False
    found.exchange_bytes = annex[0]
    found.exchange = annex + 1
    found.list = annex + 1 + annex[0]
    found.list_bytes = size - 1 - annex[0]
    return True


cdef inline bint read_keyed_envelope(const unsigned char *annex, uint32_t size, Envelope *found) noexcept nogil:
    """The same of an annex with keys."""
    if size < 4 or size - 4 < read_u32(annex):
        return False
    return read_envelope(annex + 4 + read_u32(annex), size - 4 - read_u32(annex), found)


cdef inline bint envelope_in(const annex_t *annex, Envelope *found) noexcept:
    """Where the parts of the annex of a message are. False: it did not come by AMQP, or has no annex (NULL)."""
    cdef const unsigned char *data
    if annex == NULL or annex.kind > AMQP_KEYS_ANNEX:
        return False
    data = <const unsigned char *> PyBytes_AS_STRING(<object> annex.data)
    if annex.kind == AMQP_ANNEX:
        return read_envelope(data, <uint32_t> PyBytes_GET_SIZE(<object> annex.data), found)
    return read_keyed_envelope(data, <uint32_t> PyBytes_GET_SIZE(<object> annex.data), found)
