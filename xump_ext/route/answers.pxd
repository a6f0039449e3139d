"""Declarations of `answers.pyx`."""

from libc.stdint cimport int64_t

from xump_ext.message.headers cimport content_t
from xump_ext.route.letter_room cimport LetterRoom
from xump_ext.state.graph cimport engine_t, entry_t

cdef enum:
    ANSWER_ACK = 0
    ANSWER_NACK = 1
    ANSWER_REJECT = 2
    ANSWER_RETURN = 3       # a nack that does not dead-letter, since there is no room for that

cdef struct answer_t:
    entry_t* entry          # of the delivery
    int kind                # ANSWER_ACK ..
    int64_t delay_ns        # of a nack; NEVER: none was given
    entry_t* read           # the entry whose content the answer needs …
    content_t* content      # … which was read from its store; NULL: it needs none, or has it in memory

# Reads what the answer needs, and keeps it until `answer_forget`. If it raises, nothing has changed. `room`: gets what its dead
# letter needs.
cdef int answer_read(engine_t* engine, answer_t* answer, LetterRoom room) except -1
# Carries out an answer that was read. `detail`: the text of a reject, or None.
cdef int answer_done(engine_t* engine, const answer_t* answer, object detail) except -1
cdef void answer_forget(answer_t* answer) noexcept
# The message is dead-lettered, else dropped. If it raises since the message cannot be read, or there is no room for its dead
# letter, nothing has changed. `prepared`: that was seen to.
cdef int reject_entry(engine_t* engine, entry_t* entry, object detail, bint prepared) except -1
