"""The messages of a staged queue enter the queue that has adopted it: as if they were published now, as far as there is room.

Each is an entry in the staged queue until it is one in the target; a durable queue has both in the same group. Its content is
not copied. It waits for room as a MOVE does: the overflow selector of the target counts, a dead letter queue does not, and a
target that drops its oldest messages is full for it. A duplicate needs no room, and neither does what is late.
"""

from libc.stdint cimport int64_t

from xump_ext.log.adopt cimport Adoptions, adopt_length, adoption_starts, adoptions_of, queues_waiting
from xump_ext.log.room cimport ENDS, store_takes_beside, store_takes_bytes
from xump_ext.log.writer cimport charge_of
from xump_ext.message.content cimport content_release, content_share
from xump_ext.message.headers cimport content_t, expires_of
from xump_ext.route.arrivals cimport due_at, enter_due
from xump_ext.route.duplicates cimport duplicate_of, remember_for_good
from xump_ext.route.clock cimport time_of
from xump_ext.route.settling cimport PROCESSED, end
from xump_ext.select.credit cimport overflow_has_room
from xump_ext.state.constants cimport BROKEN, FOUND_ROOM, NEVER
from xump_ext.state.graph cimport entry_t
from xump_ext.state.index cimport index_from, index_get
from xump_ext.state.lazy_content cimport content_at, content_needed


cdef uint64_t enter_rows(engine_t* engine, queue_t* target, queue_t* staged, uint64_t count) except? 0:
    cdef uint64_t done = 0, before = target.next_id, id
    cdef entry_t* row = index_from(&staged.index, 1)
    cdef bint starts
    if row == NULL:
        return 0
    starts = adoptions_of(target).first_id == 0
    try:
        while done < count:
            id = row.id
            if not row_enters(engine, target, row, starts):
                break
            starts = False
            done += 1
            row = index_get(&staged.index, id + 1)
            if row == NULL:
                row = index_from(&staged.index, id + 1)
                if row == NULL:
                    break
    except MemoryError:
        if done or target.next_id != before:
            engine.at_rest = BROKEN
        raise
    except (OSError, KeyError):         # its content cannot be read: the next call raises for it
        if done == 0:
            raise
    finally:
        rows_left(target, done)
    return done


cdef void rows_left(queue_t* target, uint64_t count) noexcept:
    """So many rows less are still to enter."""
    cdef Adoptions adoptions = adoptions_of(target)
    adoptions.rows -= count


cdef bint row_enters(engine_t* engine, queue_t* target, entry_t* row, bint starts) except -1:
    """Whether the row has left its queue: it is in the target, or a duplicate. `starts`: it is the first one of its adoption."""
    cdef content_t* content
    cdef int64_t due = NEVER, start_bytes = bytes_to_start(target) if starts and target.durable else 0
    cdef bint is_duplicate
    content_needed(engine, row)
    content = content_at(row)
    if row.extra != NULL:
        due = due_at(engine, row.extra.delayed_until)
    is_duplicate = target.window != NULL and duplicate_of(target, content)
    if is_duplicate:
        if start_bytes and not store_takes_bytes(target.store, start_bytes):
            return False
    elif not has_room(engine, target, content, due, start_bytes):
        return False
    if starts:
        adoption_starts(target)
    if is_duplicate:
        target.duplicates += 1
    else:
        publish_row(engine, target, content, due)
    row.queue.unrouted -= 1
    row.queue.ready -= 1
    engine.entered_stores = 0           # wherever it overflowed to, the target's own record of it is in this group
    end(engine, row, PROCESSED, 0)
    return True


cdef int64_t bytes_to_start(queue_t* target) except -1:
    """Of the record that says that the oldest adoption enters. It is written with the first row that does."""
    return <int64_t> charge_of(adopt_length(queues_waiting(target)))


cdef bint has_room(engine_t* engine, queue_t* target, content_t* content, int64_t due, int64_t start_bytes) except -1:
    if target.durable and not store_takes_beside(target, content, ENDS, start_bytes):
        return False
    if target.ready < target.limit or expires_of(content) < time_of(engine):
        return True
    return due == NEVER and overflow_has_room(target, content, NULL)


cdef int publish_row(engine_t* engine, queue_t* target, content_t* content, int64_t due) except -1:
    cdef uint64_t id
    content_share(content)
    try:
        id = enter_due(engine, target, content, due, FOUND_ROOM, NULL)
    except BaseException:
        content_release(content)
        raise
    return 0 if target.window == NULL else remember_for_good(target, content, id)      # the row still has the content
