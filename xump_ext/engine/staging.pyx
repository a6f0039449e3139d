"""The calls on staged queues: a queue adopts them, and lets their messages enter, step by step.

`log/adopt.pyx` has what is adopted, and records it; `route/entering.pyx` lets messages in.
"""

from libc.stdint cimport int64_t

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.maps cimport MapChanges
from xump_ext.engine.enqueue cimport check_takes_rows
from xump_ext.engine.queue_edit cimport queue_delete
from xump_ext.errors import QueueFull, StoreFull, TransactionError, no_queue
from xump_ext.log.adopt cimport Adoptions, adopt_length, adoption_begins, adoptions_of, queues_waiting
from xump_ext.log.journal cimport Journal
from xump_ext.log.room cimport COMES_IN, ENDS, USUAL_BYTES, kept_bytes, message_bytes
from xump_ext.log.writer cimport charge_of
from xump_ext.route.entering cimport enter_rows
from xump_ext.route.routing cimport go_on
from xump_ext.state.constants cimport BROKEN
from xump_ext.state.envelope cimport QueueRef, name_text
from xump_ext.state.graph cimport entry_t
from xump_ext.state.index cimport index_from
from xump_ext.state.lazy_content cimport content_at, content_needed


# ---- adopting

def adopt(EngineStores core not None, target, list given not None, list changes not None):
    """A queue adopts staged queues, (queue, rows) each, and its map changes, (name, value) each: all of it, or nothing."""
    cdef MapChanges maps = None
    cdef queue_t* queue
    cdef list staged
    core.begin_call()
    try:
        queue = found(core, target)
        if changes:
            maps = MapChanges(core, [(<object> queue.handle, changes)])
        staged = checked(core, queue, given)
        if queue.durable and make_room(core, <Journal> queue.store.handle, maps, staged_bytes(queue, staged)):
            queue = found(core, target)         # the lock was given up
            staged = checked(core, queue, given)
        check_room(queue, maps, staged_bytes(queue, staged))
        if maps is not None:
            maps.carry_out()
        begin(core, queue, staged)
        go_on(&core.e)
    finally:
        core.unlock()


cdef queue_t* found(EngineStores core, object name) except NULL:
    cdef queue_t* queue = core.queue_of(name)
    if isinstance(name, QueueHandle):
        queue = (<QueueHandle> name).queue          # one that was deleted is gone, whatever has its name by now
    if queue == NULL:
        raise no_queue(name_text(name))
    return queue


cdef list checked(EngineStores core, queue_t* target, list given):
    """The staged queues, if the target can adopt so many messages of each."""
    cdef queue_t* queue
    cdef list staged = []
    if target.staged or target.transit:
        what = "is staged itself" if target.staged else "is a transit queue, which keeps nothing"
        raise ValueError(f"queue {name_of(target)!r} {what}: adopt into a queue that keeps its messages, and copy or move them "
                         "from there")
    for name, rows in given:
        queue = found(core, name)
        if not queue.staged:
            raise ValueError(f"queue {name_of(queue)!r} is not staged: only a queue that was created with staged=True is adopted")
        if <object> queue.handle in staged:
            raise ValueError(f"queue {name_of(queue)!r} is given twice")
        check_takes_rows(queue)
        if (<QueueHandle> queue.handle).store is not (<QueueHandle> target.handle).store:
            raise TransactionError(f"queue {name_of(queue)!r} is in store {store_of(queue)!r}, and {name_of(target)!r} in "
                                   f"{store_of(target)!r}: stage in the store of the queue that adopts")
        if queue.ready != rows:
            raise ValueError(f"queue {name_of(queue)!r} has {queue.ready} messages, not {rows}: nothing was adopted")
        staged.append(<object> queue.handle)
    return staged


cdef str name_of(const queue_t* queue):
    return (<QueueHandle> queue.handle).name


cdef str store_of(const queue_t* queue):
    return (<QueueHandle> queue.handle).store.name


cdef int64_t staged_bytes(queue_t* target, list staged) except -1:
    """Bytes of the store that the record of the adoption takes."""
    return <int64_t> charge_of(adopt_length(queues_waiting(target) + <uint64_t> len(staged)))


cdef bint make_room(EngineStores core, Journal journal, MapChanges maps, int64_t bytes) except -1:
    """Lets the store clean its log if it has no room; True if the lock was given up."""
    cdef int64_t all = bytes, largest = bytes
    if maps is not None:
        maps.plan()
        all += maps.bytes
        largest = max(bytes, maps.largest)
    return core.make_room(journal, all + kept_bytes(&journal.store, largest, COMES_IN))


cdef int check_room(queue_t* target, MapChanges maps, int64_t bytes) except -1:
    cdef Journal journal
    cdef int64_t all = bytes, largest = bytes, left
    if maps is not None:
        maps.plan()
        all += maps.bytes
        largest = max(bytes, maps.largest)
    if not target.durable:
        return 0
    journal = <Journal> target.store.handle
    journal.must_write()
    left = journal.store.room - kept_bytes(&journal.store, largest, COMES_IN)
    if left < all:
        raise StoreFull(f"store {journal.name!r} is full: {max(left, 0)} bytes are left, and the record of what "
                        f"{name_of(target)!r} adopts takes {all}; take messages out, or allow it more bytes")
    return 0


cdef int begin(EngineStores core, queue_t* target, list staged) except -1:
    """The target adopts them. Those that are empty are done."""
    cdef QueueRef ref
    cdef list full = [ref for ref in staged if ref.queue.ready]
    for ref in staged:
        if ref.queue.ready == 0:
            queue_delete(&core.e, ref.queue, core._selectors, core.spare_slots)
    return adoption_begins(target, full) if full else 0


# ---- entering

def enter(EngineStores core not None, target, uint64_t count):
    """Lets the next `count` messages at most enter that the target has adopted, as far as there is room. Returns how many."""
    cdef queue_t* queue
    cdef queue_t* staged
    cdef uint64_t done = 0
    core.begin_call()
    try:
        queue = found(core, target)
        staged = next_staged(queue)
        if staged != NULL and queue.durable and first_has_room_made(core, queue, staged):
            queue = found(core, target)         # the lock was given up
        done = enter_all(core, queue, count)
        go_on(&core.e)
    finally:
        core.unlock()
    return done


cdef int make_room_for_next(EngineStores core, object target) except -1:
    cdef queue_t* queue = found(core, target)
    cdef queue_t* staged = next_staged(queue)
    if staged != NULL and queue.durable:
        first_has_room_made(core, queue, staged)
    return 0


cdef int enter_next(EngineStores core, object target) except -1:
    cdef queue_t* queue = found(core, target)
    if next_staged(queue) == NULL:
        return 0
    if enter_all(core, queue, 1) == 0:
        raise QueueFull(f"queue {(<QueueHandle> queue.handle).name!r} has no room for the messages that it has adopted")
    return 1


cdef queue_t* next_staged(const queue_t* target) except? NULL:
    cdef Adoptions adoptions = adoptions_of(target)
    return (<QueueRef> (<list> adoptions.waiting[0])[0]).queue if adoptions is not None and adoptions.waiting else NULL


cdef bint first_has_room_made(EngineStores core, queue_t* target, queue_t* staged) except -1:
    """Lets the store clean its log if it has no room for the first message; True if the lock was given up."""
    cdef int64_t bytes
    cdef entry_t* row = index_from(&staged.index, 1)
    content_needed(&core.e, row)
    bytes = message_bytes(content_at(row), True) + USUAL_BYTES
    if adoptions_of(target).first_id == 0:
        bytes += <int64_t> charge_of(adopt_length(queues_waiting(target)))
    return core.make_room(<Journal> target.store.handle, bytes + kept_bytes(target.store, bytes, ENDS))


cdef uint64_t enter_all(EngineStores core, queue_t* target, uint64_t count) except? 0:
    cdef uint64_t done = 0, entered
    cdef queue_t* staged = next_staged(target)
    while staged != NULL and done < count:
        try:
            entered = enter_rows(&core.e, target, staged, count - done)
        except MemoryError:
            if done:
                core.e.at_rest = BROKEN
            raise
        except (OSError, KeyError):     # the next call raises for it
            if done == 0:
                raise
            break
        done += entered
        if staged.ready:
            break
        queue_delete(&core.e, staged, core._selectors, core.spare_slots)
        staged = next_staged(target)
    return done


cdef int adopted_shrinks(EngineStores core, queue_t* staged, uint64_t count) except -1:
    cdef Adoptions adoptions = adoptions_of(staged.adopter)
    adoptions.rows -= count
    if staged.ready == 0:
        queue_delete(&core.e, staged, core._selectors, core.spare_slots)
    return 0
