"""Publishing: messages enter the engine from outside (rule 1).

The engine is one class in seven files (`engine_lock.pyx` says why). `EnginePublish` is the third part, after `EngineStores` in
`stores.pyx`. It adds `publish` (one message) and `publish_many` (many, and one run). `publishers.pyx` goes on.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.errors import Conflict, QueueFull, no_queue
from xump_ext.log.journal cimport Journal
from xump_ext.log.room cimport COMES_IN, kept_bytes, no_room, store_has_room
from xump_ext.log.writer cimport touch
from xump_ext.memory.short_call cimport call_t, name_at, name_count, short_call
from xump_ext.message.content cimport checked_text, content_release, content_share, parts_t
from xump_ext.message.headers cimport content_t, expires_of
from xump_ext.message.message cimport Message, content_alone, content_new, content_of, optional_text, parts_given
from xump_ext.message.times cimport NEVER, Times, later, seconds_ns, times_given
from xump_ext.outcome import Outcome, OutcomeFlag
from xump_ext.route.admission cimport Admissions, admission_bytes, admission_t, check_undelayed, fullness, letters_take
from xump_ext.route.arrivals cimport content_timed, due_at, due_by, enter_due
from xump_ext.route.duplicates cimport duplicate_of, early_t, enter_once, hash_early, hash_known, remember_for_good
from xump_ext.route.clock cimport time_of
from xump_ext.route.ledger cimport enter
from xump_ext.route.letters cimport letters_t, own_dead_letter
from xump_ext.route.routing cimport go_on
from xump_ext.route.transit cimport publish_through
from xump_ext.select.credit cimport overflow_has_room
from xump_ext.select.plan cimport prefetch_known, prefetch_known_route
from xump_ext.state.constants cimport (
    BROKEN, IDLE, OUTCOME_DEAD_LETTERED, OUTCOME_DROPPED, OUTCOME_DUPLICATE, OUTCOME_NO_QUEUE, OUTCOME_STORE_FAILED,
    OUTCOME_STORE_FULL, REASON_NO_QUEUE, REASON_OVERFLOW, SPECIAL_PUBLISHED,
)
from xump_ext.state.envelope cimport name_text, queue_named
from xump_ext.state.graph cimport engine_t, queue_t
from xump_ext.state.limits cimport drops, is_limited
from xump_ext.state.visited cimport NO_SLOT, rests, tally_begin, tally_end, tally_refused, visited_new

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object)
    PyObject* NONE "Py_None"

cdef enum:
    AHEAD = 8           # messages, a power of two: by then the memory is there

cdef str NO_TEXT = ""
cdef bytes NO_BYTES = b""
cdef str REPLY_TO = "reply_to"          # the same objects as in any call that names them
cdef str MESSAGE_ID = "message_id"
cdef str CORRELATION_ID = "correlation_id"
cdef str DELAY = "delay"
cdef str AT = "at"
cdef str TTL = "ttl"
cdef str EXPIRES = "expires"
cdef str PRIORITY = "priority"
cdef object NO_PRIORITY = 0
cdef tuple OUTCOME_FLAGS = tuple([OutcomeFlag(bits) for bits in range(128)])        # by their bits


cdef class EnginePublish(EngineStores):
    """The third part of the engine's class: messages come in."""

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
            id[0] = enter_due(&self.e, queue, content, due, visited)
            return ADMITTED
        content_share(content)      # it may end at once
        try:
            id[0] = enter_due(&self.e, queue, content, due, visited)
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

    def publish(
        self, queue, address="", body=b"", headers=None, *, reply_to=None, message_id=None, correlation_id=None, delay=None,
        at=None, ttl=None, expires=None, priority=0, timeout=0.0,
    ):
        """Publish a message into a queue, and run the graph until nothing more happens.

        Args:
            queue: The queue that the message enters: its name, or a `Queue`.
            address: The text that the message is routed by (a routing key), at most 65,534 bytes of UTF-8; or a `Message`, and
                beside it only `delay`, `at`, `ttl` and `timeout`.
            body: Up to 64 MiB of bytes.
            headers: Values by name: bool, int (64 bits, signed), float, str or bytes; together at most 1 MiB.
            reply_to: The address for answers.
            message_id: Your own name for the message.
            correlation_id: The `message_id` of the message that this one answers, or what else joins the two.
            delay: After how many seconds the message is due: until then it is in the queue, but not ready.
            at: When the message is due, instead of `delay`: an aware datetime, or POSIX nanoseconds.
            ttl: How many seconds the message may wait from when it is due; then it expires.
            expires: When the message expires, instead of `ttl`: an aware datetime, or POSIX nanoseconds.
            priority: 0 to 255; queues with a priority take higher ones first.
            timeout: How many seconds to wait for room, if the queue is full; None: for ever. The call that makes room lets the
                message in at its end, first come, first served. Inside your own `building()` block it does not wait.

        Returns:
            The id that the queue issued: 1, 2, 3 and so on, also if the message went on at once. 0 if the message went to a dead
            letter queue instead, or through a transit queue, which issues none.

        Raises:
            QueueNotFound: No queue has this name, and no dead letter queue of the engine takes the message.
            QueueFull: The queue is full, also after `timeout`, and neither an overflow selector nor a dead letter queue takes the
                message.
            StoreFull, StoreFailed: The store cannot write it.
            Closed: The engine is closed.
            TypeError, ValueError: An argument is wrong.

        If it raises, nothing has changed.

        Cost: O(length of the address) the first time an address is seen, one look-up later; and the run that follows.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     engine.publish("jobs", "resize", b"cat.png", {"width": 80})
        1
        """
        if timeout != 0.0:
            times_given(delay, at, ttl, expires)        # raises for what is wrong, as without a timeout
            parts_given(optional_text(correlation_id, "correlation_id"), expires, priority)
            return self._publish_waiting(timeout, queue, address, body, headers, reply_to, message_id, correlation_id, delay, at,
                                         ttl, expires, priority)
        return self.publish_with(queue, address, body, headers, reply_to, message_id, correlation_id, delay, at, ttl, expires,
                                 priority)

    cdef uint64_t publish_with(
        self, object queue, object address, object body, object headers, object reply_to, object message_id,
        object correlation_id, object delay, object at, object ttl, object expires, object priority
    ) except? 0:
        """`publish` that does not wait."""
        cdef Times times = times_given(delay, at, ttl, expires)
        cdef str correlation = None if correlation_id is None else optional_text(correlation_id, "correlation_id")
        cdef parts_t parts
        cdef const parts_t* given = NULL
        cdef content_t* content
        if correlation is not None or expires is not None or ttl is not None or <void*> priority != <void*> NO_PRIORITY:
            parts = parts_given(correlation, expires, priority)
            parts.expires_later = ttl is not None
            given = &parts
        if isinstance(address, Message):
            content = content_alone(address, body, headers, reply_to, message_id, given)
        else:
            content = content_new(address, body, headers, reply_to, message_id, given)
        return self.publish_content(queue, content, times, NEVER)

    cdef uint64_t publish_content(self, object queue, content_t* content, Times times, int64_t delay) except? 0:
        """Publish one message; takes over the reference to its content. `times`, or `delay` in nanoseconds, says when; None and
        NEVER: at once."""
        cdef queue_t* named
        cdef uint64_t id
        cdef int64_t due = NEVER
        try:
            self.begin_call()
            try:
                named = self.queue_of(queue)
                if named != NULL:
                    prefetch_known_route(named, <object> content.address)
                if times is not None:
                    check_staged_times(named, times)
                    due = due_by(&self.e, times)
                    content = content_timed(&self.e, content, times, due)
                elif delay != NEVER:
                    check_no_delay(named)
                    due = due_at(&self.e, later(time_of(&self.e), delay))
                id = self.admit(named, queue, content, due, ROOM_IS_MADE)
                content = NULL
                go_on(&self.e)
            finally:
                self.unlock()
        finally:
            if content != NULL and self.e.at_rest == IDLE:
                content_release(content)
        return id

    def publish_many(
        self, queue, messages, *, correlation_id=None, delay=None, at=None, ttl=None, expires=None, priority=0, outcomes=False
    ):
        """Publish many messages with one call and one run: all of them enter the queue, or none does; or each for itself.

        Args:
            queue: The queue that the messages enter: its name, or a `Queue`.
            messages: An iterable of `Message` objects, or of tuples in the order of the arguments of `Message`: `(address, body,
                headers, reply_to, message_id)`, of which you may leave out the last ones.
            correlation_id, delay, at, ttl, expires, priority: As for `publish`, of all messages. A `Message` has its own
                `correlation_id`, `expires` and `priority`: beside one give none of these, and no `ttl` if it expires.
            outcomes: Whether each message is let in for itself, as far as there is room, and told of: no exception is raised for
                one that cannot enter.

        Returns:
            The range of the ids that the queue issued. With `outcomes`: a list with an `Outcome` for each message, which says
            what became of it in this call: its id, how many queues took it, how many refused it, and more.

        Raises:
            QueueNotFound: No queue has this name, and no dead letter queue of the engine takes the messages.
            QueueFull: The queue has no room for all messages.
            StoreFull, StoreFailed: The store cannot write them.
            Closed: The engine is closed.
            TypeError, ValueError: A message is wrong.

        If it raises, nothing has changed.

        Cost: O(messages), each as with `publish` without the call; and the run that follows.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     engine.publish_many("jobs", [("resize", b"cat.png"), ("rotate", b"dog.png")])
        range(1, 3)
        """
        cdef Admissions batch = Admissions.__new__(Admissions)
        cdef Times times = times_given(delay, at, ttl, expires)
        cdef str correlation = optional_text(correlation_id, "correlation_id")
        cdef parts_t parts = parts_given(correlation, expires, priority)
        cdef const parts_t* given = NULL
        cdef Py_ssize_t i
        parts.expires_later = ttl is not None
        if correlation is not None or parts.expires != NEVER or parts.expires_later or parts.priority:
            given = &parts
        if isinstance(messages, list) and <list> messages:
            batch.reserve(len(<list> messages))
        for message in messages:
            batch.push(content_of(message, given))
        batch.name = queue
        self.begin_call()
        try:
            batch.timed = times is not None
            if batch.timed:
                check_staged_times(self.queue_of(queue), times)
            for i in range(batch.count if batch.timed else 0):
                set_times(&self.e, &batch.items[i], times)
            if outcomes:
                return self.publish_all_asking(batch, self.queue_of(queue))
            return self.admit_all(batch, self.queue_of(queue))
        finally:
            self.unlock()

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


# ---- the short way

cdef object publish_short(object self, PyObject** args, Py_ssize_t count, PyObject* names):
    """`publish` with nothing but what most messages have; other calls go a longer way."""
    cdef PyObject* reply_to = NONE
    cdef PyObject* message_id = NONE
    cdef Py_ssize_t i
    cdef content_t* content
    cdef object address, body, headers
    cdef early_t early
    cdef bint hashed = False
    if not 1 <= count <= 4:
        return publish_long(self, args, count, names)
    for i in range(name_count(names) if names != NULL else 0):
        if name_at(names, i) == <PyObject*> REPLY_TO:
            reply_to = args[count + i]
        elif name_at(names, i) == <PyObject*> MESSAGE_ID:
            message_id = args[count + i]
        else:
            return publish_rarer(self, args, count, names)
    address = <object> args[1] if count > 1 else NO_TEXT
    body = <object> args[2] if count > 2 else NO_BYTES
    headers = <object> args[3] if count > 3 else None
    if PyUnicode_CheckExact(address):
        if <void*> args[0] == (<EnginePublish> self).e.called_name:
            prefetch_known((<EnginePublish> self).e.called, address)
            if message_id != NONE:
                hashed = hash_early((<EnginePublish> self).e.called, message_id, &early)
        content = content_new(address, body, headers, <object> reply_to, <object> message_id, NULL)
        if hashed and <void*> args[0] == (<EnginePublish> self).e.called_name:
            hash_known((<EnginePublish> self).e.called, content, &early)
    elif isinstance(address, Message):
        content = content_alone(address, body, headers, <object> reply_to, <object> message_id, NULL)
    else:
        content = content_new(address, body, headers, <object> reply_to, <object> message_id, NULL)
    return (<EnginePublish> self).publish_content(<object> args[0], content, None, NEVER)


cdef object publish_rarer(object self, PyObject** args, Py_ssize_t count, PyObject* names):
    """`publish` with what any message may have. One that may have to wait goes the longest way."""
    cdef PyObject* reply_to = NONE
    cdef PyObject* message_id = NONE
    cdef PyObject* correlation_id = NONE
    cdef PyObject* delay = NONE
    cdef PyObject* at = NONE
    cdef PyObject* ttl = NONE
    cdef PyObject* expires = NONE
    cdef PyObject* priority = <PyObject*> NO_PRIORITY
    cdef PyObject* name
    cdef PyObject* value
    cdef Py_ssize_t i
    for i in range(name_count(names)):
        name = name_at(names, i)
        value = args[count + i]
        if name == <PyObject*> DELAY:
            delay = value
        elif name == <PyObject*> AT:
            at = value
        elif name == <PyObject*> TTL:
            ttl = value
        elif name == <PyObject*> EXPIRES:
            expires = value
        elif name == <PyObject*> PRIORITY:
            priority = value
        elif name == <PyObject*> CORRELATION_ID:
            correlation_id = value
        elif name == <PyObject*> REPLY_TO:
            reply_to = value
        elif name == <PyObject*> MESSAGE_ID:
            message_id = value
        else:
            return publish_long(self, args, count, names)
    if delay != NONE and at == NONE and ttl == NONE and expires == NONE and correlation_id == NONE and (
            priority == <PyObject*> NO_PRIORITY and count > 1 and PyUnicode_CheckExact(<object> args[1])):
        return publish_delayed(self, args, count, reply_to, message_id, seconds_ns(<object> delay, "delay"))
    return (<EnginePublish> self).publish_with(
        <object> args[0], <object> args[1] if count > 1 else NO_TEXT, <object> args[2] if count > 2 else NO_BYTES,
        <object> args[3] if count > 3 else None, <object> reply_to, <object> message_id, <object> correlation_id,
        <object> delay, <object> at, <object> ttl, <object> expires, <object> priority)


cdef object publish_delayed(
    object self, PyObject** args, Py_ssize_t count, PyObject* reply_to, PyObject* message_id, int64_t delay
):
    """`publish` with nothing but a delay beside what most messages have. It needs no object for its times."""
    cdef content_t* content = content_new(
        <object> args[1], <object> args[2] if count > 2 else NO_BYTES, <object> args[3] if count > 3 else None, <object> reply_to,
        <object> message_id, NULL)
    return (<EnginePublish> self).publish_content(<object> args[0], content, None, delay)


cdef call_t publish_long = short_call(EnginePublish, b"publish", publish_short)


# ---- checks and times

cdef int set_times(engine_t* engine, admission_t* item, Times times) except -1:
    """Set when a message is due and when it expires, by the time of this call."""
    item.due = due_by(engine, times)
    item.content = content_timed(engine, item.content, times, item.due)
    return 0


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


cdef int check_staged_times(queue_t* queue, Times times) except -1:
    return check_no_delay(queue) if times is not None and times.delay != NEVER else 0


cdef int check_no_delay(queue_t* queue) except -1:
    """Raises ValueError for a staged queue, whose messages may have no delay."""
    if queue != NULL and queue.staged:
        raise ValueError(f"queue {(<QueueHandle> queue.handle).name!r} is staged, and a delay cannot begin before its messages "
                         "enter another queue: publish without delay, or with at")
    return 0
