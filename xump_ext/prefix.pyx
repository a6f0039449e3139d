"""Prefixes: which of many texts does a value start with.

All prefixes lie in one hash table, and an ascending list says which lengths there are. A look-up goes through the value
once, carries the hash along byte by byte, and asks the table wherever a prefix could end: O(length of the value) steps,
however many prefixes there are. Bytes serve for characters: in UTF-8 no character starts inside another.
"""

cimport cython
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from xump_ext.checks cimport require
from xump_ext.hits cimport hits_free
from xump_ext.items cimport blocks_free, blocks_size, items_hit
from xump_ext.texts cimport (
    HASH_A, HASH_B, text_of, text_t, texts_add_item, texts_check_items, texts_find, texts_free, texts_remove_item, texts_size)


cdef inline uint64_t rolled(uint64_t hashed, const char* at, const char* end) noexcept nogil:
    """The hash carried on to `end`."""
    while at < end:
        hashed = (hashed ^ <unsigned char> at[0]) * <uint64_t> HASH_A
        hashed ^= hashed >> 32
        at += 1
    return hashed


cdef inline uint64_t sealed(uint64_t hashed) noexcept nogil:
    """The hash of what was carried so far, with its bits well spread."""
    hashed *= <uint64_t> HASH_B
    return hashed ^ hashed >> 32


@cython.final
cdef class PrefixIndex:
    """Prefixes and the items behind them. `match` costs a step per byte, and a look-up per length that some prefix has.

    >>> index = PrefixIndex()
    >>> index.add("order", 1), index.add("", 2)
    (True, True)
    >>> index.match_list("orders.eu"), index.match_list("bills")
    ([1, 2], [2])
    """

    def __cinit__(self):
        self.texts.seed = <uint64_t> <Py_ssize_t> hash("xump")

    def __dealloc__(self):
        self.release()

    def __len__(self):
        return self.item_count

    def add(self, str pattern not None, uint32_t item):
        """Whether the item is new for this prefix; if not, nothing has changed. Costs a step per byte."""
        cdef bytes text = pattern.encode("utf-8", "surrogatepass")
        return self.insert(text, len(text), item)

    def remove(self, str pattern not None, uint32_t item):
        """Whether the item was there. Costs a step per byte; what no prefix needs any more is freed."""
        cdef bytes text = pattern.encode("utf-8", "surrogatepass")
        return self.erase(text, len(text), item)

    def match_list(self, str value not None):
        """The items of all prefixes of `value`, sorted."""
        cdef hits_t hits = hits_t(NULL, 0, 0)
        cdef bytes text = value.encode("utf-8", "surrogatepass")
        try:
            self.match(text, len(text), &hits)
            return sorted([hits.items[i] for i in range(hits.count)])
        finally:
            hits_free(&hits)

    def __sizeof__(self):
        return object.__sizeof__(self) + self.size()

    cdef size_t size(self) noexcept:
        """Bytes held beside the object itself."""
        return texts_size(&self.texts) + blocks_size(&self.blocks) + self.length_capacity * sizeof(length_t)

    cdef bint insert(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1:
        cdef uint64_t hashed = sealed(rolled(self.texts.seed, pattern, pattern + pattern_bytes))
        cdef size_t texts = self.texts.count
        cdef bint new
        self.lengths_reserve()
        new = texts_add_item(&self.texts, &self.blocks, hashed, 0, pattern, pattern_bytes, item)
        if self.texts.count > texts:
            self.length_gain(<uint32_t> pattern_bytes)
        self.item_count += new
        return new

    cdef bint erase(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1:
        cdef uint64_t hashed = sealed(rolled(self.texts.seed, pattern, pattern + pattern_bytes))
        cdef size_t texts = self.texts.count
        if not texts_remove_item(&self.texts, &self.blocks, hashed, 0, pattern, pattern_bytes, item):
            return False
        if self.texts.count < texts:
            self.length_lose(<uint32_t> pattern_bytes)
        self.item_count -= 1
        if self.item_count == 0:
            self.release()
        return True

    cdef int match(self, const char* value, size_t value_bytes, hits_t* hits) except -1 nogil:
        cdef uint64_t hashed = self.texts.seed
        cdef uint32_t i, text_bytes, at = 0
        cdef text_t* found
        for i in range(self.length_count):
            text_bytes = self.lengths[i].text_bytes
            if text_bytes > value_bytes:
                break
            hashed = rolled(hashed, value + at, value + text_bytes)
            at = text_bytes
            found = texts_find(&self.texts, sealed(hashed), 0, value, text_bytes)
            if found != NULL:
                items_hit(&self.blocks, &found.meaning.items, hits)
        return 0

    # ---- lengths

    cdef int lengths_reserve(self) except -1:
        """Room for one length more, so that counting it cannot fail."""
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
        """Where the length is or would be."""
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
        self.lengths[at].texts += 1

    cdef void length_lose(self, uint32_t text_bytes) noexcept:
        """Forgets a prefix."""
        cdef uint32_t at = self.length_place(text_bytes)
        self.lengths[at].texts -= 1
        if self.lengths[at].texts == 0:
            self.length_count -= 1
            memmove(self.lengths + at, self.lengths + at + 1, (self.length_count - at) * sizeof(length_t))

    cdef void release(self) noexcept:
        """Gives all memory back; the index is as new."""
        texts_free(&self.texts)
        blocks_free(&self.blocks)
        free(self.lengths)
        self.lengths = NULL
        self.length_count = self.length_capacity = 0

    # ---- checking

    def counts(self):
        """What is held, by kind; all 0 when there are no prefixes."""
        return {"items": self.item_count, "texts": self.texts.count, "lengths": self.length_count, "blocks": self.blocks.used}

    def check(self):
        """Verify every invariant from scratch; raises AssertionError. Costs a walk over the prefixes."""
        cdef size_t items = 0, blocks = 0, i
        cdef uint64_t hashed
        cdef dict lengths = {}
        cdef text_t* text
        texts_check_items(&self.texts, &self.blocks, &items, &blocks)
        require(items == self.item_count, "items are counted")
        require(blocks == self.blocks.used, "every block of items belongs to a prefix")
        for i in range(self.texts.capacity):
            text = self.texts.slots[i].text
            if text != NULL:
                hashed = sealed(rolled(self.texts.seed, text_of(text), text_of(text) + text.text_bytes))
                require(self.texts.slots[i].hash == hashed, "a prefix has its hash")
                lengths[text.text_bytes] = lengths.get(text.text_bytes, 0) + 1
        listed = [(self.lengths[i].text_bytes, self.lengths[i].texts) for i in range(self.length_count)]
        require(listed == sorted(lengths.items()), "lengths are listed in order, and counted")
