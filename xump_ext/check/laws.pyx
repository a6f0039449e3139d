"""Verifies all laws of the engine from scratch, for `Engine.check()`.

    Conservation    entered = ready + delayed + outstanding + history + settled + dropped + deleted, for each queue
    Credit          window = available + outstanding, for each selector; selectors that can take stand ready; what selectors
                    have outstanding under a window that they share is the sum of theirs
    Order           by id a queue's sequences ascend and its timestamps do not descend; lists and heaps are in order
    Once            ids, sequences, numbers and slots are issued once
    Links           references go both ways: parents and children, lists, offers, deliveries
    Recount         every counter equals what a walk finds
    Quiet           nothing is left that could go on; inside `building()`, and after a run that was interrupted, all that could
                    go on is remembered

The containers are verified first (`structure.pyx`, `waiting.pyx`), and the laws rely on them. `journal.pyx` has the laws of
durable stores, `quiescence.pyx` the law Quiet. No check relies on the counter that it verifies. Nothing changes.

Cost: a look at everything, and each queue's conditions on all messages that wait there.
"""

from itertools import pairwise

from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.string cimport memset

from xump_ext.check.extras cimport check_extras
from xump_ext.check.journal cimport check_journal
from xump_ext.check.quiescence cimport check_quiet
from xump_ext.check.structure cimport Books, broken, check_structure, of_entry, of_queue, of_selector
from xump_ext.check.waiting cimport check_waiting
from xump_ext.engine.core cimport Core
from xump_ext.engine.handles cimport QueueHandle, SelectorHandle
from xump_ext.engine.windows cimport WindowHandle
from xump_ext.log.adopt cimport Adoptions, adoptions_of
from xump_ext.select.credit cimport TURN_SHIFT, rank_of
from xump_ext.state.constants cimport (
    APART, BOUND, COPY, DELAYED, DELIVER, DISCARD, HISTORY, IN_RETURNED_HEAP, MOVED, NACKED, OFFERED, QUEUED, REASON_COUNT,
    SUSPENDED, TAKEN, UNLIMITED, UNROUTED, WAITING,
)
from xump_ext.state.envelope cimport target_of
from xump_ext.state.graph cimport PUTS_INTO, PUTS_UNDER, entry_t, queue_t, selector_t, waitset_t
from xump_ext.state.index cimport cursor_start, cursor_step, cursor_t, index_get
from xump_ext.state.lazy_content cimport content_at, is_lazy, is_loaded, lazy_source_of, lazy_source_t
from xump_ext.state.window cimport window_check, window_t

cdef enum:
    STATES = 8

cdef struct tally_t:
    uint64_t states[STATES]
    uint64_t in_waitsets    # waiting entries, as their waitsets count them


def check_laws(Core engine not None):
    """Raise `InvariantError` if a law is broken; it says which, and where. Cost: everything."""
    engine.lock()
    try:
        check_books(Books(engine))
    finally:
        engine.unlock_now()


cdef int check_books(Books books) except -1:
    cdef QueueHandle queue
    cdef SelectorHandle selector
    check_structure(books)
    check_waiting(books)
    for queue in books.core._queues.values():
        check_entries(books, queue.queue)
        check_counts(queue.queue)
        check_staged(books, queue.queue)
        check_adoptions(books, queue.queue)
        if queue.queue.window != NULL:
            window_check(<const window_t*> queue.queue.window)
    check_lazy_sources(books)
    check_holders(books)
    check_windows(books)
    for selector in books.core._selectors.values():
        check_credit(selector.selector)
    check_nacked(books)
    check_extras(books)
    check_once(books)
    check_journal(books)
    return check_quiet(books)


cdef int check_lazy_sources(Books books) except -1:
    """Contents that are not made yet: each lazy source knows how many of its own are left."""
    for source, count in books.sources.items():
        if (<lazy_source_t*> <uintptr_t> source).left != count:
            raise broken("Recount", "a lazy source", f"{(<lazy_source_t*> <uintptr_t> source).left} entries refer to it by its "
                         f"own count, {count} do")
    return 0


# ---- Order, Links: message by message

cdef int check_entries(Books books, queue_t* queue) except -1:
    cdef cursor_t at = cursor_start(queue)
    cdef entry_t* entry = cursor_step(&at)
    cdef entry_t* before = NULL
    while entry != NULL:
        if not 0 < entry.id < queue.next_id:
            raise broken("Once", of_entry(entry), f"its id was not issued: the next is {queue.next_id}")
        if not 0 < entry.sequence <= books.e.sequence or (before != NULL and entry.sequence <= before.sequence):
            raise broken("Order", of_entry(entry), f"its sequence {entry.sequence} is not above those before it")
        if entry.timestamp > queue.timestamp or (before != NULL and entry.timestamp < before.timestamp):
            raise broken("Order", of_entry(entry), f"its timestamp {entry.timestamp} is before that of an older one, or ahead")
        if is_lazy(entry):
            if entry.state != UNROUTED:
                raise broken("Links", of_entry(entry), "it was routed, though its content was never made")
            books.sources[<uintptr_t> lazy_source_of(entry)] = books.sources.get(<uintptr_t> lazy_source_of(entry), 0) + 1
        elif is_loaded(entry) and (entry.content.loaded == NULL or entry.content.loaded.references < 1):
            raise broken("Links", of_entry(entry), "it has no content")
        check_state(books, entry)
        check_parent(books, entry)
        before = entry
        entry = cursor_step(&at)
    return 0


cdef int check_state(Books books, entry_t* entry) except -1:
    """The state of an entry fits its flags, its holder and what it became."""
    if entry.state >= STATES:
        raise broken("Links", of_entry(entry), f"its state is {entry.state}")
    if entry.flags & QUEUED or (entry.flags & SUSPENDED and (books.quiet or entry.state > WAITING)):
        raise broken("Quiet", of_entry(entry), "it is in the midst of a run")
    if entry.flags & IN_RETURNED_HEAP and entry.state != WAITING and not entry.flags & APART:
        raise broken("Links", of_entry(entry), "it is in a returned heap, though it does not wait")
    if entry.state == WAITING:
        if entry.holder == NULL or (<waitset_t*> entry.holder).queue != entry.queue:
            raise broken("Links", of_entry(entry), "it waits in a waitset of another queue")
    elif entry.state == UNROUTED or entry.state == HISTORY or entry.state == DELAYED:
        if entry.holder != NULL:
            raise broken("Links", of_entry(entry), "a selector holds it, though it waits or is settled")
    elif entry.state == TAKEN and entry.holder == NULL:         # by hand
        if entry.below.delivery != NULL and entry.below.delivery[0] != entry:
            raise broken("Links", of_entry(entry), "its delivery is of another message")
        return 0
    elif <uintptr_t> entry.holder not in books.selectors:
        raise broken("Links", of_entry(entry), "the selector that holds it is not there")
    else:
        return check_held(books, entry, <selector_t*> entry.holder)
    if entry.below.any != NULL and not entry.flags & SUSPENDED:
        raise broken("Links", of_entry(entry), "no selector holds it, though it was moved")
    return 0


cdef int check_held(Books books, entry_t* entry, selector_t* selector) except -1:
    if selector.source != entry.queue or selector.infinite != (entry.state == BOUND):
        raise broken("Credit", of_entry(entry), f"{of_selector(selector)} holds it, which has another source or kind of credit")
    if (entry.state == MOVED) != (selector.puts == PUTS_INTO) or (entry.state != MOVED and selector.verb != DELIVER):
        raise broken("Links", of_entry(entry), f"{of_selector(selector)} holds it, whose action is another (state {entry.state})")
    if entry.state == MOVED:
        return check_child(books, entry, entry.below.child, selector)
    if entry.state == TAKEN:
        if entry.below.delivery != NULL and entry.below.delivery[0] != entry:
            raise broken("Links", of_entry(entry), "its delivery is of another message")
    elif entry.below.offer == NULL or entry.below.offer.entry != entry or entry.below.offer.number == 0:
        raise broken("Links", of_entry(entry), "its offer is of another message")
    return 0


cdef int check_child(Books books, entry_t* entry, entry_t* child, selector_t* selector) except -1:
    """The child is what a MOVE made of the entry, or what INFINITE selectors downstream made of that."""
    cdef queue_t* target = target_of(selector, content_at(entry))
    if child == NULL or child.parent != entry:
        raise broken("Links", of_entry(entry), "its child is missing, or has another parent")
    if <uintptr_t> child.queue not in books.queues or index_get(&child.queue.index, child.id) != child:
        raise broken("Links", of_entry(entry), "its child is in no queue")
    if child.queue != target and child.hops < 2:
        raise broken("Links", of_entry(entry), f"its child is in {of_queue(child.queue)}, not where "
                     f"{of_selector(selector)} puts it")
    if child.sequence <= entry.sequence:
        raise broken("Order", of_entry(entry), "its child is older")
    return 0


cdef int check_parent(Books books, entry_t* entry) except -1:
    cdef entry_t* parent = entry.parent
    if parent == NULL:
        return 0
    if entry.state == HISTORY:
        raise broken("Links", of_entry(entry), "it is settled, though its parent is still outstanding")
    if <uintptr_t> parent.queue not in books.queues or index_get(&parent.queue.index, parent.id) != parent:
        raise broken("Links", of_entry(entry), "its parent is in no queue")
    if parent.state != MOVED or parent.below.child != entry:
        raise broken("Links", of_entry(entry), f"its parent, {of_entry(parent)}, has another child (state {parent.state})")
    return 0


# ---- Conservation, Recount: queue by queue

cdef int check_counts(queue_t* queue) except -1:
    cdef tally_t found = tally(queue)
    cdef uint64_t* states = found.states
    cdef uint64_t ready = states[UNROUTED] + states[WAITING] + states[BOUND]
    cdef uint64_t outstanding = states[OFFERED] + states[TAKEN] + states[MOVED]
    cdef uint64_t gone = queue.settled + queue.deleted
    cdef int reason
    check_count(queue, "unrouted", queue.unrouted, states[UNROUTED])
    check_count(queue, "ready", queue.ready, ready)
    check_count(queue, "delayed", queue.delayed, states[DELAYED])
    check_count(queue, "outstanding", queue.outstanding, outstanding)
    check_count(queue, "history", queue.history.count, states[HISTORY])
    if queue.history.count > queue.history_limit:
        raise broken("Recount", of_queue(queue), f"{queue.history.count} in its history, whose limit is {queue.history_limit}")
    if queue.transit and (queue.durable or states[WAITING] + states[BOUND] + states[OFFERED] + states[MOVED] + states[DELAYED]):
        raise broken("Recount", of_queue(queue), "a transit queue keeps messages")
    if found.in_waitsets != states[WAITING]:
        raise broken("Recount", of_queue(queue), f"{states[WAITING]} messages wait, {found.in_waitsets} of them in waitsets")
    for reason in range(REASON_COUNT):
        gone += queue.dropped[reason]
    if queue.next_id - 1 != ready + states[DELAYED] + outstanding + states[HISTORY] + gone:
        raise broken("Conservation", of_queue(queue), f"{queue.next_id - 1} entered, but {ready} are ready, {states[DELAYED]} "
                     f"delayed, {outstanding} outstanding, {states[HISTORY]} in the history and {gone} gone")
    return 0


cdef int check_staged(Books books, queue_t* queue) except -1:
    """A staged queue keeps its messages as they came."""
    if not queue.staged:
        if queue.adopter != NULL:
            raise broken("Links", of_queue(queue), "it was adopted, and is not staged")
        return 0
    if not queue.held or queue.active or queue.unrouted != queue.next_id - 1 - queue.settled - queue.deleted:
        raise broken("Recount", of_queue(queue), f"a staged queue routes, or {queue.unrouted} of its messages are unrouted")
    if queue.own != NULL or queue.sources != NULL:
        raise broken("Links", of_queue(queue), "a staged queue has selectors")
    if queue.adopter != NULL and <uintptr_t> queue.adopter not in books.queues:
        raise broken("Links", of_queue(queue), "it was adopted by a queue that is not there")
    return 0


cdef int check_adoptions(Books books, queue_t* target) except -1:
    """The staged queues that have adopted messages are those that say so, and no other."""
    cdef Adoptions adoptions = adoptions_of(target)
    cdef QueueHandle handle
    cdef set said = {handle.name for handle in books.core._queues.values() if handle.queue.adopter == target}
    cdef list found = []
    cdef uint64_t rows = 0
    for queues in adoptions.waiting if adoptions is not None else ():
        if not queues:
            raise broken("Recount", of_queue(target), "it keeps an adoption of which nothing is left")
        for handle in queues:
            if handle.queue == NULL or not handle.queue.staged or handle.queue.store != target.store or handle.queue.ready == 0:
                raise broken("Links", of_queue(target), f"it has adopted queue {handle.name!r}, which is gone, empty, not "
                             "staged, or in another store")
            found.append(handle.name)
            rows += handle.queue.ready
    if len(found) != len(said) or set(found) != said:
        raise broken("Links", of_queue(target), f"it has adopted {found}, and {sorted(said)} say so")
    if adoptions is not None and adoptions.rows != rows:
        raise broken("Recount", of_queue(target), f"{adoptions.rows} messages are entering, found {rows}")
    if adoptions is not None and (adoptions.first_id > target.next_id or (adoptions.first_id and not found)):
        raise broken("Order", of_queue(target), f"its oldest adoption began to enter at id {adoptions.first_id}, and the next "
                     f"one is {target.next_id}")
    return 0


cdef tally_t tally(queue_t* queue) noexcept:
    """Counts of a walk over the index, and over the waitsets, whose lists were verified."""
    cdef tally_t found
    cdef cursor_t at = cursor_start(queue)
    cdef entry_t* entry = cursor_step(&at)
    cdef waitset_t* waitset = queue.waitsets
    memset(&found, 0, sizeof(tally_t))
    while entry != NULL:
        found.states[entry.state] += 1
        entry = cursor_step(&at)
    while waitset != NULL:
        found.in_waitsets += waitset.count
        waitset = waitset.next
    if queue.returning != NULL:
        found.in_waitsets += queue.returning.count
    return found


cdef int check_count(queue_t* queue, str what, uint64_t counted, uint64_t found) except -1:
    if counted != found:
        raise broken("Recount", of_queue(queue), f"{what} counts {counted}, found {found}")
    return 0


cdef int check_nacked(Books books) except -1:
    """The engine knows the number of the last nack of exactly those messages that say so."""
    cdef QueueHandle handle
    cdef cursor_t at
    cdef entry_t* entry
    cdef Py_ssize_t found = 0
    for handle in books.core._queues.values():
        at = cursor_start(handle.queue)
        entry = cursor_step(&at)
        while entry != NULL:
            if entry.flags & NACKED:
                found += 1
                if not 0 < books.core.nacked.get(<uintptr_t> entry, 0) <= books.e.nacks:
                    raise broken("Links", of_entry(entry), "the number of its last nack is not known")
            entry = cursor_step(&at)
    if len(books.core.nacked) != found:
        raise broken("Recount", "engine", f"{len(books.core.nacked)} messages were nacked, found {found}")
    return 0


# ---- Credit: selector by selector

cdef int check_credit(selector_t* selector) except -1:
    """The counts of a selector fit the lists of messages that it holds. Those lists were verified, and `check_holders` compares
    them with the queue."""
    cdef uint64_t outstanding = selector.taken.count + (0 if selector.infinite else selector.holding.count)
    cdef uint64_t ended = selector.paid + selector.returned
    where = of_selector(selector)
    if selector.infinite:
        if selector.window or selector.available or outstanding or selector.returned:
            raise broken("Credit", where, f"INFINITE, and {outstanding} outstanding of a window of {selector.window}")
    elif selector.available < 0 or selector.window != selector.available + <int64_t> outstanding:
        raise broken("Credit", where, f"a window of {selector.window}, but {selector.available} available and {outstanding} "
                     "outstanding")
    elif selector.verb != DISCARD and selector.verb != COPY and selector.served != ended + outstanding:
        raise broken("Credit", where, f"{selector.served} served, but {selector.paid} paid, {selector.returned} returned and "
                     f"{outstanding} outstanding")
    if selector.source.transit and (selector.puts if selector.verb != COPY else selector.start != 0):
        raise broken("Links", of_selector(selector), "a transit queue has no such selector")
    if selector.reined != (selector.ahead != UNLIMITED) or selector.reined and selector.holding.count > selector.ahead:
        raise broken("Credit", where, f"offers {selector.holding.count}, and may offer {selector.ahead} ahead")
    if selector.verb == COPY and (selector.replayed > selector.start or selector.start > selector.source.next_id):
        raise broken("Order", where, f"starts at {selector.start}, before what it replayed or behind what will come")
    return 0


cdef int check_holders(Books books) except -1:
    """The lists of a queue's selectors together hold all messages that are bound or outstanding there."""
    cdef QueueHandle queue
    cdef SelectorHandle handle
    cdef dict held = {}
    for handle in books.core._selectors.values():
        address = <uintptr_t> handle.selector.source
        held[address] = held.get(address, 0) + handle.selector.holding.count + handle.selector.taken.count
    for queue in books.core._queues.values():
        found = tally(queue.queue)
        count = found.states[BOUND] + found.states[OFFERED] + found.states[TAKEN] + found.states[MOVED]
        listed = held.get(<uintptr_t> queue.queue, 0)
        listed += queue.queue.by_hand.count
        if listed != count:
            raise broken("Recount", of_queue(queue.queue), f"its selectors and your program hold {listed}, found {count}")
    return 0


cdef int check_windows(Books books) except -1:
    """The outstanding messages of a shared window are those of its selectors."""
    cdef WindowHandle window
    cdef SelectorHandle handle
    cdef selector_t* selector
    cdef dict outstanding = {}, shares = {}
    for handle in books.core._selectors.values():
        selector = handle.selector
        if selector.puts == PUTS_UNDER:
            address = <uintptr_t> selector.target
            outstanding[address] = outstanding.get(address, 0) + selector.holding.count + selector.taken.count
            shares[address] = shares.get(address, 0) + 1
    for window in books.core._windows.values():
        where, address = f"window {window.name!r}", <uintptr_t> &window.gate
        if window.gate.ready != outstanding.get(address, 0):
            raise broken("Credit", where, f"{window.gate.ready} outstanding, found {outstanding.get(address, 0)}")
        if window.selectors != shares.get(address, 0):
            raise broken("Recount", where, f"{window.selectors} selectors, found {shares.get(address, 0)}")
    return 0


# ---- Once

cdef int check_once(Books books) except -1:
    """Sequences, and the keys of the round robin, are issued once in the whole engine."""
    cdef QueueHandle queue
    cdef SelectorHandle handle
    cdef cursor_t at
    cdef entry_t* entry
    cdef set keys = set()
    cdef list sequences = []
    for queue in books.core._queues.values():
        at = cursor_start(queue.queue)
        entry = cursor_step(&at)
        while entry != NULL:
            sequences.append(entry.sequence)
            entry = cursor_step(&at)
    sequences.sort()
    for earlier, later in pairwise(sequences):
        if earlier == later:
            raise broken("Once", "engine", f"two messages have the sequence {later}")
    for handle in books.core._selectors.values():
        if handle.selector.ready.key in keys:
            raise broken("Once", of_selector(handle.selector), "another one was served at the same moment")
        keys.add(handle.selector.ready.key)
        if handle.selector.ready.key >> TURN_SHIFT != handle.selector.turn >> TURN_SHIFT:
            raise broken("Order", of_selector(handle.selector), f"its turn is not one of its rank, {rank_of(handle.selector)}")
    return 0
