"""SipHash-1-3 with 128 bits (Aumasson and Bernstein, 2012): a hash of texts that others choose, under a secret key.

Without the key one cannot find two texts with one hash, nor many that share the places of a table. The first number is
that of rounds a word, the second that at the end. Python and Rust hash their texts by 1-3, too: the authors' 2-4 is for those who
show the hash, and takes 16 ns more a message_id. The libraries on PyPI that compute it cannot be called from compiled code.
"""

from libc.stdint cimport uint64_t

cdef struct hash128_t:
    uint64_t low            # the first eight bytes of the hash as it is published, in little-endian order
    uint64_t high

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #define XUMP_SIP_TURN(word, bits) ((word) << (bits) | (word) >> (64 - (bits)))
    #define XUMP_SIP_ROUND \\
        a += b; c += d; b = XUMP_SIP_TURN(b, 13); d = XUMP_SIP_TURN(d, 16); b ^= a; d ^= c; a = XUMP_SIP_TURN(a, 32); \\
        c += b; a += d; b = XUMP_SIP_TURN(b, 17); d = XUMP_SIP_TURN(d, 21); b ^= c; d ^= a; c = XUMP_SIP_TURN(c, 32);

    static inline uint64_t xump_sip_word(const unsigned char *at, size_t bytes) {
        uint64_t word = 0;
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        if (bytes == 8) { memcpy(&word, at, 8); return word; }
    #endif
        while (bytes--) word = word << 8 | at[bytes];
        return word;
    }

    static void xump_siphash(uint64_t key, uint64_t more_key, const void *text, size_t size, uint64_t *low, uint64_t *high) {
        uint64_t a = key ^ 0x736f6d6570736575u, b = more_key ^ 0x646f72616e646f6du ^ 0xee;
        uint64_t c = key ^ 0x6c7967656e657261u, d = more_key ^ 0x7465646279746573u, word;
        const unsigned char *at = (const unsigned char *) text, *end = at + (size & ~(size_t) 7);
        for (; at != end; at += 8) {
            word = xump_sip_word(at, 8);
            d ^= word; XUMP_SIP_ROUND a ^= word;
        }
        word = xump_sip_word(at, size & 7) | (uint64_t) size << 56;
        d ^= word; XUMP_SIP_ROUND a ^= word;
        c ^= 0xee; XUMP_SIP_ROUND XUMP_SIP_ROUND XUMP_SIP_ROUND
        *low = a ^ b ^ c ^ d;
        b ^= 0xdd; XUMP_SIP_ROUND XUMP_SIP_ROUND XUMP_SIP_ROUND
        *high = a ^ b ^ c ^ d;
    }
    """
    void xump_siphash(
        uint64_t key, uint64_t more_key, const void* text, size_t size, uint64_t* low, uint64_t* high) noexcept nogil

cdef inline hash128_t siphash(uint64_t key, uint64_t more_key, const void* text, size_t size) noexcept nogil:
    """Of that many bytes, under a key of 128 bits."""
    cdef hash128_t hash
    xump_siphash(key, more_key, text, size, &hash.low, &hash.high)
    return hash
