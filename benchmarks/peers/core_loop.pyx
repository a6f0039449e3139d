"""The core without Python around it: messages are made, enter a queue and are deleted, in a compiled loop."""

from libc.stdint cimport uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from xump_ext.engine.core cimport Core
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.queue_edit cimport message_delete
from xump_ext.message.message cimport content_new
from xump_ext.route.ledger cimport enter
from xump_ext.route.routing cimport go_on
from xump_ext.state.graph cimport entry_t
from xump_ext.state.index cimport index_from, index_get


cdef double now() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec * 1e9 + time.tv_nsec


def dropped(Core core not None, QueueHandle queue not None, str address, bytes body, headers, Py_ssize_t count):
    """Make, queue and delete one after the other, as one call. Nanoseconds."""
    cdef double start = now()
    cdef Py_ssize_t _
    cdef uint64_t id
    core.begin_call()
    for _ in range(count):
        id = enter(&core.e, queue.queue, content_new(address, body, headers, None, None, NULL), 0, 0, 0, NULL, NULL)
        message_delete(&core.e, index_get(&queue.queue.index, id))
    go_on(&core.e)
    core.unlock()
    return now() - start


def called(Core core not None, QueueHandle queue not None, str address, bytes body, headers, Py_ssize_t count):
    """As `dropped`, but each message is two calls, which read the clock and drive the graph. Nanoseconds."""
    cdef double start = now()
    cdef Py_ssize_t _
    cdef uint64_t id
    for _ in range(count):
        core.begin_call()
        id = enter(&core.e, queue.queue, content_new(address, body, headers, None, None, NULL), 0, 0, 0, NULL, NULL)
        go_on(&core.e)
        core.unlock()
        core.begin_call()
        message_delete(&core.e, index_get(&queue.queue.index, id))
        go_on(&core.e)
        core.unlock()
    return now() - start


def held(Core core not None, QueueHandle queue not None, str address, bytes body, headers, Py_ssize_t count):
    """Make and queue all, then delete all, the oldest first. Nanoseconds for each half."""
    cdef double start = now(), middle
    cdef Py_ssize_t _
    cdef entry_t* entry
    core.begin_call()
    for _ in range(count):
        enter(&core.e, queue.queue, content_new(address, body, headers, None, None, NULL), 0, 0, 0, NULL, NULL)
    go_on(&core.e)
    core.unlock()
    middle = now()
    core.begin_call()
    entry = index_from(&queue.queue.index, 1)
    while entry != NULL:
        message_delete(&core.e, entry)
        entry = index_from(&queue.queue.index, 1)
    go_on(&core.e)
    core.unlock()
    return middle - start, now() - middle
