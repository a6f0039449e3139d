"""The live bytes of a store, and its largest live message: how many messages there are of each size.

There are four classes to each doubling, so a class is a seventh to a quarter wide. The largest message is known to
a quarter, in O(1), and is forgotten when the last of its class has ended.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from xump_ext.state.graph cimport store_t

cdef extern from * nogil:
    int __builtin_clzll(unsigned long long bits)


cdef inline uint32_t size_class(uint64_t bytes) noexcept:
    """The class of so many bytes, at least 4."""
    cdef int exponent = 63 - __builtin_clzll(bytes)
    return <uint32_t> (exponent << 2 | (bytes >> (exponent - 2)) & 3)


cdef inline void live_add(store_t* store, uint64_t charge) noexcept:
    """A message came, which takes so many bytes."""
    cdef uint32_t size = size_class(charge)
    store.live += charge
    store.sizes[size] += 1
    if size > store.size_top:
        store.size_top = size


cdef inline void live_remove(store_t* store, uint64_t charge) noexcept:
    """A message ended."""
    store.live -= charge
    store.sizes[size_class(charge)] -= 1
    while store.size_top and store.sizes[store.size_top] == 0:
        store.size_top -= 1


cdef inline int64_t class_bytes_max(uint32_t size) noexcept:
    """As many bytes as a message of the class has, or a few more."""
    return (<int64_t> (5 + (size & 3)) << (size >> 2)) >> 2


cdef inline int64_t largest_live(const store_t* store) noexcept:
    """As many bytes as the largest message takes, or up to a quarter more; 0: there is none."""
    return class_bytes_max(store.size_top) if store.size_top else 0


cdef inline int64_t largest_with(const store_t* store, int64_t bytes) noexcept:
    """`largest_live` as it will be when a message of so many bytes has come."""
    # It is charged by the class of its length, which may be a 128th more.
    return max(largest_live(store), class_bytes_max(size_class(<uint64_t> (bytes + (bytes >> 7) + 8))) if bytes > 0 else 0)
