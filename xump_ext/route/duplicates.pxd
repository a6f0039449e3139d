"""Declarations of `duplicates.pyx`."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from xump_ext.memory.siphash cimport hash128_t
from xump_ext.message.headers cimport ascii_of, content_t
from xump_ext.state.graph cimport queue_t
from xump_ext.state.window cimport window_fetch, window_hash, window_t

cdef struct early_t:        # the hash of a message_id whose message is not made yet, and the key that it was made with
    hash128_t hash
    uint64_t key
    uint64_t more_key

cdef inline bint hash_early(const queue_t* queue, PyObject* message_id, early_t* early) noexcept:
    """Hashes the message_id of a message that comes soon, and has the memory fetched that `duplicate_of` will read. False: the
    queue has no window, or the id is no plain text."""
    cdef const window_t* window = <const window_t*> queue.window
    cdef Py_ssize_t size
    cdef const char* text = NULL
    if window != NULL:
        text = ascii_of(message_id, &size)
    if text == NULL:
        return False
    early.hash = window_hash(window, text, size)
    early.key, early.more_key = window.key, window.more_key
    window_fetch(window, &early.hash)
    return True

# The message is made: `duplicate_of` need not hash its id again, if this is still the same window.
cdef void hash_known(queue_t* queue, content_t* content, const early_t* early) noexcept

# The id of the message of which this publish is a duplicate; 0: it is none.
cdef uint64_t duplicate_of(queue_t* queue, const content_t* content) except? 0
# A publish into a queue in RAM that has room and looks for duplicates: its id, or that of the message that it is a duplicate of.
# Takes over the reference to `content`, unless it raises.
cdef uint64_t enter_once(queue_t* queue, content_t* content) except 0
# The publish enters under this id, if the call succeeds: later ones with its message_id are duplicates.
cdef int remember(queue_t* queue, const content_t* content, uint64_t id) except -1
# The publish has entered under this id. Forgets what is too old, too.
cdef int remember_for_good(queue_t* queue, const content_t* content, uint64_t id) except -1
