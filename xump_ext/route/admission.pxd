"""Declarations of `admission.pyx`, and the list of what a call brings, inline."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from xump_ext.message.headers cimport content_t
from xump_ext.message.times cimport NEVER
from xump_ext.route.answers cimport answer_t
from xump_ext.route.letters cimport letters_t
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, selector_t, store_t

cdef struct admission_t:
    queue_t* queue              # NULL: no such queue
    content_t* content          # owned until it has entered
    answer_t* answer            # to a delivery, instead of a message; NULL: this is a message
    int64_t due                 # until then it is delayed; NEVER: not at all

cdef enum:
    ANSWER_BYTES = 128      # of records: the end of a message and of one that leaves its history, or how often it was delivered

cdef class Admissions:
    cdef engine_t* engine
    cdef admission_t* items
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef bint timed             # one of them may be delayed
    cdef bint answers           # there are answers to deliveries among them
    cdef bint limited           # a queue has a limit, is durable or does not exist: `check` has to play it through
    cdef dict details           # texts of rejects, by position; None: there is none
    cdef dict names             # of queues that do not exist, by position; None: all do
    cdef object name            # of the queue, if it is the same for all
    cdef int64_t total          # bytes that all messages take of their stores: `measure`
    cdef int64_t largest        # those of the largest one
    cdef dict entered           # what the dry run added, by queue with a limit: see NOTHING
    cdef dict marks             # how far the windows of queues that look for duplicates were filled before the dry run
    cdef void* store            # the store that the dry run charged last …
    cdef int64_t charge         # … and the bytes that it took of it; those of other stores are in `charges`
    cdef dict charges
    cdef dict used             # the credit that the dry run took, by selector

    cdef inline int push(self, content_t* content) except -1:
        """Adds a message for a queue that is set later."""
        cdef admission_t* item = self.next_item()
        item.queue = NULL
        item.content = content
        item.due = NEVER
        return 0

    cdef inline admission_t* next_item(self) except NULL:
        if self.count == self.capacity:
            self.enlarge()
        self.count += 1
        self.items[self.count - 1].answer = NULL
        return &self.items[self.count - 1]

    cdef int add(self, queue_t* queue, object name, content_t* content) except -1
    cdef void delay_last(self, int64_t due) noexcept
    cdef int add_answer(self, entry_t* entry, str verb, object argument) except -1
    cdef int prepare(self) except -1
    cdef int check_answer(self, const answer_t* answer) except -1
    cdef int count_letter(self, entry_t* entry, int reason, uint32_t hops) except -1
    cdef int charge_answer(self, const entry_t* entry) except -1
    cdef int charge_store(self, store_t* store) except -1
    cdef int check_return(self, const answer_t* answer) except -1
    cdef int check(self) except -1
    cdef object name_at(self, Py_ssize_t i)
    cdef object detail_at(self, Py_ssize_t i)
    cdef void measure(self) noexcept
    cdef bint fits(self, queue_t* queue, content_t* content, uint32_t hops, bint dead=*) except -1
    cdef bint overflow_fits(self, queue_t* queue, content_t* content, uint32_t hops, bint dead) except -1
    cdef int enlarge(self) except -1
    cdef int reserve(self, Py_ssize_t capacity) except -1
    cdef int begin_dry_run(self) except -1
    cdef int check_all(self) except -1
    cdef bint is_duplicate(self, admission_t* item) except -1
    cdef int check_one(self, Py_ssize_t i) except -1
    cdef Py_ssize_t messages(self, Py_ssize_t end) noexcept
    cdef bint store_fits(self, queue_t* queue, content_t* content, int64_t more) except -1
    cdef bint limit_fits(self, queue_t* queue, content_t* content, int64_t due, uint32_t hops, bint dead=*) except -1
    cdef bint late_fits(self, queue_t* queue, content_t* content) except -1
    cdef int count_end(self, queue_t* queue, content_t* content, int reason, uint32_t hops) except -1
    cdef bint letter_fits(
        self, const letters_t* letters, content_t* content, object origin, int reason, uint32_t hops
    ) except -1
    cdef bint below_limits(self, queue_t* queue) except -1
    cdef bint drops_for(self, queue_t* queue) except -1
    cdef int count_in(self, queue_t* queue, uint64_t body_bytes, int64_t due) except -1
    cdef int spend(self, selector_t* selector, int credits) except -1

# Whether the answer sends the message to a dead letter queue.
cdef bint sends_away(const answer_t* answer) noexcept
cdef str fullness(const queue_t* queue)
# ValueError for a message that is delayed until `due` in a queue that keeps nothing.
cdef int check_undelayed(const queue_t* queue, int64_t due) except -1
# The bytes that a message takes of a durable store.
cdef uint64_t admission_bytes(const content_t* content) noexcept
cdef bint letters_take(
    const letters_t* letters, engine_t* engine, content_t* content, object origin, int reason, int hops
) except -1
