"""The compiled loop around our own index, so that both sides are measured without Python calls."""

from xump_ext.hits cimport hits_free, hits_t
from xump_ext.match cimport MatchIndex


def run(MatchIndex index not None, bytes addresses, const size_t[::1] ends):
    """Match all addresses, of which the n-th ends at `ends[n]`; returns the number of hits."""
    cdef const char* text = addresses
    cdef size_t start = 0, count = 0
    cdef hits_t hits = hits_t(NULL, 0, 0)
    cdef Py_ssize_t i
    try:
        for i in range(ends.shape[0]):
            hits.count = 0
            index.match(text + start, ends[i] - start, &hits)
            start = ends[i]
            count += hits.count
    finally:
        hits_free(&hits)
    return count
