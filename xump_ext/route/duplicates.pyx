"""Duplicates: a publish with a `message_id` that a publish brought not long ago enters nothing, and has the first one's id.

The queue's window (`state/window.pyx`) remembers the ids; of a durable queue, its log does so, too (`log/seen.pyx`). COPY, MOVE
and what comes back neither ask nor count.
"""

from xump_ext.log.seen cimport log_forget, log_seen
from xump_ext.memory.canaries cimport DUPLICATE, strikes
from xump_ext.memory.siphash cimport hash128_t
from xump_ext.message.content cimport content_release
from xump_ext.message.headers cimport raw_text_of
from xump_ext.route.clock cimport time_of
from xump_ext.route.ledger cimport enter
from xump_ext.state.window cimport window_add, window_ask, window_count, window_hash, window_reserve, window_t, window_trim


cdef inline hash128_t hash_of(const window_t* window, const content_t* content) noexcept:
    cdef Py_ssize_t size
    cdef const char* text = raw_text_of(<object> content.message_id, &size)
    return window_hash(window, text, size)


cdef uint64_t duplicate_of(queue_t* queue, const content_t* content) except? 0:
    cdef window_t* window = <window_t*> queue.window
    if content.message_id == NULL:
        return 0
    if not content.is_hashed or window.asked_for != content:
        window.asked = hash_of(window, content)
        window.asked_for = content
    return window_ask(window, time_of(queue.engine))


cdef uint64_t enter_once(queue_t* queue, content_t* content) except 0:
    cdef window_t* window = <window_t*> queue.window
    cdef bint named = content.message_id != NULL
    cdef uint64_t id = duplicate_of(queue, content)
    if id:
        queue.duplicates += 1
        content_release(content)
        return id
    if named:
        window_reserve(window)
    id = enter(queue.engine, queue, content, 0, 0, 0, NULL, NULL)
    if named:                           # the content may be gone, but its hash is here
        window.asked_for = NULL
        window_add(window, &window.asked, id, time_of(queue.engine))
    window_trim(window, time_of(queue.engine))
    return id


cdef void hash_known(queue_t* queue, content_t* content, const early_t* early) noexcept:
    cdef window_t* window = <window_t*> queue.window
    if window != NULL and window.key == early.key and window.more_key == early.more_key:
        window.asked = early.hash
        window.asked_for = content
        content.is_hashed = True        # the next content at this address is another one, and says that it is not


cdef int remember(queue_t* queue, const content_t* content, uint64_t id) except -1:
    cdef window_t* window = <window_t*> queue.window
    if content.message_id == NULL:
        return 0
    if window.asked_for != content:     # most often it was looked for just now
        window.asked = hash_of(window, content)
        window.unknown = 0
    window.asked_for = NULL
    window_reserve(window)
    window_add(window, &window.asked, id, time_of(queue.engine))
    return 0


cdef int remember_for_good(queue_t* queue, const content_t* content, uint64_t id) except -1:
    cdef window_t* window = <window_t*> queue.window
    cdef uint64_t count, upto
    if content.message_id != NULL:
        remember(queue, content, id)
        if queue.durable:
            if not strikes(DUPLICATE, queue.engine.sequence):
                log_seen(queue)
    count = window_count(window)
    upto = window_trim(window, time_of(queue.engine))
    if upto and queue.durable:
        log_forget(queue, upto, count - window_count(window))
    return 0
