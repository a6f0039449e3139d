"""Fetches memory into the cache before it is needed, while other work is done: any address will do.

A compiler that takes a function in which nothing else happens for one without effect would leave out calls of it. The empty `asm`
is an effect.
"""

cdef extern from * nogil:
    """
    #define xump_prefetch(address) do { __builtin_prefetch(address); __asm__ volatile(""); } while (0)
    """
    void prefetch "xump_prefetch"(const void* address)
