"""Contents that are made, or read from a store, only when they are needed.

A batch in a queue without selectors is a million entries over the columns that it came in: a row becomes a message when it is
routed or looked at. The lazy source of these entries makes it. Only unrouted entries can have one: routing makes the content.
Deleting an entry does not make it.

When no entry refers to a source any more, the owner of the source is dropped at the end of the call: that may run user code.

A content that is in a store is read into one of the engine's FETCHED_SLOTS and stays there until others take its place.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc

from xump_ext.state.graph cimport FETCHED_SLOTS, fetched_t


cdef lazy_source_t* lazy_source_new(
        object owner, content_t* (*make)(void* owner, uint64_t number) except NULL, uint64_t first) except NULL:
    """A source that no entry refers to yet."""
    cdef lazy_source_t* source = <lazy_source_t*> malloc(sizeof(lazy_source_t))
    if source == NULL:
        raise MemoryError()
    source.make = make
    source.owner = <void*> owner
    source.first = first
    source.left = 0
    Py_INCREF(owner)
    return source


cdef void lazy_source_left(engine_t* engine, lazy_source_t* source) noexcept:
    if source.left:
        source.left -= 1
    if source.left == 0:
        (<list> engine.sources_to_drop).append(<object> source.owner)
        Py_XDECREF(<PyObject*> source.owner)
        free(source)


cdef int content_fetch(engine_t* engine, entry_t* entry) except -1:
    """Makes the content of a lazy entry, and keeps it there."""
    cdef lazy_source_t* source = lazy_source_of(entry)
    cdef content_t* content = source.make(source.owner, entry.id - source.first)
    entry.content.loaded = content
    lazy_source_left(engine, source)
    return 0


# ---- contents in a store

cdef content_t* content_fetched(entry_t* entry) except NULL:
    """Reads the content unless one of the slots has it; it stays in its slot until FETCHED_SLOTS others were read."""
    cdef engine_t* engine = entry.queue.engine
    cdef fetched_t* slot
    cdef content_t* content
    cdef uint32_t i
    for i in range(FETCHED_SLOTS):
        slot = &engine.fetched[i]
        if slot.content != NULL and slot.place == entry.content.bits and slot.queue == entry.queue and slot.id == entry.id:
            return slot.content
    content = entry.queue.store.fetch(entry)
    slot_fill(engine, entry, content)
    return content


cdef void slot_fill(engine_t* engine, const entry_t* entry, content_t* content) noexcept:
    """The content gets the slot whose turn it is, and its reference goes with it."""
    cdef fetched_t* slot = &engine.fetched[engine.fetched_next]
    engine.fetched_next = (engine.fetched_next + 1) % FETCHED_SLOTS
    if slot.content != NULL:
        content_release(slot.content)
    slot.content = content
    slot.place = entry.content.bits
    slot.queue = entry.queue
    slot.id = entry.id


cdef void fetched_put(entry_t* entry, content_t* content) noexcept:
    if not is_loaded(entry):
        slot_fill(entry.queue.engine, entry, content_share(content))


cdef bint can_be_read(entry_t* entry) except -1:
    try:
        content_at(entry)
    except (OSError, KeyError):         # a store raises these
        return False
    return True


cdef void fetched_forget(engine_t* engine) noexcept:
    cdef uint32_t i
    for i in range(FETCHED_SLOTS):
        if engine.fetched[i].content != NULL:
            content_release(engine.fetched[i].content)
            engine.fetched[i].content = NULL
