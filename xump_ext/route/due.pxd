"""Declarations of `due.pyx`."""

from libc.stdint cimport int64_t

from xump_ext.state.constants cimport TIME_UNREAD
from xump_ext.state.graph cimport engine_t, queue_t
from xump_ext.state.schedule cimport schedule_is_due

cdef inline bint something_is_due(const engine_t* engine) noexcept:
    """Whether something may be due now. A call that has not read the clock has nothing that is."""
    return engine.now != TIME_UNREAD and schedule_is_due(&engine.schedule, engine.time)

# Goes on to the next moment, if that is in the span of this run, and nothing happens then but the end of one delay, in a queue
# that routes its message at once. False: nothing has changed.
cdef bint delay_ends(engine_t* engine) noexcept
# Does all that is due now, as far as it was due before this call; the run goes on then.
cdef int do_due(engine_t* engine) except -1
# The queue was released: what fell due there while it could not be read falls due now. O(its messages)
cdef int due_again(engine_t* engine, queue_t* queue) except -1
# The queues, whose store was opened again, are released: what fell due there until now does so now, in order of due time.
cdef int release_due(engine_t* engine, list queues) except -1
