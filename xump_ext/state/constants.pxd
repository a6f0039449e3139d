"""The states, flags and kinds of the structs in `graph.pxd`, as numbers."""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.message.times cimport NEVER   # for those who cimport it from here

cdef enum:
    # states of an entry; `graph.pxd` says in which list an entry of each is
    UNROUTED = 0
    WAITING = 1
    BOUND = 2
    OFFERED = 3
    TAKEN = 4
    MOVED = 5
    HISTORY = 6
    DELAYED = 7

cdef enum:
    # flags of an entry
    REDELIVERED = 1         # may have been handled before its store was opened, or elsewhere
    DEFAULTED = 2           # routed to the default role: default selectors may take it
    DEAD_IN_RUN = 4         # dead-lettered, by this or an earlier queue, in the run in which it entered here
    DEAD_ENTRY = 8          # entered here by dead-lettering
    NACKED = 16             # the engine knows the number of its last nack
    QUEUED = 32             # parked, and to be routed again: `below.position` is its place in `parked`, with its visited set
    SUSPENDED = 64          # its visited set goes on if it leaves in this run: `below.position` is its place in `suspended`
    IN_RETURNED_HEAP = 128  # waits in its waitset's returned heap, not in the list: `link.position` is its place there
    # flags of an entry that a durable store has to do with
    STAINED = 256           # its store has a MARK record of it
    SHADOW = 512            # the message goes on in RAM: its end here is not logged yet
    OWNED = 1024            # it is in RAM, and a durable message hears of its end        log/owners.pxd
    RECOVERED = 2048        # it was routed before its store was opened, and is not matched again yet
    FOREIGN = 4096          # it came from a message of another store, or what that came from did
    LINKED = 8192           # its record says which message it came from
    APART = 16384           # not routed yet, and kept apart: in its turn the index would not find it      select/unrouted.pxd
    TIMED = 32768           # it was delayed when it entered a durable store: its record says until when
    # said to `enter` only
    FOUND_ROOM = 65536      # beyond the limit the overflow selector takes it, which had room when it was asked

cdef enum:
    DELIVERIES_MAX = 65535

cdef enum:
    # where an entry stands in its group
    GROUP_NONE = 0
    GROUP_LINE = 1
    GROUP_STRAY = 2         # in the heap of strays
    GROUP_BUSY = 3          # outstanding or bound: the others wait for it

cdef enum:
    # whether no selector matched an unrouted entry
    KEPT_NEVER = 0
    KEPT_BEFORE = 1         # it is tried again
    KEPT_NOW = 2            # it waits for one that does: it is apart, in the queue's `kept`

cdef enum:
    # what the log of a durable store says of a message that is routed out of turn
    LOGGED_NOTHING = 0      # the frontier tells
    LOGGED_UNROUTED = 1
    LOGGED_ROUTED = 2

cdef enum:
    # what a message was before your program took it by hand
    HOME_WAITING = 0
    HOME_UNROUTED = 1
    HOME_KEPT = 2
    HOME_PARKED = 3

cdef enum:
    # what an entering message asks of its queue beyond what it asks of a plain one
    SPECIAL_NOT = 0
    SPECIAL_PUBLISHED = 1   # a publish: whether it is a duplicate
    SPECIAL_ENTERED = 2     # whatever enters: time, order, a limit of bytes

cdef enum:
    # of the place of a waitset, which is twice the rank of its entries and this
    BEHIND = 1              # they are behind the first one of their key

cdef enum:
    DEDUP_LIMIT_DEFAULT = 100_000   # of a queue that looks for duplicates

cdef enum:
    # verbs of selectors
    COPY = 0
    MOVE = 1
    DELIVER = 2
    BOUNCE = 3
    DISCARD = 4

cdef enum:
    # roles of clauses and selectors
    ORDINARY = 0
    DEFAULT = 1
    OVERFLOW = 2

cdef enum:
    # fields of a message that may name a target or destination
    FIELD_NONE = 0
    FIELD_ADDRESS = 1
    FIELD_REPLY_TO = 2
    FIELD_DESTINATION = 3
    FIELD_HEADER = 4

cdef enum:
    # kinds of nodes in the engine's `runnable` heap
    LANE = 0
    WAITERS = 1             # the waiting list of a queue that had no room
    NAMED_LANE = 2          # a lane for a target that a field names
    INSIDE = 3              # what may go on in a queue that goes by priority
    PARKED = 4              # parked messages of a queue, to be routed again

cdef enum:
    # the engine's lists of queues
    DIRTY = 0               # a run has to look at it
    RETURNED = 1            # messages came back to it and are not matched again yet
    ROOM_VARIES = 2         # selectors wait for room in it, and there may be room for some messages only: `waiters_changed`
    OVERFULL = 3            # it drops its oldest messages when nothing more can be routed
    QUEUE_LISTS = 4

cdef enum:
    # why a message is dead-lettered or dropped; in the order of `REASONS` in constants.pyx
    REASON_OVERFLOW = 0
    REASON_UNROUTABLE = 1
    REASON_REJECTED = 2
    REASON_DELIVERY_LIMIT = 3
    REASON_HOPS = 4
    REASON_NO_QUEUE = 5
    REASON_EXPIRED = 6
    REASON_LATE = 7         # a reply for which nobody waits any more
    REASON_COUNT = 8

cdef enum:
    # what a publisher is told of its message; the bits of `OutcomeFlag` in outcome.py
    OUTCOME_DUPLICATE = 1
    OUTCOME_UNROUTABLE = 2
    OUTCOME_DEAD_LETTERED = 4
    OUTCOME_DROPPED = 8
    OUTCOME_NO_QUEUE = 16
    OUTCOME_STORE_FULL = 32
    OUTCOME_STORE_FAILED = 64

cdef enum:
    # what happens to an entry when it falls due
    TIMER_EXPIRY = 0        # it is dead-lettered, or dropped
    TIMER_DELAY = 1         # the delay that it entered with ends
    TIMER_RETRY = 2         # the delay of its retry ends
    TIMER_ACK = 3           # the time in which your program had to answer ends
    TIMER_ROOM = 5          # in no schedule: it has expired, and waits for room for its dead letter
    TIMER_MISSED = 4        # in no schedule: that time has ended, and the message could not be read to be taken back

cdef enum:
    # states of the engine lock
    IDLE = 0
    BUSY = 1
    CLOSED = 2
    FORKED = 3
    NEW = 4                 # `_configure` was not called yet
    BROKEN = 5              # memory ended in the middle of a step: the books (counters and links) may be wrong
    RESERVED = 6            # free, but only for one thread that waited before and was overtaken

cdef extern from *:
    """
    #define XUMP_UNLIMITED 0xFFFFFFFFFFFFFFFFULL
    #define XUMP_TIME_UNREAD INT64_MIN
    """
    const int64_t TIME_UNREAD "XUMP_TIME_UNREAD"    # this call has not read the clock yet
    const uint64_t UNLIMITED "XUMP_UNLIMITED"
