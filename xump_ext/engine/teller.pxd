"""Declarations of `teller.pyx`."""

cdef class Teller:
    cdef list caused        # by the call that is inside the engine: `engine_t.tellings` points to it
    cdef list due           # of calls that are over
    cdef bint calling       # somebody calls them
    cdef dict later         # threads that call nobody now -> how deep they are in such blocks
    cdef void* graph_thread     # the thread that changes the graph, which calls nobody either
    cdef tuple watchers     # of changes of the graph

    cdef int call_over(self, object engine) except -1
    cdef int after_call(self, object call, tuple arguments) except -1
    cdef int tell(self, object engine) except -1
    cdef int put_back(self) except -1
    cdef list tellings(self, tuple change)
    cdef int wait_begin(self) except -1
    cdef int wait_end(self) except -1

cdef class Later:
    cdef Teller teller
    cdef object engine
