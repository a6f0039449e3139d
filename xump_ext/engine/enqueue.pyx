"""Messages are let into their queues: one that is a duplicate, or finds no room, or no queue, goes another way or is refused.

The engine is one class in nine files (`engine_lock.pyx` says why). `EngineEnqueue` comes after `EngineStores` in
`stores.pyx`. `publish.pyx` goes on with the calls that bring messages.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.errors import Conflict, QueueFull, no_queue
from xump_ext.log.append cimport log_reserve_all
from xump_ext.log.journal cimport Journal
from xump_ext.log.room cimport COMES_IN, kept_bytes, no_room, store_has_room
from xump_ext.log.writer cimport touch
from xump_ext.message.content cimport checked_text, content_release, content_share
from xump_ext.message.headers cimport content_t, expires_of
from xump_ext.message.times cimport NEVER
from xump_ext.outcome import Outcome, OutcomeFlag
from xump_ext.route.admission cimport Admissions, admission_bytes, check_undelayed, fullness, letters_take
from xump_ext.route.arrivals cimport enter_due
from xump_ext.route.clock cimport time_of
from xump_ext.route.duplicates cimport duplicate_of, early_t, enter_once, hash_early, hash_known, remember_for_good
from xump_ext.route.ledger cimport enter
from xump_ext.route.letters cimport letters_t, own_dead_letter
from xump_ext.route.routing cimport go_on
from xump_ext.route.transit cimport publish_through
from xump_ext.select.credit cimport overflow_has_room
from xump_ext.state.constants cimport (
    BROKEN, OUTCOME_DEAD_LETTERED, OUTCOME_DROPPED, OUTCOME_DUPLICATE, OUTCOME_NO_QUEUE, OUTCOME_STORE_FAILED, OUTCOME_STORE_FULL,
    REASON_NO_QUEUE, REASON_OVERFLOW, SPECIAL_PUBLISHED,
)
from xump_ext.state.envelope cimport name_text, queue_named
from xump_ext.state.graph cimport queue_t
from xump_ext.state.limits cimport drops, is_limited
from xump_ext.state.visited cimport NO_SLOT, rests, tally_begin, tally_end, tally_refused, visited_new
from xump_ext.state.window cimport window_reserve, window_t

cdef enum:
    AHEAD = 8           # messages, a power of two: by then the memory is there

cdef tuple OUTCOME_FLAGS = tuple([OutcomeFlag(bits) for bits in range(128)])        # by their bits


cdef class EngineEnqueue(EngineStores):
    """A part of the engine's class: messages are let in."""

    # ---- one message

    cdef uint64_t admit_elsewhere(
        self, queue_t* queue, object name, content_t* content, int64_t due, int room
    ) except? 0:
        """Admit a message to a durable queue, a full queue, one that looks for duplicates, or the dead letter queue if there is
        none. Returns its id, or that of the first one if it is a duplicate; 0: it went to a dead letter queue. Takes over
        the content if it does not raise. `room`: ROOM_IS_MADE .. of that in the store of the queue."""
        cdef uint64_t id
        cdef int admitted
        if queue != NULL and queue.special == SPECIAL_PUBLISHED and not queue.durable and queue.ready < queue.limit and (
                due == NEVER):
            return enter_once(queue, content)
        id = known_before(queue, content)
        if id:
            return id
        if queue != NULL and queue.durable and room == ROOM_IS_MADE and self.room_is_made(queue, content):
            queue = self.queue_of(name)             # the lock was given up
            id = known_before(queue, content)
            if id:
                return id
        if queue == NULL:
            name = checked_text(name_text(name), "the queue's name")
        elif queue.transit:
            check_undelayed(queue, due)
        admitted = self.let_through(queue, name, content, due, NULL, room, &id)
        if admitted == NO_QUEUE:
            raise no_queue(name)
        if admitted == NO_ROOM:
            raise no_room(queue)
        if admitted == FULL:
            raise QueueFull(f"queue {(<QueueHandle> queue.handle).name!r} has no room: {fullness(queue)}")
        return id

    cdef bint room_is_made(self, queue_t* queue, const content_t* content) except -1:
        """Let the store clean its log if it has no room for the message: True if the lock was given up. The call must not have
        changed anything yet."""
        cdef int64_t bytes = <int64_t> admission_bytes(content)
        return self.make_room(<Journal> queue.store.handle, bytes + kept_bytes(queue.store, bytes, COMES_IN))

    cdef int let_through(
        self, queue_t* queue, object name, content_t* content, int64_t due, visited_t* visited, int room, uint64_t* id
    ) except -1:
        """Let a message in that is no duplicate, with its id, or say why not. Takes over the content of one that was let in, or
        sent to a dead letter queue. `visited`: its visited set; NULL: it gets one when it needs one.
        `room`: as above."""
        cdef letters_t letters
        id[0] = 0
        if queue == NULL:
            letters.queue, letters.namer = queue_named(&self.e, self._dead_letter), NULL
            if not letters_take(&letters, &self.e, content, name, REASON_NO_QUEUE, 1):
                return NO_QUEUE
            self.no_queue += 1
            content_release(content)
            return SENT_NO_QUEUE
        if queue.transit:
            publish_through(&self.e, queue, content, visited)
            return ADMITTED
        if queue.staged:
            check_takes_rows(queue)
        if queue.durable and room != ROOM_IS_PROMISED and not store_has_room(queue, content):
            return NO_ROOM
        if queue.ready >= queue.limit and expires_of(content) >= time_of(&self.e) and not drops(queue) and (
                due != NEVER or not overflow_has_room(queue, content, NULL)):
            letters.queue, letters.namer = own_dead_letter(queue), queue
            if not letters_take(&letters, &self.e, content, (<QueueHandle> queue.handle).name, REASON_OVERFLOW, 1):
                return FULL
            queue.dead_lettered[REASON_OVERFLOW] += 1
            if queue.durable:
                touch(queue)
            content_release(content)
            return SENT_FULL
        if queue.window == NULL:
            id[0] = enter_due(&self.e, queue, content, due, 0, visited)
            return ADMITTED
        content_share(content)      # it may end at once
        try:
            window_reserve(<window_t*> queue.window)        # before the message is in
            id[0] = enter_due(&self.e, queue, content, due, 0, visited)
            remember_for_good(queue, content, id[0])
        finally:
            content_release(content)
        return ADMITTED

    cdef int publish_asking(
        self, queue_t* queue, object name, content_t* content, int64_t due, tally_t* tally
    ) except -1:
        """Let a message in whose publisher asks what becomes of it; nothing is raised for it. Takes over the content. The tally
        is right when the call has run the graph, and `tally_end` must follow."""
        cdef visited_t* visited = self.begin_asking(queue, content, tally)
        if visited == NULL:
            content_release(content)
            return 0
        return self.let_in_asking(queue, name, content, due, tally, visited, True)

    cdef visited_t* begin_asking(self, queue_t* queue, content_t* content, tally_t* tally) except? NULL:
        """Begin a tally, and return the visited set on which it hangs; NULL: the message is a duplicate, which the tally says."""
        cdef visited_t* visited
        if queue != NULL and queue.window != NULL:
            tally.id = known_before(queue, content_share(content))
            if tally.id:
                tally.flags = OUTCOME_DUPLICATE
                return NULL
            content_release(content)
        visited = visited_new(&self.e, NO_SLOT if queue == NULL else queue.slot)
        tally_begin(visited, tally)
        return visited

    cdef int let_in_asking(
        self, queue_t* queue, object name, content_t* content, int64_t due, tally_t* tally, visited_t* visited, bint last
    ) except -1:
        """Let it into one queue, and tally that. Takes over the content. `last`: it enters no other queue by this publish."""
        cdef uint64_t id = 0
        cdef int admitted = self.let_through(queue, name, content, due, visited, ROOM_AS_IT_IS, &id)
        tally.id = tally.id or id
        if admitted == ADMITTED:
            # a transit queue, though it is held, does not keep what was late at its entry
            tally.copies += rests(queue) and not (queue.transit and tally.flags & (OUTCOME_DEAD_LETTERED | OUTCOME_DROPPED))
        elif admitted == SENT_FULL or admitted == FULL:
            tally_refused(tally)
        elif admitted == NO_ROOM:
            failed = queue.store.failed or queue.store.leaving_engine
            tally.flags |= OUTCOME_STORE_FAILED if failed else OUTCOME_STORE_FULL
        else:
            tally.flags |= OUTCOME_NO_QUEUE
        if admitted == SENT_FULL or admitted == SENT_NO_QUEUE:
            tally.flags |= OUTCOME_DEAD_LETTERED
        elif admitted != ADMITTED:
            content_release(content)
        if last and visited.references == 1:    # nothing of it is still to be routed
            tally_end(&self.e, tally)
        return 0

    cdef list publish_all_asking(self, Admissions batch, queue_t* queue):
        """Let all messages in, each for itself, and tell what became of each."""
        cdef tally_t* tallies = <tally_t*> calloc(batch.count + 1, sizeof(tally_t))
        cdef Py_ssize_t i
        cdef content_t* content
        cdef BaseException interruption = None
        if tallies == NULL:
            raise MemoryError()
        try:
            for i in range(batch.count if queue != NULL else 0):
                check_undelayed(queue, batch.items[i].due)
            if queue != NULL and queue.staged:
                check_takes_rows(queue)
            if queue != NULL and queue.durable:
                batch.measure()
                queue = self.with_room(queue, batch.name, batch.total, batch.largest)
            name = checked_text(name_text(batch.name), "the queue's name")
            for i in range(batch.count):
                content = batch.items[i].content
                batch.items[i].content = NULL
                try:
                    self.publish_asking(queue, name, content, batch.items[i].due, &tallies[i])
                except MemoryError:
                    self.e.at_rest = BROKEN
                    raise
                except BaseException as error:      # a condition of a transit queue: the message is in, and waits there
                    interruption = error
                    content_release(content)
            if interruption is not None:
                raise interruption
            go_on(&self.e)
            return [Outcome(tallies[i].id, tallies[i].copies, tallies[i].refused, OUTCOME_FLAGS[tallies[i].flags])
                    for i in range(batch.count)]
        finally:
            for i in range(batch.count):
                tally_end(&self.e, &tallies[i])
            free(tallies)

    # ---- all messages of a call

    cdef object admit_all(self, Admissions batch, queue_t* queue):
        cdef Py_ssize_t i
        cdef uint64_t first = 0, last = 0, id, before
        cdef content_t* content
        batch.engine = &self.e
        if queue != NULL and queue.staged:
            check_takes_rows(queue)
        batch.limited = queue == NULL or is_limited(queue) or queue.durable
        if queue == NULL and batch.count == 0 and queue_named(&self.e, self._dead_letter) == NULL:
            raise no_queue(name_text(batch.name))
        if queue != NULL and queue.durable:
            batch.measure()
            queue = self.with_room(queue, batch.name, batch.total, batch.largest)
        if batch.limited:
            for i in range(batch.count):
                batch.items[i].queue = queue
            batch.check()
        if queue != NULL and queue.durable:
            log_reserve_all(queue.store, batch.total)
        try:
            if queue != NULL and queue.transit:
                self.admit_through(batch, queue)
            elif not batch.limited and not batch.timed and queue.special == SPECIAL_PUBLISHED:
                admit_new(batch, queue, &first, &last)
            elif not batch.limited and not batch.timed and queue.window == NULL:
                first = queue.next_id if batch.count else 0
                for i in range(batch.count):
                    content = batch.items[i].content
                    batch.items[i].content = NULL
                    last = enter(&self.e, queue, content, 0, 0, 0, NULL, NULL)
            else:
                for i in range(batch.count):
                    content = batch.items[i].content
                    batch.items[i].content = NULL
                    before = 0 if queue == NULL else queue.next_id
                    id = self.admit(queue, batch.name, content, batch.items[i].due, ROOM_IS_PROMISED)
                    if id and (queue == NULL or queue.next_id != before):       # else it is a duplicate
                        first = first or id
                        last = id
        except MemoryError:
            if last:            # the messages before this one are in, and cannot be taken back
                self.e.at_rest = BROKEN
            raise
        go_on(&self.e)
        return range(first, last + 1) if last else range(0)

    cdef int admit_through(self, Admissions batch, queue_t* queue) except -1:
        """Let all messages into a transit queue. If a condition is interrupted, the rest waits behind that message, for the next
        run."""
        cdef Py_ssize_t i
        cdef content_t* content
        cdef BaseException interruption = None
        for i in range(batch.count):
            check_undelayed(queue, batch.items[i].due)
        for i in range(batch.count):
            content = batch.items[i].content
            batch.items[i].content = NULL
            try:
                publish_through(&self.e, queue, content, NULL)
            except MemoryError:
                self.e.at_rest = BROKEN
                raise
            except BaseException as error:      # of one message only: those after it wait behind it
                interruption = error
                content_release(content)
        if interruption is not None:
            raise interruption
        return 0


cdef int admit_new(Admissions batch, queue_t* queue, uint64_t* first, uint64_t* last) except -1:
    """Let those messages that are no duplicates into a queue in RAM that refuses none. The memory in which an id is looked for is
    fetched AHEAD messages before: a large window is in no cache."""
    cdef early_t early[AHEAD]
    cdef bint hashed[AHEAD]
    cdef const content_t* coming
    cdef content_t* content
    cdef Py_ssize_t i
    cdef uint64_t before, id
    for i in range(-AHEAD, batch.count):
        if i >= 0:
            content = batch.items[i].content
            batch.items[i].content = NULL
            if hashed[i & (AHEAD - 1)]:
                hash_known(queue, content, &early[i & (AHEAD - 1)])
            before = queue.next_id
            id = enter_once(queue, content)
            if queue.next_id != before:         # else it is a duplicate
                first[0] = first[0] or id
                last[0] = id
        if i + AHEAD < batch.count:
            coming = batch.items[i + AHEAD].content
            hashed[i & (AHEAD - 1)] = coming.message_id != NULL and (
                hash_early(queue, <PyObject*> coming.message_id, &early[i & (AHEAD - 1)]))
    return 0


# ---- checks

cdef uint64_t known_before(queue_t* queue, content_t* content) except? 0:
    """The id of the message of which this is a duplicate, which then takes over the content; 0: it is none."""
    cdef uint64_t id = 0
    if queue != NULL and queue.window != NULL:
        id = duplicate_of(queue, content)
        if id:
            queue.duplicates += 1
            content_release(content)
    return id


cdef int check_takes_rows(queue_t* staged) except -1:
    """Raises Conflict if the staged queue was adopted: its rows were counted then."""
    if staged.adopter != NULL:
        raise Conflict(f"queue {(<QueueHandle> staged.handle).name!r} was adopted by "
                       f"{(<QueueHandle> staged.adopter.handle).name!r}, which it belongs to now: publish into another one")
    return 0
