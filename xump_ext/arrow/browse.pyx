"""The call `browse_batch`: messages of a queue as Arrow columns, none of which is taken.

It looks at pages, as `browse` does, and holds the content of what it selects until the columns are written. A filter that is a
Python function is called between two pages, without the engine lock.

`browse_slice` is for servers, which read a queue slice by slice for somebody far away: a slice is bounded in rows, in bytes and
in what is looked at, and says where the next one begins. `id_marks` looks at ids only, to divide a queue into parts.
"""

from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint64_t
from libc.stdlib cimport free, realloc

from xump_ext.arrow.column_writer cimport batch_row_t
from xump_ext.arrow.write cimport batch_of_rows, columns_named
from xump_ext.engine.core cimport Core
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.reading cimport PAGE, delayed_until, first_browsed, next_browsed, state_name, states_wanted
from xump_ext.match.filter cimport Filter
from xump_ext.message.content cimport content_release
from xump_ext.message.headers cimport content_t
from xump_ext.message.message cimport message_object
from xump_ext.route.settling cimport hops_of
from xump_ext.state.constants cimport HISTORY, MOVED, REDELIVERED, TAKEN
from xump_ext.state.graph cimport entry_t
from xump_ext.state.lazy_content cimport content_shown

cdef enum:
    MARKED_AT_ONCE = 8192       # entries: some tens of microseconds


cdef class Browsed:
    """Rows that were selected so far; each holds a reference to its content."""

    cdef batch_row_t* rows
    cdef Py_ssize_t count, room
    cdef int64_t bytes              # of the bodies and headers
    cdef int64_t bytes_max          # with so many it ends
    cdef Py_ssize_t count_max       # with so many rows, too
    cdef uint64_t last_id           # beyond this id it does not look; going down, below it

    def __cinit__(self):
        self.bytes_max = self.count_max = INT64_MAX

    def __dealloc__(self):
        self.cut(0)
        free(self.rows)

    cdef int cut(self, Py_ssize_t count) noexcept:
        """Keep so many rows."""
        while self.count > count:
            self.count -= 1
            content_release(self.rows[self.count].content)
        return 0

    cdef int grow(self) except -1:
        cdef Py_ssize_t room = 2 * self.room + PAGE
        cdef batch_row_t* rows = <batch_row_t*> realloc(self.rows, room * sizeof(batch_row_t))
        if rows == NULL:
            raise MemoryError()
        self.rows = rows
        self.room = room
        return 0

    cdef object add_page(self, Core core, QueueHandle handle, object start, bint reverse, int wanted, Filter filter):
        """Add what is selected of a page; return the id where the next one begins, or None."""
        cdef entry_t* entry
        cdef content_t* content
        cdef int looked = 0
        core.lock()
        try:
            entry = first_browsed(handle.live(), start, reverse)
            while entry != NULL and looked < PAGE and self.count < self.count_max and self.bytes < self.bytes_max:
                if self.last_id and (entry.id < self.last_id if reverse else entry.id > self.last_id):
                    return None
                if wanted >> entry.state & 1:
                    if self.count == self.room:
                        self.grow()
                    content = content_shown(entry)
                    self.rows[self.count].content = content
                    self.count += 1         # from here on it is given back whatever happens
                    if filter is not None and filter.evaluate(content, entry.timestamp, entry.delivery_count) != 1:
                        self.cut(self.count - 1)
                    else:
                        row_fill(core, &self.rows[self.count - 1], entry)
                        self.bytes += content.body_bytes + content.header_bytes
                looked += 1
                entry = next_browsed(entry, reverse)
            return None if entry == NULL else entry.id
        finally:
            core.unlock_now()

    cdef int keep_selected(self, Py_ssize_t first, object call) except -1:
        """Of the rows from `first` on, keep those that a function selects."""
        cdef Py_ssize_t at, kept = first
        cdef batch_row_t* rows = self.rows
        cdef list selected = [
            bool(call(message_object(rows[at].content, rows[at].id, rows[at].timestamp, rows[at].hops)))
            for at in range(first, self.count)]
        for at in range(first, self.count):
            if selected[at - first]:
                rows[kept], rows[at] = rows[at], rows[kept]
                kept += 1
        return self.cut(kept)


cdef int row_fill(Core core, batch_row_t* row, const entry_t* entry) except -1:
    """Fill in the rest of a row; its texts live as long as their owners: content, queue, and the module that has the names of
    states."""
    cdef str name = (<QueueHandle> entry.queue.handle).name
    cdef str state = state_name(entry)
    row.id = entry.id
    row.timestamp = entry.timestamp
    row.delivery_count = entry.delivery_count
    row.hops = hops_of(&core.e, entry)
    row.destination = row.content.destination
    row.queue = <void*> name
    row.state = <void*> state
    row.at = delayed_until(entry)
    # What is in somebody's hands, or was, has its last delivery counted.
    row.redelivered = entry.flags & REDELIVERED != 0 or entry.delivery_count > (
        entry.state == TAKEN or entry.state == MOVED or entry.state == HISTORY)
    return 0


def browse_batch(Core core not None, QueueHandle handle not None, start, state, Filter filter, call, limit, bint reverse):
    """The messages of a queue that are selected, as Arrow columns; the arguments are those of `Core._page`, and the filter's
    function, which does not raise."""
    cdef Browsed browsed = Browsed()
    cdef int wanted = states_wanted(state)
    cdef Py_ssize_t before
    while start is not None and (limit is None or browsed.count < limit):
        before = browsed.count
        start = browsed.add_page(core, handle, start, reverse, wanted, filter)
        if call is not None:
            browsed.keep_selected(before, call)
    if limit is not None and limit < browsed.count:
        browsed.cut(limit)
    return batch_of_rows(browsed.rows, browsed.count, INT32_MAX, True)


def browse_slice(
    Core core not None, QueueHandle handle not None, start, uint64_t last_id, state, Filter filter, bint reverse,
    Py_ssize_t rows_max, int64_t bytes_max, Py_ssize_t looks_max, dict named_headers, columns=None,
):
    """A slice of what `browse_batch` gives: (columns, where the next one begins, or None). `named_headers`: the headers
    that are wanted, and whether as text (`write_named_headers.pyx`); None: all, as a map. `columns`: the names of those that are
    wanted, None: all; the others may hold anything.

    It goes no further than `last_id`, and ends with `rows_max` rows, with the row that has its `bytes_max`-th byte, or when it
    has looked at `looks_max` messages, to the page. So it may have no row, and yet not be the last one.
    """
    cdef Browsed browsed = Browsed()
    cdef int wanted = states_wanted(state)
    cdef Py_ssize_t looked = 0
    browsed.count_max, browsed.bytes_max, browsed.last_id = rows_max, bytes_max, last_id
    while start is not None and looked < looks_max and browsed.count < rows_max and browsed.bytes < bytes_max:
        start = browsed.add_page(core, handle, start, reverse, wanted, filter)
        looked += PAGE
    return batch_of_rows(browsed.rows, browsed.count, INT32_MAX, True, True,
                         0xFFFFFFFF if columns is None else columns_named(columns), named_headers), start


def id_marks(Core core not None, QueueHandle handle not None, uint64_t first_id, uint64_t last_id, uint64_t every):
    """How many messages there are from one id to another, and the ids of the first one, of the `every`-th after it, and so on.

    Cost: O(messages) in between, nanoseconds each. Between pages others have their turn.
    """
    cdef list marks = []
    cdef entry_t* entry
    cdef uint64_t at = first_id, count = 0
    cdef int looked
    while at <= last_id:
        looked = 0
        core.lock()
        try:
            entry = first_browsed(handle.live(), at, False)
            while entry != NULL and entry.id <= last_id and looked < MARKED_AT_ONCE:
                if count % every == 0:
                    marks.append(entry.id)
                count += 1
                looked += 1
                at = entry.id + 1
                entry = next_browsed(entry, False)
            if entry == NULL or entry.id > last_id:
                break
        finally:
            core.unlock_now()
    return count, marks
