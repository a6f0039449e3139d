"""Contents that are made when somebody asks for them.

A batch that waits in a queue nobody consumes is a million entries over columns that are held as they came: a row becomes a
message when it is routed, or looked at. Only unrouted entries can be so; routing makes the content, deleting does not even that.

When no entry refers to a source any more, its owner is given back at the end of the call, since that may run code of others.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdlib cimport free, malloc


cdef source_t* source_new(object owner, content_t* (*make)(void* owner, uint64_t number) except NULL, uint64_t first) except NULL:
    """A source that nothing refers to yet."""
    cdef source_t* source = <source_t*> malloc(sizeof(source_t))
    if source == NULL:
        raise MemoryError()
    source.make = make
    source.owner = <void*> owner
    source.first = first
    source.left = 0
    Py_INCREF(owner)
    return source


cdef void source_left(engine_t* engine, source_t* source) noexcept:
    if source.left:
        source.left -= 1
    if source.left == 0:
        (<list> engine.spent).append(<object> source.owner)
        Py_XDECREF(<PyObject*> source.owner)
        free(source)


cdef int content_fetch(engine_t* engine, entry_t* entry) except -1:
    """Makes the content of an entry that has none, and keeps it there."""
    cdef source_t* source = source_of(entry)
    cdef content_t* content = source.make(source.owner, entry.id - source.first)
    entry.content = content
    source_left(engine, source)
    return 0


cdef content_t* content_fetched(entry_t* entry) except NULL:
    raise NotImplementedError()
