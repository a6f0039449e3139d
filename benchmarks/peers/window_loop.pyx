"""The window of message ids without Python around it: each id is hashed, looked for and added in a compiled loop."""

from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT64_MAX, uint64_t
from posix.time cimport CLOCK_THREAD_CPUTIME_ID, clock_gettime, timespec

from xump_ext.memory.siphash cimport hash128_t
from xump_ext.state.window cimport (
    window_add, window_bytes, window_count, window_fetch, window_find, window_free, window_hash, window_new, window_reserve,
    window_t, window_trim,
)


cdef double now() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return time.tv_sec * 1e9 + time.tv_nsec


cdef class Loop:
    """A window that remembers the newest `limit` ids."""

    cdef window_t* window
    cdef uint64_t id

    def __cinit__(self, limit):
        self.window = window_new(INT64_MAX, limit, 0x243f6a8885a308d3, 0x13198a2e03707344)

    def published(self, list ids):
        """Each id is looked for, and added if it is new; then the oldest is forgotten. Nanoseconds, and how many were known."""
        cdef double start = now()
        cdef hash128_t hash
        cdef uint64_t known = 0
        for message_id in ids:
            hash = self.hash(message_id)
            known += self.known(&hash)
        return now() - start, known

    def fetched(self, list ids):
        """The same, but what an id needs is fetched while the one before is at work, as while a message is made."""
        cdef double start = now()
        cdef hash128_t hash, after = self.hash(ids[0])
        cdef Py_ssize_t i
        cdef uint64_t known = 0
        for i in range(len(ids)):
            hash = after
            if i + 1 < len(ids):
                after = self.hash(ids[i + 1])
                window_fetch(self.window, &after)
            known += self.known(&hash)
        return now() - start, known

    cdef hash128_t hash(self, str message_id):
        cdef Py_ssize_t size
        cdef const char* text = PyUnicode_AsUTF8AndSize(message_id, &size)
        return window_hash(self.window, text, size)

    cdef bint known(self, const hash128_t* hash) except -1:
        if window_find(self.window, hash, self.id):
            return True
        window_reserve(self.window)
        self.id += 1
        window_add(self.window, hash, self.id, self.id)
        window_trim(self.window, self.id)
        return False

    def hashed(self, list ids):
        """Each id is hashed. Nanoseconds."""
        cdef double start = now()
        cdef uint64_t all = 0
        for message_id in ids:
            all ^= self.hash(message_id).low
        assert all
        return now() - start

    def bytes_an_id(self):
        return window_bytes(self.window) / window_count(self.window)

    def __dealloc__(self):
        if self.window != NULL:
            window_free(self.window)
