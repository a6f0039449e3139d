"""The property list of a message: checked in one pass, and what a broker needs of it found. The bytes stay as they came."""

from libc.stdint cimport int16_t, uint8_t, uint16_t, uint32_t

cdef struct Properties:
    const unsigned char *headers        # the fields of the table, without its length; NULL: none
    const unsigned char *expiration     # texts without their length; NULL: none
    const unsigned char *user_id
    const unsigned char *reply_to
    uint32_t headers_bytes
    uint8_t expiration_bytes
    uint8_t user_id_bytes
    uint8_t reply_to_bytes
    uint8_t has_copies                  # there is a header named CC or BCC
    int16_t priority                    # -1: none
    int16_t delivery_mode               # -1: none

cdef bint scan_properties(const unsigned char *at, const unsigned char *end, Properties *found) noexcept nogil
