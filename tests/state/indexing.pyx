"""Where the index of a queue looks for its pages. Compiled by the tests; nothing here is shipped."""

from xump_ext.state.graph cimport index_t
from xump_ext.state.index cimport page_home


def homes(numbers, unsigned size):
    """The places of pages with these numbers in a table of that size."""
    cdef index_t index
    index.mask = size - 1
    return [page_home(&index, number) for number in numbers]
