"""Properties that few entries have: the moments of delay, expiry and deadline, and the key that orders them.

An entry refers to its extra, which is NULL for most. So a message that uses none of it pays for one pointer. The schedule refers
to extras, too, and cannot be searched: an extra whose entry has ended stays until the schedule comes to it.
"""

from xump_ext.memory.slab cimport cell_put, cell_zeroed
from xump_ext.state.constants cimport NEVER


cdef extra_t* extra_new(entry_t* entry) except NULL:
    cdef extra_t* extra = <extra_t*> cell_zeroed(sizeof(extra_t))
    extra.entry = entry
    extra.due = extra.delayed_until = extra.expires = NEVER
    entry.extra = extra
    return extra


cdef void extra_free(extra_t* extra) noexcept:
    cell_put(extra, sizeof(extra_t))
