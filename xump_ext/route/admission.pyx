"""Entry of many messages at once: a dry run first checks that there is room for all, so all enter or none.

The dry run keeps what each queue, store and overflow selector would have after the messages before (rule 1). It does not touch
the engine: it only writes differences into dictionaries.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, realloc

from xump_ext.errors import QueueFull, no_queue
from xump_ext.log.append cimport log_reserve_all
from xump_ext.log.room cimport COMES_IN, USUAL_BYTES, kept_bytes, no_room
from xump_ext.log.writer cimport charge_of, enter_bytes
from xump_ext.message.content cimport checked_text, content_release
from xump_ext.message.headers cimport expires_of
from xump_ext.records.kinds cimport RECORD_RARE, RECORD_TIMED
from xump_ext.route.answers cimport ANSWER_ACK, ANSWER_NACK, ANSWER_REJECT, answer_forget, answer_read
from xump_ext.route.letter_room cimport LetterRoom
from xump_ext.route.duplicates cimport duplicate_of, remember
from xump_ext.route.ledger cimport can_enter, enter
from xump_ext.route.letters cimport dead_letter_of, is_barred, letter_bars, letter_made, letter_trip, own_dead_letter
from xump_ext.route.settling cimport is_fresh
from xump_ext.route.requeue cimport is_over_limit, returns_as
from xump_ext.select.credit cimport has_credit, overflow_would
from xump_ext.state.constants cimport (
    DEAD_IN_RUN, DEAD_ENTRY, DELIVER, DISCARD, OWNED, REASON_EXPIRED, REASON_HOPS, REASON_NO_QUEUE, REASON_OVERFLOW,
    REASON_REJECTED, UNLIMITED,
)
from xump_ext.state.envelope cimport name_text, queue_named
from xump_ext.state.graph cimport store_t, visited_t
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.limits cimport droppable_room, is_limited
from xump_ext.state.visited cimport visited_release
from xump_ext.state.window cimport window_mark, window_t, window_undo_to

cdef tuple NOTHING = (0, 0, 0, 0)   # messages and bytes that entered a queue; of those the delayed ones
cdef uint64_t ENTER_EXTRA = 128     # for the records of a message's end, and of its place in a window of duplicates


cdef class Admissions:
    """The messages for queues, and the payments among them, that a call brings, in order."""

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.items[i].content != NULL:
                content_release(self.items[i].content)
            if self.items[i].answer != NULL:
                answer_forget(self.items[i].answer)
                free(self.items[i].answer)
        free(self.items)

    cdef int enlarge(self) except -1:
        return self.reserve(self.capacity * 2 if self.capacity else 16)

    cdef int reserve(self, Py_ssize_t capacity) except -1:
        """Makes room for so many, and not fewer than there is room for already."""
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
        item.due = NEVER
        if name is not None and queue == NULL:
            if self.names is None:
                self.names = {}
            self.names[self.count - 1] = name
        if queue == NULL or is_limited(queue) or queue.durable:
            self.limited = True
        return 0

    cdef void delay_last(self, int64_t due) noexcept:
        """The last message that was added is delayed until then."""
        cdef admission_t* item = &self.items[self.count - 1]
        item.due = due
        if due != NEVER and item.queue != NULL and item.queue.transit:
            self.limited = True         # so that the errors of all operations come in their order

    cdef int add_answer(self, entry_t* entry, str verb, object argument) except -1:
        """Adds the answer to a delivery: "ack"; "nack", with a delay in ns; "reject", with a text or None."""
        cdef admission_t* item = self.next_item()
        item.queue = NULL
        item.content = NULL
        item.due = NEVER
        item.answer = <answer_t*> calloc(1, sizeof(answer_t))
        if item.answer == NULL:
            raise MemoryError()
        item.answer.entry = entry
        item.answer.kind = ANSWER_ACK if verb == "ack" else ANSWER_NACK if verb == "nack" else ANSWER_REJECT
        item.answer.delay_ns = argument if verb == "nack" else NEVER
        if verb == "reject" and argument is not None:
            if self.details is None:
                self.details = {}
            self.details[self.count - 1] = argument
        return 0

    cdef object name_at(self, Py_ssize_t i):
        """The name of the queue of a message, if the queue does not exist; None: it does."""
        return self.name if self.names is None else self.names.get(i, self.name)

    cdef object detail_at(self, Py_ssize_t i):
        """The text of a reject, or None."""
        return None if self.details is None else self.details.get(i)

    cdef void measure(self) noexcept:
        """Work out `total` and `largest`."""
        cdef int64_t bytes
        cdef Py_ssize_t i
        self.total = 0
        for i in range(self.count):
            if self.items[i].content != NULL:
                bytes = <int64_t> admission_bytes(self.items[i].content)
                self.total += bytes
                self.largest = max(self.largest, bytes)

    cdef int prepare(self) except -1:
        """Does what may fail, before anything changes: reserves memory for the records of all messages, which are in one store;
        reads what the answers need, which is kept until they are carried out; and sees that their dead letters have room."""
        cdef store_t* store = NULL
        cdef LetterRoom room = None
        cdef int64_t bytes = 0
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.items[i].answer != NULL:
                if room is None and self.items[i].answer.kind != ANSWER_ACK:
                    room = LetterRoom.__new__(LetterRoom)
                answer_read(self.engine, self.items[i].answer, room)
            elif self.items[i].queue != NULL and self.items[i].queue.durable:
                store = self.items[i].queue.store
                bytes += <int64_t> admission_bytes(self.items[i].content)
        if room is not None and room.needs is not None:
            if store != NULL:
                room.add_message(store, bytes)
            room.check(self.engine)
        return 0 if store == NULL else log_reserve_all(store, bytes)

    # ---- the dry run

    cdef int check(self) except -1:
        """Raises QueueFull, StoreFull, StoreFailed or QueueNotFound for the first message that could not enter anywhere."""
        if not self.limited:
            return 0
        self.begin_dry_run()
        try:
            self.check_all()
        finally:
            for address, mark in self.marks.items():
                window_undo_to(<window_t*> (<queue_t*> <uintptr_t> address).window, mark)
            self.marks.clear()
        return 0

    cdef int begin_dry_run(self) except -1:
        """Nothing has been let in yet: to be called before anything is asked for that depends on what was."""
        self.entered, self.marks, self.used, self.charges = {}, {}, {}, {}
        return 0

    cdef int check_all(self) except -1:
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.items[i].answer != NULL:
                self.check_answer(self.items[i].answer)
            elif not self.is_duplicate(&self.items[i]):
                self.check_one(i)
        return 0

    cdef int check_answer(self, const answer_t* answer) except -1:
        """An answer gives back credit, and room, or none, if the message returns or is sent away. Its records take some of
        the stores' room."""
        cdef entry_t* entry = answer.entry
        self.charge_answer(entry)
        if answer.kind == ANSWER_NACK and not is_over_limit(entry):
            return self.check_return(answer)
        if answer.kind != ANSWER_ACK:
            self.count_letter(entry, REASON_REJECTED, 0)
        while entry != NULL:
            if entry.holder != NULL:        # else it was taken by hand
                self.spend(<selector_t*> entry.holder, -1)
            entry = entry.parent
        return 0

    cdef int count_letter(self, entry_t* entry, int reason, uint32_t hops) except -1:
        """The dead letter of a message, or of its copy, if there will be one and it fits. `hops`: those of the letter."""
        cdef letters_t to
        to.queue = dead_letter_of(self.engine, entry, &to.namer)
        if to.queue != NULL and not is_fresh(self.engine, entry):
            self.letter_fits(&to, content_at(entry), (<object> entry.queue.handle).name, reason, hops)
        return 0

    cdef int charge_answer(self, const entry_t* entry) except -1:
        """The records of an answer, here and upstream. A durable message that owns one in RAM may be in any store."""
        cdef store_t* store
        while entry != NULL:
            if entry.queue.durable:
                self.charge_store(entry.queue.store)
                self.charge += ANSWER_BYTES
            elif entry.flags & OWNED:
                store = self.engine.stores
                while store != NULL:
                    self.charge_store(store)
                    self.charge += ANSWER_BYTES
                    store = store.next
            entry = entry.parent
        return 0

    cdef int check_return(self, const answer_t* answer) except -1:
        """A nack: the message returns to its queue, or to the one upstream that says how long it is delayed."""
        cdef int64_t delay_ns = answer.delay_ns
        cdef entry_t* entry = answer.entry
        cdef entry_t* holder = returns_as(entry, &delay_ns)
        cdef uint64_t body_bytes = content_at(holder).body_bytes if holder.queue.limit_bytes != UNLIMITED else 0
        while True:
            if entry.holder != NULL:
                self.spend(<selector_t*> entry.holder, -1)
            if entry == holder:
                break
            entry = entry.parent
        return self.count_in(holder.queue, body_bytes, delay_ns if delay_ns else NEVER)

    cdef bint is_duplicate(self, admission_t* item) except -1:
        """Whether the message is a duplicate of an earlier one, or of one of this call. If not, the queue's window knows it as
        long as the dry run lasts, unless it is turned away, which ends the call or means that it is dead-lettered."""
        cdef queue_t* queue = item.queue
        if queue == NULL or queue.window == NULL:
            return False
        if <uintptr_t> queue not in self.marks:
            self.marks[<uintptr_t> queue] = window_mark(<window_t*> queue.window)
        return duplicate_of(queue, item.content) != 0

    cdef int check_one(self, Py_ssize_t i) except -1:
        cdef queue_t* queue = self.items[i].queue
        cdef content_t* content = self.items[i].content
        cdef letters_t to
        if queue != NULL:
            check_undelayed(queue, self.items[i].due)
        if queue != NULL and queue.durable and not self.store_fits(queue, content, 0):
            raise no_room(queue)        # even if an overflow selector or dead letter queue could take it (decision 81)
        if queue == NULL:
            to.queue = NULL if self.engine.dead_letter == NULL else queue_named(self.engine, <object> self.engine.dead_letter)
            to.namer = NULL
            name = checked_text(name_text(self.name_at(i)), "the queue's name")
            if to.queue == NULL or not self.letter_fits(&to, content, name, REASON_NO_QUEUE, 1):
                raise no_queue(name)
        elif not self.limit_fits(queue, content, self.items[i].due, 0):
            to.queue = own_dead_letter(queue)
            to.namer = queue
            if to.queue == NULL or not self.letter_fits(
                    &to, content, (<object> queue.handle).name, REASON_OVERFLOW, 1):
                raise QueueFull(f"queue {(<object> queue.handle).name!r} has no room for message {self.messages(i + 1)} of "
                                f"{self.messages(self.count)}: {fullness(queue)}")
        elif queue.window != NULL:
            remember(queue, content, queue.next_id + <uint64_t> i)
        return 0

    cdef Py_ssize_t messages(self, Py_ssize_t end) noexcept:
        """How many of the items before `end` are messages; the others are payments."""
        cdef Py_ssize_t i, count = 0
        for i in range(end):
            count += self.items[i].answer == NULL
        return count

    cdef bint store_fits(self, queue_t* queue, content_t* content, int64_t more) except -1:
        """Whether the queue's store has room for this message, which may have become larger by `more` bytes, after the messages
        before. Not less than `store_has_room` and `store_takes` ask for when it enters: it may enter though it does not fit
        here. So it is counted in any case, and messages after it fit only if they do beside it."""
        cdef int64_t bytes = <int64_t> admission_bytes(content) + more
        self.charge_store(queue.store)
        self.largest = max(self.largest, bytes)     # those after it leave room for it, too
        self.charge += bytes
        return not queue.store.failed and not queue.store.leaving_engine and (
            self.charge + kept_bytes(queue.store, self.largest, COMES_IN) <= queue.store.room)

    cdef int charge_store(self, store_t* store) except -1:
        """From here on `charge` is what the dry run took of this store."""
        if self.store != <void*> store:
            self.charges[<uintptr_t> self.store] = self.charge
            self.store = <void*> store
            self.charge = self.charges.get(<uintptr_t> store, 0)
        return 0

    cdef bint letter_fits(
        self, const letters_t* letters, content_t* content, object origin, int reason, uint32_t hops
    ) except -1:
        cdef list barred = letter_bars(letters)
        cdef content_t* made = letter_made(self.engine, letters, content, origin, reason, None, NULL, barred)
        try:
            return not is_barred(letters, barred) and self.fits(letters.queue, made, hops, True)
        finally:
            content_release(made)

    cdef bint below_limits(self, queue_t* queue) except -1:
        """Whether the queue is below its limits, after the messages before."""
        messages, bytes, _, _ = self.entered.get(<uintptr_t> queue, NOTHING)
        return queue.ready + queue.delayed + <uint64_t> messages < queue.limit_given and (
            queue.body_bytes + <uint64_t> bytes < queue.limit_bytes)

    cdef bint drops_for(self, queue_t* queue) except -1:
        """Whether the queue takes a message beyond its limits, after the messages before."""
        _, _, delayed, bytes = self.entered.get(<uintptr_t> queue, NOTHING)
        return queue.drops_oldest and droppable_room(
            queue, queue.delayed + <uint64_t> delayed, queue.delayed_bytes + <uint64_t> bytes)

    cdef int count_in(self, queue_t* queue, uint64_t body_bytes, int64_t due) except -1:
        """Counts one more message in the queue, ready or delayed, in the dry run."""
        messages, bytes, delayed, delayed_bytes = self.entered.get(<uintptr_t> queue, NOTHING)
        bytes += body_bytes
        if due != NEVER:
            delayed += 1
            delayed_bytes += body_bytes
        self.entered[<uintptr_t> queue] = messages + 1, bytes, delayed, delayed_bytes
        return 0

    cdef int spend(self, selector_t* selector, int credits) except -1:
        if not selector.infinite and selector.verb != DISCARD:
            self.used[<uintptr_t> selector] = self.used.get(<uintptr_t> selector, 0) + credits
        return 0

    cdef bint fits(self, queue_t* queue, content_t* content, uint32_t hops, bint dead=False) except -1:
        """Whether the message could enter now, with so many hops; if so, it has entered in the dry run. If only its store has
        no room, it is counted, too (`store_fits`). `dead`: it is a dead letter, and has none itself."""
        cdef bint stored = not queue.durable or self.store_fits(queue, content, USUAL_BYTES)
        return self.limit_fits(queue, content, NEVER, hops, dead) and stored

    cdef bint limit_fits(self, queue_t* queue, content_t* content, int64_t due, uint32_t hops, bint dead=False) except -1:
        """`fits`, without a look at the queue's store, for a message that is delayed until `due`."""
        if expires_of(content) < self.engine.time:
            return self.late_fits(queue, content)
        if not is_limited(queue):
            return True
        if self.below_limits(queue):
            self.count_in(queue, content.body_bytes, due)
            return True
        if due == NEVER and self.overflow_fits(queue, content, hops, dead):
            return True
        if self.drops_for(queue):
            self.count_in(queue, content.body_bytes, due)
            return True
        return False

    cdef bint late_fits(self, queue_t* queue, content_t* content) except -1:
        """A late message needs no room, but its dead letter takes some."""
        if self.engine.hop_limit:
            self.count_end(queue, content, REASON_EXPIRED, 1)
        return True

    cdef int count_end(self, queue_t* queue, content_t* content, int reason, uint32_t hops) except -1:
        """The message ends at once where it enters. `hops`: those of its dead letter, if it has one and that fits."""
        cdef letters_t to
        to.queue = own_dead_letter(queue)
        to.namer = queue if to.queue != NULL else NULL
        if to.queue == NULL and self.engine.dead_letter != NULL:
            to.queue = queue_named(self.engine, <object> self.engine.dead_letter)
        if to.queue != NULL and to.queue != queue and not to.queue.dying:
            self.letter_fits(&to, content, (<object> queue.handle).name, reason, hops)
        return 0

    cdef bint overflow_fits(self, queue_t* queue, content_t* content, uint32_t hops, bint dead) except -1:
        """`overflow_has_room`, in the dry run. A message that is moved beyond the hop limit ends there, and takes
        no credit."""
        cdef selector_t* overflow = queue.overflow
        cdef queue_t* target
        cdef bint stored = True
        if not overflow_would(queue, content, &target):
            return False
        if not has_credit(overflow, self.used.get(<uintptr_t> overflow, 0)):
            return False
        if target != NULL:
            if not self.below_limits(target):
                return False
            if target.durable:      # `overflow_takes` adds as much to the message's record in its own queue
                stored = self.store_fits(target, content, 2 * USUAL_BYTES if target.store == queue.store else USUAL_BYTES)
            if hops >= self.engine.hop_limit:
                if not dead:
                    self.count_end(queue, content, REASON_HOPS, hops + 1)
                return stored
            self.count_in(target, content.body_bytes, NEVER)
        elif overflow.verb == DELIVER and overflow.infinite:
            self.count_in(queue, content.body_bytes, NEVER)       # bound: it counts as ready until your program takes it
        self.spend(overflow, 1)
        return stored


cdef bint sends_away(const answer_t* answer) noexcept:
    return answer.kind == ANSWER_REJECT or (answer.kind == ANSWER_NACK and is_over_limit(answer.entry))


# ---- entering

cdef str fullness(const queue_t* queue):
    """The limit that the queue is at, for an error."""
    found = f"it has {queue.ready} ready"
    if queue.delayed:
        found += f" and {queue.delayed} delayed"
    found += " messages"
    if queue.limit_given != UNLIMITED:
        found += f" and a limit of {queue.limit_given}"
    if queue.limit_bytes != UNLIMITED:
        found += f", with {queue.body_bytes} bytes and a limit_bytes of {queue.limit_bytes}"
    return found


cdef int check_undelayed(const queue_t* queue, int64_t due) except -1:
    if queue.transit and due != NEVER:
        raise ValueError(f"queue {(<object> queue.handle).name!r} is a transit queue, which keeps nothing until later: "
                         "publish without delay and at, or into the queue that it leads to")
    return 0


cdef bint letters_take(
    const letters_t* letters, engine_t* engine, content_t* content, object origin, int reason, int hops
) except -1:
    """Dead-letters a message that has not entered any queue; False if the dead letter queue cannot take it. The caller keeps its
    reference to the content."""
    cdef content_t* made
    cdef visited_t* trip = NULL
    cdef list barred
    if letters.queue == NULL:
        return False
    barred = letter_bars(letters)
    made = letter_made(engine, letters, content, origin, reason, None, NULL, barred)
    if is_barred(letters, barred) or not can_enter(letters.queue, made, NULL):
        content_release(made)
        return False
    if barred:
        trip = letter_trip(engine, letters, barred)
    enter(engine, letters.queue, made, hops, 0, DEAD_IN_RUN | DEAD_ENTRY, NULL, trip)
    visited_release(engine, trip)
    return True


cdef uint64_t admission_bytes(const content_t* content) noexcept:
    return charge_of(enter_bytes(content, RECORD_RARE | RECORD_TIMED)) + ENTER_EXTRA
