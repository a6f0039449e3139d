"""A request as the body of a message: its frames, their lengths before them, and a number that says who asks how.

    kind, count: 16 bits each | length of each frame: 32 bits each | the frames

Numbers are little-endian.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_Append
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    HEAD_BYTES = 4
    COUNT_MAX = 0xFFFF


cdef inline void write_u16(unsigned char *at, uint16_t value) noexcept nogil:
    at[0], at[1] = value & 0xFF, value >> 8


cdef inline void write_u32(unsigned char *at, uint32_t value) noexcept nogil:
    write_u16(at, value & 0xFFFF)
    write_u16(at + 2, value >> 16)


cdef inline uint16_t read_u16(const unsigned char *at) noexcept nogil:
    return at[0] | at[1] << 8


cdef inline uint32_t read_u32(const unsigned char *at) noexcept nogil:
    return read_u16(at) | <uint32_t> read_u16(at + 2) << 16


def pack(int kind, frames):
    """Make one body of some frames. Cost: O(bytes).

    Raises:
        ValueError, TypeError: The number or the count of frames is above 65,535; a frame has 4 GiB, or is not bytes.

    >>> unpack(pack(3, [b"client", b"", b"body"]))
    (3, [b'client', b'', b'body'])
    """
    cdef tuple given = tuple(frames)
    cdef uint64_t count = len(given), size = HEAD_BYTES + 4 * count, length
    cdef bytes body
    cdef unsigned char *lengths
    cdef unsigned char *at
    if not 0 <= kind <= COUNT_MAX or count > COUNT_MAX:
        raise ValueError(f"kind is {kind}, and there are {count} frames; both are at most {COUNT_MAX}")
    for frame in given:
        if not PyBytes_Check(frame):
            raise TypeError(f"a frame must be bytes, got {frame!r}")
        length = PyBytes_GET_SIZE(frame)
        if length > 0xFFFFFFFF:
            raise ValueError(f"a frame has {length} bytes, and may have at most {0xFFFFFFFF}")
        size += length
    body = PyBytes_FromStringAndSize(NULL, size)
    lengths = <unsigned char *> PyBytes_AS_STRING(body)
    at = lengths + HEAD_BYTES + 4 * count
    write_u16(lengths, kind)
    write_u16(lengths + 2, count)
    for frame in given:
        lengths += 4
        length = PyBytes_GET_SIZE(frame)
        write_u32(lengths, length)
        memcpy(at, PyBytes_AS_STRING(frame), length)
        at += length
    return body


def unpack(bytes body not None):
    """The number and the frames that `pack` was given.

    Raises:
        ValueError: `pack` did not make this body.
    """
    cdef const unsigned char *lengths = <const unsigned char *> PyBytes_AS_STRING(body)
    cdef uint64_t size = PyBytes_GET_SIZE(body), at, length
    cdef uint32_t count, number
    cdef list frames = []
    if size < HEAD_BYTES:
        raise ValueError(f"a packed request has at least {HEAD_BYTES} bytes, this one has {size}")
    count = read_u16(lengths + 2)
    at = HEAD_BYTES + 4 * <uint64_t> count
    if size < at:
        raise ValueError(f"a packed request of {count} frames has at least {at} bytes, this one has {size}")
    for number in range(count):
        length = read_u32(lengths + HEAD_BYTES + 4 * number)
        if length > size - at:
            raise ValueError(f"frame {number} of a packed request has {length} bytes, of which its body has {size - at}")
        PyList_Append(frames, PyBytes_FromStringAndSize(PyBytes_AS_STRING(body) + at, length))
        at += length
    if at != size:
        raise ValueError(f"the frames of a packed request end at byte {at}, its body has {size}")
    return read_u16(lengths), frames
