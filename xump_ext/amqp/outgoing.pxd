"""Declarations of `outgoing.pyx`."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from xump_ext.engine.engine_lock cimport EngineLock
from xump_ext.engine.outlet cimport Outlet
from xump_ext.amqp.output cimport Output
from xump_ext.message.headers cimport content_t
from xump_ext.state.graph cimport entry_t

cdef enum:
    PAGE_TAGS = 32

cdef struct tags_t:                     # 32 delivery tags, in order of their numbers
    uint64_t number                     # of the page: tag // 32
    uint32_t used                       # a bit for each slot with something that is not settled
    uint32_t sent[PAGE_TAGS]            # when, in seconds by the clock of the loop
    tags_t *previous
    tags_t *next
    entry_t *slots[PAGE_TAGS]

cdef class Unacked:
    cdef EngineLock core
    cdef tags_t *head
    cdef tags_t *tail
    cdef tags_t *last                   # that was looked up last
    cdef dict pages                     # addresses by number
    cdef readonly uint64_t last_tag
    cdef readonly uint64_t count
    cdef readonly uint64_t reached      # the row at which `settle` or `settle_all` was when it raised

    cdef entry_t **slot_next(self, double now) except NULL
    cdef tags_t *page_of(self, uint64_t tag) except? NULL
    cdef int settle_tag(self, tags_t *page, uint32_t at, int kind, bint requeue) except -1
    cdef int page_left(self, tags_t *page) except -1
    cdef int settle_row(self, int kind, uint64_t tag, bint multiple, bint requeue) except -1
    cdef int settle_in_room(self, int kind, uint64_t tag, bint multiple, bint requeue) except -1
    cdef bint make_room(self) except -1
    cdef int return_all(self, list lent) except -1
    cdef int end(self) except -1
    cdef uint64_t first_tag(self) noexcept
    cdef bint is_known(self, uint64_t tag, bint multiple) except -1

cdef class Subscription:
    cdef uint16_t channel
    cdef bytes tag
    cdef bint no_ack
    cdef bint counts
    cdef Unacked unacked

cdef class Outgoing:
    cdef readonly Outlet outlet
    cdef Output output
    cdef dict subscriptions
    cdef object others

    cdef int send(self, Subscription to, entry_t *entry, double now) except -1
    cdef int write(self, Subscription to, entry_t *entry, content_t *content, uint64_t tag, bint redelivered) except -1
