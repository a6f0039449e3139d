"""Counts the messages that are left in a damaged store, by reading its whole records as if it were opened.

Damage takes more than messages. A lost record may have said that a message was settled, was in the history, or was handed out. So
a message that is there may be *doubtful*. The repair tool of the store knows which records were lost where, and calls `doubt` for
the messages that they may have been about. A doubtful message in the history stays there, since it is not delivered. The others
get a MARK that says redelivered, from `marks`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from xump_ext.log.journal cimport Journal
from xump_ext.log.marks cimport entry_says
from xump_ext.records.kinds cimport (
    MAGIC, MARK, NO_TEXT, OPTION_STAGED, QUEUE, RECORD_EXACT, RECORD_REDELIVERED, enter_record_t, mark_record_t, queue_record_t,
)
from xump_ext.records.record cimport head_crc, incarnation_new, name_of, padded
from xump_ext.recovery.log_reader cimport Recovered, Recovery, recovered_t
from xump_ext.state.constants cimport (
    DEAD_ENTRY, DEDUP_LIMIT_DEFAULT, HISTORY, NEVER, REASON_COUNT, REDELIVERED, STAINED, UNLIMITED,
)
from xump_ext.state.graph cimport entry_t
from xump_ext.state.index cimport index_from, index_get
from xump_ext.store import Remains

cdef enum:
    IN_DOUBT = DEAD_ENTRY       # this flag is free here, since the entries are only counted


class _Salted:
    """The attributes that a journal reads of a store; this one is never written."""

    group_bytes = 1 << 20

    def __init__(self, salt):
        self.salt = salt


def salvage_of(str path not None, uint32_t salt):
    """A salvage of the store at that path, to be fed with its records."""
    return Salvage(Journal(_Salted(salt), path, 0), None)


cdef class Salvage(Recovery):
    """Takes whole records in the same order as `Recovery`, and counts instead of making queues."""

    cdef set strange            # queues of which a newer STATE may be lost
    cdef set vague              # queues with messages in their history that may have been settled

    def __cinit__(self, Journal journal not None, create):
        self.strange = set()
        self.vague = set()

    cdef int apply_enter(self, const enter_record_t* record) except -1:
        cdef entry_t* entry
        Recovery.apply_enter(self, record)
        entry = index_get(&self.recovered(record.head.queue).index, record.head.id)
        entry.sequence = record.head.position       # of the last record about it
        entry.flags &= ~IN_DOUBT
        return 0

    cdef int apply_mark(self, const mark_record_t* record) except -1:
        cdef entry_t* entry = index_get(&self.recovered(record.head.queue).index, record.head.id)
        Recovery.apply_mark(self, record)
        if entry != NULL:
            entry.sequence = max(entry.sequence, record.head.position)
        return 0

    def numbers(self):
        """The numbers of all queues that have records, in order."""
        return sorted(self.found)

    def nameless(self, uint64_t position=0):
        """QUEUE records for the queues whose own is lost, as (queue, `queue_record`). The first has that position, the others
        follow."""
        cdef list made = []
        cdef Recovered found
        cdef set adopted = {one for found in self.found.values() if found.adopted is not None
                            for these in found.adopted[2] for one in these}
        for number in self.numbers():
            if (<Recovered> self.found[number]).properties is None:
                record = queue_record(number, position, self.journal.store.salt, number in adopted)
                made.append((number, record))
                position += len(record)
        return made

    def doubt(self, uint32_t queue, uint64_t first=0, uint64_t last=UNLIMITED, *, uint64_t before=UNLIMITED, bint marked=True,
              bint state=False):
        """Doubt the messages from `first` to `last` whose last record stands before the position `before` of the log: a lost
        record may have said more about them. O(messages).

        `marked=False`: only messages without a MARK. `state`: doubt the STATE of the queue, too, if it stands before that.
        """
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
                    entry.flags |= IN_DOUBT
            if entry.id == UNLIMITED:
                break
            entry = index_from(&found.index, entry.id + 1)

    def marks(self, uint64_t position):
        """MARK records that say of doubtful messages that they may have been handed out, as (queue, id, record), in order. The
        first has that position, the others follow. A message that is marked so already gets none."""
        cdef list made = []
        cdef recovered_t* found
        cdef entry_t* entry
        cdef mark_record_t record
        memset(&record, 0, sizeof(record))
        record.head.magic = MAGIC
        record.head.kind = MARK
        record.head.length = sizeof(record)
        record.due = NEVER
        for number in self.numbers():
            found = self.recovered(number)
            entry = index_from(&found.index, 0)
            while entry != NULL:
                if entry.flags & IN_DOUBT and not (entry.flags & REDELIVERED and entry.delivery_count):
                    record.head.queue = number
                    record.head.id = entry.id
                    record.head.position = position
                    record.head.flags = RECORD_REDELIVERED | entry_says(entry)     # all that the MARK before said, too
                    record.delivery_count = max(entry.delivery_count, <uint16_t> 1)
                    record.head.crc = head_crc(&record.head, self.journal.store.salt)
                    made.append((number, entry.id, PyBytes_FromStringAndSize(<const char*> &record, sizeof(record))))
                    position += sizeof(record)
                entry = index_from(&found.index, entry.id + 1)
        return made

    def remains(self):
        """`Remains` of each queue, by its number. O(messages)."""
        cdef dict told = {}
        hidden = self.hidden()
        for number in self.numbers():
            told[number] = self.remains_of(number, sum(1 for queue, _ in hidden if queue == number))
        return told

    cdef object remains_of(self, uint32_t number, uint64_t hidden):
        """`hidden`: how many messages of the queue are downstream, too, and so are not counted here."""
        cdef recovered_t* found = self.recovered(number)
        cdef dict properties = (<Recovered> self.found[number]).properties
        cdef entry_t* entry = index_from(&found.index, 0)
        cdef uint64_t history = 0, doubtful = 0, issued = found.state.head.id - 1, gone
        cdef bint known = found.state.head.magic == MAGIC and number not in self.strange
        cdef int reason
        while entry != NULL:
            history += entry.state == HISTORY
            doubtful += entry.flags & IN_DOUBT != 0
            issued = max(issued, entry.id)
            entry = index_from(&found.index, entry.id + 1)
        gone = found.state.settled + found.state.deleted + found.count
        for reason in range(REASON_COUNT):
            gone += found.state.dropped[reason]
        name = f"recovered-{number}" if properties is None else (<Recovered> self.found[number]).name
        lost = None if not known else issued - gone if issued > gone else 0
        exact = known and found.state.head.flags & RECORD_EXACT != 0 and doubtful == 0 and number not in self.vague
        if properties is not None and properties["history_limit"] is not None:
            # opening the store ends messages beyond it
            over = history - min(history, properties["history_limit"])
            return Remains(name, found.count - hidden - over, history - over, doubtful, lost, exact)
        return Remains(name, found.count - hidden, history, doubtful, lost, exact)


def queue_record(uint32_t number, uint64_t position, uint32_t salt, bint adopted=False):
    """A QUEUE record for a queue whose own is lost.

    The queue is named `recovered-` and its number. It has no limits, so that messages in its history stay there. `adopted`: an
    ADOPT names it, so it is staged, and its messages still enter the queue that has adopted it.
    """
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
    record.limit = record.limit_bytes = UNLIMITED
    record.history_limit = 0 if adopted else UNLIMITED
    record.ttl = record.dedup = NEVER
    record.dedup_limit = DEDUP_LIMIT_DEFAULT
    record.incarnation = incarnation_new()
    record.name_bytes = <uint16_t> len(name)
    record.options = OPTION_STAGED if adopted else 0
    record.dead_letter_bytes = record.group_bytes = NO_TEXT
    memcpy(name_of(record), PyBytes_AS_STRING(name), len(name))
    record.head.crc = head_crc(&record.head, salt)
    return made
