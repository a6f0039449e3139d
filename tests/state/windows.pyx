"""The window of a queue, and its hash, for tests that compare it with a list. Compiled by the tests; nothing here is shipped."""

from xump_ext.memory.siphash cimport hash128_t, siphash
from xump_ext.memory.slab cimport slab_check
from xump_ext.state.window cimport (
    window_add, window_bytes, window_check, window_count, window_find, window_free, window_hash, window_mark, window_new,
    window_record, window_reserve, window_t, window_trim, window_undo_to,
)


def hashed(key, more_key, bytes text):
    """The 16 bytes of SipHash-1-3-128, as they are published."""
    cdef hash128_t hash = siphash(key, more_key, <const char*> text, len(text))
    return int(hash.low).to_bytes(8, "little") + int(hash.high).to_bytes(8, "little")


cdef class Window:
    """Message ids are bytes. With `bits`, that many bits of the half of a hash that chooses the bucket are left."""

    cdef window_t* window
    cdef int bits

    def __cinit__(self, span, limit, bits=64):
        self.bits = bits
        self.window = window_new(span, limit, 0x0706050403020100, 0x0f0e0d0c0b0a0908)

    cdef hash128_t hash(self, bytes text):
        cdef hash128_t hash = window_hash(self.window, <const char*> text, len(text))
        if self.bits < 64:
            hash.low &= (<unsigned long long> 1 << self.bits) - 1
        return hash

    def find(self, bytes text, now):
        cdef hash128_t hash = self.hash(text)
        return window_find(self.window, &hash, now)

    def add(self, bytes text, id, time):
        cdef hash128_t hash = self.hash(text)
        window_reserve(self.window)
        window_add(self.window, &hash, id, time)

    def trim(self, now):
        return window_trim(self.window, now)

    def mark(self):
        return window_mark(self.window)

    def undo_to(self, mark):
        window_undo_to(self.window, mark)

    def records(self):
        """(id, time), the oldest first."""
        records = []
        for at in range(window_count(self.window)):
            records.append((window_record(self.window, at).id, window_record(self.window, at).time))
        return records

    def copy(self):
        """Another one, of what is saved of this one."""
        made = Window(self.window.span, self.window.limit, self.bits)
        for at in range(window_count(self.window)):
            record = window_record(self.window, at)
            window_reserve((<Window> made).window)
            window_add((<Window> made).window, &record.hash, record.id, record.time)
        return made

    def bytes(self):
        return window_bytes(self.window)

    def check(self):
        window_check(self.window)
        slab_check()

    def close(self):
        if self.window != NULL:
            window_free(self.window)
        self.window = NULL

    def __dealloc__(self):
        self.close()
