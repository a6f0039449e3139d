"""Declarations of `filter.pyx`, and the layout of a filter in memory."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from xump_ext.message.headers cimport content_t, header_t

# One node of a tree. Its operands are other nodes of the same array, by index. A literal keeps its value in a `header_t`
# without a name; a header keeps only its name there.
cdef struct node_t:
    header_t value
    uint32_t left           # the first or only operand; of a header: the slot that it is resolved into
    uint32_t right          # the second operand; of IN: the first literal
    uint32_t third          # of BETWEEN: the upper bound; of IN: the number of literals
    uint8_t operation

cdef class Filter:
    cdef node_t* nodes      # one allocation: nodes, the root last; pointers to header nodes, by slot; texts of names and literals
    cdef node_t** names
    cdef uint32_t node_count
    cdef uint32_t name_count
    cdef size_t block_bytes
    # 1: selected; 0: not selected; -1: unknown, and so not selected. Cost: one pass over the headers and one over the nodes
    # that decide; no allocation. `content` must stay alive meanwhile.
    cdef int evaluate(self, const content_t* content, int64_t timestamp, uint32_t delivery_count) noexcept nogil
