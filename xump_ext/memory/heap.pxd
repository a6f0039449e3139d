"""An indexed binary heap whose nodes live inside their owners.

The core uses it wherever it asks which one comes first. The node with the lowest key stands at the root. A node knows its
position, so changing a key and removing a node cost O(log n). Only the array is allocated. Keys are unique where order matters.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

cdef struct node_t:
    uint64_t key
    uint32_t position       # 1-based; 0: in no heap
    uint32_t kind           # of the owner, in a heap that mixes kinds
    void* owner

cdef struct heap_t:
    node_t** nodes
    uint32_t count
    uint32_t capacity

cdef inline void heap_place(node_t** nodes, uint32_t at, node_t* node) noexcept nogil:
    nodes[at] = node
    node.position = at + 1

cdef inline void heap_rise(heap_t* heap, node_t* node, uint32_t at) noexcept nogil:
    """Puts the node at this free position, or above it, as its key says."""
    cdef node_t** nodes = heap.nodes
    cdef uint64_t key = node.key
    cdef uint32_t above
    while at:
        above = (at - 1) >> 1
        if nodes[above].key <= key:
            break
        heap_place(nodes, at, nodes[above])
        at = above
    heap_place(nodes, at, node)

cdef inline void heap_sink(heap_t* heap, node_t* node, uint32_t at) noexcept nogil:
    """Puts the node at this free position, or below it, as its key says."""
    cdef node_t** nodes = heap.nodes
    cdef uint64_t key = node.key
    cdef uint32_t below, count = heap.count
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and nodes[below + 1].key < nodes[below].key:
            below += 1
        if nodes[below].key >= key:
            break
        heap_place(nodes, at, nodes[below])
        at = below
    heap_place(nodes, at, node)

cdef inline int heap_add(heap_t* heap, node_t* node, uint64_t key) except -1 nogil:
    cdef uint32_t at = heap.count
    if at == heap.capacity:
        heap_enlarge(heap)
    heap.count = at + 1
    node.key = key
    heap_rise(heap, node, at)
    return 0

cdef inline int heap_enlarge(heap_t* heap) except -1 nogil:
    cdef uint32_t capacity = heap.capacity * 2 if heap.capacity else 4
    cdef node_t** nodes = <node_t**> realloc(heap.nodes, capacity * sizeof(node_t*))
    if nodes == NULL:
        with gil:
            raise MemoryError()
    heap.nodes = nodes
    heap.capacity = capacity
    return 0

cdef inline void heap_change(heap_t* heap, node_t* node, uint64_t key) noexcept nogil:
    cdef bint lower = key < node.key
    node.key = key
    if lower:
        heap_rise(heap, node, node.position - 1)
    else:
        heap_sink(heap, node, node.position - 1)

cdef inline void heap_remove(heap_t* heap, node_t* node) noexcept nogil:
    cdef uint32_t at = node.position
    cdef node_t* last
    if at == 0:
        return
    node.position = 0
    heap.count -= 1
    last = heap.nodes[heap.count]
    if last == node:
        return
    if last.key < node.key:
        heap_rise(heap, last, at - 1)
    else:
        heap_sink(heap, last, at - 1)

cdef inline node_t* heap_root(heap_t* heap) noexcept nogil:
    return heap.nodes[0] if heap.count else NULL

cdef inline void heap_free(heap_t* heap) noexcept nogil:
    free(heap.nodes)
    heap.nodes = NULL
    heap.count = heap.capacity = 0
