"""Rows: messages that a server publishes out of a buffer, over several queues, with one call. `rows.pxd` says how to use it."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.log.journal cimport Journal
from xump_ext.log.room cimport COMES_IN, kept_bytes
from xump_ext.message.content cimport content_of_buffers, content_release, content_share, no_parts, parts_t
from xump_ext.message.headers cimport annex_new, annex_release, content_t
from xump_ext.message.times cimport later
from xump_ext.route.clock cimport time_of
from xump_ext.route.routing cimport go_on
from xump_ext.state.constants cimport BROKEN, OUTCOME_NO_QUEUE
from xump_ext.state.graph cimport engine_t, queue_t, store_t, visited_t
from xump_ext.state.visited cimport tally_end, visited_add, visited_has

cdef enum:
    ROW_BYTES = 256         # what a row takes in a store beside its body and annex, at most; refused rows ask for themselves


cdef int publish_rows(EnginePublish engine, row_t* rows, Py_ssize_t count) except -1:
    cdef uint64_t before
    cdef int done = ROWS_DONE
    cdef Py_ssize_t i
    engine.begin_call()
    try:
        if engine.e.building:
            return ROWS_HELD
        make_room(engine, rows, count)
        before = logged(&engine.e)
        try:
            let_in(engine, rows, count)
            go_on(&engine.e)
        finally:
            for i in range(count):
                tally_end(&engine.e, &rows[i].tally)
        if logged(&engine.e) != before:
            done |= ROWS_LOGGED
    finally:
        engine.unlock()
    return done


cdef uint64_t logged(const engine_t* engine) noexcept:
    """A number that changes when a store has something more to write."""
    cdef const store_t* store = engine.stores
    cdef uint64_t number = 0
    while store != NULL:
        number += store.size + (store.touched != NULL) + (store.group << 32)
        store = store.next
    return number


cdef int make_room(EnginePublish engine, const row_t* rows, Py_ssize_t count) except -1:
    """Stores that have no room for the rows clean their logs. The lock is given up meanwhile, so nothing may have changed yet."""
    cdef Journal journal
    cdef int64_t bytes = 0, largest = 0, size
    cdef Py_ssize_t i
    if not engine.journals:
        return 0
    for i in range(count):
        size = ROW_BYTES + <int64_t> rows[i].body_bytes + <int64_t> rows[i].annex_bytes
        size += size >> 7           # the class of its length
        largest = max(largest, size)
        bytes += size
    for journal in list(engine.journals):
        engine.make_room(journal, bytes + kept_bytes(&journal.store, largest, COMES_IN))
    return 0


cdef int let_in(EnginePublish engine, row_t* rows, Py_ssize_t count) except -1:
    """Lets all rows in; each visited set and content is that of its row and of those that join it."""
    cdef Py_ssize_t i, first = 0
    cdef content_t* content
    cdef visited_t* visited
    cdef BaseException interruption = None
    for i in range(count):
        if rows[i].joins:
            continue
        first = i
        content = content_of_row(engine, &rows[i])
        visited = NULL
        while first < count and (first == i or rows[first].joins):
            try:
                visited = enter_row(engine, &rows[first], content, visited, &rows[i],
                                    first + 1 == count or not rows[first + 1].joins)
            except MemoryError:
                engine.e.at_rest = BROKEN
                raise
            except BaseException as error:      # a condition of a transit queue: the message is in, and waits there
                interruption = error
            first += 1
        content_release(content)
    if interruption is not None:
        raise interruption
    return 0


cdef visited_t* enter_row(
    EnginePublish engine, const row_t* row, content_t* content, visited_t* visited, row_t* first, bint last
) except? NULL:
    """Lets one row in; returns the visited set of its message."""
    cdef QueueHandle handle = <QueueHandle> row.queue
    cdef queue_t* queue = handle.queue
    if queue == NULL or (queue.staged and queue.adopter != NULL):       # deleted, or adopted: it takes no more
        first.tally.flags |= OUTCOME_NO_QUEUE
        return visited
    if visited == NULL:
        visited = engine.begin_asking(queue, content, &first.tally)
        if visited == NULL:             # a duplicate
            return NULL
    elif visited_has(visited, queue.slot):
        return visited
    else:
        visited_add(visited, queue.slot)
    content_share(content)
    try:
        engine.let_in_asking(queue, handle.name, content, NEVER, &first.tally, visited, last)
    except BaseException:
        content_release(content)        # it was not taken over
        raise
    return visited


cdef content_t* content_of_row(EnginePublish engine, const row_t* row) except NULL:
    cdef parts_t parts
    cdef content_t* content
    if row.annex_kind == 0 and row.ttl == NEVER and row.priority == 0:
        return content_of_buffers(<object> row.address, row.body, row.body_bytes, NULL, 0, 0)
    parts = no_parts()
    parts.priority = row.priority
    if row.ttl != NEVER:
        parts.expires = later(time_of(&engine.e), row.ttl)
    if row.annex_kind:
        parts.annex = annex_new(row.annex_kind, PyBytes_FromStringAndSize(row.annex, row.annex_bytes))
    try:
        content = content_of_buffers(<object> row.address, row.body, row.body_bytes, &parts, 0, 0)
    finally:
        annex_release(parts.annex)      # the content shares it
    return content
