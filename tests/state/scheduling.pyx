"""The schedule of the core, with entries that do nothing but fall due. Compiled by the tests; nothing here is shipped."""

from libc.stdint cimport int64_t
from libc.string cimport memset

from xump_ext.memory.radix cimport BLOCK_FEW, BLOCK_MANY, block_t, branch_t, item_t
from xump_ext.memory.slab cimport CELL_SIZES, cell_get, cell_put, cells, chunk_t, slab_check
from xump_ext.state.constants cimport NEVER
from xump_ext.state.extra cimport extra_of
from xump_ext.state.graph cimport engine_t, entry_t, extra_t
from xump_ext.state.schedule cimport (
    extra_leave, schedule_add, schedule_cancel, schedule_check, schedule_free, schedule_items, schedule_next, schedule_pop,
    schedule_reserve,
)


cdef size_t block_bytes(int capacity):
    return sizeof(block_t) + (capacity - 1) * sizeof(item_t)


cdef class Schedule:
    """Entries are known by their sequence numbers."""

    cdef engine_t engine
    cdef dict entries

    def __cinit__(self):
        memset(&self.engine, 0, sizeof(engine_t))
        self.entries = {}

    cdef entry_t* entry(self, sequence) except NULL:
        cdef entry_t* entry
        if sequence not in self.entries:
            entry = <entry_t*> cell_get(sizeof(entry_t))
            memset(entry, 0, sizeof(entry_t))
            entry.sequence = sequence
            self.entries[sequence] = <size_t> entry
        entry = <entry_t*> <size_t> self.entries[sequence]
        extra_of(entry)
        return entry

    def make(self, sequence):
        """An entry, and its extra, so that adding it needs no memory but the schedule's."""
        self.entry(sequence)

    def reserve(self, count):
        schedule_reserve(&self.engine.schedule, count)

    def put(self, sequence, due, timer):
        """Add what was reserved."""
        schedule_add(&self.engine.schedule, self.entry(sequence).extra, due, timer)

    def add(self, sequence, due, timer):
        cdef entry_t* entry = self.entry(sequence)
        schedule_reserve(&self.engine.schedule, 1)
        schedule_add(&self.engine.schedule, entry.extra, due, timer)

    def cancel(self, sequence):
        schedule_cancel(&self.engine.schedule, self.entry(sequence).extra)

    def leave(self, sequence):
        """The entry ends."""
        cdef entry_t* entry = <entry_t*> <size_t> self.entries.pop(sequence)
        if entry.extra != NULL:
            extra_leave(&self.engine, entry)
        cell_put(entry, sizeof(entry_t))

    def next(self):
        cdef int64_t due = schedule_next(&self.engine.schedule)
        return None if due == NEVER else due

    def pop(self, until):
        """The sequence number of the next one, or None."""
        cdef extra_t* extra = schedule_pop(&self.engine.schedule, until)
        if extra == NULL:
            return None
        assert extra.due == NEVER
        return extra.entry.sequence

    def items(self):
        return schedule_items(&self.engine.schedule)

    def check(self):
        schedule_check(&self.engine.schedule)
        slab_check()

    def free(self):
        schedule_free(&self.engine.schedule)

    def close(self):
        for sequence in list(self.entries):
            self.leave(sequence)
        self.free()


cdef tuple CELLS = (block_bytes(BLOCK_FEW), block_bytes(4 * BLOCK_FEW), block_bytes(BLOCK_MANY), sizeof(branch_t))


class Hoard:
    """All cells that the tree of a schedule could take while no more memory is given, except for `left` of each size."""

    def __init__(self, left):
        self.taken = []
        for size in CELLS:
            taken = []
            try:
                while True:
                    taken.append(<size_t> cell_get(size))
            except MemoryError:
                pass
            self.taken.append(taken)
            for _ in range(min(left, len(taken))):
                cell_put(<void*> <size_t> taken.pop(), size)

    def give_back(self):
        for size, taken in zip(CELLS, self.taken):
            while taken:
                cell_put(<void*> <size_t> taken.pop(), size)


def cells_in_use():
    """How many cells are in use in chunks that have room, by their size: the others are full."""
    cdef chunk_t* chunk
    found = {}
    for i in range(<int> CELL_SIZES):
        chunk = cells.chunks[i]
        while chunk != NULL:
            found[8 * i] = found.get(8 * i, 0) + chunk.live
            chunk = chunk.next
    return {size: count for size, count in found.items() if count}
