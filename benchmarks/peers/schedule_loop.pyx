"""The schedule of the core without Python around it: entries with extras are added, cancelled and fall due in a compiled loop."""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.time cimport CLOCK_THREAD_CPUTIME_ID, clock_gettime, timespec

from xump_ext.memory.slab cimport cell_get, cell_put
from xump_ext.state.constants cimport NEVER, TIMER_DELAY
from xump_ext.state.extra cimport extra_of
from xump_ext.state.graph cimport engine_t, entry_t, extra_t
from xump_ext.state.schedule cimport (
    extra_leave, schedule_add, schedule_cancel, schedule_check, schedule_free, schedule_pop, schedule_reserve,
)


cdef double now() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return time.tv_sec * 1e9 + time.tv_nsec


cdef class Loop:
    """An engine that has a schedule only, and entries for it."""

    cdef engine_t engine
    cdef entry_t** entries
    cdef readonly Py_ssize_t count

    def __cinit__(self, Py_ssize_t count):
        memset(&self.engine, 0, sizeof(engine_t))
        self.count = count
        self.entries = <entry_t**> calloc(count, sizeof(entry_t*))
        if self.entries == NULL:
            raise MemoryError()

    def make(self):
        """The entries, each with its extra."""
        cdef entry_t* entry
        for i in range(self.count):
            entry = <entry_t*> cell_get(sizeof(entry_t))
            memset(entry, 0, sizeof(entry_t))
            entry.id = entry.sequence = i + 1
            extra_of(entry)
            self.entries[i] = entry

    def added(self, const int64_t[::1] dues):
        """Schedule each. Nanoseconds."""
        cdef double start = now()
        for i in range(self.count):
            schedule_reserve(&self.engine.schedule, 1)
            schedule_add(&self.engine.schedule, self.entries[i].extra, dues[i], TIMER_DELAY)
        return now() - start

    def popped(self):
        """All fall due, in order; of each the entry is looked at. Nanoseconds, and how many."""
        cdef double start = now()
        cdef uint64_t seen = 0, count = 0
        cdef extra_t* extra = schedule_pop(&self.engine.schedule, NEVER - 1)
        while extra != NULL:
            seen += extra.entry.id
            count += 1
            extra = schedule_pop(&self.engine.schedule, NEVER - 1)
        assert seen
        return now() - start, count

    def cancelled(self, const int64_t[::1] which):
        """Cancel those. Nanoseconds."""
        cdef double start = now()
        for i in range(which.shape[0]):
            schedule_cancel(&self.engine.schedule, self.entries[which[i]].extra)
        return now() - start

    def check(self):
        schedule_check(&self.engine.schedule)

    def __dealloc__(self):
        for i in range(self.count):
            if self.entries[i] != NULL:
                extra_leave(&self.engine, self.entries[i])
                cell_put(self.entries[i], sizeof(entry_t))
        schedule_free(&self.engine.schedule)
        free(self.entries)
