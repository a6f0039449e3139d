"""The annex of messages that came by AMQP.

    octet   0      1         1 + n
            n      exchange  property flags and list, as they came
"""

from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    AMQP_ANNEX = 1                      # the kind; stores keep it
    EXCHANGE_BYTES_MAX = 255

cdef struct Envelope:
    const unsigned char *exchange
    const unsigned char *list           # property flags and list
    uint32_t list_bytes
    uint8_t exchange_bytes


cdef inline bint read_envelope(const unsigned char *annex, uint32_t size, Envelope *found) noexcept nogil:
    """Where the parts of an annex are. False: it is none; the list is not looked into."""
    if size < 3 or size - 3 < annex[0]:
        return False
    found.exchange_bytes = annex[0]
    found.exchange = annex + 1
    found.list = annex + 1 + annex[0]
    found.list_bytes = size - 1 - annex[0]
    return True
