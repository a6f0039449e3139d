"""Copies and compares short texts inline.

Most names and texts have a few bytes, and a call would take longer than the work. Up to 16 bytes go by two words, which may
overlap.
"""

from libc.stddef cimport size_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static inline void xump_copy_short(char *out, const char *from, size_t size) {
        if (size > 16) memcpy(out, from, size);
        else if (size >= 8) { uint64_t a, b; memcpy(&a, from, 8); memcpy(&b, from + size - 8, 8);
                              memcpy(out, &a, 8); memcpy(out + size - 8, &b, 8); }
        else if (size >= 4) { uint32_t a, b; memcpy(&a, from, 4); memcpy(&b, from + size - 4, 4);
                              memcpy(out, &a, 4); memcpy(out + size - 4, &b, 4); }
        else if (size) { out[0] = from[0]; if (size > 1) { out[1] = from[1]; out[size - 1] = from[size - 1]; } }
    }

    static inline int xump_same_short(const char *left, const char *right, size_t size) {
        if (size == 0) return 1;
        if (left[0] != right[0]) return 0;
        if (size == 1) return 1;
        if (size < 4) return left[1] == right[1] && left[size - 1] == right[size - 1];
        if (size < 8) { uint32_t a, b, c, d; memcpy(&a, left, 4); memcpy(&b, left + size - 4, 4);
                        memcpy(&c, right, 4); memcpy(&d, right + size - 4, 4);
                        return ((a ^ c) | (b ^ d)) == 0; }
        if (size <= 16) { uint64_t a, b, c, d; memcpy(&a, left, 8); memcpy(&b, left + size - 8, 8);
                          memcpy(&c, right, 8); memcpy(&d, right + size - 8, 8);
                          return ((a ^ c) | (b ^ d)) == 0; }
        return memcmp(left, right, size) == 0;
    }

    static inline int xump_ascii_only(const char *text, size_t size) {
        uint64_t word, high = 0;
        uint32_t half;
        size_t at = 0;
        if (size >= 8) {
            memcpy(&high, text + size - 8, 8);
            for (; at + 8 < size; at += 8) { memcpy(&word, text + at, 8); high |= word; }
        }
        else if (size >= 4) { memcpy(&half, text, 4); high = half; memcpy(&half, text + size - 4, 4); high |= half; }
        else for (; at < size; at++) high |= (unsigned char) text[at];
        return (high & 0x8080808080808080u) == 0;
    }
    """
    void copy_short "xump_copy_short"(char* out, const char* text, size_t size) noexcept nogil
    bint ascii_only "xump_ascii_only"(const char* text, size_t size) noexcept nogil
    bint same_short "xump_same_short"(const char* left, const char* right, size_t size) noexcept nogil
