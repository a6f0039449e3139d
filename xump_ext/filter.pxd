"""Filters over the content of a message: a tree in one block of memory, evaluated without Python."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from xump_ext.block cimport content_t, header_t

# One node of a tree. Its operands are other nodes of the same array, by index. A value is a `header_t`: a literal's has no
# name; a header's has only a name.
cdef struct node_t:
    header_t value
    uint32_t left           # the only operand, if there is one; of a header: the slot that it is resolved into
    uint32_t right          # of IN: the first literal
    uint32_t third          # of BETWEEN: the upper bound; of IN: how many literals
    uint8_t operation

cdef class Filter:
    cdef node_t* nodes      # one block: the nodes, the root last; the header nodes by slot; the text of names and literals
    cdef node_t** names
    cdef uint32_t node_count
    cdef uint32_t name_count
    cdef size_t block_bytes
    # 1 selects, 0 does not, -1 is unknown (which does not select either). Cost: one pass over the headers and one over the
    # nodes that matter; never an allocation. `content` must stay alive meanwhile.
    cdef int evaluate(self, const content_t* content, int64_t timestamp, uint32_t delivery_count) noexcept nogil
