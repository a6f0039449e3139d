"""A hash table of byte strings: the words of topics, exact addresses, prefixes, names and values of headers.

Open addressing with linear probing over slots of 16 bytes (the whole hash, and a pointer to the text with what is known
of it); at most half of the slots are used, so a look-up that fails costs one cache line, and one that finds two. A
removed slot is filled by those behind it, so there are no tombstones and a long life does not slow the table down.

The owner computes the hash, because words and prefixes have cheaper ways to it. Hashes are seeded by Python's own
(PYTHONHASHSEED): who sends patterns cannot aim at one slot.
"""

from cpython.mem cimport PyObject_Free, PyObject_Malloc
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from xump_ext.cells cimport memory_zeroed
from xump_ext.checks cimport require
from xump_ext.items cimport blocks_t, items_add, items_check, items_remove, items_t

cdef enum:
    TEXT_SLOTS_MIN = 16

cdef enum: HASH_A = 0xFF51AFD7ED558CCD      # odd, and with half of their bits set: the mixers of MurmurHash3
cdef enum: HASH_B = 0xC4CEB9FE1A85EC53

cdef union meaning_t:
    items_t items           # of a pattern or value
    uint64_t id             # of a word or name: never 0, never used again

cdef struct text_t:
    uint64_t group          # texts of different groups are different
    meaning_t meaning
    uint32_t references     # of a word or name
    uint32_t text_bytes
    # char text[text_bytes]

cdef struct slot_t:
    uint64_t hash
    text_t* text            # NULL: empty

cdef struct texts_t:
    slot_t* slots
    size_t capacity         # a power of two, or 0
    size_t count
    size_t size             # bytes of all texts
    uint64_t seed

cdef inline const char* text_of(const text_t* text) noexcept nogil:
    return <const char*> text + sizeof(text_t)


cdef inline uint64_t text_hash(uint64_t seed, const char* text, size_t text_bytes) noexcept nogil:
    """Eight bytes a step; the last step may overlap the one before, the length tells such texts apart."""
    cdef uint64_t chunk = 0
    cdef uint64_t hashed = (seed ^ text_bytes) * <uint64_t> HASH_B
    cdef uint32_t half
    cdef size_t left = text_bytes
    while left > 8:
        memcpy(&chunk, text, 8)
        hashed = (hashed ^ chunk) * <uint64_t> HASH_A
        hashed ^= hashed >> 32
        text += 8
        left -= 8
    if text_bytes >= 8:
        memcpy(&chunk, text + left - 8, 8)
    elif left >= 4:
        memcpy(&half, text, 4)
        chunk = half
        memcpy(&half, text + left - 4, 4)
        chunk |= <uint64_t> half << 32
    elif left:
        chunk = (<unsigned char> text[0]) | (<uint64_t> <unsigned char> text[left >> 1] << 8) | (
            <uint64_t> <unsigned char> text[left - 1] << 16)
    hashed = (hashed ^ chunk) * <uint64_t> HASH_A
    hashed = (hashed ^ hashed >> 32) * <uint64_t> HASH_B
    return hashed ^ hashed >> 32


cdef inline text_t* texts_find(
    const texts_t* texts, uint64_t hashed, uint64_t group, const char* text, size_t text_bytes
) noexcept nogil:
    """The text with what is known of it, or NULL."""
    cdef size_t mask = texts.capacity - 1, at = hashed & mask
    cdef text_t* found
    if texts.count == 0:
        return NULL
    while True:
        found = texts.slots[at].text
        if found == NULL:
            return NULL
        if texts.slots[at].hash == hashed and found.text_bytes == text_bytes and found.group == group and (
                memcmp(text_of(found), text, text_bytes) == 0):
            return found
        at = (at + 1) & mask


cdef inline text_t* texts_add(
    texts_t* texts, uint64_t hashed, uint64_t group, const char* text, size_t text_bytes
) except NULL:
    """The text, made with no meaning and no references if it is new. Nothing has changed when it raises."""
    cdef text_t* made = texts_find(texts, hashed, group, text, text_bytes)
    cdef size_t at
    if made != NULL:
        return made
    if texts.count * 2 >= texts.capacity and not texts_resize(texts, texts.capacity * 2):
        raise MemoryError()
    made = <text_t*> PyObject_Malloc(sizeof(text_t) + text_bytes)
    if made == NULL:
        raise MemoryError()
    made.group = group
    made.meaning.id = 0
    made.references = 0
    made.text_bytes = <uint32_t> text_bytes
    memcpy(<char*> text_of(made), text, text_bytes)
    at = hashed & (texts.capacity - 1)
    while texts.slots[at].text != NULL:
        at = (at + 1) & (texts.capacity - 1)
    texts.slots[at].hash = hashed
    texts.slots[at].text = made
    texts.count += 1
    texts.size += sizeof(text_t) + text_bytes
    return made


cdef inline void texts_drop(texts_t* texts, uint64_t hashed, text_t* text) noexcept:
    """Removes and frees a text of this table."""
    cdef size_t mask = texts.capacity - 1, hole = hashed & mask, at
    while texts.slots[hole].text != text:
        hole = (hole + 1) & mask
    texts.count -= 1
    texts.size -= sizeof(text_t) + text.text_bytes
    PyObject_Free(text)
    at = hole
    while True:
        at = (at + 1) & mask
        if texts.slots[at].text == NULL:
            break
        if ((at - texts.slots[at].hash) & mask) >= ((at - hole) & mask):    # its way from home leads over the hole
            texts.slots[hole] = texts.slots[at]
            hole = at
    texts.slots[hole].text = NULL
    if texts.count == 0 or (texts.count * 8 < texts.capacity and texts.capacity > TEXT_SLOTS_MIN):
        texts_resize(texts, texts.capacity // 2 if texts.count else 0)      # where that is refused, it stays as it is


cdef inline int texts_add_item(
    texts_t* texts, blocks_t* blocks, uint64_t hashed, uint64_t group, const char* text, size_t text_bytes, uint32_t item
) except -1:
    """Whether the item is new behind this text. Nothing has changed when it raises: the first item needs no memory."""
    return items_add(blocks, &texts_add(texts, hashed, group, text, text_bytes).meaning.items, item)


cdef inline bint texts_remove_item(
    texts_t* texts, blocks_t* blocks, uint64_t hashed, uint64_t group, const char* text, size_t text_bytes, uint32_t item
) noexcept:
    """Whether the item was there. The text goes with its last item."""
    cdef text_t* found = texts_find(texts, hashed, group, text, text_bytes)
    if found == NULL or not items_remove(blocks, &found.meaning.items, item):
        return False
    if found.meaning.items.count == 0:
        texts_drop(texts, hashed, found)
    return True


cdef inline bint texts_resize(texts_t* texts, size_t capacity) noexcept:
    cdef slot_t* slots = NULL
    cdef size_t i, at
    if texts.count or capacity >= texts.capacity:
        capacity = max(capacity, <size_t> TEXT_SLOTS_MIN)
        slots = <slot_t*> memory_zeroed(capacity * sizeof(slot_t))
        if slots == NULL:
            return False
    for i in range(texts.capacity):
        if texts.slots[i].text != NULL:
            at = texts.slots[i].hash & (capacity - 1)
            while slots[at].text != NULL:
                at = (at + 1) & (capacity - 1)
            slots[at] = texts.slots[i]
    free(texts.slots)
    texts.slots = slots
    texts.capacity = capacity
    return True


cdef inline void texts_free(texts_t* texts) noexcept:
    cdef size_t i
    for i in range(texts.capacity):
        PyObject_Free(texts.slots[i].text)
    free(texts.slots)
    texts.slots = NULL
    texts.capacity = texts.count = texts.size = 0


cdef inline size_t texts_size(const texts_t* texts) noexcept:
    """Bytes held."""
    return texts.capacity * sizeof(slot_t) + texts.size


cdef inline int texts_check(const texts_t* texts) except -1:
    """That every text is found, once, and that the counters are right."""
    cdef size_t i, count = 0, size = 0
    cdef text_t* text
    for i in range(texts.capacity):
        text = texts.slots[i].text
        if text != NULL:
            count += 1
            size += sizeof(text_t) + text.text_bytes
            require(texts_find(texts, texts.slots[i].hash, text.group, text_of(text), text.text_bytes) == text,
                    "a text is found where it is")
    require(count == texts.count and size == texts.size, "a table of texts counts them and their bytes")
    require(count * 2 <= texts.capacity, "a table of texts is at most half full")
    require((texts.capacity & (texts.capacity - 1)) == 0, "a table has a power of two slots")
    return 0


cdef inline int texts_check_items(const texts_t* texts, const blocks_t* blocks, size_t* items, size_t* used) except -1:
    """The same for texts with items; adds up the items and the blocks that they use."""
    cdef size_t i
    cdef text_t* text
    texts_check(texts)
    for i in range(texts.capacity):
        text = texts.slots[i].text
        if text != NULL:
            require(text.meaning.items.count > 0, "a text is there for its items")
            items_check(blocks, &text.meaning.items)
            items[0] += text.meaning.items.count
            used[0] += text.meaning.items.count > 1
    return 0
