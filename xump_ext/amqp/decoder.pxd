"""Reads frames from the receive buffer of a connection: what comes often as rows, the rest as channel and payload."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from xump_ext.amqp.properties cimport Properties

cdef struct Row:
    # Pointers are into the receive buffer, or into what the decoder keeps until `clear`.
    uint8_t kind                        # ROW_PUBLISH and the like
    uint8_t bits                        # as on the wire: mandatory 1, immediate 2; multiple 1, requeue 2 (reject: requeue 1)
    uint8_t exchange_bytes
    uint8_t key_bytes
    uint16_t channel
    uint32_t list_bytes                 # property flags and list
    uint64_t tag                        # of an ack, nack or reject
    uint64_t body_bytes
    const unsigned char *exchange
    const unsigned char *key
    const unsigned char *list
    const unsigned char *body
    Properties properties

cdef enum:
    ROW_PUBLISH = 1
    ROW_ACK = 2
    ROW_NACK = 3
    ROW_REJECT = 4

cdef struct Content:
    # A message that comes in pieces. `piece` holds exchange, key and property list, one behind the other.
    Row row
    unsigned char *pieces
    unsigned char *body
    uint64_t body_room
    uint64_t body_here
    uint64_t held                       # its share of bytes_in_flight: the room of the body, and the property list
    uint64_t promised                   # its share of bytes_promised: the body, from the header on until it is whole
    Content *next                       # among those that are whole and not cleared yet

cdef struct Slot:
    uint8_t state                       # SLOT_NONE and the like
    uint8_t expects                     # FRAME_METHOD, FRAME_HEADER or FRAME_BODY
    Content *content

cdef class Decoder:
    cdef Row *_rows
    cdef uint64_t _rows_count, _rows_room
    cdef Slot *_slots
    cdef uint64_t _slots_count
    cdef Content *_whole
    cdef unsigned char *_rest           # a frame of which the end has not come
    cdef uint64_t _rest_bytes, _rest_room
    cdef object _input
    cdef const unsigned char *_at
    cdef const unsigned char *_end
    cdef uint64_t _body_bytes_max, _bytes_in_flight_max, _rows_max
    cdef uint32_t _frame_max
    cdef bint _failed
    cdef readonly uint64_t bytes_in_flight
    cdef readonly uint64_t bytes_promised
    cdef readonly uint64_t frames
    cdef readonly uint16_t channel
    cdef readonly bytes payload
    cdef readonly int code
    cdef readonly str text
    cdef readonly uint32_t method

    cdef Slot *_slot(self, uint16_t channel) noexcept nogil
    cdef int _step(self) except -1
    cdef int _too_large(self, const unsigned char *frame) except -1
    cdef int _frame(self, const unsigned char *frame, uint32_t size) except -1
    cdef int _rare(self, uint16_t channel, const unsigned char *payload, uint32_t size) except -1
    cdef int _method_frame(
        self, Slot *slot, uint16_t channel, unsigned char kind, const unsigned char *payload, uint32_t size
    ) except -1
    cdef int _header_frame(
        self, Slot *slot, uint16_t channel, unsigned char kind, const unsigned char *payload, uint32_t size
    ) except -1
    cdef int _body_frame(self, Slot *slot, unsigned char kind, const unsigned char *payload, uint32_t size) except -1
    cdef int _finish(self, Slot *slot) except -1
    cdef bint _whole_publish(self) except -1
    cdef Row *_add_row(self) except NULL
    cdef void _drop(self, Slot *slot) noexcept
    cdef bint _hold(self, Content *content, uint64_t more) noexcept
    cdef int _too_many_bytes(self) except -1
    cdef int _fail(self, int code, str text, uint32_t method) except -1
    cdef int _cannot_decode(self, uint32_t method, const unsigned char *payload, uint32_t size) except -1
    cdef int _fail_at(self, int code, unsigned char kind, const unsigned char *frame, uint32_t size, str why) except -1
    cdef int _keep(self, const unsigned char *data, uint64_t size) except -1
