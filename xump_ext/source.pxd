"""Contents that are made when somebody asks for them: the declarations of `source.pyx`."""

from libc.stdint cimport uint64_t, uintptr_t

from xump_ext.block cimport content_t
from xump_ext.content cimport content_release, content_share
from xump_ext.graph cimport engine_t, entry_t

# Where the contents of unrouted entries come from, whose ids follow each other in one queue. Such an entry has the address of the
# source, plus one, in place of its content.
cdef struct source_t:
    content_t* (*make)(void* owner, uint64_t number) except NULL    # a new reference to content number 0, 1, 2 …
    void* owner             # a Python object, whose reference the source has
    uint64_t first          # the id of number 0
    uint64_t left           # entries that refer to it

cdef source_t* source_new(object owner, content_t* (*make)(void* owner, uint64_t number) except NULL, uint64_t first) except NULL
# One entry does not refer to the source any more, or it never had one.
cdef void source_left(engine_t* engine, source_t* source) noexcept
cdef int content_fetch(engine_t* engine, entry_t* entry) except -1

cdef inline bint is_made(const entry_t* entry) noexcept:
    return not <uintptr_t> entry.content & 3

cdef inline bint is_from_source(const entry_t* entry) noexcept:
    return <uintptr_t> entry.content & 1

# A content that is not in memory, of an entry in a durable queue: valid until some others were fetched.
cdef content_t* content_fetched(entry_t* entry) except NULL
cdef void fetched_forget(engine_t* engine) noexcept

cdef inline content_t* content_at(entry_t* entry) except NULL:
    """The content of an entry that was routed, wherever it is; a borrowed reference."""
    return entry.content if is_made(entry) else content_fetched(entry)

cdef inline source_t* source_of(const entry_t* entry) noexcept:
    return <source_t*> (<uintptr_t> entry.content - 1)

cdef inline content_t* content_from(source_t* source) noexcept:
    """What stands in an entry for the content that the source would make."""
    return <content_t*> (<uintptr_t> source + 1)

cdef inline int content_needed(engine_t* engine, entry_t* entry) except -1:
    """From here on the content is there, or in a store. Every entry that was routed has passed here."""
    return content_fetch(engine, entry) if is_from_source(entry) else 0

cdef inline content_t* content_shown(entry_t* entry) except NULL:
    """A new reference to the content; if it is not made yet, it is made for the caller alone, and not kept here."""
    if not is_from_source(entry):
        return content_share(content_at(entry))
    return source_of(entry).make(source_of(entry).owner, entry.id - source_of(entry).first)

cdef inline void content_drop(engine_t* engine, entry_t* entry) noexcept:
    if is_made(entry):
        content_release(entry.content)
    elif is_from_source(entry):
        source_left(engine, source_of(entry))
