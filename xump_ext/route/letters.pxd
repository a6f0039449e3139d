"""Declarations of `letters.pyx`."""

from libc.stdint cimport uint8_t

from xump_ext.message.headers cimport content_t
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, tally_t, visited_t

cdef struct letters_t:      # where a dead letter goes
    queue_t* queue          # NULL: nowhere
    queue_t* namer          # the queue that names it; NULL: the engine does

cdef queue_t* own_dead_letter(queue_t* queue) except? NULL
cdef queue_t* dead_letter_of(engine_t* engine, const entry_t* entry, queue_t** namer) except? NULL
cdef content_t* letter_made(
    engine_t* engine, const letters_t* letters, content_t* content, object origin, int reason, object detail,
    const entry_t* entry, list barred
) except NULL
cdef list letter_bars(const letters_t* letters)
cdef bint is_barred(const letters_t* letters, list barred)
cdef visited_t* letter_trip(engine_t* engine, const letters_t* letters, list barred) except NULL
cdef int tally_left(tally_t* tally, const queue_t* queue, int reason, uint8_t flags) except -1
