"""The compiled loop around our own index, so that both sides are measured without Python calls."""

from xump_ext.match.pattern_index cimport MatchIndex
from xump_ext.memory.u32_vector cimport u32_vector_free, u32_vector_t


def run(MatchIndex index not None, bytes addresses, const size_t[::1] ends):
    """Match all addresses, of which the n-th ends at `ends[n]`; returns the number of hits."""
    cdef const char* text = addresses
    cdef size_t start = 0, count = 0
    cdef u32_vector_t hits = u32_vector_t(NULL, 0, 0)
    cdef Py_ssize_t i
    try:
        for i in range(ends.shape[0]):
            hits.count = 0
            index.match(text + start, ends[i] - start, &hits)
            start = ends[i]
            count += hits.count
    finally:
        u32_vector_free(&hits)
    return count
