"""The CRC-32C of records (Castagnoli, RFC 3720 appendix B.4), in hardware where there is an instruction.

The libraries on PyPI that compute it cannot be called from compiled code, and a record is too small for a call through Python.
"""

from libc.stdint cimport uint32_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <stddef.h>
    #include <string.h>

    /* A table of 256 entries, made when it is first needed; making it twice makes the same. */
    static uint32_t xump_crc_soft(uint32_t crc, const unsigned char *at, size_t size) {
        static uint32_t table[256];
        if (table[255] == 0) {
            for (uint32_t byte = 0; byte < 256; byte++) {
                uint32_t left = byte;
                for (int bit = 0; bit < 8; bit++) left = left >> 1 ^ (left & 1 ? 0x82F63B78u : 0);
                table[byte] = left;
            }
        }
        while (size--) crc = crc >> 8 ^ table[(crc ^ *at++) & 255];
        return crc;
    }

    #if defined(__x86_64__)
    __attribute__((target("sse4.2")))
    static uint32_t xump_crc_hard(uint32_t crc, const unsigned char *at, size_t size) {
        uint64_t wide = crc, word, words[4];
        for (; size >= 32; size -= 32, at += 32) {
            memcpy(words, at, 32);
            wide = __builtin_ia32_crc32di(wide, words[0]);
            wide = __builtin_ia32_crc32di(wide, words[1]);
            wide = __builtin_ia32_crc32di(wide, words[2]);
            wide = __builtin_ia32_crc32di(wide, words[3]);
        }
        for (; size >= 8; size -= 8, at += 8) { memcpy(&word, at, 8); wide = __builtin_ia32_crc32di(wide, word); }
        crc = (uint32_t) wide;
        if (size >= 4) { uint32_t half; memcpy(&half, at, 4); crc = __builtin_ia32_crc32si(crc, half); size -= 4; at += 4; }
        while (size--) crc = __builtin_ia32_crc32qi(crc, *at++);
        return crc;
    }
    static int xump_crc_is_hard(void) { return __builtin_cpu_supports("sse4.2"); }
    #elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>
    static uint32_t xump_crc_hard(uint32_t crc, const unsigned char *at, size_t size) {
        uint64_t word;
        for (; size >= 8; size -= 8, at += 8) { memcpy(&word, at, 8); crc = __crc32cd(crc, word); }
        if (size >= 4) { uint32_t half; memcpy(&half, at, 4); crc = __crc32cw(crc, half); size -= 4; at += 4; }
        while (size--) crc = __crc32cb(crc, *at++);
        return crc;
    }
    static int xump_crc_is_hard(void) { return 1; }
    #else
    #define xump_crc_hard xump_crc_soft
    static int xump_crc_is_hard(void) { return 0; }
    #endif

    /* The CRC of these bytes behind others whose CRC is `crc`; 0 before the first. */
    static inline uint32_t xump_crc32c(uint32_t crc, const void *bytes, size_t size) {
        static int hard = -1;
        if (hard < 0) hard = xump_crc_is_hard();
        return ~(hard ? xump_crc_hard : xump_crc_soft)(~crc, (const unsigned char *) bytes, size);
    }
    """
    uint32_t crc32c "xump_crc32c"(uint32_t crc, const void* data, size_t size) noexcept nogil
    uint32_t crc32c_soft "xump_crc_soft"(uint32_t crc, const unsigned char* data, size_t size) noexcept nogil
