"""The core's table of contents: what an engine is made of, as C structs. Rules are elsewhere; here are only the nouns.

    engine ─┬─ queues ─┬─ index: pages of entries by id                 index.pxd
            │          ├─ clauses ─┬─ copies, or ready selectors        plan.pyx, credit.pyx
            │          │           └─ lanes ── groups ── waiting entries
            │          ├─ history
            │          └─ line: selectors waiting for room here         credit.pyx
            ├─ able: lanes and lines that may be able to go on          routing.pyx
            ├─ work: entries to be routed, oldest first                 work.pyx
            ├─ backlogs: queues with entries to be routed that were there before      gather.pyx
            ├─ parked: entries to be routed again, oldest first         routing.pyx
            └─ offers: deliveries that the application can take         offers.pxd

An **entry** is a message in a queue. It is in exactly one list at a time, by its state:

    UNROUTED   none: the frontier is before it        counts as ready
    WAITING    its group's, in order of entry, or aside  counts as ready
    BOUND      its selector's `held`, offered         counts as ready (INFINITE DELIVER)
    OFFERED    its selector's `held`, offered         counts as outstanding
    TAKEN      its selector's `taken`                 counts as outstanding
    MOVED      its selector's `held`                  counts as outstanding
    HISTORY    its queue's `history`                  counts as history

A **clause** is one condition of one queue and all the selectors that share it, so that ten thousand workers are one thing to
match. A **group** is the set of waiting entries that were hit by the same clauses. A **lane** is what waits for one
clause (and, where a field of the message names the target, for one target): the groups in it stand in a heap by their
oldest entry, so that a credit finds its message without a look at the others.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from xump_ext.block cimport content_t
from xump_ext.heap cimport heap_t, node_t

cdef enum:
    UNROUTED = 0
    WAITING = 1
    BOUND = 2
    OFFERED = 3
    TAKEN = 4
    MOVED = 5
    HISTORY = 6

cdef enum:
    # entry flags
    REDELIVERED = 1         # was outstanding before, and came back
    MARKED = 2              # routed to the default role: default selectors may take it
    DEAD = 4                # dead-lettered in the run in which it entered here, by this or an earlier queue
    DEAD_ENTRY = 8          # entered here by dead-lettering
    NACKED = 16             # the engine knows the number of its last nack
    ASIDE = 128             # waits in its group's heap, not in the list: `previous` is its place there
    PAUSED = 64             # its trip goes on if it leaves in this run: `child` is its place in `pauses`, from 1 on
    QUEUED = 32             # parked, and to be routed again: `child` is its place in `parked`, from 1 on; its trip stands there

cdef enum:
    # … in stores
    STAINED = 256           # its store has a MARK of it
    SHADOW = 512            # what it became in RAM has its last word: the log does not hear of its end here
    OWNED = 1024            # in RAM; a durable queue, as `owners` has it, hears of its end
    RECOVERED = 2048        # was routed before its store was opened, and has not been matched anew
    LINKED = 8192           # its record says what it came from
    FOREIGN = 4096          # while a store is read: it came from a message of another store

cdef enum:
    DELIVERIES_MAX = 65535

cdef enum:
    # verbs
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
    # what is in the heap of what may be able to go on
    LANE = 0
    LINE = 1
    NAMED = 2               # a lane of a target that a field names

cdef enum:
    # the engine's lists of queues
    STIRRED = 0             # something here has to be looked at when the call goes on
    RETURNED = 1            # something came back and has not been matched again
    CHOOSY = 2              # has a line, and whether it has room depends on the message: see `line_changed`
    QUEUE_LISTS = 3

cdef enum:
    # why a message is dead-lettered or dropped; the order of `REASONS` in ledger.pyx
    REASON_OVERFLOW = 0
    REASON_UNROUTABLE = 1
    REASON_REJECTED = 2
    REASON_DELIVERY_LIMIT = 3
    REASON_HOPS = 4
    REASON_NO_QUEUE = 5
    REASON_COUNT = 6

cdef enum:
    PAGE_SLOTS = 32         # a page with one live entry costs 304 bytes: the price of the sparsest backlog
    PAGE_SHIFT = 5

cdef extern from *:
    """
    #define XUMP_UNLIMITED 0xFFFFFFFFFFFFFFFFULL
    #define XUMP_TIME_UNREAD INT64_MIN
    """
    const int64_t TIME_UNREAD "XUMP_TIME_UNREAD"    # the clock was not asked yet in this call
    const uint64_t UNLIMITED "XUMP_UNLIMITED"

cdef struct entry_t:
    uint64_t id
    uint64_t sequence       # of its entry, engine-wide
    int64_t timestamp
    content_t* content      # of an unrouted one it may come from a source: source.pxd
    queue_t* queue
    entry_t* previous
    entry_t* next
    void* holder            # group_t* when WAITING, selector_t* when bound or outstanding
    entry_t* parent         # the unpaid entry upstream that this one came from by MOVE
    void* child             # entry_t* when MOVED, offer_t* when offered, entry_t** in its delivery when TAKEN; see PAUSED, QUEUED
    uint16_t delivery_count  # ends at DELIVERIES_MAX
    uint16_t hops
    uint16_t flags
    uint8_t state

cdef struct list_t:
    entry_t* head
    entry_t* tail
    uint64_t count

cdef struct page_t:
    uint64_t number         # id >> PAGE_SHIFT
    page_t* previous
    page_t* next
    page_t* lower           # below it in the tree: pages with lower numbers
    page_t* higher
    uint32_t live
    uint32_t rank           # no page below it has a higher one
    entry_t* slots[PAGE_SLOTS]

cdef struct index_t:
    page_t* head
    page_t* root            # of the tree: a search tree by number, a heap by rank
    page_t** table          # open addressing by page number
    uint32_t count
    uint32_t mask           # size of the table - 1
    page_t* tail            # last, so that a queue has it in one cache line with what is asked for at the same time

cdef struct destination_t:
    void* name              # str, owned by the engine's mapping
    offer_t* head
    offer_t* tail
    uint64_t count
    uint32_t pins           # selectors that name it

cdef struct offer_t:
    entry_t* entry
    destination_t* destination
    uint64_t number         # of the offer, engine-wide
    offer_t* previous       # among all
    offer_t* next
    offer_t* above          # among those of its destination
    offer_t* below

cdef struct field_t:
    uint8_t kind            # FIELD_NONE .. FIELD_HEADER
    uint16_t name_bytes
    char* name              # of the header, owned

cdef enum:
    FIELD_NONE = 0
    FIELD_ADDRESS = 1
    FIELD_REPLY_TO = 2
    FIELD_DESTINATION = 3
    FIELD_HEADER = 4

cdef struct place_t:        # a selector's place in the line of a queue that has no room
    selector_t* selector
    queue_t* target
    place_t* previous
    place_t* next
    place_t* other          # the selector's next place (a field may name many targets)
    place_t* another        # and the one before
    place_t* beside         # the next one in the selector's table that begins there

cdef struct selector_t:
    # the first cache line: all that a copy asks for
    uint64_t start          # COPY: ids from here on are live for it
    queue_t* target         # named target, or NULL
    field_t to_queue
    uint64_t copied
    bint enabled
    bint infinite
    uint32_t id
    uint8_t verb
    uint8_t role
    uint8_t puts            # what it takes goes into another queue
    # what taking asks for
    node_t ready            # in its clause's heap, by rotation; key: when it was last served
    int64_t available
    clause_t* clause        # NULL for overflow selectors
    queue_t* source
    uint64_t served
    destination_t* destination  # named destination of a delivery, or NULL
    list_t held             # bound, offered or moved
    list_t taken
    uint64_t paid
    place_t* places
    # the rest
    place_t** place_table   # by the slot of their target; NULL while they are few        places.pxd
    uint32_t place_mask
    uint32_t place_count
    uint64_t refusals       # closings of its clause's lanes while it was ready, or before: it had a part in all of them
    field_t to_destination
    void* stamp             # str: named destination of a deliver with a queue, or NULL
    int64_t window
    uint64_t replayed       # COPY: ids from here to `start` were copied by its replay
    uint64_t replay_due     # COPY: the id from which it replays when it is first enabled; 0: it has, or never will
    selector_t* next_own    # of the same source
    selector_t* previous_own
    selector_t* next_same_target
    selector_t* previous_same_target
    uint64_t dropped
    uint64_t returned
    uint64_t errors
    void* face              # Selector

cdef struct lane_t:
    node_t able             # in the engine's heap
    clause_t* clause
    queue_t* queue
    void* target            # str, owned: the target that a field names; NULL when the selectors name theirs
    heap_t groups           # member_t nodes; a key is never above the sequence of the group's oldest entry
    lane_t* next            # of the same clause
    lane_t* previous
    uint32_t members        # groups that belong to it
    node_t open             # in its clause's heap, if a field names its target; key: never above the sequence of its oldest entry
    uint64_t closed         # the number of its closing; 0: it is open        lanes.pyx
    lane_t* closed_before   # of the same clause
    lane_t* closed_after

cdef struct member_t:
    node_t node             # owner: the group
    lane_t* lane

cdef struct group_t:
    queue_t* queue
    entry_t* head
    entry_t* tail
    uint64_t count          # with those aside
    entry_t** aside         # heap by age: what came back between others     aside.pxd
    uint32_t aside_count
    uint32_t aside_capacity
    member_t** members
    uint32_t member_count
    uint32_t* slots         # parked: the whole hit set
    uint32_t slot_count
    bint marked
    bint parked
    bint pinned             # a route refers to it
    void* key               # tuple, owned, or NULL when the plan's mapping does not know it (any more)
    group_t* previous
    group_t* next

cdef struct clause_t:
    uint32_t slot
    uint8_t role
    bint consuming
    bint names_queue        # a field names the target queue
    heap_t ready            # consuming selectors with credit, not in a line; root: served longest ago
    selector_t** selectors  # all, by id
    uint32_t count
    uint32_t capacity
    uint32_t enabled        # of them
    uint64_t woken_from     # parked messages from this id on are to be looked at; UNLIMITED: none
    lane_t* lanes
    heap_t open             # lanes that a credit may find something in; closed ones are out of it
    lane_t* closed_last
    uint64_t closings       # of lanes, ever
    void* face              # Clause

cdef struct copy_t:
    selector_t* selector
    queue_t* target         # named target, or NULL: found here, it is fetched together with the selector

cdef struct route_t:        # a cache line, if there is one copy at most; its other arrays follow the copies
    uint32_t copy_count
    uint32_t clause_count
    uint32_t slot_count
    bint names_queue        # one of the clauses names its queue by a field
    clause_t** clauses      # consuming; then the slots
    group_t* group          # where its entries wait; made when the first one does
    uint64_t hash
    route_t* next
    copy_t copies[1]        # as many as there are, by id of the selector

cdef struct listed_t:       # a queue's place in one of the engine's lists
    queue_t* next
    queue_t* previous

cdef struct queue_t:
    # A message that enters asks for one cache line: from the last page of the index to the lists.
    void* plan              # Plan
    engine_t* engine
    void* face              # Queue
    uint64_t frontier       # no unrouted id is below
    index_t index
    uint64_t next_id
    int64_t timestamp       # of the newest
    uint64_t ready
    uint64_t limit          # UNLIMITED: none
    uint64_t unrouted
    uint32_t slot           # its number in trips
    uint32_t overflown      # overflow selectors that name it as target
    uint8_t held
    uint8_t active          # has an ordinary or default selector
    uint8_t is_listed[QUEUE_LISTS]
    uint8_t durable         # has a store with a log
    # what leaving asks for
    uint64_t outstanding
    uint64_t settled
    uint64_t history_limit  # UNLIMITED: none
    list_t history
    place_t* line_head
    place_t* line_tail
    # the rest
    selector_t* overflow    # the enabled one
    listed_t listed[QUEUE_LISTS]
    node_t able             # in the engine's heap, for its line
    node_t backlog          # in the engine's heap, while this run has unrouted entries to gather here; owner: the next of them
    uint64_t backlog_left   # how many
    void* dead_letter       # str or NULL
    uint32_t delivery_limit  # 0: none
    bint dying              # being deleted
    bint auto_delete
    selector_t* own         # selectors that have it as source
    selector_t* sources     # selectors that name it as target
    uint32_t selectors      # how many have it as source
    bint short              # a message that waits in its line found no room in a store: a smaller one may
    uint32_t own_room       # places in its line whose messages make room here by leaving
    uint32_t watched        # consuming clauses whose target a field names
    uint32_t field_copies   # clauses that copy whose target a field names
    group_t* groups
    group_t* returning      # what came back and has not been matched again
    # its store
    store_t* store          # NULL: in RAM
    queue_t* next_touched
    bint touched            # the open group gets its state
    uint32_t number         # in the store
    uint64_t handed         # the highest id that was handed out
    uint64_t promised       # ids up to here may have been, as the log has it
    uint64_t described      # where in the log the last group begins that has its QUEUE
    uint64_t settled_at     # where in the open group the last SETTLE of this queue is …
    uint64_t settled_group  # … if this is the open group
    uint64_t durable_id
    uint64_t written_id     # ids up to it are in the store
    uint64_t frontier_safe  # what the log may say while copies in other stores are not durable
    uint32_t frontier_waits     # how many such
    uint64_t deleted
    uint64_t dropped[REASON_COUNT]
    uint64_t dead_lettered[REASON_COUNT]

cdef struct trip_t:
    uint64_t mask           # of slots, modulo 64: most look-ups end here
    uint32_t* slots         # the queues entered: a list while short, then a table
    uint32_t count
    uint32_t capacity
    uint32_t references
    trip_t* next            # among the spare ones

cdef struct work_t:
    entry_t* entry
    trip_t* trip

cdef enum:
    FETCHED_SLOTS = 8

cdef struct fetched_t:      # a content that was read from a store
    content_t* content
    void* place             # what stands for it in its entry
    queue_t* queue
    uint64_t id

cdef struct fence_t:        # what a store may log only later, in order
    store_t* other          # NULL: no fence, a record
    uint64_t group          # of the other store: once that is durable, what follows may be logged
    uint64_t id
    uint64_t charge
    uint32_t queue
    uint8_t kind
    uint8_t flags

cdef struct store_t:        # a durable one; its log is gathered here
    engine_t* engine
    void* face              # Journal
    void* queues            # dict of numbers to addresses of queues
    void* leaving           # set of numbers of deleted queues whose end stands behind a fence
    char* data              # the open group
    uint64_t size
    uint64_t capacity
    uint64_t position       # of the open group in the log
    uint64_t group          # its number
    uint64_t records
    uint64_t durable        # groups up to here are
    uint64_t passed         # groups up to here are as safe as its durability promises: fences for them are open
    queue_t* touched        # queues whose state the open group gets
    int64_t room            # bytes that may still be logged
    int64_t kept            # of them, what is left to messages that are in the store already, as the store says
    int64_t largest         # what the largest message took of it that is, or was, in it
    uint64_t live           # bytes of records of messages that are in the store
    uint64_t resident       # bytes of contents in memory
    uint64_t resident_max
    fence_t* fences         # ring
    uint64_t fence_head
    uint64_t fence_count
    uint64_t fence_mask
    store_t* next_dirty
    store_t* next           # of the engine
    uint32_t slot           # its bit in `engine.entered_stores`
    uint32_t salt
    bint dirty              # it has something to write
    uint64_t ends           # records in the open group of messages that ended
    bint failed             # nothing is written any more
    bint leaving_engine     # it is being deleted: nothing enters it any more
    bint refused            # somebody upstream waits for room

cdef enum:
    # states of the door
    IDLE = 0
    BUSY = 1
    CLOSED = 2
    FORKED = 3
    NEW = 4         # `_configure` was not called yet
    BROKEN = 5      # memory ended in the middle of a step: the books may be wrong
    HANDED = 6      # nobody is inside; it is the turn of a thread that waited

cdef struct engine_t:
    uint64_t sequence
    uint64_t run_start      # the first sequence that has not waited yet
    uint64_t served
    uint64_t offered
    uint64_t nacks
    int64_t now
    uint32_t hop_limit
    uint32_t building
    int at_rest             # the state of the door between calls: IDLE, or BROKEN
    bint interrupted        # the last run did not come to its end: the next one goes on with it
    uint32_t watched        # sum over the queues
    uint32_t field_copies   # sum over the queues
    queue_t* lists[QUEUE_LISTS]
    queue_t* called         # by its own name, when a message was last published; or NULL
    void* called_name       # str, the face's
    heap_t able
    heap_t backlogs         # of queues, by the sequence of the next entry
    work_t* work            # ring
    uint64_t work_head
    uint64_t work_count
    uint64_t work_mask
    work_t* parked          # what waits and is to be routed again, oldest first from `parked_head` on
    uint64_t parked_head
    uint64_t parked_count   # with those before the head
    uint64_t parked_capacity
    work_t* pauses          # entries that came by a trip in this run and wait, or are not routed yet
    uint64_t pause_count
    uint64_t pause_capacity
    offer_t* offers_head
    offer_t* offers_tail
    uint64_t offer_count
    offer_t* spare_offers
    trip_t* spare_trips
    uint64_t entries
    void* dead_letter       # str or NULL
    void* queues            # dict of str to QueueHandle
    void* destinations      # dict of str to DestinationHandle
    void* nacked            # dict of an entry's address to the number of its last nack
    void* troubles          # list of what user code raised in this call
    void* spent             # list of owners of sources that are used up; dropped at the end of the call
    store_t* stores         # durable ones
    store_t* dirty          # stores that have something to write since the last call ended
    uint64_t entered_stores     # durable ones into which the message went that is being routed or settled
    uint32_t store_count    # durable ones
    uint32_t fetched_next
    fetched_t fetched[FETCHED_SLOTS]
    queue_t* unreadable     # holds a message that could not be read, in the run that ends for it
    store_t* gone_store     # of the durable message that goes on by INFINITE and ends where it was; NULL: none
    uint32_t gone_queue     # its queue's number, and its id
    uint64_t gone_id
    void* claim             # tuple, as in `owners`, for the next entry; or NULL
    void* owners            # dict of an entry's address to (Journal, queue number, id, charge): who hears of its end
    void* face              # Core
