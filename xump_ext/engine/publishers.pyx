"""Publishers that wait for room: a part of the engine's class.

The engine is one class in nine files (`engine_lock.pyx` says why). `EnginePublishers` adds what `publish(timeout=)` needs. A
call that may have made room lets publishers in at its end, first come, first served (`let_in`). `transactions.pyx` goes on; its
transactions wait for room here, too.

A durable store may have to clean its log for a publisher, and the engine lock is given up meanwhile. So that comes first, then it
is asked whether the publisher still waits, and then it enters without the lock being given up: else it could enter twice.
"""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.engine.enqueue cimport ROOM_AS_IT_IS
from xump_ext.engine.publish cimport check_staged_times
from xump_ext.errors import QueueFull
from xump_ext.message.content cimport content_release, content_share, parts_t
from xump_ext.message.headers cimport content_t
from xump_ext.message.message cimport Message, content_alone, content_new, optional_text, parts_given
from xump_ext.message.times cimport NEVER, times_given
from xump_ext.route.admission cimport admission_bytes
from xump_ext.route.arrivals cimport content_timed, due_by
from xump_ext.route.clock cimport time_of
from xump_ext.route.routing cimport go_on
from xump_ext.state.constants cimport BUSY
from xump_ext.state.envelope cimport name_text
from xump_ext.state.graph cimport queue_t


cdef class Publisher:
    def __dealloc__(self):
        if self.content != NULL:
            content_release(self.content)

    @property
    def waits(self):
        """Whether it still waits."""
        return not self.over


cdef class EnginePublishers(EnginePublish):
    """A part of the engine's class: messages that waited for room come in."""

    def _publish_later(self, list held not None, wake, queue, address, body, headers, reply_to, message_id, correlation_id, delay,
                       at, ttl, expires, priority):
        """Publish a message when there is room for it, at once if there is; the `Publisher` tells, which `held` has as soon as it
        may wait: a signal may come before this returns. `wake()` is called when it waits no more; None: it is for `_sleep`."""
        cdef Publisher publisher = Publisher.__new__(Publisher)
        cdef str correlation = optional_text(correlation_id, "correlation_id")
        cdef parts_t given = parts_given(correlation, expires, priority)
        publisher.times = times_given(delay, at, ttl, expires)
        given.expires_later = ttl is not None
        if isinstance(address, Message):
            publisher.content = content_alone(address, body, headers, reply_to, message_id, &given)
        else:
            publisher.content = content_new(address, body, headers, reply_to, message_id, &given)
        publisher.queue = queue
        publisher.call = wake
        self.begin_waiting(publisher, held)
        return publisher

    def _publish_no_more(self, Publisher publisher):
        """The publish waits no more; False: it did not any more."""
        self.lock()
        try:
            if publisher.over:
                return False
            self.end_waiting(publisher)
        finally:
            self.unlock_now()
        if self.publishers:         # one behind it may need less room
            self.tick()
        return True

    cdef int begin_waiting(self, Publisher publisher, list held) except -1:
        self.begin_call()
        try:
            held.append(publisher)
            publisher.line = name_text(publisher.queue)
            self.last_sleeper += 1
            publisher.arrival = self.last_sleeper
            self.publishers.setdefault(publisher.line, {})[publisher] = True
            self.waits += 1
        finally:
            self.unlock()           # which lets it in, if there is room
        return 0

    cdef int end_waiting(self, Publisher publisher) except -1:
        publisher.over = True
        if publisher.content != NULL:
            content_release(publisher.content)
            publisher.content = NULL
        line = self.publishers[publisher.line]
        del line[publisher]
        if not line:
            del self.publishers[publisher.line]
        self.waits -= 1
        return 0

    cdef int let_in(self) except -1:
        """Let in those publishers that wait and for which there is room now, first come, first served, each followed by a
        run. None passes another one of the same queue. A call that lets none in costs O(queues that publishers wait for)."""
        cdef Publisher publisher
        cdef bint again = True
        while again and self.e.building == 0 and self.state == BUSY:
            again = False
            for _, publisher in self.first_in_lines():
                again = not publisher.over and self.let_in_one(publisher)   # over: its time ended while others had the lock
                if again:
                    break
        return 0

    cdef list first_in_lines(self):
        """(arrival, publisher) of the first in the line of each queue, in the order in which they came."""
        cdef Publisher publisher
        cdef list first = []
        for line in self.publishers.values():
            publisher = next(iter(line))
            first.append((publisher.arrival, publisher))
        first.sort()
        return first

    cdef bint let_in_one(self, Publisher publisher) except -1:
        """Let a publisher in; False: there is no room for it. True: it waits no more, or the engine may be another one now."""
        cdef bint entering = False
        try:
            self.make_room_late(publisher)
            if publisher.over or self.e.building:       # others have called meanwhile
                return True
            entering = self.keeps_lock = True
            self.enter_late(publisher)
        except QueueFull as error:
            publisher.error = error
            return False
        except Exception as error:
            if self.state != BUSY or (publisher.over and not entering):     # the engine was closed meanwhile; or as above
                return True
            publisher.error = error
            if not publisher.over:
                self.end_waiting(publisher)
        except BaseException as error:      # user code has raised it to end this call
            if entering and not publisher.over:
                publisher.error = error
                self.end_waiting(publisher)
            raise
        finally:
            self.keeps_lock = False
            if entering and publisher.over:
                publisher.serve()
        return True

    cdef int make_room_late(self, Publisher publisher) except -1:
        """Let the store of its queue clean its log, if it must to take it. The engine lock is given up meanwhile."""
        cdef queue_t* queue = self.queue_of(publisher.queue)
        cdef uint64_t bytes = admission_bytes(publisher.content)
        if queue != NULL and queue.durable:
            self.with_room(queue, publisher.queue, bytes, bytes)
        return 0

    cdef int enter_late(self, Publisher publisher) except -1:
        """Publish it; raises QueueFull if there is no room."""
        cdef int64_t due = NEVER
        cdef content_t* content = content_share(publisher.content)
        try:
            if publisher.times is not None:
                time_of(&self.e)
                check_staged_times(self.queue_of(publisher.queue), publisher.times)
                due = due_by(&self.e, publisher.times)
                content = content_timed(&self.e, content, publisher.times, due)
            publisher.id = self.admit(self.queue_of(publisher.queue), publisher.queue, content, due, ROOM_AS_IT_IS)
        except BaseException:
            content_release(content)
            raise
        publisher.error = None
        self.end_waiting(publisher)
        return go_on(&self.e)
