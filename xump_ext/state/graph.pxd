"""The structs of the core: engine, queue, entry, selector and what joins them. This file is its table of contents.

The file holds nouns only, and all of them, since they point to each other; the rules are in the layers `select` and `route`. The
nouns are C structs, not Python objects, so the garbage collector does not walk over a million waiting messages. Behind a `void*`
field, the comment names the Python class that it points to.

    engine ─┬─ queue ─┬─ index: its entries by id, in pages                            state/index.pxd
            │         ├─ history: processed entries that it keeps
            │         ├─ plan ─┬─ clauses: its conditions, compiled                    select/clause.pyx
            │         │        ├─ indexes and routes: which clauses a message hits     select/plan.pyx
            │         │        └─ waitsets: entries that wait for the same clauses     select/waiting.pyx
            │         └─ waiting list: selectors that wait for room in it              select/credit.pyx
            ├─ what a run has to do
            │   ├─ runnable: lanes and waiting lists that may go on                    route/routing.pyx
            │   ├─ run queue: entries to be routed, oldest first                       state/run_queue.pyx
            │   ├─ backlogs: queues whose older unrouted entries are to be routed      route/gather.pyx
            │   ├─ parked: parked entries to be routed again, oldest first             state/run_queue.pyx
            │   ├─ suspended: entries that wait, with their visited sets               state/run_queue.pyx
            │   └─ lists: queues that a run has to look at                             state/queue_lists.pxd
            ├─ offers: deliveries that your program can take                           state/offers.pxd
            ├─ schedule: entries to which something happens at a moment                state/schedule.pxd
            └─ stores: the durable ones, each with its open group                      log/writer.pxd

    clause ─┬─ selectors: all that share its condition                                 select/clause.pyx
            ├─ ready: a heap of those that can take, served longest ago first          select/credit.pyx
            └─ lane ── waitset ── waiting entry                                        select/lanes.pyx

**Entries.** An entry is a message in one queue. If a MOVE or BOUNCE with finite credit takes it, the entry that it becomes in
the target is its child, and points back to it as the parent until it is paid for. An entry is in at most one list. Its state
says in which, and how its queue counts it:

    state       it is in                                             it counts as
    UNROUTED    no list: the index has it, from the frontier on      ready
    WAITING     the list or returned heap of its waitset             ready
    BOUND       its selector's `holding` (INFINITE DELIVER)          ready
    DELAYED     no list: the schedule has it                         delayed
    OFFERED     its selector's `holding` (finite DELIVER)            outstanding
    TAKEN       its selector's `taken`, or its queue's `by_hand`     outstanding
    MOVED       its selector's `holding` (finite MOVE, BOUNCE)       outstanding
    HISTORY     its queue's `history`                                history

A BOUND or OFFERED entry has an offer besides. The run queue, `parked` and `suspended` only refer to entries.

**Matching.** A clause is one condition of one queue, with all the selectors that share it. So ten thousand workers with the
same condition are matched as one. Which clauses a message hits is worked out once and kept as a route: the copies to make,
then the clauses of the selectors that may take it.

**Waiting.** A waitset holds the waiting entries of a queue that were hit by the same clauses. Each of these clauses has a
lane: a heap of its waitsets by their oldest entry. If a field of the message names the target, the clause has one lane for each
target. So a selector that gets a credit finds the oldest message that it may take, and looks at no other.

**Room.** A selector that finds its target full gets a waiter in the target's waiting list. When there is room, the first in the
list goes first; it joins the end again when it is next refused.

**Shared windows.** A window of several selectors has a gate: a queue that nothing enters, whose limit is the window's credit, and
which has as many `ready` as the selectors have outstanding. So an empty window is a full target, with a waiting list.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t

from xump_ext.memory.heap cimport heap_t, node_t
from xump_ext.memory.radix cimport item_t, radix_t
from xump_ext.message.headers cimport content_t
from xump_ext.state.constants cimport QUEUE_LISTS, REASON_COUNT

cdef enum:
    PAGE_SLOTS = 32         # a page costs 304 bytes; in the sparsest backlog each entry has one to itself
    PAGE_SHIFT = 5

cdef enum:                  # what a consuming selector needs room for
    PUTS_NOTHING = 0
    PUTS_INTO = 1           # its action puts messages into another queue
    PUTS_UNDER = 2          # it delivers under a window that it shares with others: its target is the gate of that

cdef union content_ref_t:   # the two low bits say which
    content_t* loaded       # 0: in memory
    uintptr_t bits          # 1: a lazy source makes it on demand (lazy_content.pxd); 2: at a position in a store (writer.pxd)

cdef union link_t:
    entry_t* previous       # in a list
    uintptr_t position      # IN_RETURNED_HEAP: in its waitset's returned heap

cdef union below_t:         # what an entry leads to
    entry_t* child          # MOVED: the entry that it became
    offer_t* offer          # BOUND, OFFERED
    entry_t** delivery      # TAKEN: where its delivery remembers it; NULL: the delivery is forgotten
    uintptr_t position      # SUSPENDED: in `suspended`; QUEUED: in `parked`; counted from 1
    void* any               # NULL: it leads to nothing

cdef struct entry_t:
    uint64_t id
    uint64_t sequence        # of its entry, engine-wide
    int64_t timestamp
    content_ref_t content
    queue_t* queue
    link_t link
    entry_t* next
    void* holder             # WAITING: its waitset_t*; bound or outstanding: its selector_t*
    entry_t* parent          # the entry upstream that became this one by a MOVE and is not paid for yet
    below_t below
    uint16_t delivery_count  # at most DELIVERIES_MAX
    uint16_t hops
    uint16_t flags
    uint8_t state
    uint8_t rank             # in a queue that goes by priority: how far the message is below the highest; else 0
    extra_t* extra           # what few entries have, or NULL

cdef union moment_t:
    uint64_t quiets         # the engine's, when the delay ended that it entered with
    int64_t retry           # DELAYED by a retry, in a store that was opened again: it ends then, when the queue is released

cdef struct extra_t:        # of an entry: moments at which something happens to it, and its key             state/extra.pxd
    # what falling due touches, in one cache line
    entry_t* entry          # NULL: it is gone, and the schedule frees this when it comes to it
    int64_t due             # the moment for which it is in the schedule; NEVER: for none             state/schedule.pxd
    uint32_t scheduled      # items of the schedule that refer to this
    uint32_t body_bytes     # in a queue with a limit of bytes: what it counts for
    uint8_t kept            # KEPT_NEVER ..
    uint8_t replayable      # while it was not in its place, a replay copied it: it was taken by hand, not delayed
    uint8_t home            # taken by hand, or to be tried again after that: what it was before, HOME_WAITING ..
    uint8_t timer           # what happens at `due`: TIMER_DELAY ..
    uint8_t standing        # in its group: GROUP_NONE ..
    uint8_t logged          # whether it is routed, as its log says: LOGGED_NOTHING ..
    uint8_t keyless         # its queue goes by keys, and it has none
    uint8_t copied          # a MARK says that copies of its origin, which had to be awaited, are durable elsewhere
    int64_t expires         # it may not be handed out after that: by the message or by its queue's ttl; NEVER
    group_t* group          # of its key, in a queue that goes by keys; NULL: it is in none
    moment_t ended          # of a delay
    uint64_t came           # when it was there again after it was not in its place, in the engine's events
    # the rest
    int64_t delayed_until   # the end of the delay that it entered with; NEVER: it had none
    extra_t* before         # in the line of its group, or in the heap of its strays
    extra_t* after
    extra_t* below          # in that heap
    uint64_t left           # since when it was not in its place though it was not routed, in the engine's events; 0: it never was
    uint64_t unused[3]      # two cache lines: so the first one is whole

cdef struct group_t:        # the messages of one key in one queue                                          select/groups.pxd
    queue_t* queue
    void* key               # str, owned
    extra_t* head           # of the line: those that are ready, or delayed by a retry, by id
    extra_t* tail
    extra_t* strays         # a pairing heap by id: those of the line that came to it between others
    uint64_t count          # in the line and the heap
    uint64_t busy           # outstanding or bound

cdef struct schedule_t:     # what falls due when; all zero: nothing does                                      state/schedule.pxd
    int64_t soonest         # nothing falls due before
    uint64_t live           # how many extras are scheduled
    item_t* inbox           # items that came since
    uint64_t inbox_count
    uint64_t inbox_capacity
    item_t* front           # the next ones, the first of them last
    uint32_t front_count
    item_t limit            # no key in `front` is above this one, and none in `rest` below
    radix_t rest

cdef struct list_t:
    entry_t* head
    entry_t* tail
    uint64_t count

cdef struct page_t:
    uint64_t number         # id >> PAGE_SHIFT
    page_t* previous
    page_t* next
    page_t* lower           # its child in the tree with lower numbers
    page_t* higher          # and the one with higher numbers
    uint32_t live           # entries in it
    uint32_t rank           # no page below it in the tree has a higher one
    entry_t* slots[PAGE_SLOTS]

cdef struct index_t:
    page_t* head
    page_t* root            # of the tree: a search tree by number, a heap by rank
    page_t** table          # open addressing by page number
    uint32_t count
    uint32_t mask           # size of the table - 1
    page_t* tail            # last, so that a cache line of the queue holds it with the fields that are read together with it

cdef struct destination_t:
    void* name              # str; the engine's mapping owns it
    offer_t* head
    offer_t* tail
    uint64_t count
    uint32_t pins           # how many selectors name it, and its outlet
    bint stands             # in the line of its outlet
    outlet_t* outlet        # to which it belongs, or NULL
    destination_t* next     # in that line

cdef struct outlet_t:       # a set of destinations with one call-back                                engine/outlet.pyx
    void* handle            # Outlet
    engine_t* engine
    destination_t* head     # the line of those that have offers, or had
    destination_t* tail
    bint quiet              # nothing was offered since it was last found empty

cdef struct offer_t:
    entry_t* entry
    destination_t* destination
    uint64_t number         # of the offer, engine-wide; 0: it is withdrawn or taken
    offer_t* previous       # among all offers
    offer_t* next
    offer_t* above          # among those of its destination
    offer_t* below

cdef struct field_t:
    uint8_t kind            # FIELD_NONE .. FIELD_HEADER
    uint16_t name_bytes
    char* name              # of the header, owned

cdef struct waiter_t:           # a selector that waits for room in a queue: one item of the queue's waiting list
    selector_t* selector
    queue_t* target
    waiter_t* previous          # in the target's waiting list
    waiter_t* next
    waiter_t* next_of_selector  # the same selector's next one: a field may name many targets
    waiter_t* previous_of_selector
    waiter_t* next_in_bucket    # of the selector's table

cdef struct selector_t:
    # the first cache line: all that a copy reads
    uint64_t start              # COPY: messages from this id on are live for it
    queue_t* target             # the named target, or the gate of a shared window, or NULL
    field_t to_queue            # the field that names the target, if one does
    uint64_t copied
    bint enabled
    bint infinite
    uint32_t id
    uint8_t verb
    uint8_t role
    uint8_t puts                # PUTS_NOTHING ..
    uint8_t reined              # it has an `ahead`
    # what taking reads
    node_t ready                # in its clause's heap, for the round robin; key: its rank, then when it was last served
    uint64_t turn               # the bits of its rank in that key: lower for higher ranks       select/credit.pxd
    int64_t available
    clause_t* clause            # NULL: an overflow selector
    queue_t* source
    uint64_t served
    destination_t* destination  # the named destination of a delivery, or NULL
    list_t holding              # bound, offered and moved entries
    list_t taken                # entries that your program has
    bint holds_mixed            # bound entries may not be in order of age
    uint64_t paid
    waiter_t* waiters           # its items in waiting lists
    # the rest
    waiter_t** waiter_table     # the same by the target's slot; NULL while they are few          state/waiter_table.pxd
    uint32_t waiter_mask
    uint32_t waiter_count
    uint64_t refusals           # every lane of its clause closed up to this number has refused it      select/lanes.pyx
    field_t to_destination
    void* stamp                 # str: the destination named by a DELIVER into a queue, or NULL
    int64_t window
    uint64_t replayed           # COPY: its replay has copied the ids from here to `start`
    uint64_t began              # COPY: when it was created, or has replayed, in the engine's events
    uint64_t created            # COPY: when it was created, in the engine's events
    uint64_t joined             # the frontier then: it is in no hit set of an older message, unless that was not in its place
    uint64_t replay_due         # COPY: the id where its replay begins when it is first enabled; 0: it has none, or had it
    selector_t* next_own        # of the same source
    selector_t* previous_own
    selector_t* next_same_target
    selector_t* previous_same_target
    uint64_t dropped
    uint64_t returned
    uint64_t errors
    uint64_t ahead              # DELIVER: how many it may offer that your program has not taken; UNLIMITED
    int64_t ack_timeout         # DELIVER: what is not answered so many ns after it was taken is nacked; NEVER: no limit
    void* handle                # Selector

cdef struct lane_t:
    node_t runnable         # in the engine's heap
    clause_t* clause
    queue_t* queue
    void* target            # str, owned: the target that a field names; NULL: the selectors name theirs
    heap_t waitsets         # member_t nodes; no key is above the sequence of the waitset's oldest entry
    lane_t* next            # of the same clause
    lane_t* previous
    uint32_t members        # waitsets that belong to it
    node_t open             # in its clause's heap, if a field names its target; key: not above the sequence of its oldest entry
    uint64_t closed         # the number of its closing; 0: it is open                   select/lanes.pyx
    lane_t* closed_before   # of the same clause
    lane_t* closed_after

cdef struct member_t:       # a waitset in a lane
    node_t node             # owner: the waitset
    lane_t* lane

cdef struct waitset_t:
    queue_t* queue
    entry_t* head
    entry_t* tail
    uint64_t count          # with the entries in its returned heap
    entry_t** returned      # heap by age: entries that came back between others        state/returned_heap.pxd
    uint32_t returned_count
    uint32_t returned_capacity
    member_t** members
    uint32_t member_count
    uint32_t* slots         # parked: the slots of all the clauses that it was hit by
    uint32_t slot_count
    uint64_t late_from      # parked: the lowest id that was not in its place before it was parked; 0: none
    uint32_t place          # in a queue that goes by priority or key: twice the rank of its entries, and 1 if they are behind
    bint defaulted          # routed to the default role: default selectors may take its entries
    bint parked
    bint pinned             # a route refers to it, or it is its queue's `returning`
    void* key               # tuple, owned: by which the plan's mapping may know it; NULL in `returning`
    waitset_t* previous
    waitset_t* next

cdef struct apart_t:        # the unrouted entries of a queue that are kept apart                            select/unrouted.pxd
    uint64_t count
    uint64_t used[4]        # a bit for each rank that has some
    waitset_t levels[1]     # by rank, as many as the queue has

cdef struct clause_t:
    uint32_t slot           # its number in the plan
    uint8_t role
    bint consuming
    bint names_queue        # it consumes, and a field names the target
    heap_t ready            # consuming selectors that can take and wait for no room; root: served longest ago
    selector_t** selectors  # all, by id
    uint32_t count
    uint32_t capacity
    uint32_t enabled        # how many of them are
    uint64_t woken_from     # parked messages from this id on are to be looked at; UNLIMITED: none
    lane_t* lanes
    heap_t open             # lanes in which a credit may find a message; closed lanes are out of it
    lane_t* closed_last
    uint64_t closings       # how many of its lanes were ever closed
    void* handle            # Clause

cdef union waitsets_t:      # where the entries of a route wait; NULL until the first one waits
    waitset_t* one
    waitset_t** by_place    # in an ordered queue: for each place

cdef struct copy_t:
    selector_t* selector
    queue_t* target         # the named target, or NULL; kept here so that it is fetched together with the selector

cdef struct route_t:        # one cache line if there is one copy at most; its other arrays follow the copies
    uint32_t copy_count
    uint32_t clause_count
    uint32_t slot_count
    bint names_queue        # one of the clauses has a field that names its target
    clause_t** clauses      # the consuming ones; the slots of all clauses follow them
    waitsets_t waits
    uint64_t hash
    route_t* next           # in its bucket of the plan's table
    copy_t copies[1]        # `copy_count` of them, by id of the selector

cdef struct listed_t:       # a queue's links in one of the engine's lists
    queue_t* next
    queue_t* previous

cdef struct queue_t:        # 1,024 bytes at most: larger cells are not of a slab
    # An entering message reads one cache line: from the last page of the index to `durable`.
    void* plan               # Plan
    engine_t* engine
    void* handle             # Queue
    uint64_t frontier        # no unrouted entry has a lower id
    index_t index
    uint64_t next_id
    int64_t timestamp        # of the newest message
    uint64_t ready
    uint64_t limit           # how many may be ready now; UNLIMITED: any number                                state/limits.pxd
    uint64_t unrouted
    uint32_t slot            # its number in visited sets
    uint32_t overflown       # overflow selectors that name it as target
    uint8_t held
    uint8_t active           # has an ordinary or default selector
    uint8_t is_listed[QUEUE_LISTS]
    uint8_t durable          # has a store with a log
    uint8_t special          # SPECIAL_NOT .. : an entering message asks more of it than a plain queue
    uint8_t uncommon         # it is durable, or special: so the common case is one test
    uint8_t staged           # it keeps what is published into it as it came, until another queue adopts it
    # what a leaving message reads
    uint64_t outstanding
    uint64_t settled
    uint64_t history_limit   # UNLIMITED: none
    list_t history
    waiter_t* waiters_head   # its waiting list
    waiter_t* waiters_tail
    # the rest
    selector_t* overflow     # the enabled one
    listed_t listed[QUEUE_LISTS]
    node_t runnable          # of its waiting list, in the engine's heap
    node_t backlog           # in the engine's heap while a run has older unrouted entries to route here; owner: the next of them
    uint64_t backlog_left    # how many of them the index finds …
    uint64_t backlog_from    # … from this id on
    apart_t* apart           # or NULL
    apart_t* kept            # entries that no selector matches; or NULL
    void* dead_letter        # str or NULL
    void* rewriter           # Rewriter, of what goes there, owned; or NULL
    void* rewriter_argument  # str, owned; or NULL
    uint32_t delivery_limit  # 0: none
    uint8_t dying            # being deleted
    uint8_t auto_delete
    uint8_t short            # its waiting list has a message for which a store had no room: a smaller one may find some
    selector_t* own          # selectors that have it as source
    selector_t* sources      # selectors that name it as target
    uint32_t selectors       # how many have it as source
    uint32_t own_room        # items of its waiting list whose messages make room here when they leave
    uint32_t watched         # consuming clauses whose target a field names
    uint32_t field_copies    # copying clauses whose target a field names
    waitset_t* waitsets
    uint32_t places          # for which a route has waitsets, if it goes by priority or key; 0: it goes by age alone
    heap_t runnable_inside   # if it goes by priority: its lanes that may go on, and the waiting lists about messages of it
    node_t inside            # in the engine's heap, by the first of those
    node_t parked            # among what may go on, by the first of its parked entries that are to be routed again:
    uint64_t parked_from     # the engine's array has them from here, in their order …
    uint64_t parked_end      # … to here
    queue_t* stands_in       # whose heap `runnable_inside` its waiting list is in; NULL: it is in the engine's
    waitset_t* returning     # entries that came back and are not matched again yet
    # its store
    store_t* store           # NULL: in RAM
    queue_t* next_touched
    bint touched             # the open group gets its state
    uint32_t number          # in the store
    uint64_t incarnation     # a random number of this queue's own: one that is made anew has another
    uint64_t handed          # the highest id that was handed out
    uint64_t promised        # the log says that ids up to here may have been handed out
    uint64_t described       # position in the log of the last group that has its QUEUE record
    uint64_t stated          # position in the log of the last group that has a STATE of it
    uint64_t settled_at      # where in the open group its last SETTLE record is …
    uint64_t settled_group   # … if this is the open group
    uint64_t durable_id
    uint64_t written_id      # ids up to it are written to the store
    uint64_t frontier_safe   # the frontier that the log may state while copies in other stores are not durable
    uint64_t frontier_logged    # what the log says
    uint64_t frontier_promised  # the highest id to which a fence will let that go
    uint64_t frontier_fence     # its number: the first that this store ever pushed is 1
    uint32_t frontier_waits  # how many such copies there are
    uint32_t late_waits      # how many LATE stand behind fences for it                                       log/fences.pyx
    uint64_t late_safe       # messages from this id on may have late copies that are not durable
    uint64_t deleted
    uint64_t dropped[REASON_COUNT]
    uint64_t dead_lettered[REASON_COUNT]
    void* meta               # Map, owned; NULL: nothing was ever in it                                       log/meta.pyx
    # time, order, duplicates, bounds
    uint64_t delayed         # entries that are DELAYED
    uint64_t limit_given     # of what is ready or delayed; UNLIMITED: none
    uint64_t body_bytes      # of what is ready or delayed, if there is a limit of bytes
    uint64_t delayed_bytes   # of what is delayed
    uint64_t limit_bytes     # UNLIMITED: none
    bint drops_oldest        # when it is full
    bint drops_to_fit        # and not until its newest has room, but until it is within its limits
    void* drop_order         # what is bound, by what is dropped first; NULL: not needed                    state/drop_order.pxd
    uint8_t keeps_unmatched  # what no selector matches waits
    uint8_t transit          # it keeps nothing: what comes goes on to the targets of its selectors at once
    uint8_t has_warned       # that it dropped what no selector matches
    uint8_t has_missed       # that it dropped what was for a dead letter queue that does not exist
    uint8_t awaits_release   # its store was opened again: what falls due here waits until the queue is released …
    uint8_t has_awaiting     # … and there is such a thing; or something could not be read when it fell due, and waits for that
    uint8_t hands_unsaid     # your program took messages by hand that are not routed, and the log does not say so
    list_t by_hand           # entries that your program took without a selector
    list_t lacking           # entries that have expired and wait, delayed, for room for their dead letters
    int64_t ttl              # ns; NEVER: none
    int64_t* retry_delays    # ns, of the first delivery, the second …; NULL: none of its own
    uint32_t retry_count
    uint32_t top_priority    # 0: it does not go by priority
    field_t group_field      # names the key that orders messages; FIELD_NONE: there is none
    void* groups             # dict of str to addresses of groups, or NULL: it does not go by keys
    int64_t dedup            # ns for which a message_id is remembered; NEVER: it does not look for duplicates
    uint64_t dedup_limit     # how many are remembered at most
    void* window             # the message ids that it remembers
    uint64_t duplicates      # publishes that were one
    # staged queues                                                                                          log/adopt.pyx
    void* adoptions          # Adoptions, owned: the staged queues whose messages enter this one; NULL: there was none
    queue_t* adopter         # of a staged queue: the one that has adopted it, or NULL

cdef struct tally_t:        # what became of a message in the call that published it
    uint64_t id             # in the queue that it was published to, or of the one of which it is a duplicate; 0
    uint32_t copies         # how many queues took it, by the publish or by COPY
    uint8_t refused         # how many were full and refused it, at most TALLY_MAX
    uint8_t flags           # OUTCOME_DUPLICATE ..
    visited_t* visited      # its visited set, until the call ends

cdef struct visited_t:
    tally_t* tally          # the publisher asks what becomes of the message; NULL: most do not
    uint64_t mask           # of the slots, modulo 64: answers most look-ups
    uint32_t* slots         # of the queues entered: a list while short, then a table
    uint32_t count
    uint32_t capacity
    uint32_t references
    visited_t* next         # among the spare ones

cdef struct run_item_t:
    entry_t* entry
    visited_t* visited

cdef enum:
    FETCHED_SLOTS = 8

cdef struct fetched_t:      # a content that was read from a store
    content_t* content
    uintptr_t place         # the bits that stand for it in its entry
    queue_t* queue
    uint64_t id

cdef struct fence_t:        # a fence, or a record that the store may log once the fences before it are open
    store_t* other          # NULL: a record
    uint64_t group          # of the other store: the fence is open once that is durable
    uint64_t id
    uint64_t charge
    uint32_t queue
    uint8_t kind
    uint8_t flags

cdef enum:
    SIZE_CLASSES = 256

cdef struct store_t:        # a durable store, whose log is gathered here
    engine_t* engine
    void* handle            # Journal
    content_t* (*fetch)(entry_t* entry) except NULL  # a new reference to the content of an entry that is in the store
    void* queues            # dict of numbers to addresses of queues
    void* leaving           # dict: number of a deleted queue whose end waits behind a fence -> (its name, …): log/journal.pxd
    void* departed          # dict: name of a deleted queue -> (its number, the group of its end; 0 behind a fence)
    char* data              # the open group
    uint64_t size
    uint64_t capacity
    uint64_t position       # of the open group in the log
    uint64_t group          # its number
    uint64_t records        # in the open group
    uint64_t durable        # groups up to this number are durable
    uint64_t passed         # groups up to this number are as safe as the store's durability promises: fences for them are open
    queue_t* touched        # queues whose state the open group gets
    int64_t room            # bytes that may still be logged
    int64_t kept            # how many of them the store keeps for messages that are in it already
    bint copies_forward     # it cleans its log, for which room is kept, too
    uint64_t live           # bytes of the records of messages that are in the store
    uint32_t sizes[SIZE_CLASSES]    # how many messages are in it by the size of their record              log/room.pxd
    uint32_t size_top       # the highest class with a message in it; 0: none
    uint64_t resident       # bytes of contents in memory
    uint64_t resident_max
    fence_t* fences         # ring
    uint64_t fence_head
    uint64_t fence_count
    uint64_t fence_mask
    uint64_t fences_passed  # records and fences that left the ring, ever
    store_t* next_changed
    store_t* next           # of the engine
    uint32_t slot           # its bit in `engine.entered_stores`
    uint32_t salt
    bint is_changed         # it has something to write
    uint64_t ends           # records in the open group that end messages
    bint ends_astray        # one of them may stand before a message that it ends
    bint failed             # nothing more is written to it
    bint is_incomplete      # it has failed since there was no memory for a record
    int64_t promised        # bytes of room, to dead letters that are still to be copied into it by a transit queue
    bint leaving_engine     # it is being deleted: nothing more enters it
    uint32_t refused        # a message upstream waits for room in it: 1 + `size_top`, the highest when one was refused; 0: none
    int64_t refused_bytes   # the room that the one of those wants which wants least
    bint room_is_old        # a group was sealed, and the store has not said yet how much room there is behind it

cdef struct engine_t:
    uint64_t sequence        # of the newest entry
    uint64_t quiets          # how often a run has ended and left it quiet
    uint64_t run_start       # entries from this sequence on came since the engine was last quiet
    uint64_t room_run        # as `run_start` of the newest run that room in a store began, where that goes on with earlier ones
    uint64_t served          # how many messages selectors have taken: the clock of the round robin
    uint64_t offered         # the number of the newest offer
    uint64_t nacks           # the number of the last nack
    int64_t now              # the clock in this call, or the moment that is being done; or TIME_UNREAD
    int64_t time             # the highest that there was: what is due is judged by it, and spans are counted from it
    int64_t until            # so far a run may go on from moment to moment by itself; mostly INT64_MIN: not at all
    uint64_t events          # creations and replays of COPY selectors, and ends of delays
    uint32_t hop_limit
    uint32_t building        # `building()` blocks that are open
    int at_rest              # the state of the engine lock between calls: IDLE, or BROKEN
    bint interrupted         # the last run did not come to its end: the next one goes on with it
    uint32_t watched         # sum over the queues
    uint32_t field_copies    # sum over the queues
    queue_t* lists[QUEUE_LISTS]
    queue_t* called          # the queue that a publish last named by its handle's own str, or NULL
    void* called_name        # that str; the handle owns it
    queue_t* noted           # its selectors' waiting lists are looked at before the call ends, in a building block; or NULL
    heap_t runnable          # lanes and waiting lists that may go on, by the message in question
    heap_t backlogs          # queues, by the sequence of their next unrouted entry
    run_item_t* run_queue    # ring
    uint64_t run_queue_head
    uint64_t run_queue_count
    uint64_t run_queue_mask
    run_item_t* parked       # parked entries to be routed again, queue by queue, in their order
    uint64_t parked_done     # so many of them had their turn
    uint64_t parked_count    # with those
    uint64_t parked_capacity
    run_item_t* suspended    # entries with a visited set of this run that wait, or are not routed yet
    uint64_t suspended_count
    uint64_t suspended_capacity
    offer_t* offers_head
    offer_t* offers_tail
    uint64_t offer_count
    offer_t* spare_offers
    visited_t* spare_visited
    uint64_t entries         # how many live
    schedule_t schedule
    queue_t* replies         # to requests; NULL: there was none yet
    void* requests           # dict of message ids to the requests that wait
    void* dead_letter        # str or NULL
    void* queues             # dict of str to QueueRef
    void* destinations       # dict of str to DestinationRef
    void* nacked             # dict of an entry's address to the number of its last nack
    void* user_errors        # list of what user code raised in this call
    void* tellings           # list of those who are called back when the call is over: outlets; changes of the graph
    bint is_watched          # somebody wants to know of changes of the graph
    void* sources_to_drop   # list of owners of lazy sources that are used up; dropped at the end of the call
    store_t* stores          # durable ones
    store_t* changed_stores  # those that got something to write since the last call ended
    uint64_t entered_stores  # bits of the durable stores that the message being routed or settled has entered
    uint32_t store_count     # durable ones
    uint32_t fetched_next
    fetched_t fetched[FETCHED_SLOTS]
    queue_t* unreadable      # the queue of the message whose content could not be read, which ends the run; or NULL
    store_t* gone_store      # of the durable message that goes on by INFINITE and so ends here, or is copied; NULL: none
    uint32_t gone_queue      # the number of its queue
    uint64_t gone_id         # and its id there
    bint gone_foreign        # whether it came from another store
    bint gone_held           # whether its end, or that it was copied, waits behind fences: a crash may bring it back
    content_t* original      # what is copied, while its entry has one with a further address; mostly NULL
    bint copies_leave        # a copy of the message that is being copied goes to another store than the message is in
    store_t* wanting         # the store that had no room for dead letters, when a call raised StoreFull for that; or NULL
    int64_t wanted           # bytes that it should have had
    bint has_promised        # a store has promised room to dead letters in this run
    bint lacks_room          # a queue has such that wait for room for their dead letters
    bint store_failed        # one of the durable stores has failed, or did before it was deleted
    void* claim              # Owner that the next entry gets, or NULL
    void* owners             # dict of an entry's address to its Owner: the durable message that hears of its end
    void* handle             # Core
