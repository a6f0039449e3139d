"""Many messages in one call, as Arrow columns: what `publish_batch` and `take_batch` do.

The columns are read and written by `arrow_read` and `arrow_write`; here they meet the engine. A batch that is published is
checked as a whole before the first row enters. A batch that is taken remembers an entry for each row, as a `Delivery` does for
its one.
"""

from libc.stdint cimport INT32_MAX, uint64_t
from libc.stdlib cimport calloc, free, malloc

from xump_ext.admission cimport Admissions
from xump_ext.arrow_read cimport BatchReader
from xump_ext.arrow_write cimport ArrowBatch, batch_of_rows, batch_row_t
from xump_ext.core cimport Core
from xump_ext.delivery cimport first_offer, nack_entry
from xump_ext.errors import StaleDelivery
from xump_ext.graph cimport UNLIMITED, entry_t, offer_t, queue_t, selector_t
from xump_ext.ledger cimport accept, enter, pay, release, send_back
from xump_ext.message cimport content_release, content_share, content_t
from xump_ext.routing cimport go_on
from xump_ext.source cimport content_from, source_left, source_new, source_t

cdef enum:
    OPEN = 0
    ANSWERED = 1
    SETTLED = 2         # by the taking: INFINITE


def publish_batch(Core core, queue, data):
    """Lets the rows of Arrow data enter a queue, then drives the graph; the range of the ids."""
    cdef BatchReader reader = BatchReader(data)     # before the engine is entered: it may run somebody's query
    cdef queue_t* target
    core.begin()
    try:
        target = core.queue_of(queue)
        if target == NULL or target.limit != UNLIMITED:
            return core.admit_all(admissions_of(reader, queue), target)
        return enter_all(core, reader, target)
    finally:
        core.leave()


cdef Admissions admissions_of(BatchReader reader, object queue):
    cdef Admissions batch = Admissions.__new__(Admissions)
    cdef content_t* content
    while reader.fill(&content, 1):
        batch.add(NULL, None, content)
    batch.name = queue
    return batch


cdef object enter_all(Core core, BatchReader reader, queue_t* queue):
    """Nothing can turn a row away. What nobody consumes stays in its columns until it is asked for."""
    cdef uint64_t first = queue.next_id
    cdef source_t* source = source_new(reader, row_content, first)
    try:
        for _ in range(reader.rows):
            enter(&core.e, queue, content_from(source), 0, 0, 0, NULL, NULL)
            source.left += 1
    finally:
        if source.left == 0:
            source_left(&core.e, source)
    go_on(&core.e)
    return range(first, first + reader.rows)


cdef content_t* row_content(void* reader, uint64_t row) except NULL:
    return (<BatchReader> reader).content_at(row)


cdef class DeliveryBatch:
    """Deliveries as Arrow columns: `id`, `queue`, `destination`, `delivery_count`, `timestamp`, `address`, `body`, `headers`,
    `reply_to`, `message_id`. Has the Arrow PyCapsule interface: `pyarrow.record_batch(batch)`, `polars.DataFrame(batch)`."""

    cdef Core core
    cdef readonly Py_ssize_t rows
    cdef entry_t** entries          # NULL: answered, or stale
    cdef char* answered             # OPEN, ANSWERED or SETTLED
    cdef list keys                  # (queue, id) of each row
    cdef list names                 # destinations: their rows borrow them
    cdef ArrowBatch columns

    def __init__(self):
        raise TypeError("delivery batches come from Engine.take_batch()")

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.rows):
            if self.entries[i] != NULL:
                self.entries[i].child = NULL
        free(self.entries)
        free(self.answered)

    def __len__(self):
        return self.rows

    def __repr__(self):
        return f"<DeliveryBatch of {self.rows} deliveries>"

    def __arrow_c_schema__(self):
        return self.columns.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        return self.columns.__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema=None):
        return self.columns.__arrow_c_stream__(requested_schema)

    def ack(self, ids=None):
        """Pay for these ids, or for all that was not answered yet. `StaleDelivery` if one is stale; then nothing changed."""
        self.answer(self.rows_of(ids), True)

    def nack(self, ids=None):
        """Give these ids back, or all that was not answered yet; each waits at its old place again."""
        self.answer(self.rows_of(ids), False)

    cdef list rows_of(self, object ids):
        """Row numbers; an id may be given as (queue, id), and must be where two queues have issued it."""
        cdef list rows = []
        if ids is None:
            return [row for row in range(self.rows) if not self.answered[row]]
        places = {}
        for row, key in enumerate(self.keys):
            places[key] = [row]
            places.setdefault(key[1], []).append(row)
        for id in ids:
            found = places.get(id, ())
            if not found:
                raise ValueError(f"{id!r} is not in this batch; give ids, or (queue, id) pairs, of its rows")
            if len(found) > 1:
                raise ValueError(f"the id {id!r} is in this batch from several queues; give (queue, id)")
            rows.append(found[0])
        return rows

    cdef int answer(self, list rows, bint paid) except -1:
        cdef entry_t* entry
        cdef Py_ssize_t row
        self.core.begin()
        try:
            rows = [row for row in rows if self.answered[row] != SETTLED]
            for row in rows:
                if self.answered[row] or self.entries[row] == NULL:
                    raise StaleDelivery(f"message {self.keys[row][1]} of queue {self.keys[row][0]!r} is stale: it was answered, "
                                        "or taken back by the engine")
            if len(set(rows)) < len(rows):
                raise StaleDelivery("an id was given twice")
            for row in rows:
                entry = self.entries[row]
                self.answered[row] = ANSWERED
                if paid:
                    pay(&self.core.e, entry)
                else:
                    nack_entry(&self.core.e, entry)
            go_on(&self.core.e)
        finally:
            self.core.leave()
        return 0


def take_batch(Core core, Py_ssize_t n, destination):
    """Up to n deliveries, as many as there are."""
    cdef DeliveryBatch batch = DeliveryBatch.__new__(DeliveryBatch)
    core.begin()
    try:
        return fill_batch(core, batch, min(n, <Py_ssize_t> core.e.entries), destination)
    finally:
        core.leave()


cdef DeliveryBatch fill_batch(Core core, DeliveryBatch batch, Py_ssize_t n, object destination):
    cdef batch_row_t* rows = <batch_row_t*> malloc(n * sizeof(batch_row_t) + 1)
    cdef entry_t* entry
    cdef Py_ssize_t i
    batch.core = core
    batch.keys = []
    batch.names = []
    batch.entries = <entry_t**> calloc(n + 1, sizeof(entry_t*))
    batch.answered = <char*> calloc(n + 1, 1)
    try:
        if rows == NULL or batch.entries == NULL or batch.answered == NULL:
            raise MemoryError()
        while batch.rows < n:
            if not take_row(core, batch, &rows[batch.rows], destination):
                break
            batch.rows += 1
        batch.columns = batch_of_rows(rows, batch.rows, INT32_MAX)
    except BaseException:
        for i in range(batch.rows):
            if batch.entries[i] != NULL:
                entry = batch.entries[i]
                release(&core.e, entry)
                send_back(&core.e, entry)
        go_on(&core.e)
        raise
    finally:
        for i in range(batch.rows):
            content_release(rows[i].content)
        free(rows)
    return batch


cdef bint take_row(Core core, DeliveryBatch batch, batch_row_t* row, object destination) except -1:
    """Takes one offer; what was bound is settled, and what that releases follows."""
    cdef offer_t* offer = first_offer(core, destination)
    cdef entry_t* entry
    cdef bint bound
    if offer == NULL:
        return False
    entry = offer.entry
    bound = (<selector_t*> entry.holder).infinite
    queue = (<object> entry.queue.face).name
    batch.keys.append((queue, entry.id))
    batch.names.append(<object> offer.destination.name)
    row.content = content_share(entry.content)
    row.id = entry.id
    row.timestamp = entry.timestamp
    row.delivery_count = entry.delivery_count + 1
    row.destination = offer.destination.name
    row.queue = <void*> queue
    batch.answered[batch.rows] = SETTLED if bound else OPEN
    accept(&core.e, entry, &batch.entries[batch.rows])
    if bound:
        go_on(&core.e)
    return True
