"""Answers to deliveries: an ack, a nack or a reject, alone or many in one call (rules 8, 10, 12).

A message that is dead-lettered has to be read, perhaps from a disk, and that may fail. So a call with many answers reads for all
of them before it carries out the first: all are carried out, or none.
"""

from xump_ext.message.content cimport content_release, content_share
from xump_ext.route.ledger cimport dead_letter
from xump_ext.route.offering cimport pay
from xump_ext.route.requeue cimport is_over_limit, nack_entry, recall, return_reads, returns_as
from xump_ext.state.constants cimport BROKEN, REASON_REJECTED
from xump_ext.state.lazy_content cimport content_at, fetched_put, is_loaded


cdef int answer_read(engine_t* engine, answer_t* answer) except -1:
    cdef int64_t delay_ns = answer.delay_ns
    cdef bint refused = answer.kind == ANSWER_REJECT or (answer.kind == ANSWER_NACK and is_over_limit(answer.entry))
    answer.content = NULL
    answer.read = answer.entry if refused else returns_as(answer.entry, &delay_ns)
    if answer.kind != ANSWER_ACK and return_reads(engine, answer.read, refused) and not is_loaded(answer.read):
        answer.content = content_share(content_at(answer.read))
    return 0


cdef int answer_done(engine_t* engine, const answer_t* answer, object detail) except -1:
    if answer.content != NULL:
        fetched_put(answer.read, answer.content)
    if answer.kind == ANSWER_ACK:
        return pay(engine, answer.entry)
    if answer.kind == ANSWER_NACK:
        return nack_entry(engine, answer.entry, answer.delay_ns, True)
    return reject_entry(engine, answer.entry, detail)


cdef void answer_forget(answer_t* answer) noexcept:
    if answer.content != NULL:
        content_release(answer.content)
        answer.content = NULL


cdef int reject_entry(engine_t* engine, entry_t* entry, object detail) except -1:
    cdef bint ended = False
    if return_reads(engine, entry, True):
        content_at(entry)
    try:
        recall(engine, entry)
        dead_letter(engine, entry, REASON_REJECTED, detail, NULL)
        ended = True
    finally:
        if not ended:               # memory ended, and the entry may be in no list
            engine.at_rest = BROKEN
    return 0
