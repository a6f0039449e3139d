"""Contents that are made when somebody asks for them.

A batch that waits in a queue nobody consumes is a million entries over columns that are held as they came: a row becomes a
message when it is routed, or looked at. Only unrouted entries can be so; routing makes the content, deleting does not even that.

When no entry refers to a source any more, its owner is given back at the end of the call, since that may run code of others.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc

from xump_ext.graph cimport FETCHED_SLOTS, fetched_t
from xump_ext.journal cimport journal_fetch


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


# ---- contents that are in a store

cdef content_t* content_fetched(entry_t* entry) except NULL:
    """Read once, and kept until some others were."""
    cdef engine_t* engine = entry.queue.engine
    cdef fetched_t* slot
    cdef uint32_t i
    for i in range(FETCHED_SLOTS):
        slot = &engine.fetched[i]
        if slot.content != NULL and slot.place == <void*> entry.content and slot.queue == entry.queue and slot.id == entry.id:
            return slot.content
    content = journal_fetch(entry)
    slot = &engine.fetched[engine.fetched_next]
    engine.fetched_next = (engine.fetched_next + 1) % FETCHED_SLOTS
    if slot.content != NULL:
        content_release(slot.content)
    slot.content = content
    slot.place = <void*> entry.content
    slot.queue = entry.queue
    slot.id = entry.id
    return content


cdef void fetched_forget(engine_t* engine) noexcept:
    cdef uint32_t i
    for i in range(FETCHED_SLOTS):
        if engine.fetched[i].content != NULL:
            content_release(engine.fetched[i].content)
            engine.fetched[i].content = NULL
