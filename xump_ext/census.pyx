"""What is left of a damaged store: its whole records are read as if it were opened, so what is counted is what will be there.

Damage takes records that said what became of a message, too: that it was settled, or processed, or handed out. So a message that
is there may be *doubtful*. Whoever repairs the store says which parts of it are (`doubt`), by what was lost there; what is in the
history stays there, it is not delivered. The others get a MARK that says redelivered, by `marks`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from xump_ext.graph cimport DEAD_ENTRY, HISTORY, REASON_COUNT, REDELIVERED, STAINED, UNLIMITED, entry_t
from xump_ext.index cimport index_from, index_get
from xump_ext.journal cimport Journal
from xump_ext.records cimport (
    MAGIC, MARK, NO_TEXT, QUEUE, RECORD_EXACT, RECORD_REDELIVERED, enter_record_t, head_crc, mark_record_t, padded,
    queue_record_t,
)
from xump_ext.recovery cimport Recovered, Recovery, recovered_t
from xump_ext.store import Remains

cdef enum:
    DOUBTFUL = DEAD_ENTRY       # of an entry that is counted here only, and goes nowhere


class _Salted:
    """What a journal asks of a store, of which nothing is written."""

    group_bytes = 1 << 20

    def __init__(self, salt):
        self.salt = salt


def census_of(str path not None, uint32_t salt):
    """A census of the store at that path, to be fed with its records."""
    return Census(Journal(_Salted(salt), path, 0), None)


cdef class Census(Recovery):
    """Takes whole records as `Recovery` does, in the same order; counts instead of making queues."""

    cdef set strange            # queues whose STATE may be an old one
    cdef set vague              # queues with messages in their history that may have been settled

    def __cinit__(self, Journal journal not None, create):
        self.strange = set()
        self.vague = set()

    cdef int apply_enter(self, const enter_record_t* record) except -1:
        cdef entry_t* entry
        Recovery.apply_enter(self, record)
        entry = index_get(&self.recovered(record.head.queue).index, record.head.id)
        entry.sequence = record.head.position       # the last that is known of it
        entry.flags &= ~DOUBTFUL
        return 0

    cdef int apply_mark(self, const mark_record_t* record) except -1:
        cdef entry_t* entry = index_get(&self.recovered(record.head.queue).index, record.head.id)
        Recovery.apply_mark(self, record)
        if entry != NULL:
            entry.sequence = max(entry.sequence, record.head.position)
        return 0

    def numbers(self):
        """Of the queues of which there are records, in order."""
        return sorted(self.found)

    def nameless(self, uint64_t position=0):
        """Those whose QUEUE record was not among them, as (queue, `queue_record`). The first has that position, the others
        follow."""
        cdef list made = []
        for number in self.numbers():
            if (<Recovered> self.found[number]).described is None:
                record = queue_record(number, position, self.journal.store.salt)
                made.append((number, record))
                position += len(record)
        return made

    def doubt(self, uint32_t queue, uint64_t first=0, uint64_t last=UNLIMITED, *, uint64_t before=UNLIMITED, bint marked=True,
              bint state=False):
        """What was lost may have told more of the messages with these ids, if the last that is known of them stands before that
        position of the log. `marked=False`: if they have no MARK. `state`: more of the queue, too. O(messages)."""
        cdef recovered_t* found
        cdef entry_t* entry
        if queue not in self.found:
            return
        found = self.recovered(queue)
        if state and found.state.head.position < before:
            self.strange.add(queue)
        entry = index_from(&found.index, first)
        while entry != NULL and entry.id <= last:
            if entry.sequence < before and (marked or not entry.flags & STAINED):
                if entry.state == HISTORY:
                    self.vague.add(queue)
                else:
                    entry.flags |= DOUBTFUL
            if entry.id == UNLIMITED:
                break
            entry = index_from(&found.index, entry.id + 1)

    def marks(self, uint64_t position):
        """Records that say of what is doubtful that it may have been handed out, as (queue, id, record), in order; the first has
        that position, the others follow. What says so itself needs none."""
        cdef list made = []
        cdef recovered_t* found
        cdef entry_t* entry
        cdef mark_record_t record
        memset(&record, 0, sizeof(record))
        record.head.magic = MAGIC
        record.head.kind = MARK
        record.head.flags = RECORD_REDELIVERED
        record.head.length = sizeof(record)
        for number in self.numbers():
            found = self.recovered(number)
            entry = index_from(&found.index, 0)
            while entry != NULL:
                if entry.flags & DOUBTFUL and not (entry.flags & REDELIVERED and entry.delivery_count):
                    record.head.queue = number
                    record.head.id = entry.id
                    record.head.position = position
                    record.delivery_count = max(entry.delivery_count, <uint16_t> 1)
                    record.head.crc = head_crc(&record.head, self.journal.store.salt)
                    made.append((number, entry.id, PyBytes_FromStringAndSize(<const char*> &record, sizeof(record))))
                    position += sizeof(record)
                entry = index_from(&found.index, entry.id + 1)
        return made

    def remains(self):
        """What is there of each queue, by number. O(messages)."""
        cdef dict told = {}
        hidden = self.hidden()
        for number in self.numbers():
            told[number] = self.remains_of(number, sum(1 for queue, _ in hidden if queue == number))
        return told

    cdef object remains_of(self, uint32_t number, uint64_t hidden):
        """`hidden`: messages that are further down, too, and will be there only."""
        cdef recovered_t* found = self.recovered(number)
        cdef tuple described = (<Recovered> self.found[number]).described
        cdef entry_t* entry = index_from(&found.index, 0)
        cdef uint64_t history = 0, doubtful = 0, issued = found.state.head.id - 1, gone
        cdef bint known = found.state.head.magic == MAGIC and number not in self.strange
        cdef int reason
        while entry != NULL:
            history += entry.state == HISTORY
            doubtful += entry.flags & DOUBTFUL != 0
            issued = max(issued, entry.id)
            entry = index_from(&found.index, entry.id + 1)
        gone = found.state.settled + found.state.deleted + found.count
        for reason in range(REASON_COUNT):
            gone += found.state.dropped[reason]
        name = f"recovered-{number}" if described is None else described[0]
        lost = None if not known else issued - gone if issued > gone else 0
        exact = known and found.state.head.flags & RECORD_EXACT != 0 and doubtful == 0 and number not in self.vague
        if described is not None and described[2] is not None:      # what is beyond goes when the store is opened
            over = history - min(history, described[2])
            return Remains(name, found.count - hidden - over, history - over, doubtful, lost, exact)
        return Remains(name, found.count - hidden, history, doubtful, lost, exact)


def queue_record(uint32_t number, uint64_t position, uint32_t salt):
    """A QUEUE record for a queue whose own is lost: it says `recovered-` and the number, and no limits, so that what was in the
    history stays there."""
    cdef bytes name = f"recovered-{number}".encode()
    cdef uint64_t length = padded(sizeof(queue_record_t) + len(name))
    cdef bytes made = PyBytes_FromStringAndSize(NULL, length)
    cdef queue_record_t* record = <queue_record_t*> PyBytes_AS_STRING(made)
    memset(record, 0, length)
    record.head.magic = MAGIC
    record.head.kind = QUEUE
    record.head.length = <uint32_t> length
    record.head.queue = number
    record.head.position = position
    record.limit = record.history_limit = UNLIMITED
    record.name_bytes = <uint16_t> len(name)
    record.dead_letter_bytes = NO_TEXT
    memcpy(<char*> (record + 1), PyBytes_AS_STRING(name), len(name))
    record.head.crc = head_crc(&record.head, salt)
    return made
