"""The calls `publish_batch` and `take_batch`: many messages in one call, as Arrow columns.

`arrow/read.pyx` reads the columns and `arrow/write.pyx` writes them; this file connects them with the engine. A batch to publish
is checked as a whole before its first row enters. A taken batch remembers the entry of each row, as a `Delivery` does for its one
entry. If `take_batch` raises, the rows that it took become deliveries, which the next call hands out.
"""

from operator import index

from libc.stdint cimport INT32_MAX, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from xump_ext.arrow.read cimport BatchReader
from xump_ext.arrow.column_writer cimport batch_row_t
from xump_ext.arrow.write cimport ArrowBatch, batch_of_rows
from xump_ext.engine.core cimport Core
from xump_ext.engine.delivery cimport Delivery, counted, delivery_new, is_redelivered, key_counted
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.taking cimport first_offer, keep_undelivered, next_undelivered
from xump_ext.errors import StaleDelivery, StoreFull, iterator_of, no_pickle
from xump_ext.memory.document cimport document
from xump_ext.message.content cimport content_release, content_share
from xump_ext.message.headers cimport content_t
from xump_ext.message.message cimport Message, message_new
from xump_ext.route.admission cimport Admissions
from xump_ext.route.answers cimport ANSWER_NACK, ANSWER_RETURN, answer_done, answer_forget, answer_read, answer_t
from xump_ext.route.arrivals cimport due_at
from xump_ext.route.ledger cimport enter, enter_waiting
from xump_ext.route.letter_room cimport LetterRoom
from xump_ext.route.offering cimport PAID, accept, in_hands, pay
from xump_ext.route.settling cimport hops_of
from xump_ext.engine.enqueue cimport check_takes_rows
from xump_ext.route.routing cimport go_on, run
from xump_ext.state.constants cimport BROKEN, DELIVERIES_MAX, NEVER
from xump_ext.state.limits cimport is_limited
from xump_ext.state.graph cimport engine_t, entry_t, offer_t, queue_t, selector_t
from xump_ext.state.lazy_content cimport (
    can_be_read, content_at, is_loaded, lazy_content, lazy_source_left, lazy_source_new, lazy_source_t,
)

cdef object CALLER = object()       # `take_batch` shows it to `DeliveryBatch.__cinit__`; Python code cannot

cdef enum:
    OPEN = 0
    ANSWERED = 1
    SETTLED = 2         # settled when it was taken (INFINITE credit)


# A taken row, with all that a `Delivery` of it needs.
cdef struct taken_t:
    batch_row_t row
    void* handle            # of the queue
    void* selector          # the selector's handle
    uint32_t hops
    bint redelivered


def publish_batch(Core core, queue, data):
    """Lets the rows of Arrow data enter a queue, then runs the graph; returns the range of the ids."""
    cdef BatchReader reader = BatchReader(data)     # before the engine lock is taken: reading may run a query of the producer
    cdef queue_t* target
    core.begin_call()
    try:
        target = core.queue_of(queue)
        if target != NULL and target.staged:
            check_takes_rows(target)
        if target == NULL or is_limited(target) or (target.special and not target.staged) or target.durable or reader.says_more():
            return core.admit_all(admissions_of(&core.e, reader, queue), target)
        return enter_all(core, reader, target)
    finally:
        core.unlock()


cdef Admissions admissions_of(engine_t* engine, BatchReader reader, object queue):
    cdef Admissions batch = Admissions.__new__(Admissions)
    cdef content_t* content
    while reader.fill(&content, 1):
        batch.push(content)
        batch.items[batch.count - 1].due = due_at(engine, reader.due_at(batch.count - 1))
    batch.name = queue
    batch.timed = reader.says_more()
    return batch


cdef object enter_all(Core core, BatchReader reader, queue_t* queue):
    """Lets all rows enter a queue in RAM without a limit, which turns no row away.

    A row stays in its Arrow columns until its content is needed.
    """
    cdef uint64_t first = queue.next_id
    cdef lazy_source_t* source = lazy_source_new(reader, row_content, first)
    try:
        if not queue.active or queue.held:
            enter_waiting(&core.e, queue, lazy_content(source), reader.rows)
        else:
            for _ in range(reader.rows):
                enter(&core.e, queue, lazy_content(source), 0, 0, 0, NULL, NULL)
    except MemoryError:
        if queue.next_id != first:      # the rows before are in, and cannot be taken back
            core.e.at_rest = BROKEN
        raise
    finally:
        source.left = queue.next_id - first
        if source.left == 0:
            lazy_source_left(&core.e, source)
    go_on(&core.e)
    return range(first, first + reader.rows)


cdef content_t* row_content(void* reader, uint64_t row) except NULL:
    return (<BatchReader> reader).content_at(row)


cdef class DeliveryBatch:
    """Deliveries as Arrow columns. Created by `Engine.take_batch`.

    The columns are `id`, `queue`, `destination`, `delivery_count`, `timestamp`, `address`, `body`, `headers`, `reply_to`,
    `message_id`, `correlation_id`, `expires` and `priority`. The batch has the Arrow PyCapsule interface:
    `pyarrow.record_batch(batch)`, `polars.DataFrame(batch)`. Its length is the number of deliveries.
    """

    cdef Core core
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t room            # rows that fit into the arrays
    cdef taken_t* taken             # only during `take_batch`
    cdef entry_t** entries          # NULL: answered, or stale
    cdef char* answered             # OPEN, ANSWERED or SETTLED
    cdef list keys                  # (queue, id) of each row
    cdef dict places                # the rows of each of these, and of each id; None: nobody has named one yet
    cdef list names                 # destinations, or kept deliveries: keeps alive what rows borrow
    cdef ArrowBatch columns

    def __cinit__(self, caller=None):
        if caller is not CALLER:
            raise TypeError("delivery batches come from Engine.take_batch()")

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.rows):
            if in_hands(self.entries[i]):
                self.entries[i].below.delivery = NULL
        free(self.entries)
        free(self.answered)

    def __len__(self):
        return self.rows

    def __reduce__(self):
        raise no_pickle(self)

    def __repr__(self):
        return f"<DeliveryBatch of {self.rows} deliveries>"

    def __arrow_c_schema__(self):
        return self.columns.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        return self.columns.__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema=None):
        return self.columns.__arrow_c_stream__(requested_schema)

    def ack(self, ids=None):
        """Acknowledge rows of the batch with one call and one run: all of them, or none.

        Args:
            ids: The ids of the messages: ints, `(queue, id)` pairs if the batch is from several queues, or a part of the column
                `id`, of pyarrow, Polars or numpy. None: all rows that were not answered yet.

        Raises:
            StaleDelivery: A row was answered before, the engine took the message back, or it is given twice.
            StoreFailed: The store of a message has failed: what was decided counts in memory only.
            Closed: The engine is closed.
            TypeError, ValueError: An id is not an int or a pair, or is not in the batch.

        If it raises another error, nothing has changed.

        Cost: O(rows), and the run that follows.
        """
        self.answer(self.rows_of(ids), True)

    def nack(self, ids=None):
        """Return messages of the batch to their old places in their queues, to be taken again.

        Args:
            ids: As for `ack`.

        Raises:
            StaleDelivery: A row was answered before, the engine took the message back, or it is given twice.
            StoreFailed: The store of a message has failed: what was decided counts in memory only.
            Closed: The engine is closed.
            TypeError, ValueError: An id is not an int or a pair, or is not in the batch.

        If it raises another error, nothing has changed. A message that your program has taken as often as its
        `delivery_limit` allows is dead-lettered.

        Cost: O(rows × log messages that returned before), and the run that follows.
        """
        self.answer(self.rows_of(ids), False)

    cdef list rows_of(self, object ids):
        """The row numbers of ids. An id may be given as (queue, id), and must be if the batch has it from two queues."""
        cdef list rows = []
        if ids is None:
            return [row for row in range(self.rows) if not self.answered[row] and self.entries[row] != PAID]
        if self.places is None:
            self.places = {}
            for row, key in enumerate(self.keys):
                self.places[key] = [row]
                self.places.setdefault(key[1], []).append(row)
        for id in iterator_of(ids, "ids must be an iterable of ids, or of (queue, id) pairs"):
            id = plain_id(id)
            found = self.places.get(id, ())
            if not found:
                raise ValueError(f"{id!r} is not in this batch; give ids, or (queue, id) pairs, of its rows")
            if len(found) > 1:
                raise ValueError(f"the id {id!r} is in this batch from several queues; give (queue, id)")
            rows.append(found[0])
        return rows

    cdef int answer(self, list rows, bint paid) except -1:
        cdef Py_ssize_t row
        if self.core is None:       # the collector cleared it, or found it inside `batch_new`
            raise StaleDelivery("the batch belongs to no engine any more")
        self.core.begin_call()
        try:
            rows = [row for row in rows if self.answered[row] != SETTLED]
            self.check_rows(rows)
            if paid:
                for row in rows:
                    self.answered[row] = ANSWERED
                    pay(&self.core.e, self.entries[row])
            else:
                self.nack_rows(rows)
            go_on(&self.core.e)
        finally:
            self.core.unlock()
        return 0

    cdef int check_rows(self, list rows) except -1:
        """Raises StaleDelivery for what cannot be answered any more, or twice."""
        cdef Py_ssize_t row
        for row in rows:
            if self.answered[row] or not in_hands(self.entries[row]):
                raise StaleDelivery(f"message {self.keys[row][1]} of queue {self.keys[row][0]!r} is stale: it was answered "
                                    "before, or the engine has taken the message back")
        if len(set(rows)) < len(rows):
            raise StaleDelivery("an id was given twice")
        return 0

    cdef int nack_rows(self, list rows) except -1:
        """Those that were taken too often are dead-lettered; if there is no room for that, all of them return."""
        try:
            return self.nack_at_once(rows, ANSWER_NACK)
        except StoreFull:
            if not self.core.make_room_for_letters():
                return self.nack_at_once(rows, ANSWER_RETURN)
        self.check_rows(rows)       # others may have called meanwhile
        try:
            return self.nack_at_once(rows, ANSWER_NACK)
        except StoreFull:
            return self.nack_at_once(rows, ANSWER_RETURN)

    cdef int nack_at_once(self, list rows, int kind) except -1:
        """All of them, or none if it raises."""
        cdef Py_ssize_t i, count = len(rows)
        cdef LetterRoom room = LetterRoom.__new__(LetterRoom)
        cdef answer_t* answers = <answer_t*> calloc(count + 1, sizeof(answer_t))
        if answers == NULL:
            raise MemoryError()
        try:
            for i in range(count):
                answers[i].entry, answers[i].kind, answers[i].delay_ns = self.entries[<Py_ssize_t> rows[i]], kind, NEVER
                answer_read(&self.core.e, &answers[i], room)
            room.check(&self.core.e)
            for i in range(count):
                self.answered[<Py_ssize_t> rows[i]] = ANSWERED
                answer_done(&self.core.e, &answers[i], None)
        finally:
            for i in range(count):
                answer_forget(&answers[i])
            free(answers)
        return 0


cdef object plain_id(object id):
    """An id as an int, or as a queue's name and an int. Items of the batch's own columns may be scalars of Arrow or numpy."""
    if type(id) is int:
        return id
    if isinstance(id, tuple) and len(id) == 2:
        queue, id = id
        if isinstance(queue, str):
            return str(queue), plain_id(id)
    elif hasattr(id, "as_py"):
        return plain_id(id.as_py())
    elif hasattr(id, "__index__") and not isinstance(id, bool):
        return index(id)
    raise TypeError(f"ids must be ints or (queue, id) pairs, got {id!r}")


def take_batch(Core core, Py_ssize_t n, destination, bint map_headers=False):
    """Takes up to n deliveries: those that are there, and those that the taking releases. `map_headers`: `write_headers.pyx`."""
    cdef DeliveryBatch batch = batch_new(core)
    cdef bint ended = False
    cdef list _held             # leaving the engine may fail after a store has written: others may have deleted queues by then
    cdef Py_ssize_t i
    try:
        core.begin_call()
        try:
            batch_grow(batch, min(n, <Py_ssize_t> core.e.entries + <Py_ssize_t> len(core.undelivered)))
            fill_batch(core, batch, n, destination, map_headers)
        finally:
            try:
                _held = handles_of(batch) if core.e.stores != NULL else None
            finally:
                core.unlock()
        ended = True
    finally:
        if not ended:
            keep_rows(core, batch)
        for i in range(batch.rows):
            content_release(batch.taken[i].row.content)
        free(batch.taken)
        batch.taken = NULL
    return batch


cdef DeliveryBatch batch_new(Core core):
    cdef DeliveryBatch batch = DeliveryBatch.__new__(DeliveryBatch, CALLER)
    batch.core = core
    batch.keys = []
    batch.names = []
    return batch


cdef int batch_grow(DeliveryBatch batch, Py_ssize_t room) except -1:
    """Makes room for so many rows. Their slots move, and each entry is told where its slot is now."""
    cdef Py_ssize_t i
    cdef taken_t* taken = <taken_t*> realloc(batch.taken, room * sizeof(taken_t) + 1)
    cdef char* answered
    cdef entry_t** entries
    if taken == NULL:
        raise MemoryError()
    batch.taken = taken
    answered = <char*> realloc(batch.answered, room + 1)
    if answered == NULL:
        raise MemoryError()
    batch.answered = answered
    entries = <entry_t**> malloc(room * sizeof(entry_t*) + 1)
    if entries == NULL:
        raise MemoryError()
    for i in range(batch.rows):
        entries[i] = batch.entries[i]
        if in_hands(entries[i]):
            entries[i].below.delivery = &entries[i]
    memset(&entries[batch.rows], 0, (room - batch.rows) * sizeof(entry_t*))
    free(batch.entries)
    batch.entries = entries
    batch.room = room
    return 0


cdef int fill_batch(Core core, DeliveryBatch batch, Py_ssize_t n, object destination, bint map_headers) except -1:
    cdef batch_row_t* rows
    cdef Py_ssize_t i
    while core.undelivered and batch.rows < n:
        if batch.rows >= batch.room:
            batch_grow(batch, 2 * batch.room + 1)
        if not take_kept(core, batch, &batch.taken[batch.rows], destination):
            break
    if core.e.interrupted:
        run(&core.e)
    while batch.rows < n:
        if not take_row(core, batch, destination):
            break
    rows = <batch_row_t*> malloc(batch.rows * sizeof(batch_row_t) + 1)
    if rows == NULL:
        raise MemoryError()
    try:
        for i in range(batch.rows):
            rows[i] = batch.taken[i].row
        batch.columns = batch_of_rows(rows, batch.rows, INT32_MAX, False, map_headers)
    finally:
        free(rows)
    return 0


cdef bint take_row(Core core, DeliveryBatch batch, object destination) except -1:
    """Takes one offer; False if there is none. A bound message is settled, and the graph runs, so that more may be offered."""
    cdef offer_t* offer = first_offer(core, destination)
    cdef entry_t* entry
    cdef selector_t* selector
    cdef taken_t* taken
    if offer == NULL or (batch.rows and not is_loaded(offer.entry) and not can_be_read(offer.entry)):
        return False        # hand out the rows before one that cannot be read; the next call raises for that
    if batch.rows == batch.room:
        batch_grow(batch, 2 * batch.room + 1)
    taken = &batch.taken[batch.rows]
    entry = offer.entry
    selector = <selector_t*> entry.holder
    queue = (<object> entry.queue.handle).name
    batch.keys.append((queue, entry.id))
    batch.names.append(<object> offer.destination.name)
    taken.row.content = content_share(content_at(entry))
    taken.row.id = entry.id
    taken.row.timestamp = entry.timestamp
    taken.row.delivery_count = entry.delivery_count + (entry.delivery_count < DELIVERIES_MAX)
    taken.row.destination = offer.destination.name
    taken.row.queue = <void*> queue
    taken.handle = entry.queue.handle
    taken.selector = selector.handle
    taken.hops = hops_of(&core.e, entry)
    taken.redelivered = is_redelivered(entry)
    batch.answered[batch.rows] = SETTLED if selector.infinite else OPEN
    batch.rows += 1
    accept(&core.e, entry, &batch.entries[batch.rows - 1])
    if selector.infinite or selector.reined:
        go_on(&core.e)
    return True


# ---- rows that a call took before it raised

cdef list handles_of(DeliveryBatch batch):
    """The handles of the rows' queues and selectors, held by the list."""
    cdef list held = []
    cdef Py_ssize_t i
    for i in range(batch.rows):
        held.append(<object> batch.taken[i].handle)
        held.append(<object> batch.taken[i].selector)
    return held


cdef int keep_rows(Core core, DeliveryBatch batch) except -1:
    """Makes deliveries of the rows, since the caller does not get the batch. They are handed out before all others."""
    cdef list kept = []
    cdef Delivery delivery
    cdef taken_t* taken
    cdef entry_t* entry
    cdef Py_ssize_t i
    for i in range(batch.rows):
        delivery = delivery_new()
        taken = &batch.taken[i]
        delivery.message = message_new(taken.row.content, taken.row.id, taken.row.timestamp, taken.hops)
        delivery.destination = counted(<void*> taken.row.destination)
        delivery.queue = counted(taken.handle)
        delivery.selector = counted(taken.selector)
        delivery.key = key_counted(batch.entries[i])
        delivery.answered = False
        delivery.checked = 0
        delivery.delivery_count = taken.row.delivery_count
        delivery.redelivered = taken.redelivered
        delivery.settled = batch.answered[i] == SETTLED
        entry = batch.entries[i]
        if in_hands(entry):
            batch.entries[i] = NULL
            entry.below.delivery = &delivery.entry
            delivery.entry = entry
        kept.append(delivery)
    return keep_undelivered(core, kept)


cdef bint take_kept(Core core, DeliveryBatch batch, taken_t* taken, object destination) except -1:
    """Makes a row of a delivery that was kept; False if there is none. The row borrows from the delivery."""
    cdef Delivery delivery = next_undelivered(core, destination)
    cdef Message message
    cdef QueueHandle handle
    if delivery is None:
        return False
    message = <Message> delivery.message
    handle = <QueueHandle> delivery.queue
    batch.keys.append((handle.name, message.id))
    batch.names.append(delivery)
    taken.row.content = content_share(message.content)
    taken.row.id = message.id
    taken.row.timestamp = message.timestamp
    taken.row.delivery_count = delivery.delivery_count
    taken.row.destination = <void*> delivery.destination
    taken.row.queue = <void*> handle.name
    taken.handle = <void*> delivery.queue
    taken.selector = <void*> delivery.selector
    taken.hops = message.hops
    taken.redelivered = delivery.redelivered
    batch.answered[batch.rows] = SETTLED if delivery.settled else OPEN
    if in_hands(delivery.entry):
        delivery.entry.below.delivery = &batch.entries[batch.rows]
        batch.entries[batch.rows] = delivery.entry
        delivery.entry = NULL
    batch.rows += 1
    return True


document(DeliveryBatch, b"rows", b"How many deliveries the batch has.")
