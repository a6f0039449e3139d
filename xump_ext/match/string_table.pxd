"""A hash table of byte strings: words of topics, exact addresses, prefixes, names and values of headers.

It uses open addressing with linear probing, over slots of 16 bytes: the whole hash, and a pointer to the text with its meaning.
At most half of the slots are used, so a look-up costs one cache line if it fails, and two if it finds something. When a text is
removed, the slots behind it move up. So there are no tombstones, and a long life does not slow the table down.

The owner computes the hash, because words and prefixes have cheaper ways to it. Hashes are seeded with Python's own seed
(PYTHONHASHSEED), so the sender of patterns cannot aim at one slot.
"""

from cpython.mem cimport PyObject_Free, PyObject_Malloc
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from xump_ext.match.posting_list cimport posting_arrays_t, postings_add, postings_check, postings_remove, postings_t
from xump_ext.memory.require cimport require
from xump_ext.memory.slab cimport memory_zeroed

cdef enum:
    TEXT_SLOTS_MIN = 16

cdef enum: HASH_A = 0xFF51AFD7ED558CCD      # both are odd and have half of their bits set: the mixers of MurmurHash3
cdef enum: HASH_B = 0xC4CEB9FE1A85EC53

cdef union meaning_t:
    postings_t postings     # of a pattern or value
    uint64_t id             # of a word or name: never 0, never reused

cdef struct string_t:
    uint64_t group          # part of the key: the same text may be there once in each group
    meaning_t meaning
    uint32_t references     # of a word or name
    uint32_t text_bytes
    # char text[text_bytes]

cdef struct slot_t:
    uint64_t hash
    string_t* text          # NULL: empty

cdef struct string_table_t:
    slot_t* slots
    size_t capacity         # a power of two, or 0
    size_t count
    size_t size             # bytes of all texts
    uint64_t seed

cdef inline const char* string_text(const string_t* text) noexcept nogil:
    return <const char*> text + sizeof(string_t)


cdef inline uint64_t text_hash(uint64_t seed, const char* text, size_t text_bytes) noexcept nogil:
    """Hashes eight bytes a step. The last step may overlap the one before; the length, hashed too, tells such texts apart."""
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


cdef inline string_t* string_table_find(
    const string_table_t* strings, uint64_t hashed, uint64_t group, const char* text, size_t text_bytes
) noexcept nogil:
    """The text with its meaning, or NULL."""
    cdef size_t mask = strings.capacity - 1, at = hashed & mask
    cdef string_t* found
    if strings.count == 0:
        return NULL
    while True:
        found = strings.slots[at].text
        if found == NULL:
            return NULL
        if strings.slots[at].hash == hashed and found.text_bytes == text_bytes and found.group == group and (
                text_bytes == 0 or memcmp(string_text(found), text, text_bytes) == 0):
            return found
        at = (at + 1) & mask


cdef inline string_t* string_table_add(
    string_table_t* strings, uint64_t hashed, uint64_t group, const char* text, size_t text_bytes
) except NULL:
    """The text; a new one has no meaning and no references. When it raises, nothing has changed."""
    cdef string_t* made = string_table_find(strings, hashed, group, text, text_bytes)
    cdef size_t at
    if made != NULL:
        return made
    if strings.count * 2 >= strings.capacity and not string_table_resize(strings, strings.capacity * 2):
        raise MemoryError()
    made = <string_t*> PyObject_Malloc(sizeof(string_t) + text_bytes)
    if made == NULL:
        raise MemoryError()
    made.group = group
    made.meaning.id = 0
    made.references = 0
    made.text_bytes = <uint32_t> text_bytes
    memcpy(<char*> string_text(made), text, text_bytes)
    at = hashed & (strings.capacity - 1)
    while strings.slots[at].text != NULL:
        at = (at + 1) & (strings.capacity - 1)
    strings.slots[at].hash = hashed
    strings.slots[at].text = made
    strings.count += 1
    strings.size += sizeof(string_t) + text_bytes
    return made


cdef inline void string_table_drop(string_table_t* strings, uint64_t hashed, string_t* text) noexcept:
    """Removes and frees a text of this table."""
    cdef size_t mask = strings.capacity - 1, hole = hashed & mask, at
    while strings.slots[hole].text != text:
        hole = (hole + 1) & mask
    strings.count -= 1
    strings.size -= sizeof(string_t) + text.text_bytes
    PyObject_Free(text)
    at = hole
    while True:
        at = (at + 1) & mask
        if strings.slots[at].text == NULL:
            break
        if ((at - strings.slots[at].hash) & mask) >= ((at - hole) & mask):    # the way from its home slot leads over the hole
            strings.slots[hole] = strings.slots[at]
            hole = at
    strings.slots[hole].text = NULL
    if strings.count == 0 or (strings.count * 8 < strings.capacity and strings.capacity > TEXT_SLOTS_MIN):
        string_table_resize(strings, strings.capacity // 2 if strings.count else 0)      # without memory the table stays as it is


cdef inline int string_table_add_posting(
    string_table_t* strings, posting_arrays_t* arrays, uint64_t hashed, uint64_t group, const char* text, size_t text_bytes,
    uint32_t item
) except -1:
    """Adds an item to the postings of a text; returns whether it is new there.

    When it raises, nothing has changed: the first item needs no memory.
    """
    return postings_add(arrays, &string_table_add(strings, hashed, group, text, text_bytes).meaning.postings, item)


cdef inline bint string_table_remove_posting(
    string_table_t* strings, posting_arrays_t* arrays, uint64_t hashed, uint64_t group, const char* text, size_t text_bytes,
    uint32_t item
) noexcept:
    """Removes an item from the postings of a text, and the text with its last item; returns whether the item was there."""
    cdef string_t* found = string_table_find(strings, hashed, group, text, text_bytes)
    if found == NULL or not postings_remove(arrays, &found.meaning.postings, item):
        return False
    if found.meaning.postings.count == 0:
        string_table_drop(strings, hashed, found)
    return True


cdef inline bint string_table_resize(string_table_t* strings, size_t capacity) noexcept:
    cdef slot_t* slots = NULL
    cdef size_t i, at
    if strings.count or capacity >= strings.capacity:
        capacity = max(capacity, <size_t> TEXT_SLOTS_MIN)
        slots = <slot_t*> memory_zeroed(capacity * sizeof(slot_t))
        if slots == NULL:
            return False
    for i in range(strings.capacity):
        if strings.slots[i].text != NULL:
            at = strings.slots[i].hash & (capacity - 1)
            while slots[at].text != NULL:
                at = (at + 1) & (capacity - 1)
            slots[at] = strings.slots[i]
    free(strings.slots)
    strings.slots = slots
    strings.capacity = capacity
    return True


cdef inline void string_table_free(string_table_t* strings) noexcept:
    cdef size_t i
    for i in range(strings.capacity):
        PyObject_Free(strings.slots[i].text)
    free(strings.slots)
    strings.slots = NULL
    strings.capacity = strings.count = strings.size = 0


cdef inline size_t string_table_size(const string_table_t* strings) noexcept:
    """The bytes held."""
    return strings.capacity * sizeof(slot_t) + strings.size


cdef inline int string_table_check(const string_table_t* strings) except -1:
    """Checks that every text is found, once, and that the counters are right."""
    cdef size_t i, count = 0, size = 0
    cdef string_t* text
    for i in range(strings.capacity):
        text = strings.slots[i].text
        if text != NULL:
            count += 1
            size += sizeof(string_t) + text.text_bytes
            require(string_table_find(strings, strings.slots[i].hash, text.group, string_text(text), text.text_bytes) == text,
                    "a text is found where it is")
    require(count == strings.count and size == strings.size, "a table of texts counts them and their bytes")
    require(count * 2 <= strings.capacity, "a table of texts is at most half full")
    require((strings.capacity & (strings.capacity - 1)) == 0, "a table has a power of two slots")
    return 0


cdef inline int string_table_check_postings(
        const string_table_t* strings, const posting_arrays_t* arrays, size_t* postings, size_t* used) except -1:
    """The same for a table of texts with postings; adds their items to `postings`, and the arrays that they use to `used`."""
    cdef size_t i
    cdef string_t* text
    string_table_check(strings)
    for i in range(strings.capacity):
        text = strings.slots[i].text
        if text != NULL:
            require(text.meaning.postings.count > 0, "a text is there for its items")
            postings_check(arrays, &text.meaning.postings)
            postings[0] += text.meaning.postings.count
            used[0] += text.meaning.postings.count > 1
    return 0
