"""Publishing: messages enter the engine from outside (rule 1).

The engine is one class in nine files (`engine_lock.pyx` says why). `EnginePublish` comes after `EngineEnqueue` in
`enqueue.pyx`. It adds `publish` (one message) and `publish_many` (many, and one run). `publishers.pyx` goes on.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from xump_ext.engine.enqueue cimport ROOM_IS_MADE
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.errors import iterator_of
from xump_ext.memory.short_call cimport call_t, name_at, name_count, short_call
from xump_ext.message.content cimport content_release, parts_t
from xump_ext.message.headers cimport content_t
from xump_ext.message.message cimport Message, content_alone, content_new, content_of, optional_text, parts_given
from xump_ext.message.times cimport NEVER, Times, later, seconds_ns, times_given
from xump_ext.route.admission cimport Admissions, admission_t
from xump_ext.route.arrivals cimport content_timed, due_at, due_by
from xump_ext.route.clock cimport time_of
from xump_ext.route.duplicates cimport early_t, hash_early, hash_known
from xump_ext.route.routing cimport go_on
from xump_ext.select.plan cimport prefetch_known, prefetch_known_route
from xump_ext.state.constants cimport IDLE
from xump_ext.state.graph cimport engine_t, queue_t

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object)
    PyObject* NONE "Py_None"

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


cdef class EnginePublish(EngineEnqueue):
    """A part of the engine's class: messages come in."""

    def publish(
        self, queue, address="", body=b"", headers=None, *, reply_to=None, message_id=None, correlation_id=None, delay=None,
        at=None, ttl=None, expires=None, priority=0, timeout=0.0,
    ):
        """Publish a message into a queue, and run the graph until nothing more happens.

        Args:
            queue: The queue that the message enters: its name, or a `Queue`.
            address: The text that the message is routed by (a routing key), at most 65,534 bytes of UTF-8; or a whole
                `Message`: then pass only `delay`, `at`, `ttl` and `timeout` with it.
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
            timeout: How many seconds to wait for room, if the queue is full; None: for ever. Before the call that makes
                room returns, it lets in the publishers that wait, first come, first served. Inside your own `building()` block it
                does not wait.

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
            correlation_id, delay, at, ttl, expires, priority: As for `publish`, of all messages. If you publish `Message`
                objects, set these in each of them: do not pass `correlation_id`, `expires` or `priority` here, nor `ttl` if one
                of them has `expires`.
            outcomes: False: all messages enter, or the call raises and none does. True: each message enters if there is room for
                it, and the call returns an `Outcome` for each.

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
        cdef bint is_read = False       # a message was, and is looked at
        if outcomes is not True and outcomes is not False:
            raise TypeError(f"outcomes must be a bool, got {outcomes!r}")
        parts.expires_later = ttl is not None
        if correlation is not None or parts.expires != NEVER or parts.expires_later or parts.priority:
            given = &parts
        if type(messages) is not list:
            messages = iterator_of(messages, "messages must be an iterable of Message objects or tuples")
        elif <list> messages:
            batch.reserve(len(<list> messages))
        try:
            for message in messages:
                is_read = True
                batch.push(content_of(message, given))
                is_read = False
        except (TypeError, ValueError) as error:
            if is_read:         # else it is one of the iterable
                error.add_note(f"It is number {batch.count} of the messages, counted from 0.")
            raise
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


cdef int check_staged_times(queue_t* queue, Times times) except -1:
    return check_no_delay(queue) if times is not None and times.delay != NEVER else 0


cdef int check_no_delay(queue_t* queue) except -1:
    """Raises ValueError for a staged queue, whose messages may have no delay."""
    if queue != NULL and queue.staged:
        raise ValueError(f"queue {(<QueueHandle> queue.handle).name!r} is staged, and a delay cannot begin before its messages "
                         "enter another queue: publish without delay, or with at")
    return 0
