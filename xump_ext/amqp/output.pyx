"""Writes frames into the output buffer of a connection.

Property flags and list go out as they came in; a body is split so that no frame is longer than both sides agreed. A large body
is not copied: slices of it go out between what is in the buffer.
"""

cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_FromStringAndSize

from xump_ext.amqp.wire cimport (
    BASIC_ACK, BASIC_DELIVER, BASIC_GET_OK, BASIC_NACK, BASIC_RETURN, CLASS_BASIC, FRAME_BODY, FRAME_EMPTY_BYTES, FRAME_END,
    FRAME_HEAD_BYTES, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD, HEADER_BYTES_MIN, write_u16, write_u32, write_u64,
)
from xump_ext.message.content cimport OBJECT_BODY_BYTES

cdef enum:
    # A buffer that grew beyond this is given back when it was taken: most connections are idle.
    KEPT_BYTES_MAX = 1 << 16


cdef inline unsigned char *put_head(unsigned char *at, unsigned char kind, uint16_t channel, uint32_t size) noexcept nogil:
    at[0] = kind
    write_u16(at + 1, channel)
    write_u32(at + 3, size)
    return at + FRAME_HEAD_BYTES


cdef inline unsigned char *put_text(unsigned char *at, const char *text, size_t size) noexcept nogil:
    at[0] = <unsigned char> size
    memcpy(at + 1, text, size)
    return at + 1 + size


cdef inline int check_text(bytes text) except -1:
    if len(text) > 255:
        raise ValueError(f"a short text has at most 255 bytes, got {len(text)}")
    return 0


@cython.final
cdef class Output:
    """The frames that a connection has to write."""

    def __cinit__(self, uint32_t frame_max=4096):
        self._frame_max = frame_max
        self._slices = []

    def __dealloc__(self):
        free(self._data)

    def __len__(self):
        return self.size()

    cdef uint64_t size(self) noexcept:
        return self._size + self._sliced

    def tune(self, uint32_t frame_max):
        """Both sides agreed on this size of a frame, at least 4096."""
        if frame_max < 4096:
            raise ValueError(f"frame_max must be at least 4096, got {frame_max}")
        self._frame_max = frame_max

    def take(self):
        """The frames since the last call, as bytes and views that follow each other."""
        cdef uint64_t done = 0, place
        cdef list taken = []
        for place, view in self._slices:
            taken.append(PyBytes_FromStringAndSize(<char *> self._data + done, place - done))
            taken.append(view)
            done = place
        if done < self._size:
            taken.append(PyBytes_FromStringAndSize(<char *> self._data + done, self._size - done))
        self._size = self._sliced = 0
        self._slices.clear()
        if self._room > KEPT_BYTES_MAX:
            free(self._data)
            self._data, self._room = NULL, 0
        return taken

    cdef (uint64_t, uint64_t, Py_ssize_t) mark(self) noexcept:
        """How far it is written."""
        return self._size, self._sliced, len(self._slices)

    cdef int back_to(self, (uint64_t, uint64_t, Py_ssize_t) mark) except -1:
        """Forget what was written since."""
        self._size, self._sliced = mark[0], mark[1]
        del self._slices[mark[2]:]
        return 0

    def trim(self):
        """Give back the memory that a burst has left: for a connection on which nothing happens."""
        if self._size == 0:
            free(self._data)
            self._data, self._room = NULL, 0

    @property
    def room(self):
        """Bytes that are kept for frames, in use or not."""
        return self._room

    def method(self, uint16_t channel, bytes payload not None):
        """A method frame: class, method, and arguments as they are encoded."""
        cdef uint32_t size = len(payload)
        cdef unsigned char *at = put_head(self._grow(size + FRAME_EMPTY_BYTES), FRAME_METHOD, channel, size)
        memcpy(at, <char *> payload, size)
        at[size] = FRAME_END
        self._size += size + FRAME_EMPTY_BYTES

    def heartbeat(self):
        """A heartbeat."""
        put_head(self._grow(FRAME_EMPTY_BYTES), FRAME_HEARTBEAT, 0, 0)[0] = FRAME_END
        self._size += FRAME_EMPTY_BYTES

    def ack(self, uint16_t channel, uint64_t tag, bint multiple):
        """basic.ack: a confirm."""
        self._put_confirm(BASIC_ACK, channel, tag, multiple)

    def nack(self, uint16_t channel, uint64_t tag, bint multiple):
        """basic.nack: a confirm that says no."""
        self._put_confirm(BASIC_NACK, channel, tag, multiple)

    def _put_confirm(self, uint32_t method, uint16_t channel, uint64_t tag, bint multiple):
        cdef unsigned char *at = put_head(self._grow(21), FRAME_METHOD, channel, 13)
        write_u32(at, method)
        write_u64(at + 4, tag)
        at[12] = multiple
        at[13] = FRAME_END
        self._size += 21

    def deliver(self, uint16_t channel, bytes consumer not None, uint64_t tag, bint redelivered, bytes exchange not None,
                bytes key not None, bytes properties not None, bytes body not None):
        """basic.deliver with its content."""
        cdef uint32_t size = 4 + 1 + len(consumer) + 8 + 1 + 1 + len(exchange) + 1 + len(key)
        cdef unsigned char *at
        check_text(consumer), check_text(exchange), check_text(key)
        at = put_head(self._grow(size + FRAME_EMPTY_BYTES), FRAME_METHOD, channel, size)
        write_u32(at, BASIC_DELIVER)
        at = put_text(at + 4, <char *> consumer, len(consumer))
        write_u64(at, tag)
        at[8] = redelivered
        self._put_routed(at + 9, channel, size, exchange, key, properties, body)

    cdef int put_deliver(
        self, uint16_t channel, bytes consumer, uint64_t tag, bint redelivered, const Envelope *envelope, const char *key,
        uint32_t key_bytes, const unsigned char *body, uint64_t body_bytes, object whole
    ) except -1:
        """basic.deliver with its content, out of the engine's memory. `whole`: the body as bytes, if it is that."""
        cdef uint32_t size = <uint32_t> (4 + 1 + len(consumer) + 8 + 1 + 1 + envelope.exchange_bytes + 1 + key_bytes)
        cdef unsigned char *at = put_head(self._grow(size + FRAME_EMPTY_BYTES), FRAME_METHOD, channel, size)
        write_u32(at, BASIC_DELIVER)
        at = put_text(at + 4, <char *> consumer, len(consumer))
        write_u64(at, tag)
        at[8] = redelivered
        at = put_text(at + 9, <const char *> envelope.exchange, envelope.exchange_bytes)
        at = put_text(at, key, key_bytes)
        at[0] = FRAME_END
        self._size += size + FRAME_EMPTY_BYTES
        return self.put_content(channel, envelope.list, envelope.list_bytes, body, body_bytes, whole)

    def get_ok(self, uint16_t channel, uint64_t tag, bint redelivered, bytes exchange not None, bytes key not None,
               uint32_t message_count, bytes properties not None, bytes body not None):
        """basic.get-ok with its content."""
        cdef uint32_t size = 4 + 8 + 1 + 1 + len(exchange) + 1 + len(key) + 4
        cdef unsigned char *at
        check_text(exchange), check_text(key)
        at = put_head(self._grow(size + FRAME_EMPTY_BYTES), FRAME_METHOD, channel, size)
        write_u32(at, BASIC_GET_OK)
        write_u64(at + 4, tag)
        at[12] = redelivered
        at = put_text(at + 13, <char *> exchange, len(exchange))
        at = put_text(at, <char *> key, len(key))
        write_u32(at, message_count)
        at[4] = FRAME_END
        self._size += size + FRAME_EMPTY_BYTES
        self._put_body(channel, properties, body)

    def returned(self, uint16_t channel, uint16_t code, bytes text not None, bytes exchange not None, bytes key not None,
                 bytes properties not None, bytes body not None):
        """basic.return with its content."""
        cdef uint32_t size = 4 + 2 + 1 + len(text) + 1 + len(exchange) + 1 + len(key)
        cdef unsigned char *at
        check_text(text), check_text(exchange), check_text(key)
        at = put_head(self._grow(size + FRAME_EMPTY_BYTES), FRAME_METHOD, channel, size)
        write_u32(at, BASIC_RETURN)
        write_u16(at + 4, code)
        self._put_routed(put_text(at + 6, <char *> text, len(text)), channel, size, exchange, key, properties, body)

    cdef int _put_routed(
        self, unsigned char *at, uint16_t channel, uint32_t size, bytes exchange, bytes key, bytes properties,
        bytes body,
    ) except -1:
        at = put_text(at, <char *> exchange, len(exchange))
        at = put_text(at, <char *> key, len(key))
        at[0] = FRAME_END
        self._size += size + FRAME_EMPTY_BYTES
        return self._put_body(channel, properties, body)

    cdef int _put_body(self, uint16_t channel, bytes properties, bytes body) except -1:
        return self.put_content(
            channel, <const unsigned char *> <char *> properties, len(properties), <const unsigned char *> <char *> body,
            len(body), body)

    cdef int put_content(
        self, uint16_t channel, const unsigned char *list, uint32_t list_bytes, const unsigned char *body, uint64_t body_bytes,
        object whole
    ) except -1:
        """The header and the frames of a body."""
        cdef bint copied = whole is None or body_bytes < OBJECT_BODY_BYTES
        cdef uint64_t done = 0
        cdef uint32_t size = HEADER_BYTES_MIN - 2 + list_bytes
        cdef uint32_t part_max = self._frame_max - FRAME_EMPTY_BYTES
        cdef uint64_t parts = (body_bytes + part_max - 1) // part_max
        cdef uint32_t part
        cdef uint64_t here = size + FRAME_EMPTY_BYTES + parts * FRAME_EMPTY_BYTES + (body_bytes if copied else 0)
        cdef unsigned char *at = self._grow(here)
        view = None if copied else memoryview(whole)
        self._size += here
        at = put_head(at, FRAME_HEADER, channel, size)
        write_u32(at, CLASS_BASIC << 16)
        write_u64(at + 4, body_bytes)
        memcpy(at + 12, list, list_bytes)
        at[size] = FRAME_END
        at += size + 1
        while done < body_bytes:
            part = min(body_bytes - done, part_max)
            at = put_head(at, FRAME_BODY, channel, part)
            if copied:
                memcpy(at, body + done, part)
                at += part
            else:
                self._slices.append((at - self._data, view[done:done + part]))
                self._sliced += part
            at[0] = FRAME_END
            at += 1
            done += part
        return 0

    cdef unsigned char *_grow(self, uint64_t size) except NULL:
        """Room for so many bytes more; they count when `_size` says so."""
        cdef uint64_t room
        cdef void *more
        if self._size + size > self._room:
            room = max(2 * self._room, self._size + size, 512)
            more = realloc(self._data, room)
            if more == NULL:
                raise MemoryError()
            self._data = <unsigned char *> more
            self._room = room
        return self._data + self._size
