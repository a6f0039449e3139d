"""Entry of many messages at once: a dry run first checks that there is room for all, so all enter or none.

The dry run keeps what each queue, store and overflow selector would have after the messages before (rule 1). It does not touch
the engine: it only writes differences into dictionaries.
"""

from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport free, realloc

from xump_ext.errors import QueueFull, no_queue
from xump_ext.log.room cimport USUAL_BYTES, kept_bytes, no_room
from xump_ext.log.writer cimport enter_bytes
from xump_ext.message.content cimport checked_text, content_bounced, content_release
from xump_ext.route.ledger cimport can_enter, enter, own_dead_letter, reason_name
from xump_ext.select.credit cimport has_credit, overflow_would
from xump_ext.state.constants cimport DEAD, DEAD_ENTRY, DELIVER, DISCARD, REASON_NO_QUEUE, REASON_OVERFLOW, UNLIMITED
from xump_ext.state.envelope cimport name_text, queue_named

cdef uint64_t ENTER_EXTRA = 128     # for the record of a message's end, and for lengths being rounded up


cdef class Admissions:
    """The messages for queues, and the payments among them, that a call brings, in order."""

    def __cinit__(self):
        self.names = {}
        self.ready = {}
        self.spent = {}
        self.charges = {}

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.items[i].content != NULL:
                content_release(self.items[i].content)
        free(self.items)

    cdef int enlarge(self) except -1:
        cdef Py_ssize_t capacity = self.capacity * 2 if self.capacity else 16
        cdef admission_t* items = <admission_t*> realloc(self.items, capacity * sizeof(admission_t))
        if items == NULL:
            raise MemoryError()
        self.items = items
        self.capacity = capacity
        return 0

    cdef int add(self, queue_t* queue, object name, content_t* content) except -1:
        """Adds a message. Takes over the reference to the content."""
        cdef admission_t* item = self.next_item()
        item.queue = queue
        item.content = content
        item.paid = NULL
        if name is not None and queue == NULL:
            self.names[self.count - 1] = name
        if queue == NULL or queue.limit != UNLIMITED or queue.durable:
            self.limited = True
        return 0

    cdef int add_payment(self, entry_t* entry) except -1:
        cdef admission_t* item = self.next_item()
        item.queue = NULL
        item.content = NULL
        item.paid = entry
        return 0

    cdef uint64_t bytes(self) noexcept:
        cdef uint64_t sum = 0
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.items[i].content != NULL:
                sum += admission_bytes(self.items[i].content)
        return sum

    # ---- the dry run

    cdef int check(self) except -1:
        """Raises QueueFull, StoreFull, StoreFailed or QueueNotFound for the first message that could not enter anywhere."""
        cdef Py_ssize_t i
        cdef entry_t* entry
        if not self.limited:
            return 0
        for i in range(self.count):
            entry = self.items[i].paid
            if entry == NULL:
                self.check_one(i)
            while entry != NULL:
                self.spend(<selector_t*> entry.holder, -1)
                entry = entry.parent
        return 0

    cdef int check_one(self, Py_ssize_t i) except -1:
        cdef queue_t* queue = self.items[i].queue
        cdef content_t* content = self.items[i].content
        cdef queue_t* letters
        if queue != NULL and queue.durable and not self.store_fits(queue, content, 0):
            raise no_room(queue)        # even if an overflow selector or dead letter queue could take it (decision 81)
        if queue == NULL:
            letters = NULL if self.engine.dead_letter == NULL else queue_named(self.engine, <object> self.engine.dead_letter)
            name = checked_text(name_text(self.names.get(i, self.name)), "the queue's name")
            if letters == NULL or not self.letter_fits(letters, content, name, REASON_NO_QUEUE):
                raise no_queue(name)
        elif not self.limit_fits(queue, content):
            letters = own_dead_letter(queue)
            if letters == NULL or not self.letter_fits(
                    letters, content, (<object> queue.handle).name, REASON_OVERFLOW):
                raise QueueFull(f"queue {(<object> queue.handle).name!r} has {queue.ready} ready messages and a limit of "
                                f"{queue.limit}: no room for message {self.messages(i + 1)} of {self.messages(self.count)}")
        return 0

    cdef Py_ssize_t messages(self, Py_ssize_t end) noexcept:
        """How many of the items before `end` are messages; the others are payments."""
        cdef Py_ssize_t i, count = 0
        for i in range(end):
            count += self.items[i].paid == NULL
        return count

    cdef bint store_fits(self, queue_t* queue, content_t* content, int64_t more) except -1:
        """Whether the queue's store has room for this message and `more` bytes, after the messages before. If so, the message
        is counted."""
        cdef int64_t bytes = <int64_t> admission_bytes(content)
        if self.store != <void*> queue.store:
            self.charges[<uintptr_t> self.store] = self.charge
            self.store = <void*> queue.store
            self.charge = self.charges.get(<uintptr_t> self.store, 0)
        if queue.store.failed or queue.store.leaving_engine or (
                self.charge + bytes + more + kept_bytes(queue.store, bytes) > queue.store.room):
            return False
        self.charge += bytes
        return True

    cdef bint letter_fits(self, queue_t* letters, content_t* content, object origin, int reason) except -1:
        cdef content_t* bounced = content_bounced(content, origin, reason_name(reason), None)
        try:
            return self.fits(letters, bounced)
        finally:
            content_release(bounced)

    cdef int64_t ready_of(self, queue_t* queue) except -1:
        return queue.ready + <int64_t> self.ready.get(<uintptr_t> queue, 0)

    cdef int count_ready(self, queue_t* queue) except -1:
        """Counts one more ready message in the queue, in the dry run."""
        self.ready[<uintptr_t> queue] = self.ready.get(<uintptr_t> queue, 0) + 1
        return 0

    cdef int spend(self, selector_t* selector, int credits) except -1:
        if not selector.infinite and selector.verb != DISCARD:
            self.spent[<uintptr_t> selector] = self.spent.get(<uintptr_t> selector, 0) + credits
        return 0

    cdef bint fits(self, queue_t* queue, content_t* content) except -1:
        """Whether the message could enter now; if so, it has entered in the dry run."""
        return (not queue.durable or self.store_fits(queue, content, USUAL_BYTES)) and self.limit_fits(queue, content)

    cdef bint limit_fits(self, queue_t* queue, content_t* content) except -1:
        """`fits`, without a look at the queue's store."""
        if queue.limit == UNLIMITED:
            return True
        if <uint64_t> self.ready_of(queue) < queue.limit:
            self.count_ready(queue)
            return True
        return self.overflow_fits(queue, content)

    cdef bint overflow_fits(self, queue_t* queue, content_t* content) except -1:
        """`overflow_has_room`, in the dry run."""
        cdef selector_t* overflow = queue.overflow
        cdef queue_t* target
        if not overflow_would(queue, content, &target):
            return False
        if not has_credit(overflow, self.spent.get(<uintptr_t> overflow, 0)):
            return False
        if target != NULL:
            if <uint64_t> self.ready_of(target) >= target.limit or (
                    target.durable and not self.store_fits(target, content, USUAL_BYTES)):
                return False
            self.count_ready(target)
        elif overflow.verb == DELIVER and overflow.infinite:
            self.count_ready(queue)      # bound: it counts as ready until the application takes it
        self.spend(overflow, 1)
        return True


# ---- entering

cdef bint letters_take(queue_t* letters, content_t* content, object origin, int reason, int hops) except -1:
    """Dead-letters a message that has not entered any queue; False if the dead letter queue cannot take it. The caller keeps its
    reference to the content."""
    cdef content_t* bounced
    if letters == NULL:
        return False
    bounced = content_bounced(content, origin, reason_name(reason), None)
    if not can_enter(letters, bounced, NULL):
        content_release(bounced)
        return False
    enter(letters.engine, letters, bounced, hops, 0, DEAD | DEAD_ENTRY, NULL, NULL)
    return True


cdef uint64_t admission_bytes(const content_t* content) noexcept:
    return enter_bytes(content, False) + ENTER_EXTRA
