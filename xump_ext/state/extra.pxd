"""Declarations of `extra.pyx`."""

from xump_ext.state.graph cimport entry_t, extra_t

# What few entries have: that of this entry, made if it has none. It ends with the entry: `extra_leave` in schedule.pxd.
cdef extra_t* extra_of(entry_t* entry) except NULL
cdef void extra_free(extra_t* extra) noexcept
