"""Publishers that wait for room: the fourth part of the engine's class.

The engine is one class in seven files (`engine_lock.pyx` says why). `EnginePublishers` adds what `publish(timeout=)` needs. A
call that may have made room lets publishers in at its end, first come, first served (`let_in`). `transactions.pyx` goes on.
"""

from libc.stdint cimport int64_t

from xump_ext.engine.publish cimport check_staged_times
from xump_ext.errors import QueueFull
from xump_ext.message.content cimport content_release, content_share, parts_t
from xump_ext.message.headers cimport content_t
from xump_ext.message.message cimport Message, content_alone, content_new, optional_text, parts_given
from xump_ext.message.times cimport NEVER, times_given
from xump_ext.route.arrivals cimport content_timed, due_by
from xump_ext.route.clock cimport time_of
from xump_ext.route.routing cimport go_on
from xump_ext.state.envelope cimport name_text


cdef class Publisher:
    def __dealloc__(self):
        if self.content != NULL:
            content_release(self.content)

    @property
    def waits(self):
        """Whether it still waits."""
        return self.content != NULL


cdef class EnginePublishers(EnginePublish):
    """The fourth part of the engine's class: messages that waited for room come in."""

    def _publish_later(self, wake, queue, address, body, headers, reply_to, message_id, correlation_id, delay, at, ttl, expires,
                       priority):
        """Publish a message when there is room for it, at once if there is; the `Publisher` tells. `wake()` is called when it
        waits no more; None: it is for `_sleep`."""
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
        self.begin_call()
        try:
            self.publishers.append(publisher)
            self.waits += 1
        finally:
            self.unlock()           # which lets it in, if there is room
        return publisher

    def _publish_no_more(self, Publisher publisher):
        """The publish waits no more; False: it did not any more."""
        self.lock()
        try:
            if publisher.content == NULL:
                return False
            self.publishers.remove(publisher)
            self.waits -= 1
            content_release(publisher.content)
            publisher.content = NULL
        finally:
            self.unlock_now()
        if self.publishers:         # one behind it may need less room
            self.tick()
        return True

    cdef int let_in(self) except -1:
        """Let in those publishers that wait and for which there is room now, first come, first served, each followed by a
        run. Nobody passes another one of the same queue."""
        cdef Publisher publisher
        cdef bint again = self.e.building == 0
        while again:
            again = False
            refused = set()
            for publisher in list(self.publishers):
                name = name_text(publisher.queue)
                if name in refused:
                    continue
                try:
                    self.enter_late(publisher)
                except QueueFull as error:
                    publisher.error = error
                    refused.add(name)
                    continue
                except Exception as error:
                    publisher.error = error
                    content_release(publisher.content)
                    publisher.content = NULL
                self.publishers.remove(publisher)
                self.waits -= 1
                publisher.serve()
                again = True
                break
        return 0

    cdef int enter_late(self, Publisher publisher) except -1:
        cdef int64_t due = NEVER
        cdef content_t* content = content_share(publisher.content)
        try:
            if publisher.times is not None:
                time_of(&self.e)
                check_staged_times(self.queue_of(publisher.queue), publisher.times)
                due = due_by(&self.e, publisher.times)
                content = content_timed(&self.e, content, publisher.times, due)
            publisher.id = self.admit(self.queue_of(publisher.queue), publisher.queue, content, due)
        except BaseException:
            content_release(content)
            raise
        content_release(publisher.content)
        publisher.content = NULL
        publisher.error = None
        return go_on(&self.e)
