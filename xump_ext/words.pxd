"""Words of addresses and patterns: split by dots and hashed at once, eight bytes a step.

A step reads eight bytes, finds the first dot among them by arithmetic, and masks what is behind it: a word of up to seven
bytes is found and hashed without a loop or a branch that depends on its length.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

from xump_ext.texts cimport HASH_A, HASH_B, slot_t, text_of, text_t, texts_t

cdef enum: DOTS = 0x2E2E2E2E2E2E2E2E
cdef enum: ONES = 0x0101010101010101
cdef enum: HIGHS = 0x8080808080808080
cdef enum: ID_UNREAD = 0xFFFFFFFFFFFFFFFF       # of a word that was not looked up yet

# One word of an address or pattern.
cdef struct word_t:
    const char* text
    size_t text_bytes
    uint64_t hash
    uint64_t id             # among the words of patterns; ID_UNREAD until somebody asks


cdef inline uint64_t word_chunk(const char* text, const char* at, const char* end) noexcept nogil:
    """The next eight bytes; what there is not is dots, so the last word of a text ends like any other."""
    cdef uint64_t chunk = 0
    cdef size_t left = end - at
    if left >= 8:
        memcpy(&chunk, at, 8)
        return chunk
    if left == 0:
        return <uint64_t> DOTS
    if end - text >= 8:
        memcpy(&chunk, end - 8, 8)
        chunk >>= 64 - 8 * left
    else:
        memcpy(&chunk, at, left)
    return chunk | (<uint64_t> DOTS << (8 * left))


cdef inline const char* word_read(const char* text, const char* at, const char* end, uint64_t seed, word_t* word) noexcept nogil:
    """Reads and hashes the word that starts at `at`; returns where it ends.

    The hash of a word of up to seven bytes is a bijection of its bytes: equal hash and length are an equal word.
    """
    cdef uint64_t hashed = seed, chunk, dots
    word.text = at
    while True:
        chunk = word_chunk(text, at, end)
        dots = chunk ^ <uint64_t> DOTS                                          # a zero byte where there is a dot
        dots = (dots - <uint64_t> ONES) & ~dots & <uint64_t> HIGHS              # the lowest bit that is set is the first dot's
        if dots:
            break
        hashed = (hashed ^ chunk) * <uint64_t> HASH_A
        hashed ^= hashed >> 32
        at += 8
    dots = (dots ^ (dots - 1)) >> 8                                             # ones over the bytes before the dot
    at += ((dots & <uint64_t> ONES) * <uint64_t> ONES) >> 56                    # their number
    hashed = (hashed ^ (chunk & dots)) * <uint64_t> HASH_A
    hashed = (hashed ^ hashed >> 32) * <uint64_t> HASH_B
    word.hash = hashed ^ hashed >> 32
    word.id = <uint64_t> ID_UNREAD
    word.text_bytes = at - word.text
    return at


cdef inline uint64_t word_find(const texts_t* words, const word_t* word) noexcept nogil:
    """The id of a word, or 0 when no pattern has it. (`texts_find`, without the comparison where the hash makes it needless.)"""
    cdef size_t mask = words.capacity - 1, at = word.hash & mask
    cdef slot_t* slots = words.slots
    cdef text_t* found
    if words.count == 0:
        return 0
    while True:
        found = slots[at].text
        if found == NULL:
            return 0
        if slots[at].hash == word.hash and found.text_bytes == word.text_bytes and (
                word.text_bytes < 8 or memcmp(text_of(found), word.text, word.text_bytes) == 0):
            return found.meaning.id
        at = (at + 1) & mask
