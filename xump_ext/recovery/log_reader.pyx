"""Reads the log of a store that is opened: its records become queues again.

`records/kinds.pxd` says what the records mean, `store.py` in which order a store gives them. They are applied one by one: an
ENTER makes an entry, a SETTLE takes entries away again at the end of its group. Then some messages may be in two places, since a
MOVE was not paid for: the one downstream stays, the other is settled. At last `restore.pyx` puts all entries into one order, by
time, and says what each of them is:

    HISTORIC                    in the history
    it has a `due`, and no flag delayed since it entered
    ROUTED, or no flag and      ready; it was routed and its copies were made, so it is only matched anew
        below the frontier
    else                        unrouted
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from xump_ext.errors import StoreCorrupt
from xump_ext.log.adopt cimport adopt_length, adopt_read, adoptions_come
from xump_ext.log.append cimport log_queue
from xump_ext.log.contents cimport text_of_record
from xump_ext.log.meta cimport Map, map_come, map_read
from xump_ext.log.writer cimport store_queue, stored_content
from xump_ext.memory.grow cimport array_grow
from xump_ext.records.kinds cimport (
    ADOPT, COPIES_AWAITED, ENTER, FORGET, GONE, GROUP, MARK, META, NOT_HIDING, NO_TEXT, OPTION_DROP_OLDEST,
    OPTION_DROP_TO_FIT, OPTION_KEEP_UNMATCHED, OPTION_STAGED, QUEUE, RECORD_AUTO_DELETE, RECORD_COPIED, RECORD_DEAD_ENTRY,
    RECORD_EXACT, RECORD_HISTORIC, RECORD_MARKED, RECORD_REDELIVERED, RECORD_ROUTED, RECORD_UNROUTED,
    RECORD_UPSTREAM_FAILED, SEEN, SETTLE, STATE, adopt_record_t, enter_record_t, head_t, mark_record_t, meta_record_t,
    queue_record_t, rare_t, seen_record_t, settle_record_t, state_record_t, timed_t,
)
from xump_ext.records.kinds import NAMES
from xump_ext.records.record cimport delays_of, head_bytes, head_crc, name_of, queue_fits, rare_of, timed_of
from xump_ext.recovery.recovered cimport seen_t
from xump_ext.recovery.restore cimport forget_for_good, hidden_end, order_all, queue_take_over
from xump_ext.state.constants cimport (
    DEAD_ENTRY, DELAYED, FOREIGN, HISTORY, LINKED, LOGGED_NOTHING, LOGGED_ROUTED, LOGGED_UNROUTED, NEVER, REDELIVERED, STAINED,
    TIMED, UNLIMITED, UNROUTED,
)
from xump_ext.state.extra cimport extra_free, extra_of
from xump_ext.state.graph cimport engine_t, entry_t, queue_t
from xump_ext.state.index cimport (
    entry_free, entry_new, index_free, index_from, index_get, index_insert, index_remove, list_remove,
)

cdef struct settled_t:
    uint32_t queue
    uint64_t id
    uint64_t count          # 0: the queue itself
    bint marked             # each of them has a MARK

cdef struct origin_t:
    uint32_t queue
    uint64_t id
    uint32_t child_queue
    uint64_t child_id
    int waits               # for its copies in other stores: `foreign` of the record


# Counts entries while they are read. The engine counts them later: it may run meanwhile, and its counts must be right.
cdef engine_t loose


cdef class Recovery:
    """Takes the records of one store (`feed`); `end` makes its queues."""

    def __cinit__(self, Journal journal not None, create):
        """`create(number, name, properties)` makes a queue of the engine, held."""
        self.journal = journal
        self.create = create
        self.found = {}
        self.early = {}
        self.retries = {}

    def __dealloc__(self):
        free(self.settled)
        free(self.origins)

    def feed(self, data):
        """Apply whole records, one behind the other. Raises StoreCorrupt where there is no record. O(records)."""
        cdef Py_buffer view
        cdef uint64_t at = 0
        cdef uint32_t fixed
        cdef const head_t* head
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            while at < <uint64_t> view.len:
                head = <const head_t*> (<const char*> view.buf + at)
                fixed = head_bytes(head) if at + sizeof(head_t) <= <uint64_t> view.len else 0
                if fixed == 0 or at + max(head.length, fixed) > <uint64_t> view.len:
                    raise StoreCorrupt(f"store {self.journal.name!r}: byte {at} of a group begins no record")
                if head.kind == ENTER:      # most are
                    self.apply_enter(<const enter_record_t*> head)
                else:
                    self.apply(head)
                at += head.length
            self.settle_all()
        except UnicodeDecodeError as error:
            raise self.nonsense(head, f"has a text that is not UTF-8: {error}") from None
        finally:
            PyBuffer_Release(&view)

    cdef object nonsense(self, const head_t* head, str why):
        """A StoreCorrupt: the record is as it was written, and no engine writes that."""
        return self.written_so(f"the {NAMES[head.kind]} at position {head.position}, of queue number {head.queue}, {why}")

    cdef object written_so(self, str what):
        return StoreCorrupt(f"store {self.journal.name!r}: {what}. The checksum is right, so a program wrote it so, and a repair "
                            "would keep it: open a copy of the store from before, and report this")

    cdef int apply(self, const head_t* head) except -1:
        """Any record but an ENTER. The store has verified its records. Those of these rare kinds are verified once more."""
        if head_crc(head, self.journal.store.salt) != head.crc:
            raise StoreCorrupt(f"store {self.journal.name!r}: the record at position {head.position} is damaged; "
                               "run: xump repair PATH")
        self.records += 1
        # Deleted queues count, too: the number of a queue is not issued again as long as the log has records of it.
        self.journal.last_number = max(self.journal.last_number, head.queue)
        if head.kind == SETTLE:
            return self.remember_settled(<const settle_record_t*> head)
        if head.kind == MARK:
            return self.apply_mark(<const mark_record_t*> head)
        if head.kind == SEEN:
            return self.apply_seen(<const seen_record_t*> head)
        if head.kind == FORGET:
            self.recovered(head.queue).forgotten = max(self.recovered(head.queue).forgotten, head.id)
            return 0
        if head.kind == STATE:
            return self.apply_state(<const state_record_t*> head)
        if head.kind == QUEUE:
            return self.apply_queue(<const queue_record_t*> head)
        if head.kind == META:
            return self.apply_meta(<const meta_record_t*> head)
        if head.kind == ADOPT:
            return self.apply_adopt(<const adopt_record_t*> head)
        if head.kind == GROUP:
            return self.settle_all()
        if head.kind == GONE:
            return self.remember_gone(head.queue, 0, 0, False)
        return 0

    # ---- queues

    cdef recovered_t* recovered(self, uint32_t number) except NULL:
        """The queue of that number, as it was read so far."""
        cdef Recovered queue
        if self.last != NULL and self.last_number == number:
            return self.last
        if number == 0:
            raise self.written_so("there are records of queue number 0, and numbers begin with 1")
        queue = self.found.get(number)
        if queue is None:
            queue = self.found[number] = Recovered.__new__(Recovered)
            queue.c.engine = &loose
            queue.c.state.head.id = 1
            queue.c.state.frontier = 1
        self.last = &queue.c
        self.last_number = number
        self.journal.last_number = max(self.journal.last_number, number)
        return self.last

    cdef int apply_queue(self, const queue_record_t* record) except -1:
        cdef recovered_t* found = self.recovered(record.head.queue)
        cdef const char* at = name_of(record)
        cdef Recovered queue = <Recovered> self.found[record.head.queue]
        if not queue_fits(record):
            raise self.nonsense(&record.head, "does not say what its length is made of")
        if record.name_bytes == 0 or record.name_bytes == NO_TEXT:
            raise self.nonsense(&record.head, "has no name")
        found.described = record.head.position
        found.incarnation = record.incarnation
        found.dedup_key, found.dedup_more_key = record.dedup_key, record.dedup_more_key
        queue.name = text_of_record(&at, record.name_bytes)
        dead_letter, group = text_of_record(&at, record.dead_letter_bytes), text_of_record(&at, record.group_bytes)
        queue.properties = properties_of(record, dead_letter, group, text_of_record(&at, record.rewriter_bytes))
        return 0

    cdef int apply_state(self, const state_record_t* record) except -1:
        self.check_id(&record.head, record.head.id)
        self.recovered(record.head.queue).state = record[0]
        return 0

    cdef int apply_meta(self, const meta_record_t* record) except -1:
        cdef Recovered queue
        cdef Map map = self.journal.map
        self.check_id(&record.head, record.head.id)
        if record.head.queue != 0:
            self.recovered(record.head.queue)
            queue = <Recovered> self.found[record.head.queue]
            if queue.map is None:
                queue.map = Map.__new__(Map)
            map = queue.map
        if record.head.id == map.number:
            self.note_copy(&record.head)
        if not map_read(map, record):
            raise self.nonsense(&record.head, "does not say what its length is made of")
        return 0

    cdef int apply_adopt(self, const adopt_record_t* record) except -1:
        """Keep what the newest one says until all queues are known."""
        cdef Recovered queue
        self.recovered(record.head.queue)
        queue = <Recovered> self.found[record.head.queue]
        if queue.adopted is None or record.head.id >= queue.adopted[0]:
            if adopt_length(record.count) != record.head.length:
                raise self.nonsense(&record.head, "does not say what its length is made of")
            self.check_id(&record.head, record.head.id)
            if record.first_id:         # nothing has entered yet
                self.check_id(&record.head, record.first_id)
            if queue.adopted is not None and record.head.id == queue.adopted[0]:
                self.note_copy(&record.head)
            queue.adopted = adopt_read(record)
            for numbers in queue.adopted[2]:
                self.journal.last_number = max(self.journal.last_number, max(numbers))
        return 0

    # ---- messages

    cdef int note_copy(self, const head_t* head) except -1:
        """This record was copied forward from an earlier one, which the log still has."""
        self.journal.copied[head.kind, head.queue, head.id] = head.position
        return 0

    cdef int check_id(self, const head_t* head, uint64_t id) except -1:
        """Ids begin with 1, and end long before there are no more: what counts on from one must not come to 0."""
        if id - 1 >= UNLIMITED >> 1:
            raise self.nonsense(head, f"names id {id}, and ids begin with 1")
        return 0

    cdef int apply_enter(self, const enter_record_t* record) except -1:
        """Make an entry, or replace it: a record that was copied forward stands for the one before."""
        cdef recovered_t* queue = self.last
        cdef entry_t* entry
        cdef const rare_t* rare
        cdef const timed_t* timed
        cdef bint new
        self.records += 1
        if queue == NULL or self.last_number != record.head.queue:
            queue = self.recovered(record.head.queue)
        entry = index_get(&queue.index, record.head.id)
        new = entry == NULL
        if new:
            self.check_id(&record.head, record.head.id)
            entry = entry_new(queue.engine)
            memset(entry, 0, sizeof(entry_t))
            entry.id = record.head.id
            index_insert(&queue.index, entry)
            queue.count += 1
        else:
            self.note_copy(&record.head)
        entry.timestamp = record.timestamp
        entry.sequence = record.body_bytes          # until it has its place
        entry.content.loaded = stored_content(record.head.position, record.head.length)
        entry.hops = record.hops
        entry.delivery_count = max(record.delivery_count, entry.delivery_count)
        if new and record.head.flags == 0 and not self.early:       # as most do, it says no more
            entry.state = UNROUTED
            return 0
        rare, timed = rare_of(record), timed_of(record)
        entry.flags = (REDELIVERED if record.head.flags & RECORD_REDELIVERED else 0) | (
            DEAD_ENTRY if record.head.flags & RECORD_DEAD_ENTRY else 0) | (0 if new else entry.flags & (STAINED | REDELIVERED))
        if timed != NULL:
            timed_given(entry, timed)
        flags_given(entry, record.head.flags)
        if new or record.head.flags & RECORD_HISTORIC:
            entry.state = HISTORY if record.head.flags & RECORD_HISTORIC else UNROUTED
        if new and self.early:
            self.merge_early(record, entry)
        if rare != NULL and (rare.origin_id or rare.foreign):
            entry.flags |= LINKED | (FOREIGN if rare.origin_store or rare.foreign else 0)
            if rare.origin_id and not rare.origin_store:
                self.journal.last_number = max(self.journal.last_number, rare.origin_queue)
                self.remember_origin(record, rare)
        return 0

    cdef int apply_seen(self, const seen_record_t* record) except -1:
        cdef recovered_t* found = self.recovered(record.head.queue)
        array_grow(<void**> &found.seen, found.seen_count, &found.seen_capacity, sizeof(seen_t))
        found.seen[found.seen_count] = seen_t(
            record.hash_low, record.hash_high, record.time, record.head.id, record.head.position)
        found.seen_count += 1
        return 0

    cdef int apply_mark(self, const mark_record_t* record) except -1:
        """Records that were copied forward may come in another order than they were written: a MARK before its ENTER, an older
        MARK behind a newer one. So nothing that a MARK says is taken back by another."""
        cdef entry_t* entry = index_get(&self.recovered(record.head.queue).index, record.head.id)
        if record.due != NEVER:
            self.retries.setdefault((record.head.queue, record.head.id), {})[record.closing] = record.due
        if entry == NULL:
            count, flags = self.early.get((record.head.queue, record.head.id), (0, 0))
            self.early[record.head.queue, record.head.id] = max(count, record.delivery_count), flags | record.head.flags
        else:
            mark_entry(entry, record.delivery_count, record.head.flags)
        return 0

    cdef int merge_early(self, const enter_record_t* record, entry_t* entry) except -1:
        """Apply the MARKs that came before the ENTER. That was copied forward for a message that has ended, though the log does
        not say so yet: it is in no index that knows how often it was delivered."""
        found = self.early.pop((record.head.queue, record.head.id), None)
        if found is not None:
            mark_entry(entry, found[0], found[1])
        return 0

    cdef int forget_early(self, uint32_t queue, uint64_t id, uint64_t count) except -1:
        """These messages have ended, and with them what their MARKs said. O(ids, or MARKs without a message if fewer)."""
        if count <= <uint64_t> len(self.early):
            for one in range(id, id + count):
                self.early.pop((queue, one), None)
        else:
            for key in [key for key in self.early if key[0] == queue and id <= key[1] < id + count]:
                del self.early[key]
        return 0

    cdef int remember_settled(self, const settle_record_t* record) except -1:
        if record.count == 0 or record.head.id + record.count < record.count:
            raise self.nonsense(&record.head, f"ends {record.count} messages from id {record.head.id} on")
        return self.remember_gone(record.head.queue, record.head.id, record.count, record.head.flags & RECORD_MARKED != 0)

    cdef int remember_gone(self, uint32_t queue, uint64_t id, uint64_t count, bint marked) except -1:
        """Remember a run of ids that ends; it counts at the end of its group."""
        array_grow(&self.settled, self.settled_count, &self.settled_capacity, sizeof(settled_t))
        (<settled_t*> self.settled)[self.settled_count] = settled_t(queue, id, count, marked)
        self.settled_count += 1
        return 0

    cdef int settle_all(self) except -1:
        cdef settled_t* run
        cdef uint64_t i
        cdef recovered_t* queue
        cdef entry_t* entry
        for i in range(self.settled_count):
            run = &(<settled_t*> self.settled)[i]
            if run.count == 0:
                self.last = NULL
                self.found.pop(run.queue, None)
                continue
            if run.queue not in self.found:     # it was deleted in this group, too
                continue
            if run.marked and self.early:
                self.forget_early(run.queue, run.id, run.count)
            queue = self.recovered(run.queue)
            entry = index_from(&queue.index, run.id)
            while entry != NULL and entry.id < run.id + run.count:
                self.forget(queue, entry)
                entry = index_from(&queue.index, run.id)
        self.settled_count = 0
        return 0

    cdef int forget(self, recovered_t* queue, entry_t* entry) except -1:
        index_remove(&queue.index, entry)
        entry_drop(entry)
        queue.count -= 1
        return 0

    # ---- messages in two places

    cdef int remember_origin(self, const enter_record_t* record, const rare_t* rare) except -1:
        array_grow(&self.origins, self.origin_count, &self.origin_capacity, sizeof(origin_t))
        (<origin_t*> self.origins)[self.origin_count] = origin_t(
            rare.origin_queue, rare.origin_id, record.head.queue, record.head.id, rare.foreign)
        self.origin_count += 1
        return 0

    cdef list hidden(self):
        """(queue, id) of each origin whose message lives on downstream. One whose copies went to another store, and may not have
        got there, is not hidden: it is routed again, and what lives on downstream is doubtful."""
        cdef dict found = {}
        cdef origin_t* origin
        cdef entry_t* child
        cdef entry_t* entry
        cdef uint64_t i
        for i in range(self.origin_count):
            origin = &(<origin_t*> self.origins)[i]
            if origin.child_queue in self.found and origin.queue in self.found:
                child = index_get(&self.recovered(origin.child_queue).index, origin.child_id)
                entry = index_get(&self.recovered(origin.queue).index, origin.id)
                if child != NULL and child.state != HISTORY and entry != NULL and entry.state != HISTORY and hides(
                        child, origin.waits, entry, self.recovered(origin.queue)):
                    found[origin.queue, origin.id] = origin.child_queue, origin.child_id
        self.check_origins(found)
        return list(found)

    cdef int check_origins(self, dict found) except -1:
        """Each origin leads to a message that is there: from child to child, and never in a circle. `found`: origin -> child."""
        cdef set ends = set()
        for origin in found:
            way, at = [], origin
            while at in found and at not in ends:
                if len(way) == len(found):
                    raise self.written_so(f"message {origin[1]} of queue number {origin[0]} is its own origin")
                way.append(at)
                at = found[at]
            ends.update(way)
        return 0

    # ---- retries

    cdef int retries_valid(self) except -1:
        """Give the messages that retries delay their times. A time counts if it is of the orderly end that the STATE is of: after
        a crash, and when its queue has changed, a message is to be tried again at once."""
        cdef Recovered queue
        cdef entry_t* entry
        for (number, id), times in self.retries.items():
            queue = self.found.get(number)
            if queue is None or not queue.c.state.head.flags & RECORD_EXACT or queue.c.state.closing not in times:
                continue
            entry = index_get(&queue.c.index, id)
            if entry != NULL and entry.state != HISTORY:
                entry.state = DELAYED
                extra_of(entry).ended.retry = times[queue.c.state.closing]
        self.retries.clear()
        return 0

    # ---- the end

    def names(self):
        """The names of the queues that were found."""
        self.rename()
        return [(<Recovered> found).name for found in self.found.values() if (<Recovered> found).properties is not None]

    cdef int rename(self) except -1:
        """Give the older one of two queues of the same name another name.

        It was deleted, but had messages on their way to other stores, so its GONE was not logged before the crash.
        """
        cdef Recovered found
        cdef dict newest = {}
        for number, found in sorted(self.found.items()):
            if found.properties is not None:
                newest[found.name] = number
        for number, found in self.found.items():
            if found.properties is not None and newest[found.name] != number:
                found.name = f"{found.name} (deleted {number})"
                found.renamed = True
        return 0

    cdef object end(self):
        """Make the queues with their messages, held; return how many messages there are."""
        cdef Recovered found
        cdef queue_t* queue
        cdef entry_t* entry
        cdef uint64_t count = 0
        cdef set exact = set()
        self.settle_all()
        if self.journal.map.number:
            map_come(self.journal.map, &self.journal.store)
        self.retries_valid()
        hidden = self.hidden()
        self.rename()
        for number, found in sorted(self.found.items()):
            if found.properties is None:
                raise StoreCorrupt(f"store {self.journal.name!r}: there are messages of queue number {number}, and no queue; "
                                   "run: xump repair PATH")
            try:
                self.create(number, found.name, found.properties)
            except (TypeError, ValueError) as error:
                raise self.written_so(f"queue {found.name!r} has properties that no queue may have: {error}") from None
            queue = store_queue(&self.journal.store, number)
            if found.adopted is not None:
                if queue.staged:
                    raise self.written_so(f"queue {found.name!r} is staged, and has adopted others")
                # messages entered up to there, even if a repair lost them
                found.c.state.head.id = max(found.c.state.head.id, <uint64_t> found.adopted[1])
            queue_take_over(self.journal, queue, &found.c)
            map_take_over(queue, found.map)
            if found.c.state.head.flags & (RECORD_EXACT | RECORD_UPSTREAM_FAILED) == RECORD_EXACT:
                exact.add(number)
            if found.renamed:
                log_queue(queue)
            count += found.c.count
        order_all(self.journal, exact)
        for number, id in hidden:
            queue = store_queue(&self.journal.store, number)
            entry = index_get(&queue.index, id)
            if entry != NULL:
                hidden_end(queue.engine, entry)
                count -= 1
        for number in self.found:
            queue = store_queue(&self.journal.store, number)
            while queue.history.count > queue.history_limit:    # its end waited behind a fence
                entry = queue.history.head
                list_remove(&queue.history, entry)
                forget_for_good(queue, entry)
                count -= 1
        empty = []
        for number, found in self.found.items():
            if found.adopted is not None:
                adopted, first_id, numbers = found.adopted
                empty += adoptions_come(store_queue(&self.journal.store, number), adopted, first_id, numbers)
        self.empty = list(dict.fromkeys(empty))
        self.last = NULL
        self.found.clear()
        return count


cdef void map_take_over(queue_t* queue, Map map) noexcept:
    if map is not None:
        Py_INCREF(map)
        queue.meta = <void*> map
        map_come(map, queue.store)


cdef dict properties_of(const queue_record_t* record, object dead_letter, object group, str rewriter):
    """All properties but the store, as `QueueHandle._properties` gives them."""
    cdef const int64_t* delays = delays_of(record)
    cdef uint32_t i
    return {
        "limit": none_if_unlimited(record.limit), "history_limit": none_if_unlimited(record.history_limit),
        "auto_delete": record.head.flags & RECORD_AUTO_DELETE != 0, "dead_letter": dead_letter,
        "rewriter": tuple(rewriter.split("\0", 1)) if rewriter else None,
        "delivery_limit": record.delivery_limit or None,
        "retry_delay": tuple([delays[i] for i in range(record.retry_count)]) or None,
        "ttl": None if record.ttl == NEVER else record.ttl, "priority": record.priority or None, "group": group,
        "dedup": None if record.dedup == NEVER else record.dedup, "dedup_limit": record.dedup_limit,
        "limit_bytes": none_if_unlimited(record.limit_bytes),
        "when_full": "drop_to_fit" if record.options & OPTION_DROP_TO_FIT else (
            "drop_oldest" if record.options & OPTION_DROP_OLDEST else "refuse"),
        "unmatched": "keep" if record.options & OPTION_KEEP_UNMATCHED else "drop",
        "staged": record.options & OPTION_STAGED != 0,
    }


cdef object none_if_unlimited(uint64_t limit):
    return None if limit == UNLIMITED else limit


cdef bint hides(const entry_t* entry, int foreign, const entry_t* origin, const recovered_t* queue) noexcept:
    """Whether an entry hides its origin: other stores have the copies of that, as far as `foreign` says that there may be any."""
    if foreign & COPIES_AWAITED and (entry.extra == NULL or not entry.extra.copied):
        return False
    return not foreign & NOT_HIDING or was_routed(origin, queue)


cdef bint was_routed(const entry_t* entry, const recovered_t* queue) noexcept:
    """Whether the log says so, as `restore.pyx` reads it."""
    if entry.extra != NULL and entry.extra.logged != LOGGED_NOTHING:
        return entry.extra.logged == LOGGED_ROUTED
    return entry.id < queue.state.frontier


cdef int timed_given(entry_t* entry, const timed_t* timed) except -1:
    """The times and priority in a record."""
    entry.rank = timed.priority                     # until it has its place
    if timed.expires != NEVER or timed.due != NEVER:
        extra_of(entry)
        entry.extra.expires = timed.expires
        entry.extra.delayed_until = timed.due
    if timed.due != NEVER:
        entry.flags |= TIMED
    return 0


cdef int flags_given(entry_t* entry, int flags) except -1:
    """Whether the message is routed, if an ENTER or MARK says so. Nothing takes back that it is."""
    if flags & RECORD_ROUTED:
        extra_of(entry).logged = LOGGED_ROUTED
    elif flags & RECORD_UNROUTED and extra_of(entry).logged == LOGGED_NOTHING:
        entry.extra.logged = LOGGED_UNROUTED
    if flags & RECORD_COPIED:
        extra_of(entry).copied = True
    return 0


cdef void entry_drop(entry_t* entry) noexcept:
    """Free an entry that is being read."""
    if entry.extra != NULL:
        extra_free(entry.extra)
        entry.extra = NULL
    entry_free(&loose, entry)


cdef int mark_entry(entry_t* entry, uint32_t delivery_count, int flags) except -1:
    """Apply what a MARK says."""
    flags_given(entry, flags)
    entry.flags |= STAINED | (REDELIVERED if flags & RECORD_REDELIVERED else 0)
    entry.delivery_count = max(entry.delivery_count, <uint16_t> delivery_count)
    if flags & RECORD_HISTORIC:
        entry.state = HISTORY
        entry.flags &= ~DEAD_ENTRY
        if flags & RECORD_DEAD_ENTRY:
            entry.hops = 0
    return 0


cdef class Recovered:
    """A queue that is being read."""

    def __dealloc__(self):
        cdef entry_t* entry
        if self.c.engine != NULL:       # free the entries that no queue took over
            entry = index_from(&self.c.index, 1)
            while entry != NULL:
                index_remove(&self.c.index, entry)
                entry_drop(entry)
                entry = index_from(&self.c.index, 1)
            index_free(&self.c.index)
            free(self.c.seen)
