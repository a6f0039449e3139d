"""Declarations of `structure.pyx`; all files of `check` share them."""

from xump_ext.engine.core cimport Core
from xump_ext.memory.heap cimport heap_t, node_t
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, selector_t

cdef class Books:
    cdef Core core
    cdef engine_t* e
    cdef bint quiet             # neither inside `building()` nor after a run that was interrupted
    cdef set queues             # addresses that the engine's mappings know: only these are followed
    cdef set selectors
    cdef dict sources           # address of a lazy source -> how many entries refer to it

cdef object broken(str law, str where, str what)
cdef str of_queue(const queue_t* queue)
cdef str of_entry(const entry_t* entry)
cdef str of_selector(const selector_t* selector)
cdef int check_structure(Books books) except -1
cdef int check_heap(const heap_t* heap, str where) except -1
# Whether the node is in the heap, where it says.
cdef bint stands(const heap_t* heap, const node_t* node) noexcept
