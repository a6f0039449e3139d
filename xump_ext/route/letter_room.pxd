"""Declarations of `letter_room.pyx`."""

from libc.stdint cimport int64_t

from xump_ext.state.graph cimport engine_t, entry_t, store_t

# Whether a store has room for the dead letter of an entry that is about to end, or none is needed. Reads its content.
cdef bint letter_fits(engine_t* engine, entry_t* entry, int reason) except -1
# The same for a message that is refused; raises StoreFull instead of False. Nothing has changed then, and `engine.wanting` says
# where room is wanted.
cdef int letter_room(engine_t* engine, entry_t* entry) except -1


cdef class LetterRoom:
    """Room for the dead letters of several messages that end in one call."""
    # {address of a store: (bytes, those of the largest message, steps as in `log/room.pxd`)}; None: no store needs any
    cdef dict needs

    cdef int count(self, store_t* store, int64_t bytes, int steps) except -1
    # The dead letter of one more. Reads its content.
    cdef int add(self, engine_t* engine, entry_t* entry, int reason) except -1
    # A message that enters the store by the same call.
    cdef int add_message(self, store_t* store, int64_t bytes) except -1
    # Raises StoreFull if one of the stores has too little, as `letter_room`.
    cdef int check(self, engine_t* engine) except -1
