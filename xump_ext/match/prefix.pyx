"""An index of prefixes: finds those that a value starts with.

All prefixes lie in one hash table, and an ascending list has the lengths that occur. A look-up goes through the value once, byte
by byte, continues the hash, and asks the table at each length of the list. That is O(length of the value) steps, however many
prefixes there are. Comparing bytes is comparing characters: in UTF-8 no character starts inside another.
"""

cimport cython
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from xump_ext.match.posting_list cimport posting_arrays_free, posting_arrays_size, postings_collect
from xump_ext.match.string_table cimport (
    HASH_A, HASH_B, string_t, string_table_add_posting, string_table_check_postings, string_table_find, string_table_free,
    string_table_remove_posting, string_table_size, string_text,
)
from xump_ext.memory.require cimport require
from xump_ext.memory.u32_vector cimport u32_vector_free


cdef inline uint64_t rolled(uint64_t hashed, const char* at, const char* end) noexcept nogil:
    """The hash continued from `at` to `end`."""
    while at < end:
        hashed = (hashed ^ <unsigned char> at[0]) * <uint64_t> HASH_A
        hashed ^= hashed >> 32
        at += 1
    return hashed


cdef inline uint64_t sealed(uint64_t hashed) noexcept nogil:
    """The hash of the bytes so far, with its bits well spread."""
    hashed *= <uint64_t> HASH_B
    return hashed ^ hashed >> 32


@cython.final
cdef class PrefixIndex:
    """Prefixes and their postings. `match` costs a step for each byte, and a look-up for each length that a prefix has.

    >>> index = PrefixIndex()
    >>> index.add("order", 1), index.add("", 2)
    (True, True)
    >>> index.match_list("orders.eu"), index.match_list("bills")
    ([1, 2], [2])
    """

    def __cinit__(self):
        self.strings.seed = <uint64_t> <Py_ssize_t> hash("xump")

    def __dealloc__(self):
        self.release()

    def __len__(self):
        return self.item_count

    def add(self, str pattern not None, uint32_t item):
        """Adds an item to a prefix; returns whether it is new there. If not, nothing changes. A step for each byte."""
        cdef bytes text = pattern.encode("utf-8", "surrogatepass")
        return self.insert(text, len(text), item)

    def remove(self, str pattern not None, uint32_t item):
        """Removes an item from a prefix, and what no item needs any longer; returns whether it was there. A step for each
        byte."""
        cdef bytes text = pattern.encode("utf-8", "surrogatepass")
        return self.erase(text, len(text), item)

    def match_list(self, str value not None):
        """The items of all prefixes of `value`, sorted."""
        cdef u32_vector_t hits = u32_vector_t(NULL, 0, 0)
        cdef bytes text = value.encode("utf-8", "surrogatepass")
        try:
            self.match(text, len(text), &hits)
            return sorted([hits.items[i] for i in range(hits.count)])
        finally:
            u32_vector_free(&hits)

    def __sizeof__(self):
        return object.__sizeof__(self) + self.size()

    cdef size_t size(self) noexcept:
        """The bytes held beside the object itself."""
        return string_table_size(&self.strings) + posting_arrays_size(&self.arrays) + self.length_capacity * sizeof(length_t)

    cdef bint insert(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1:
        cdef uint64_t hashed = sealed(rolled(self.strings.seed, pattern, pattern + pattern_bytes))
        cdef size_t strings = self.strings.count
        cdef bint new
        self.lengths_reserve()
        new = string_table_add_posting(&self.strings, &self.arrays, hashed, 0, pattern, pattern_bytes, item)
        if self.strings.count > strings:
            self.length_gain(<uint32_t> pattern_bytes)
        self.item_count += new
        return new

    cdef bint erase(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1:
        cdef uint64_t hashed = sealed(rolled(self.strings.seed, pattern, pattern + pattern_bytes))
        cdef size_t strings = self.strings.count
        if not string_table_remove_posting(&self.strings, &self.arrays, hashed, 0, pattern, pattern_bytes, item):
            return False
        if self.strings.count < strings:
            self.length_lose(<uint32_t> pattern_bytes)
        self.item_count -= 1
        if self.item_count == 0:
            self.release()
        return True

    cdef int match(self, const char* value, size_t value_bytes, u32_vector_t* hits) except -1 nogil:
        cdef uint64_t hashed = self.strings.seed
        cdef uint32_t i, text_bytes, at = 0
        cdef string_t* found
        for i in range(self.length_count):
            text_bytes = self.lengths[i].text_bytes
            if text_bytes > value_bytes:
                break
            hashed = rolled(hashed, value + at, value + text_bytes)
            at = text_bytes
            found = string_table_find(&self.strings, sealed(hashed), 0, value, text_bytes)
            if found != NULL:
                postings_collect(&self.arrays, &found.meaning.postings, hits)
        return 0

    # ---- lengths

    cdef int lengths_reserve(self) except -1:
        """Makes room for one more length, so that counting it cannot fail."""
        cdef length_t* lengths
        cdef uint32_t capacity
        if self.length_count == self.length_capacity:
            capacity = self.length_capacity * 2 if self.length_capacity else 8
            lengths = <length_t*> realloc(self.lengths, capacity * sizeof(length_t))
            if lengths == NULL:
                raise MemoryError()
            self.lengths = lengths
            self.length_capacity = capacity
        return 0

    cdef uint32_t length_place(self, uint32_t text_bytes) noexcept:
        """The position that the length has, or would have."""
        cdef uint32_t low = 0, high = self.length_count, middle
        while low < high:
            middle = (low + high) >> 1
            if self.lengths[middle].text_bytes < text_bytes:
                low = middle + 1
            else:
                high = middle
        return low

    cdef void length_gain(self, uint32_t text_bytes) noexcept:
        """Counts a new prefix."""
        cdef uint32_t at = self.length_place(text_bytes)
        if at == self.length_count or self.lengths[at].text_bytes != text_bytes:
            memmove(self.lengths + at + 1, self.lengths + at, (self.length_count - at) * sizeof(length_t))
            self.lengths[at] = length_t(text_bytes, 0)
            self.length_count += 1
        self.lengths[at].strings += 1

    cdef void length_lose(self, uint32_t text_bytes) noexcept:
        """Counts a prefix that is removed."""
        cdef uint32_t at = self.length_place(text_bytes)
        self.lengths[at].strings -= 1
        if self.lengths[at].strings == 0:
            self.length_count -= 1
            memmove(self.lengths + at, self.lengths + at + 1, (self.length_count - at) * sizeof(length_t))

    cdef void release(self) noexcept:
        """Frees all memory; the index is empty again."""
        string_table_free(&self.strings)
        posting_arrays_free(&self.arrays)
        free(self.lengths)
        self.lengths = NULL
        self.length_count = self.length_capacity = 0

    # ---- checking

    def counts(self):
        """The number of things held, by kind; all 0 without prefixes."""
        return {"items": self.item_count, "texts": self.strings.count, "lengths": self.length_count, "blocks": self.arrays.used}

    def check(self):
        """Verifies every invariant from scratch; raises AssertionError. O(prefixes)."""
        cdef size_t postings = 0, arrays = 0, i
        cdef uint64_t hashed
        cdef dict lengths = {}
        cdef string_t* text
        string_table_check_postings(&self.strings, &self.arrays, &postings, &arrays)
        require(postings == self.item_count, "items are counted")
        require(arrays == self.arrays.used, "every block of items belongs to a prefix")
        for i in range(self.strings.capacity):
            text = self.strings.slots[i].text
            if text != NULL:
                hashed = sealed(rolled(self.strings.seed, string_text(text), string_text(text) + text.text_bytes))
                require(self.strings.slots[i].hash == hashed, "a prefix has its hash")
                lengths[text.text_bytes] = lengths.get(text.text_bytes, 0) + 1
        listed = [(self.lengths[i].text_bytes, self.lengths[i].strings) for i in range(self.length_count)]
        require(listed == sorted(lengths.items()), "lengths are listed in order, and counted")
