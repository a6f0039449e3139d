"""Declarations of `extra.pyx`."""

from xump_ext.state.constants cimport DELAYED, HOME_KEPT, HOME_UNROUTED, KEPT_NEVER, NEVER, TAKEN, UNROUTED
from xump_ext.state.graph cimport entry_t, extra_t

cdef extra_t* extra_new(entry_t* entry) except NULL
cdef void extra_free(extra_t* extra) noexcept

cdef inline extra_t* extra_of(entry_t* entry) except NULL:
    """The rare fields of this entry, made if it has none. It ends with the entry: `extra_leave` in schedule.pxd."""
    return entry.extra if entry.extra != NULL else extra_new(entry)

cdef inline bint is_first_delay(const entry_t* entry) noexcept nogil:
    """Whether it waits for the end of the delay that it entered with; else a retry delays it, or nothing."""
    return entry.state == DELAYED and entry.extra.delayed_until != NEVER and entry.extra.came == 0

cdef inline bint is_out_of_turn(const entry_t* entry) noexcept nogil:
    """Whether an entry with an extra is not routed, though the frontier may be past it: no selector matched it, its delay has
    ended, or your program took it by hand."""
    if entry.state == UNROUTED:
        return entry.extra.kept != KEPT_NEVER or entry.extra.delayed_until != NEVER
    return (entry.state == TAKEN or entry.state == DELAYED) and (
        entry.extra.home == HOME_UNROUTED or entry.extra.home == HOME_KEPT)
