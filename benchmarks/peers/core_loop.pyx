"""The core without Python around it: messages are made, enter a queue and are deleted, in a compiled loop."""

from libc.stdint cimport uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from xump_ext.building cimport message_delete
from xump_ext.core cimport Core
from xump_ext.faces cimport QueueFace
from xump_ext.graph cimport entry_t
from xump_ext.index cimport index_from, index_get
from xump_ext.ledger cimport enter
from xump_ext.message cimport content_new
from xump_ext.routing cimport go_on


cdef double now() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec * 1e9 + time.tv_nsec


def dropped(Core core not None, QueueFace queue not None, str address, bytes body, headers, Py_ssize_t count):
    """Make, queue and delete one after the other, as one call. Nanoseconds."""
    cdef double start = now()
    cdef Py_ssize_t _
    cdef uint64_t id
    core.begin()
    for _ in range(count):
        id = enter(&core.e, queue.queue, content_new(address, body, headers, None, None), 0, 0, 0, NULL, NULL)
        message_delete(&core.e, index_get(&queue.queue.index, id))
    go_on(&core.e)
    core.leave()
    return now() - start


def called(Core core not None, QueueFace queue not None, str address, bytes body, headers, Py_ssize_t count):
    """As `dropped`, but each message is two calls, which read the clock and drive the graph. Nanoseconds."""
    cdef double start = now()
    cdef Py_ssize_t _
    cdef uint64_t id
    for _ in range(count):
        core.begin()
        id = enter(&core.e, queue.queue, content_new(address, body, headers, None, None), 0, 0, 0, NULL, NULL)
        go_on(&core.e)
        core.leave()
        core.begin()
        message_delete(&core.e, index_get(&queue.queue.index, id))
        go_on(&core.e)
        core.leave()
    return now() - start


def held(Core core not None, QueueFace queue not None, str address, bytes body, headers, Py_ssize_t count):
    """Make and queue all, then delete all, the oldest first. Nanoseconds for each half."""
    cdef double start = now(), middle
    cdef Py_ssize_t _
    cdef entry_t* entry
    core.begin()
    for _ in range(count):
        enter(&core.e, queue.queue, content_new(address, body, headers, None, None), 0, 0, 0, NULL, NULL)
    go_on(&core.e)
    core.leave()
    middle = now()
    core.begin()
    entry = index_from(&queue.queue.index, 1)
    while entry != NULL:
        message_delete(&core.e, entry)
        entry = index_from(&queue.queue.index, 1)
    go_on(&core.e)
    core.leave()
    return middle - start, now() - middle
