# distutils: language = c++
"""The C++ flat trie as a Python class; see `flat_trie.hpp`."""

from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libcpp.vector cimport vector

cdef extern from "flat_trie.hpp":
    cppclass Trie "FlatTrie":
        void add(const char*, size_t, int)
        void match(const char*, size_t, vector[int]&) nogil
        void match_cached(const char*, size_t, vector[int]&) nogil
        void forget()


cdef class FlatTrie:
    """Topic patterns with `*` anywhere and `#` at the end; at most 64 words."""
    cdef Trie trie

    def add(self, bytes pattern, int item):
        self.trie.add(pattern, len(pattern), item)

    def match(self, str address):
        cdef Py_ssize_t size
        cdef const char* text = PyUnicode_AsUTF8AndSize(address, &size)
        cdef vector[int] out
        self.trie.match(text, size, out)
        return out

    def match_cached(self, str address):
        cdef Py_ssize_t size
        cdef const char* text = PyUnicode_AsUTF8AndSize(address, &size)
        cdef vector[int] out
        self.trie.match_cached(text, size, out)
        return out

    def forget(self):
        """Empty the cache of results."""
        self.trie.forget()

    def run(self, bytes addresses, const size_t[::1] ends, bint cached=False):
        """Match all addresses, of which the n-th ends at `ends[n]`, in one compiled loop; returns the number of hits."""
        cdef const char* text = addresses
        cdef size_t start = 0, hits = 0
        cdef Py_ssize_t i
        cdef vector[int] out
        with nogil:
            for i in range(ends.shape[0]):
                out.clear()
                if cached:
                    self.trie.match_cached(text + start, ends[i] - start, out)
                else:
                    self.trie.match(text + start, ends[i] - start, out)
                start = ends[i]
                hits += out.size()
        return hits
