"""Declarations of `windows.pyx`."""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.state.graph cimport engine_t, queue_t

cdef class WindowHandle:
    cdef readonly str name
    cdef readonly object engine         # the Engine that it belongs to
    cdef readonly int64_t _first        # the credit that it was created with
    cdef queue_t gate                   # what its selectors have outstanding is `ready` in it
    cdef uint64_t selectors             # how many share it
    cdef bint deleted

    cdef queue_t* live(self) except NULL

cdef int window_begin(engine_t* engine, WindowHandle handle, int64_t credit) except -1
cdef int window_resize(engine_t* engine, WindowHandle handle, int64_t credit) except -1
cdef int window_end(engine_t* engine, WindowHandle handle) except -1
