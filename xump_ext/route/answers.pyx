"""Answers to deliveries: an ack, a nack or a reject, alone or many in one call (rules 8, 10, 12).

A message that is dead-lettered has to be read, perhaps from a disk, and that may fail; and its dead letter needs room in a store.
So a call with many answers reads for all of them, and asks for the room, before it carries out the first: all are carried out,
or none.
"""

from xump_ext.message.content cimport content_release, content_share
from xump_ext.route.ledger cimport dead_letter
from xump_ext.route.offering cimport pay
from xump_ext.route.requeue cimport (
    NACK_PREPARED, NACK_RETURNS, is_over_limit, nack_entry, prepare_return, recall, return_reads, returns_as, returns_not,
)
from xump_ext.state.constants cimport BROKEN, REASON_EXPIRED, REASON_REJECTED
from xump_ext.state.lazy_content cimport content_at, fetched_put, is_loaded


cdef int answer_read(engine_t* engine, answer_t* answer, LetterRoom room) except -1:
    cdef int64_t delay_ns = answer.delay_ns
    cdef bint refused = answer.kind == ANSWER_REJECT or (answer.kind == ANSWER_NACK and is_over_limit(answer.entry))
    answer.content = NULL
    answer.read = answer.entry if refused else returns_as(answer.entry, &delay_ns)
    if answer.kind == ANSWER_ACK or not return_reads(engine, answer.read, refused):
        return 0
    if not is_loaded(answer.read):
        answer.content = content_share(content_at(answer.read))
    if answer.kind != ANSWER_RETURN and returns_not(engine, answer.read, refused):
        room.add(engine, answer.read, REASON_REJECTED if refused else REASON_EXPIRED)
    return 0


cdef int answer_done(engine_t* engine, const answer_t* answer, object detail) except -1:
    if answer.content != NULL:
        fetched_put(answer.read, answer.content)
    if answer.kind == ANSWER_ACK:
        return pay(engine, answer.entry)
    if answer.kind == ANSWER_NACK:
        return nack_entry(engine, answer.entry, answer.delay_ns, True, NACK_PREPARED)
    if answer.kind == ANSWER_RETURN:
        return nack_entry(engine, answer.entry, answer.delay_ns, True, NACK_RETURNS)
    return reject_entry(engine, answer.entry, detail, True)


cdef void answer_forget(answer_t* answer) noexcept:
    if answer.content != NULL:
        content_release(answer.content)
        answer.content = NULL


cdef int reject_entry(engine_t* engine, entry_t* entry, object detail, bint prepared) except -1:
    cdef bint ended = False
    if not prepared:
        prepare_return(engine, entry, True)
    try:
        recall(engine, entry)
        dead_letter(engine, entry, REASON_REJECTED, detail, NULL)
        ended = True
    finally:
        if not ended:               # memory ended, and the entry may be in no list
            engine.at_rest = BROKEN
    return 0
