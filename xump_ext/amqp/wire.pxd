"""Numbers on the wire of AMQP 0-9-1: unaligned, most significant byte first; and the constants of frames and methods."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    uint16_t __builtin_bswap16(uint16_t number) nogil
    uint32_t __builtin_bswap32(uint32_t number) nogil
    uint64_t __builtin_bswap64(uint64_t number) nogil

cdef enum:
    FRAME_METHOD = 1
    FRAME_HEADER = 2
    FRAME_BODY = 3
    FRAME_HEARTBEAT = 8
    FRAME_END = 0xCE
    FRAME_HEAD_BYTES = 7                # type, channel, size
    FRAME_EMPTY_BYTES = 8               # the head, and the octet at the end

    CLASS_CHANNEL = 20
    CLASS_BASIC = 60

    CHANNEL_CLOSE = 20 << 16 | 40
    CHANNEL_CLOSE_OK = 20 << 16 | 41
    BASIC_PUBLISH = 60 << 16 | 40
    BASIC_RETURN = 60 << 16 | 50
    BASIC_DELIVER = 60 << 16 | 60
    BASIC_GET_OK = 60 << 16 | 71
    BASIC_ACK = 60 << 16 | 80
    BASIC_REJECT = 60 << 16 | 90
    BASIC_NACK = 60 << 16 | 120

    HEADER_BYTES_MIN = 14               # class, weight, size of the body, property flags
    SHORT_BYTES_MAX = 255               # of a short text, and of the name of a header


cdef inline Py_ssize_t short_bytes(const char *text, Py_ssize_t size) noexcept nogil:
    """As many bytes of a text in UTF-8, of `size` bytes, as a short text may have, in whole characters."""
    if size <= SHORT_BYTES_MAX:
        return size
    size = SHORT_BYTES_MAX
    while size and text[size] & 0xC0 == 0x80:
        size -= 1
    return size


cdef inline uint16_t read_u16(const unsigned char *at) noexcept nogil:
    cdef uint16_t number
    memcpy(&number, at, 2)
    return __builtin_bswap16(number)


cdef inline uint32_t read_u32(const unsigned char *at) noexcept nogil:
    cdef uint32_t number
    memcpy(&number, at, 4)
    return __builtin_bswap32(number)


cdef inline uint64_t read_u64(const unsigned char *at) noexcept nogil:
    cdef uint64_t number
    memcpy(&number, at, 8)
    return __builtin_bswap64(number)


cdef inline void write_u16(unsigned char *at, uint16_t number) noexcept nogil:
    number = __builtin_bswap16(number)
    memcpy(at, &number, 2)


cdef inline void write_u32(unsigned char *at, uint32_t number) noexcept nogil:
    number = __builtin_bswap32(number)
    memcpy(at, &number, 4)


cdef inline void write_u64(unsigned char *at, uint64_t number) noexcept nogil:
    number = __builtin_bswap64(number)
    memcpy(at, &number, 8)
