"""Writes frames into the output buffer of a connection."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from xump_ext.amqp.envelope cimport Envelope

cdef class Output:
    cdef unsigned char *_data
    cdef uint64_t _size, _room
    cdef uint32_t _frame_max
    cdef list _slices                   # of large bodies, which are not copied: (where in `_data` it belongs, view)
    cdef uint64_t _sliced               # bytes of them

    cdef unsigned char *_grow(self, uint64_t size) except NULL
    cdef int _put_routed(
        self, unsigned char *at, uint16_t channel, uint32_t size, bytes exchange, bytes key, bytes properties,
        bytes body,
    ) except -1
    cdef int _put_body(self, uint16_t channel, bytes properties, bytes body) except -1
    cdef int put_deliver(
        self, uint16_t channel, bytes consumer, uint64_t tag, bint redelivered, const Envelope *envelope, const char *key,
        uint32_t key_bytes, const unsigned char *body, uint64_t body_bytes, object whole
    ) except -1
    cdef int put_content(
        self, uint16_t channel, const unsigned char *list, uint32_t list_bytes, const unsigned char *body, uint64_t body_bytes,
        object whole
    ) except -1
    cdef uint64_t size(self) noexcept
    cdef (uint64_t, uint64_t, Py_ssize_t) mark(self) noexcept
    cdef int back_to(self, (uint64_t, uint64_t, Py_ssize_t) mark) except -1
