"""Declarations of `log_reader.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.log.journal cimport Journal
from xump_ext.log.meta cimport Map
from xump_ext.records.kinds cimport (
    adopt_record_t, enter_record_t, head_t, mark_record_t, meta_record_t, queue_record_t, rare_t, seen_record_t, settle_record_t,
    state_record_t,
)
from xump_ext.recovery.recovered cimport recovered_t
from xump_ext.state.graph cimport entry_t

cdef class Recovered:
    cdef recovered_t c
    cdef str name
    cdef dict properties        # as `QueueHandle._properties` gives them; None: its QUEUE record was not read yet
    cdef bint renamed           # a newer queue has its name
    cdef Map map                # None: there is none
    cdef tuple adopted          # what its newest ADOPT says, as `adopt_read` gives it; None: there is none

cdef class Recovery:
    cdef Journal journal
    cdef object create
    cdef dict found             # number -> Recovered
    cdef recovered_t* last      # the queue that was asked for last …
    cdef uint32_t last_number   # … and its number
    cdef readonly uint64_t records
    cdef void* settled          # settled_t[]: runs of ids that end in the group that is being read
    cdef uint64_t settled_count
    cdef uint64_t settled_capacity
    cdef void* origins          # origin_t[]
    cdef uint64_t origin_count
    cdef uint64_t origin_capacity
    cdef dict early             # (queue, id) -> count and flags of MARKs that came before the ENTER, which was copied forward
    cdef readonly list empty             # staged queues that were adopted, and all of whose messages have entered: to be deleted
    cdef dict retries           # (queue, id) -> {number of an orderly end: until when a retry delays the message}

    cdef int apply(self, const head_t* head) except -1
    cdef int note_copy(self, const head_t* head) except -1
    cdef recovered_t* recovered(self, uint32_t number) except NULL
    cdef int apply_queue(self, const queue_record_t* record) except -1
    cdef int check_id(self, const head_t* head, uint64_t id) except -1
    cdef object written_so(self, str what)
    cdef object nonsense(self, const head_t* head, str why)
    cdef int apply_state(self, const state_record_t* record) except -1
    cdef int apply_enter(self, const enter_record_t* record) except -1
    cdef int apply_adopt(self, const adopt_record_t* record) except -1
    cdef int apply_meta(self, const meta_record_t* record) except -1
    cdef int apply_seen(self, const seen_record_t* record) except -1
    cdef int apply_mark(self, const mark_record_t* record) except -1
    cdef int forget_early(self, uint32_t queue, uint64_t id, uint64_t count) except -1
    cdef int merge_early(self, const enter_record_t* record, entry_t* entry) except -1
    cdef int remember_settled(self, const settle_record_t* record) except -1
    cdef int remember_gone(self, uint32_t queue, uint64_t id, uint64_t count, bint marked) except -1
    cdef int settle_all(self) except -1
    cdef int forget(self, recovered_t* queue, entry_t* entry) except -1
    cdef int remember_origin(self, const enter_record_t* record, const rare_t* rare) except -1
    cdef list hidden(self)
    cdef int check_origins(self, dict found) except -1
    cdef int retries_valid(self) except -1
    cdef int rename(self) except -1
    cdef object end(self)
