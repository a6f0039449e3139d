"""Splits addresses and patterns into words at their dots, and hashes the words, eight bytes a step.

A step reads eight bytes, finds the first dot among them by arithmetic, and masks the bytes behind it. So a word of up to seven
bytes is found and hashed without a loop and without a branch that depends on its length.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

from xump_ext.match.string_table cimport HASH_A, HASH_B, slot_t, string_t, string_table_t, string_text

cdef enum: DOTS = 0x2E2E2E2E2E2E2E2E
cdef enum: ONES = 0x0101010101010101
cdef enum: HIGHS = 0x8080808080808080
cdef enum: ID_UNREAD = 0xFFFFFFFFFFFFFFFF       # of a word that is not looked up yet

# One word of an address or pattern.
cdef struct token_t:
    const char* text
    size_t text_bytes
    uint64_t hash
    uint64_t id             # among the words of patterns; ID_UNREAD until it is needed


cdef inline uint64_t token_chunk(const char* text, const char* at, const char* end) noexcept nogil:
    """The next eight bytes. Behind the end of the text there are dots, so the last word ends like any other."""
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


cdef inline const char* token_read(
        const char* text, const char* at, const char* end, uint64_t seed, token_t* token) noexcept nogil:
    """Reads and hashes the word that starts at `at`; returns its end.

    The hash of a word of up to seven bytes is a bijection of its bytes: two words with equal hash and length are equal.
    """
    cdef uint64_t hashed = seed, chunk, dots
    token.text = at
    while True:
        chunk = token_chunk(text, at, end)
        dots = chunk ^ <uint64_t> DOTS                                          # a zero byte for each dot
        dots = (dots - <uint64_t> ONES) & ~dots & <uint64_t> HIGHS              # the lowest set bit belongs to the first dot
        if dots:
            break
        hashed = (hashed ^ chunk) * <uint64_t> HASH_A
        hashed ^= hashed >> 32
        at += 8
    dots = (dots ^ (dots - 1)) >> 8                                             # ones over the bytes before the dot
    at += ((dots & <uint64_t> ONES) * <uint64_t> ONES) >> 56                    # their number
    hashed = (hashed ^ (chunk & dots)) * <uint64_t> HASH_A
    hashed = (hashed ^ hashed >> 32) * <uint64_t> HASH_B
    token.hash = hashed ^ hashed >> 32
    token.id = <uint64_t> ID_UNREAD
    token.text_bytes = at - token.text
    return at


cdef inline uint64_t token_find(const string_table_t* tokens, const token_t* token) noexcept nogil:
    """The id of a word; 0 if no pattern has it.

    As `string_table_find`, but a short word is not compared: its hash and length decide.
    """
    cdef size_t mask = tokens.capacity - 1, at = token.hash & mask
    cdef slot_t* slots = tokens.slots
    cdef string_t* found
    if tokens.count == 0:
        return 0
    while True:
        found = slots[at].text
        if found == NULL:
            return 0
        if slots[at].hash == token.hash and found.text_bytes == token.text_bytes and (
                token.text_bytes < 8 or memcmp(string_text(found), token.text, token.text_bytes) == 0):
            return found.meaning.id
        at = (at + 1) & mask
