"""Verifies what few entries have: their moments in the schedule, their keys, their bytes; and unrouted entries that are apart."""

from libc.stdint cimport int64_t, uint64_t, uintptr_t

from xump_ext.check.structure cimport broken, of_entry, of_queue
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.select.groups cimport group_key
from xump_ext.select.unrouted cimport is_kept
from xump_ext.state.constants cimport (
    APART, BEHIND, BOUND, DELAYED, GROUP_BUSY, GROUP_LINE, GROUP_NONE, GROUP_STRAY, MOVED, NEVER, OFFERED, TAKEN,
    TIMER_ACK, TIMER_EXPIRY, TIMER_ROOM, UNLIMITED, UNROUTED, WAITING,
)
from xump_ext.state.graph cimport entry_t, extra_t, group_t, queue_t, selector_t, waitset_t
from xump_ext.state.group_line cimport is_behind
from xump_ext.state.index cimport cursor_start, cursor_step, cursor_t
from xump_ext.state.schedule cimport schedule_check


cdef int check_extras(Books books) except -1:
    cdef QueueHandle handle
    cdef cursor_t at
    cdef entry_t* entry
    cdef uint64_t scheduled = 0, lacking
    for handle in books.core._queues.values():
        at = cursor_start(handle.queue)
        entry = cursor_step(&at)
        lacking = 0
        while entry != NULL:
            if entry.extra != NULL:
                if entry.extra.entry != entry:
                    raise broken("Links", of_entry(entry), "its extra is of another message")
                check_moment(books, entry)
                scheduled += entry.extra.due != NEVER
                lacking += entry.state == DELAYED and entry.extra.timer == TIMER_ROOM
            entry = cursor_step(&at)
        if lacking != handle.queue.lacking.count:
            raise broken("Recount", of_queue(handle.queue), f"{handle.queue.lacking.count} wait for room, found {lacking}")
        check_groups(handle.queue)
        check_bytes(handle.queue)
        check_apart(handle.queue)
    schedule_check(&books.e.schedule)
    if books.e.schedule.live != scheduled:
        raise broken("Recount", "engine", f"{books.e.schedule.live} moments are scheduled, found {scheduled}")
    return 0


# ---- time

cdef int64_t moment_of(const entry_t* entry) noexcept:
    """When something happens to the entry, as far as its state tells; its delay by a retry and its deadline are known by the
    schedule only."""
    if entry.state == BOUND or entry.state == OFFERED:
        return entry.extra.expires if entry.below.offer.destination.outlet == NULL else NEVER
    if entry.state == UNROUTED or entry.state == WAITING:
        return entry.extra.expires
    return NEVER


cdef int check_moment(Books books, entry_t* entry) except -1:
    """The schedule has exactly what is delayed, may expire, or has a deadline; and nothing that is due is left at rest."""
    cdef extra_t* extra = entry.extra
    if entry.queue.awaits_release:
        if extra.due != NEVER:
            raise broken("Quiet", of_entry(entry), "it is scheduled, though its queue waits for its release")
        return 0
    if entry.state == DELAYED and extra.due == NEVER:
        if extra.timer != TIMER_ROOM and not (entry.queue.held and entry.queue.has_awaiting):   # it may have been unreadable
            raise broken("Links", of_entry(entry), "it is delayed, and nothing ends that")
    elif entry.state == DELAYED:
        if extra.timer == TIMER_ROOM or extra.due > extra.expires:
            raise broken("Links", of_entry(entry), f"it is delayed until {extra.due}, though it expires at {extra.expires}")
    elif entry.state == TAKEN and extra.due != NEVER:
        if extra.timer != TIMER_ACK or (entry.holder != NULL and (<selector_t*> entry.holder).ack_timeout == NEVER):
            raise broken("Links", of_entry(entry), "it has a deadline that nobody gave it")
    elif extra.due != moment_of(entry) or (extra.due != NEVER and extra.timer != TIMER_EXPIRY):
        raise broken("Links", of_entry(entry), f"it is scheduled for {extra.due}, its state and time say {moment_of(entry)}")
    if books.quiet and extra.due != NEVER and extra.due <= books.e.time:
        raise broken("Quiet", of_entry(entry), f"it was due at {extra.due}, and it is {books.e.time}")
    return 0


# ---- order per key

cdef int check_groups(queue_t* queue) except -1:
    """Each key has its messages in line, and at most one of them is taken."""
    cdef cursor_t at = cursor_start(queue)
    cdef entry_t* entry = cursor_step(&at)
    cdef group_t* group
    cdef dict lines = {}, busy = {}
    if queue.groups == NULL:
        return 0
    while entry != NULL:
        if entry.extra != NULL and entry.extra.group != NULL:
            check_standing(entry)
            address = <uintptr_t> entry.extra.group
            lines[address] = lines.get(address, 0) + (entry.extra.standing != GROUP_BUSY)
            busy[address] = busy.get(address, 0) + (entry.extra.standing == GROUP_BUSY)
        elif entry.state == WAITING and group_key(entry) is not None:
            raise broken("Links", of_entry(entry), "it waits, and does not stand in the line of its key")
        entry = cursor_step(&at)
    for key, address in (<dict> queue.groups).items():
        group = <group_t*> <uintptr_t> address
        if group.queue != queue or <object> group.key != key:
            raise broken("Links", of_queue(queue), f"the group of {key!r} is another")
        if (group.count, group.busy) != (lines.pop(address, 0), busy.get(address, 0)) or group.busy > 1:
            raise broken("Recount", of_queue(queue), f"{group.count} messages of {key!r} are in line, {group.busy} taken")
        check_line(group)
    if lines:
        raise broken("Links", of_queue(queue), "a message is of a group that is not there")
    return 0


cdef int check_standing(entry_t* entry) except -1:
    cdef extra_t* extra = entry.extra
    cdef bint taken = entry.state == OFFERED or entry.state == BOUND or entry.state == TAKEN or entry.state == MOVED
    if extra.standing == GROUP_NONE or taken != (extra.standing == GROUP_BUSY):
        raise broken("Links", of_entry(entry), f"it stands {extra.standing} in its group, and its state is {entry.state}")
    if <object> extra.group.key != group_key(entry):
        raise broken("Links", of_entry(entry), "it is in the group of another key")
    if entry.state == WAITING and <waitset_t*> entry.holder != entry.queue.returning and (
            is_behind(entry) != ((<waitset_t*> entry.holder).place & BEHIND)):
        raise broken("Links", of_entry(entry), "whether it is behind another one of its key is not what its waitset says")
    return 0


cdef int check_line(group_t* group) except -1:
    cdef extra_t* before = NULL
    cdef extra_t* extra = group.head
    while extra != NULL:
        if extra.standing != GROUP_LINE or extra.before != before or (before != NULL and before.entry.id >= extra.entry.id):
            raise broken("Order", of_entry(extra.entry), "it is out of line")
        before = extra
        extra = extra.after
    if group.tail != before:
        raise broken("Links", of_queue(group.queue), f"the line of {<object> group.key!r} ends elsewhere")
    return check_strays(group.strays, NULL)


cdef int check_strays(extra_t* extra, extra_t* above) except -1:
    while extra != NULL:
        if extra.standing != GROUP_STRAY or (above != NULL and above.entry.id >= extra.entry.id):
            raise broken("Order", of_entry(extra.entry), "it is out of the heap of its group")
        check_strays(extra.below, extra)
        extra = extra.after
    return 0


# ---- bytes, and what is apart

cdef int check_bytes(queue_t* queue) except -1:
    cdef cursor_t at = cursor_start(queue)
    cdef entry_t* entry = cursor_step(&at)
    cdef uint64_t bytes = 0, delayed = 0, limit
    while entry != NULL and queue.limit_bytes != UNLIMITED:
        if entry.state == UNROUTED or entry.state == WAITING or entry.state == BOUND or entry.state == DELAYED:
            bytes += 0 if entry.extra == NULL else entry.extra.body_bytes
            delayed += 0 if entry.state != DELAYED else entry.extra.body_bytes
        entry = cursor_step(&at)
    if queue.limit_bytes != UNLIMITED and (queue.body_bytes, queue.delayed_bytes) != (bytes, delayed):
        raise broken("Recount", of_queue(queue), f"its bodies have {queue.body_bytes} bytes, those of delayed messages "
                     f"{queue.delayed_bytes}, found {bytes} and {delayed}")
    limit = queue.limit_given
    if limit != UNLIMITED:
        limit = limit - queue.delayed if limit > queue.delayed else 0
    if queue.body_bytes >= queue.limit_bytes:
        limit = 0
    if queue.limit != limit:
        raise broken("Recount", of_queue(queue), f"{queue.limit} messages may be ready, by its limits it is {limit}")
    return 0


cdef int check_apart(queue_t* queue) except -1:
    cdef cursor_t at = cursor_start(queue)
    cdef entry_t* entry = cursor_step(&at)
    cdef uint64_t apart = 0, kept = 0
    while entry != NULL:
        if entry.flags & APART:
            if entry.state != UNROUTED:
                raise broken("Links", of_entry(entry), "it is apart, though it was routed")
            kept += is_kept(entry)
            apart += not is_kept(entry)
        elif entry.state == UNROUTED and queue.top_priority:
            raise broken("Links", of_entry(entry), "its queue goes by priority, and it is not apart")
        entry = cursor_step(&at)
    if apart != (0 if queue.apart == NULL else queue.apart.count) or kept != (0 if queue.kept == NULL else queue.kept.count):
        raise broken("Recount", of_queue(queue), f"{apart} unrouted messages are apart, {kept} kept; the queue counts others")
    return 0
