"""Declarations of `group_line.pyx`, and whether an entry is behind another one of its key, inline."""

from xump_ext.memory.canaries cimport GROUP_ORDER, strikes
from xump_ext.state.graph cimport entry_t, extra_t, group_t

cdef inline extra_t* group_first(const group_t* group) noexcept:
    """The one that entered first of those that are ready or delayed by a retry, or NULL."""
    if group.strays != NULL and (group.head == NULL or group.strays.entry.id < group.head.entry.id):
        return group.strays
    return group.head

cdef inline bint is_behind(const entry_t* entry) noexcept:
    """Whether another message of its key goes first."""
    cdef group_t* group = entry.extra.group
    return group != NULL and ((group.busy != 0 and not strikes(GROUP_ORDER, entry.sequence)) or group_first(group) != entry.extra)

cdef void line_add(group_t* group, extra_t* extra) noexcept
cdef void line_remove(group_t* group, extra_t* extra) noexcept
