"""How a message leaves what is ready, and the moments for which it waits: its delay, its expiry, the deadline for its answer."""

from libc.stdint cimport int64_t, uint8_t

from xump_ext.log.writer cimport touch
from xump_ext.message.times cimport later
from xump_ext.route.clock cimport time_of
from xump_ext.select.credit cimport source_waiters_note, room_made
from xump_ext.select.groups cimport group_leave, group_part
from xump_ext.select.unrouted cimport apart_remove
from xump_ext.state.constants cimport (
    APART, DELAYED, NEVER, OVERFULL, QUEUED, SUSPENDED, TIMER_ACK, TIMER_EXPIRY, TIMER_ROOM, WAITING,
)
from xump_ext.state.extra cimport extra_of
from xump_ext.state.graph cimport engine_t, entry_t
from xump_ext.state.index cimport list_append, list_remove
from xump_ext.state.limits cimport count_bytes, count_delayed
from xump_ext.state.queue_lists cimport queue_list
from xump_ext.state.run_queue cimport forget_suspended, parked_forget
from xump_ext.state.schedule cimport schedule_add, schedule_cancel, schedule_reserve


cdef int delay(engine_t* engine, entry_t* entry, int64_t due, uint8_t timer) except -1:
    """The entry, which is in no list, is delayed until then, or until it expires. The schedule has room for it."""
    if entry.extra.expires <= due:
        due = entry.extra.expires
        timer = TIMER_EXPIRY
    become_delayed(engine, entry)
    if entry.queue.awaits_release:
        entry.queue.has_awaiting = True
    else:
        schedule_add(&engine.schedule, entry.extra, due, timer)
    return 0


cdef int wait_for_room(engine_t* engine, entry_t* entry) except -1:
    schedule_cancel(&engine.schedule, entry.extra)
    group_leave(engine, entry)          # it keeps nobody waiting
    become_delayed(engine, entry)
    if entry.queue.durable:
        touch(entry.queue)              # its frontier may be past it now
    entry.holder = NULL
    entry.extra.ended.retry = NEVER
    if entry.queue.awaits_release:
        entry.queue.has_awaiting = True
    else:
        entry.extra.timer = TIMER_ROOM
        list_append(&entry.queue.lacking, entry)
        engine.lacks_room = True
    return 0


cdef int become_delayed(engine_t* engine, entry_t* entry) except -1:
    entry.state = DELAYED
    count_delayed(entry, 1)
    if entry.queue.drops_oldest:        # the limits count what is delayed, too
        queue_list(engine, entry.queue, OVERFULL)
    return 0


cdef int deadline_set(engine_t* engine, entry_t* entry, int64_t timeout) except -1:
    """Your program has taken the entry, which does not expire now: an answer is due after so many ns (NEVER: at any time)."""
    schedule_reserve(&engine.schedule, 1)
    extra_of(entry)
    if timeout == NEVER:
        schedule_cancel(&engine.schedule, entry.extra)
        entry.extra.timer = TIMER_ACK       # nor has it missed one
    else:
        schedule_add(&engine.schedule, entry.extra, later(time_of(engine), timeout), TIMER_ACK)
    return 0


cdef void expiry_set(engine_t* engine, entry_t* entry) noexcept:
    """The entry is ready or offered: it expires in its time. The schedule has room for it."""
    if entry.extra == NULL or entry.extra.expires == NEVER:
        return
    if entry.queue.awaits_release:
        entry.queue.has_awaiting = True
    else:
        schedule_add(&engine.schedule, entry.extra, entry.extra.expires, TIMER_EXPIRY)


cdef int leave_ready(engine_t* engine, entry_t* entry) except -1:
    """Takes the entry out of the unrouted or waiting ones, which makes room. It is in no list then."""
    if engine.building and entry.state == WAITING:      # no run follows that would find selectors without a message
        source_waiters_note(engine, entry.queue)
    detach_ready(engine, entry)
    return room_made(engine, entry.queue)


cdef bint detach_marked(engine_t* engine, entry_t* entry) except -1:
    """Takes the entry out of what its flags say. True: it was delayed, so it is in nothing else."""
    if entry.flags & QUEUED:
        parked_forget(engine, entry)
    if entry.flags & SUSPENDED:
        forget_suspended(engine, entry)
    if entry.flags & APART:
        apart_remove(entry)
    if entry.extra != NULL:
        group_part(entry)
        if entry.state == DELAYED:
            count_delayed(entry, -1)
            if entry.extra.timer == TIMER_ROOM:
                entry.extra.timer = TIMER_EXPIRY
                list_remove(&entry.queue.lacking, entry)
            return True
        count_bytes(entry, -1)
    return False
