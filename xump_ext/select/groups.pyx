"""Order per key: of the messages of one key in a queue, only the first may be taken, and only while none of them is outstanding.

The messages of a key are a **group**. Its **line** has those that are ready, or delayed by a retry, by id. The first of the line
waits in a waitset as any message does. The others are *behind* it: they wait in waitsets of the same clauses which are in the
heap of no lane, so no selector finds them (`waiting.pyx`). When the first has ended, the next one changes to the other waitset.

`state/group_line.pyx` keeps the line.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t, uintptr_t

from xump_ext.memory.slab cimport cell_put, cell_zeroed
from xump_ext.select.credit cimport lane_wake, source_waiters_note, waiting_add, waiting_remove
from xump_ext.select.waiting cimport Waiting
from xump_ext.state.constants cimport BEHIND, FIELD_NONE, GROUP_BUSY, GROUP_LINE, GROUP_NONE, GROUP_STRAY, WAITING
from xump_ext.state.envelope cimport field_text
from xump_ext.state.extra cimport extra_of
from xump_ext.state.graph cimport extra_t, group_t, waitset_t
from xump_ext.state.group_line cimport group_first, is_behind, line_add, line_remove
from xump_ext.state.lazy_content cimport content_at


cdef object group_key(entry_t* entry):
    cdef queue_t* queue = entry.queue
    if queue.group_field.kind == FIELD_NONE:
        return None
    return field_text(&queue.group_field, content_at(entry)) or None


cdef group_t* group_of(queue_t* queue, object key) except NULL:
    """The group of that key, made if there is none."""
    cdef group_t* group
    found = (<dict> queue.groups).get(key)
    if found is not None:
        return <group_t*> <uintptr_t> found
    group = <group_t*> cell_zeroed(sizeof(group_t))
    group.queue = queue
    Py_INCREF(key)
    group.key = <void*> key
    (<dict> queue.groups)[key] = <uintptr_t> group
    return group


cdef int group_enter(engine_t* engine, entry_t* entry) except -1:
    cdef extra_t* extra
    cdef extra_t* first
    cdef group_t* group
    if entry.extra != NULL and (entry.extra.group != NULL or entry.extra.keyless):
        group = entry.extra.group       # it comes back: its content need not be read
        if group == NULL:
            return 0
    else:
        key = group_key(entry)
        if key is None:
            extra_of(entry).keyless = True
            return 0
        group = group_of(entry.queue, key)
    extra = extra_of(entry)
    if extra.standing == GROUP_BUSY:
        group.busy -= 1
    extra.group = group
    first = group_first(group)
    line_add(group, extra)
    return 0 if first == NULL or group.busy else change(engine, first.entry)


cdef int group_part(entry_t* entry) except -1:
    cdef extra_t* extra = entry.extra
    if extra.standing == GROUP_LINE or extra.standing == GROUP_STRAY:
        line_remove(extra.group, extra)
    return 0


cdef int group_hold(entry_t* entry) except -1:
    cdef extra_t* extra = entry.extra
    if extra.group != NULL and extra.standing == GROUP_NONE:
        extra.standing = GROUP_BUSY
        extra.group.busy += 1
    return 0


cdef int group_leave(engine_t* engine, entry_t* entry) except -1:
    cdef extra_t* extra = entry.extra
    cdef extra_t* next
    cdef group_t* group = extra.group
    if group == NULL:
        return 0
    if extra.standing == GROUP_BUSY:
        group.busy -= 1
    elif extra.standing != GROUP_NONE:
        line_remove(group, extra)
    extra.standing = GROUP_NONE
    extra.group = NULL
    next = group_first(group)
    if next == NULL and group.busy == 0:
        group_free(group)
    elif next != NULL and group.busy == 0:
        change(engine, next.entry)
    return 0


cdef void group_free(group_t* group) noexcept:
    del (<dict> group.queue.groups)[<object> group.key]
    Py_XDECREF(<PyObject*> group.key)
    cell_put(group, sizeof(group_t))


cdef void groups_free(queue_t* queue) noexcept:
    """The queue ends, and its entries have ended."""
    cdef group_t* group
    if queue.groups != NULL:
        for address in (<dict> queue.groups).values():
            group = <group_t*> <uintptr_t> address
            Py_XDECREF(<PyObject*> group.key)
            cell_put(group, sizeof(group_t))
        Py_XDECREF(<PyObject*> queue.groups)
        queue.groups = NULL


cdef int change(engine_t* engine, entry_t* entry) except -1:
    """An entry that waits became the first of its key, or is behind another one now: it changes to the waitset that says so."""
    cdef waitset_t* waitset = <waitset_t*> entry.holder
    cdef waitset_t* other
    cdef Waiting plan = <Waiting> entry.queue.plan
    cdef uint32_t i
    cdef uint32_t place = 2 * entry.rank + (BEHIND if is_behind(entry) else 0)
    if entry.state != WAITING or waitset == entry.queue.returning or waitset.place == place:
        return 0                # it is matched and routed later, and finds its place then
    key = <tuple> waitset.key
    other = plan.waitset_keyed((key[0], key[1], key[2], place))
    if engine.building and place & BEHIND:
        source_waiters_note(engine, entry.queue)
    waiting_remove(waitset, entry)
    waiting_add(other, entry)
    plan.waitset_left(waitset)
    for i in range(0 if place & BEHIND else other.member_count):
        lane_wake(engine, other.members[i].lane)
    return 0
