"""Declarations of `lazy_content.pyx`, and how an entry refers to a content that is not in memory, inline."""

from libc.stdint cimport uint64_t, uintptr_t

from xump_ext.message.content cimport content_release, content_share
from xump_ext.message.headers cimport content_t
from xump_ext.state.graph cimport engine_t, entry_t

# A lazy source makes the contents of unrouted entries whose ids follow each other in one queue. In place of its content such an
# entry has the address of the source, plus one.
cdef struct lazy_source_t:
    content_t* (*make)(void* owner, uint64_t number) except NULL    # a new reference to content number 0, 1, 2 …
    void* owner             # a Python object; the source owns a reference to it
    uint64_t first          # the id of number 0
    uint64_t left           # entries that refer to it

cdef lazy_source_t* lazy_source_new(
        object owner, content_t* (*make)(void* owner, uint64_t number) except NULL, uint64_t first) except NULL
# One entry does not refer to the source any more, which is freed with the last. With `left` 0 it frees a source never used.
cdef void lazy_source_left(engine_t* engine, lazy_source_t* source) noexcept
cdef int content_fetch(engine_t* engine, entry_t* entry) except -1

cdef inline bint is_loaded(const entry_t* entry) noexcept:
    return not entry.content.bits & 3

cdef inline bint is_lazy(const entry_t* entry) noexcept:
    return entry.content.bits & 1

cdef inline bint is_in_reach(const entry_t* entry) noexcept:
    """Whether the content is in memory, or in a store that is open."""
    return not entry.content.bits & 2 or entry.queue.store != NULL

# The content of an entry in a durable queue, read from the store: valid until FETCHED_SLOTS others were fetched.
cdef content_t* content_fetched(entry_t* entry) except NULL
# The next call of `content_fetched` for this entry finds this content, which was read before: not before FETCHED_SLOTS others.
cdef void fetched_put(entry_t* entry, content_t* content) noexcept
cdef void fetched_forget(engine_t* engine) noexcept
# Whether the content can be read, now; if so, it stays in its slot.
cdef bint can_be_read(entry_t* entry) except -1

cdef inline content_t* content_at(entry_t* entry) except NULL:
    """The content of an entry that was routed, in memory or in a store; a borrowed reference."""
    return entry.content.loaded if is_loaded(entry) else content_fetched(entry)

cdef inline lazy_source_t* lazy_source_of(const entry_t* entry) noexcept:
    return <lazy_source_t*> (entry.content.bits - 1)

cdef inline content_t* lazy_content(lazy_source_t* source) noexcept:
    """The value that stands in an entry for a content that the source would make."""
    return <content_t*> (<uintptr_t> source + 1)

cdef inline int content_needed(engine_t* engine, entry_t* entry) except -1:
    """Makes the content if the entry's is lazy. Routing calls this for every entry, so only unrouted ones are lazy."""
    return content_fetch(engine, entry) if is_lazy(entry) else 0

cdef inline content_t* content_shown(entry_t* entry) except NULL:
    """A new reference to the content. A lazy one is made for the caller alone, and not kept in the entry."""
    if not is_lazy(entry):
        return content_share(content_at(entry))
    return lazy_source_of(entry).make(lazy_source_of(entry).owner, entry.id - lazy_source_of(entry).first)

cdef inline void content_drop(engine_t* engine, entry_t* entry) noexcept:
    if is_loaded(entry):
        content_release(entry.content.loaded)
    elif is_lazy(entry):
        lazy_source_left(engine, lazy_source_of(entry))
