"""Rows: messages that a server publishes out of a buffer, over several queues, with one call. Documented for servers.

A server speaks somebody's protocol over an engine. It describes the messages that it reads from a socket as rows,
which point into its buffer, and `publish_rows` lets them in with one call and one run. Nothing is raised for a row: what became
of it stands in its `tally` (`OUTCOME_…`; the Python form is `publish_many(outcomes=True)`). The engine copies bodies and annexes
once.

    cdef row_t rows[2]
    row_begin(&rows[0], <PyObject*> queue_handle, <PyObject*> address, body, body_bytes)
    rows[0].annex, rows[0].annex_bytes, rows[0].annex_kind = annex, annex_bytes, KIND
    row_join(&rows[1], <PyObject*> other_handle)        # the same message, to one more queue
    publish_rows(core, rows, 2)
    if rows[0].tally.flags & OUTCOME_UNROUTABLE: ...
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memset

from xump_ext.engine.publish cimport EnginePublish
from xump_ext.message.times cimport NEVER
from xump_ext.state.graph cimport tally_t

cdef enum:
    ROWS_HELD = 0           # another thread is in a `building()` block: nothing was done, ask again
    ROWS_DONE = 1
    ROWS_LOGGED = 2         # and at least one durable store has something to write: ask `when_durable`

cdef struct row_t:
    PyObject* queue         # a QueueHandle of this engine, borrowed
    PyObject* address       # an exact str within the limit, borrowed
    const char* body
    const char* annex
    uint32_t body_bytes
    uint32_t annex_bytes
    uint32_t annex_kind     # 0: no annex
    uint8_t priority
    uint8_t joins           # the message of the row before, in one more queue: what became of it stands there
    int64_t ttl             # nanoseconds from now; NEVER
    tally_t tally           # filled by the call

cdef inline void row_begin(
    row_t* row, PyObject* queue, PyObject* address, const char* body, uint32_t body_bytes
) noexcept:
    """A row of a message without anything else."""
    memset(row, 0, sizeof(row_t))
    row.queue, row.address, row.body, row.body_bytes, row.ttl = queue, address, body, body_bytes, NEVER

cdef inline void row_join(row_t* row, PyObject* queue) noexcept:
    """A row of the message before, to one more queue."""
    memset(row, 0, sizeof(row_t))
    row.queue, row.joins, row.ttl = queue, True, NEVER

# Lets rows in, in order, and runs the graph. Returns ROWS_HELD, ROWS_DONE or ROWS_DONE | ROWS_LOGGED. Raises as a call does:
# Closed, ForkedError, MemoryError, and what interrupted a condition (then the rows are in).
cdef int publish_rows(EnginePublish engine, row_t* rows, Py_ssize_t count) except -1
