"""Verifies the containers of the books (counters and links): each is whole, and has its items once.

These are names and numbers, indexes and their tables, memory, lists of entries, offers and heaps. The address in a struct is
followed only if the engine's mappings know it, or if the way there was verified. Nothing changes, and no user code is called.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t

from xump_ext.engine.handles cimport QueueHandle, SelectorHandle
from xump_ext.engine.windows cimport WindowHandle
from xump_ext.errors import InvariantError
from xump_ext.memory.slab cimport CELLS, cell_bytes, chunk_check, chunk_of, chunk_t, slab_check
from xump_ext.state.constants cimport (
    BOUND, DELAYED, DELIVER, DISCARD, FIELD_NONE, HISTORY, MOVED, OFFERED, OVERFLOW, QUEUE_LISTS, TAKEN,
)
from xump_ext.state.drop_order cimport drop_order_check
from xump_ext.state.envelope cimport DestinationRef, field_text
from xump_ext.state.graph cimport (
    PAGE_SHIFT, PAGE_SLOTS, PUTS_INTO, PUTS_NOTHING, PUTS_UNDER, destination_t, index_t, list_t, offer_t, page_t,
)
from xump_ext.state.index cimport cursor_start, cursor_step, cursor_t, page_find, page_from
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.schedule cimport schedule_check

cdef tuple LISTS = (
    "dirty queues", "queues where something came back", "waiting lists that wait for room elsewhere", "overfull queues",
)


cdef class Books:
    """An engine that is being verified."""

    def __cinit__(self, Core core):
        self.core = core
        self.e = &core.e
        self.quiet = core.e.building == 0 and not core.e.interrupted
        self.queues = set()
        self.selectors = set()
        self.sources = {}


cdef object broken(str law, str where, str what):
    return InvariantError(f"{law}: {where}: {what}")


cdef str of_queue(const queue_t* queue):
    """The queue, or the window whose gate it is."""
    if queue.plan == NULL:
        return f"window {(<WindowHandle> queue.handle).name!r}"
    return f"queue {(<QueueHandle> queue.handle).name!r}"


cdef str of_entry(const entry_t* entry):
    return f"queue {(<QueueHandle> entry.queue.handle).name!r}, message {entry.id}"


cdef str of_selector(const selector_t* selector):
    return f"selector {selector.id}"


cdef int check_structure(Books books) except -1:
    """All checks of this file, in an order in which each relies on earlier ones only."""
    cdef QueueHandle queue
    cdef SelectorHandle selector
    check_queue_names(books)
    check_selector_numbers(books)
    for which in range(QUEUE_LISTS):
        check_queue_list(books, which)
    check_sides(books)
    for queue in books.core._queues.values():
        check_pages(&queue.queue.index, queue.queue)
        check_table(&queue.queue.index, queue.queue)
        check_tree(&queue.queue.index, queue.queue)
        drop_order_check(queue.queue)
        check_list(&queue.queue.lacking, 1 << DELAYED, NULL, of_queue(queue.queue) + ", what waits for room")
        check_list(&queue.queue.by_hand, 1 << TAKEN, NULL, of_queue(queue.queue) + ", what was taken by hand")
        check_list(&queue.queue.history, 1 << HISTORY, NULL, of_queue(queue.queue) + ", its history")
    for selector in books.core._selectors.values():
        states = 1 << BOUND if selector.selector.infinite else 1 << OFFERED | 1 << MOVED
        check_list(&selector.selector.holding, states, selector.selector, of_selector(selector.selector) + ", what it holds")
        check_bound_order(selector.selector)
        check_list(&selector.selector.taken, 1 << TAKEN, selector.selector, of_selector(selector.selector) + ", what was taken")
    check_memory(books)
    check_offers(books)
    schedule_check(&books.e.schedule)
    return check_destinations(books)


cdef int check_bound_order(const selector_t* selector) except -1:
    """Bound messages are in order of age, unless the selector knows that they may not be."""
    cdef const entry_t* entry = selector.holding.head
    while selector.infinite and not selector.holds_mixed and entry != NULL:
        if entry.next != NULL and entry.next.sequence < entry.sequence:
            raise broken("Order", of_selector(selector), f"the bound message {entry.next.id} is older than the one before it")
        entry = entry.next
    return 0


# ---- names and numbers

cdef int check_queue_names(Books books) except -1:
    cdef QueueHandle handle
    cdef queue_t* queue
    slots = list(books.core.spare_slots)
    for name, handle in books.core._queues.items():
        queue = handle.queue
        where = f"queue {name!r}"
        if queue == NULL or queue.handle != <void*> handle or handle.name != name:
            raise broken("Links", where, "the mapping of names gives another queue")
        if queue.engine != books.e or queue.plan == NULL or queue.plan != <void*> handle.plan:
            raise broken("Links", where, "its engine or plan is that of another queue")
        if queue.dying:
            raise broken("Links", where, "it is being deleted, though it is still listed")
        slots.append(queue.slot)
        books.queues.add(<uintptr_t> queue)
    if (books.e.called == NULL) != (books.e.called_name == NULL) or (books.e.called != NULL and (
            <uintptr_t> books.e.called not in books.queues or
            <void*> (<QueueHandle> books.e.called.handle).name != books.e.called_name)):
        raise broken("Links", "engine", "the queue that was called last by its name is not of that name")
    if sorted(slots) != list(range(len(slots))):
        raise broken("Once", "engine", f"queues share a number, or a number was lost: {sorted(slots)}")
    return 0


cdef int action_puts(const selector_t* selector, bint shares) noexcept:
    if shares or selector.verb == DISCARD:
        return PUTS_UNDER if shares else PUTS_NOTHING
    if selector.verb == DELIVER and selector.target == NULL and selector.to_queue.kind == FIELD_NONE:
        return PUTS_NOTHING
    return PUTS_INTO


cdef int check_selector_numbers(Books books) except -1:
    cdef SelectorHandle handle
    cdef selector_t* selector
    for number, handle in books.core._selectors.items():
        selector = handle.selector
        where = f"selector {number}"
        if selector == NULL or selector.handle != <void*> handle or selector.id != number or handle.id != number:
            raise broken("Links", where, "the mapping of numbers gives another selector")
        if <uintptr_t> selector.source not in books.queues or selector.source != handle.source.queue:
            raise broken("Links", where, "its source is not a queue of this engine")
        if selector.puts == PUTS_UNDER and (handle.window is None or selector.target != &(<WindowHandle> handle.window).gate
                                            or books.core._windows.get(handle.window.name) is not handle.window):
            raise broken("Links", where, "the window that it shares is not one of this engine")
        if selector.puts != PUTS_UNDER and selector.target != NULL and <uintptr_t> selector.target not in books.queues:
            raise broken("Links", where, "its target is not a queue of this engine")
        if (selector.clause == NULL) != (selector.role == OVERFLOW):
            raise broken("Links", where, "a selector has a clause unless it is for overflow")
        if selector.puts != action_puts(selector, handle.window is not None):
            raise broken("Links", where, "its action and its flag for putting messages into queues disagree")
        books.selectors.add(<uintptr_t> selector)
    return 0


cdef int check_queue_list(Books books, int which) except -1:
    """One of the engine's lists of queues has those that say so."""
    cdef QueueHandle handle
    cdef queue_t* queue = books.e.lists[which]
    cdef queue_t* before = NULL
    name = LISTS[which]
    listed = set()
    while queue != NULL:
        if <uintptr_t> queue not in books.queues or <uintptr_t> queue in listed or queue.listed[which].previous != before:
            raise broken("Links", "engine", f"the list of {name} is not a list of its queues")
        listed.add(<uintptr_t> queue)
        before = queue
        queue = queue.listed[which].next
    for handle in books.core._queues.values():
        if handle.queue.is_listed[which] != (<uintptr_t> handle.queue in listed):
            raise broken("Links", of_queue(handle.queue), f"its flag and the list of {name} disagree")
    return 0


cdef int check_sides(Books books) except -1:
    """Every selector is counted at its source, and listed at its target."""
    cdef QueueHandle handle
    cdef SelectorHandle number
    cdef selector_t* selector
    cdef dict leaving = {}, arriving = {}, overflows = {}
    for number in books.core._selectors.values():
        selector = number.selector
        leaving[<uintptr_t> selector.source] = leaving.get(<uintptr_t> selector.source, 0) + 1
        arriving[<uintptr_t> selector.target] = arriving.get(<uintptr_t> selector.target, 0) + 1
        if selector.role == OVERFLOW and selector.enabled:
            if <uintptr_t> selector.source in overflows:
                raise broken("Once", of_queue(selector.source), f"{of_selector(selector)} is a second overflow selector")
            overflows[<uintptr_t> selector.source] = <uintptr_t> selector
    for handle in books.core._queues.values():
        address = <uintptr_t> handle.queue
        if <uintptr_t> handle.queue.overflow != overflows.get(address, 0):
            raise broken("Links", of_queue(handle.queue), "its overflow selector is not the enabled one")
        if handle.queue.selectors != leaving.get(address, 0):
            raise broken(
                "Recount", of_queue(handle.queue), f"{handle.queue.selectors} selectors, found {leaving.get(address, 0)}")
        check_lazy_sources(books, handle.queue, arriving.get(address, 0))
    return 0


cdef int check_lazy_sources(Books books, queue_t* queue, uint32_t arriving) except -1:
    """The list of selectors that name the queue as their target."""
    cdef selector_t* selector = queue.sources
    cdef uint32_t overflown = 0
    listed = set()
    while selector != NULL:
        if <uintptr_t> selector not in books.selectors or <uintptr_t> selector in listed or selector.target != queue:
            raise broken("Links", of_queue(queue), "the list of its sources is broken")
        listed.add(<uintptr_t> selector)
        overflown += selector.role == OVERFLOW
        selector = selector.next_same_target
    if len(listed) != arriving:
        raise broken("Links", of_queue(queue), f"{len(listed)} sources are listed, found {arriving}")
    if queue.overflown != overflown:
        raise broken("Recount", of_queue(queue), f"{queue.overflown} selectors overflow into it, found {overflown}")
    return 0


# ---- the index of a queue

cdef int check_pages(const index_t* index, queue_t* queue) except -1:
    """Pages are in order of id, each entry is in its slot, and each page but the last has an entry."""
    cdef page_t* page = index.head
    cdef page_t* before = NULL
    cdef uint32_t pages = 0, live
    cdef int i
    while page != NULL:
        if page.previous != before or (before != NULL and page.number <= before.number):
            raise broken("Order", of_queue(queue), f"page {page.number} of its index is out of order")
        live = 0
        for i in range(PAGE_SLOTS):
            if page.slots[i] != NULL:
                live += 1
                if page.slots[i].queue != queue or page.slots[i].id != (page.number << PAGE_SHIFT) + i:
                    raise broken("Links", of_queue(queue), f"at id {(page.number << PAGE_SHIFT) + i} its index has another entry")
        if (live == 0 and page.next != NULL) or live != page.live:
            raise broken("Recount", of_queue(queue), f"page {page.number} of its index has {page.live} entries, found {live}")
        pages += 1
        before = page
        page = page.next
    if index.tail != before or index.count != pages:
        raise broken("Recount", of_queue(queue), f"its index has {index.count} pages and a last one, found {pages}")
    return 0


cdef int check_table(const index_t* index, queue_t* queue) except -1:
    """The table finds each page by its number, and has nothing else."""
    cdef page_t* page = index.head
    cdef uint32_t i, found = 0
    if index.table == NULL:
        if index.count or index.mask:
            raise broken("Links", of_queue(queue), "its index has pages and no table")
        return 0
    if index.mask & (index.mask + 1):
        raise broken("Links", of_queue(queue), f"the table of its index has {index.mask + 1} places")
    for i in range(index.mask + 1):
        found += index.table[i] != NULL
    if found != index.count or found > index.mask:
        raise broken("Recount", of_queue(queue), f"the table of its index has {found} pages of {index.count}")
    while page != NULL:
        if page_find(index, page.number) != page:
            raise broken("Links", of_queue(queue), f"page {page.number} of its index is not found")
        page = page.next
    return 0


cdef int check_tree(const index_t* index, queue_t* queue) except -1:
    """A search in the tree finds every page; no page stands below one of lower rank; the tree has no other pages."""
    cdef page_t* page = index.head
    cdef set pages = {0}
    cdef uint64_t below = 0
    while page != NULL:
        pages.add(<uintptr_t> page)
        page = page.next
    if <uintptr_t> index.root not in pages or (index.root == NULL) != (index.head == NULL):
        raise broken("Links", of_queue(queue), "the root of its index is not one of its pages")
    page = index.head
    while page != NULL:
        for address in (<uintptr_t> page.lower, <uintptr_t> page.higher):
            if address not in pages or (address and (<page_t*> <uintptr_t> address).rank > page.rank):
                raise broken("Order", of_queue(queue), f"page {page.number} of its index stands above another one than it should")
            below += address != 0
        page = page.next
    page = index.head
    while page != NULL and below + 1 == index.count:
        if page_from(index, page.number) != page:
            raise broken("Order", of_queue(queue), f"page {page.number} of its index is not found by search")
        page = page.next
    if page != NULL:
        raise broken("Recount", of_queue(queue), f"the tree of its index has {below + 1} pages of {index.count}")
    return 0


# ---- memory

cdef int check_memory(Books books) except -1:
    """The engine counts the entries in its indexes, and they are in chunks that count them, too."""
    cdef QueueHandle handle
    cdef uint64_t entries = 0
    cdef entry_t* entry
    cdef cursor_t at
    cdef dict live = {}
    for handle in books.core._queues.values():
        at = cursor_start(handle.queue)
        entry = cursor_step(&at)
        while entry != NULL:
            entries += 1
            if CELLS:
                chunk = <uintptr_t> chunk_of(entry)
                live[chunk] = live.get(chunk, 0) + 1
            entry = cursor_step(&at)
    if books.e.entries != entries:
        raise broken("Recount", "engine", f"{books.e.entries} entries, found {entries}")
    for chunk, count in live.items():
        check_chunk(<chunk_t*> <uintptr_t> chunk, count)
    return slab_check() if CELLS else 0


cdef int check_chunk(chunk_t* chunk, uint64_t entries) except -1:
    if chunk.cell_bytes != cell_bytes(sizeof(entry_t)) or chunk.live < entries:
        raise broken("Recount", "engine", f"a chunk with {chunk.live} cells of {chunk.cell_bytes} bytes, {entries} are entries")
    return chunk_check(chunk)


# ---- lists of entries

cdef int check_list(const list_t* entries, int states, selector_t* holder, str where) except -1:
    """A list of entries is linked both ways, and every entry in it says so."""
    cdef entry_t* entry = entries.head
    cdef entry_t* before = NULL
    cdef uint64_t count = 0
    while entry != NULL:
        if entry.link.previous != before:
            raise broken("Links", where, f"message {entry.id} is not linked back")
        if not states >> entry.state & 1 or entry.holder != holder or (holder != NULL and entry.queue != holder.source):
            raise broken("Links", where, f"message {entry.id} is in this list, though its state is {entry.state}")
        count += 1
        before = entry
        entry = entry.next
    if entries.tail != before or entries.count != count:
        raise broken("Recount", where, f"counts {entries.count} messages and has a last one, found {count}")
    return 0


# ---- offers

cdef int check_offers(Books books) except -1:
    """The list of all offers, oldest first."""
    cdef offer_t* offer = books.e.offers_head
    cdef offer_t* before = NULL
    cdef uint64_t count = 0
    while offer != NULL:
        check_offer(books, offer)
        if offer.previous != before or (before != NULL and offer.number <= before.number):
            raise broken("Order", of_entry(offer.entry), "its offer is out of order")
        count += 1
        before = offer
        offer = offer.next
    if books.e.offers_tail != before or books.e.offer_count != count:
        raise broken("Recount", "engine", f"{books.e.offer_count} offers and a last one, found {count}")
    return 0


cdef int check_offer(Books books, offer_t* offer) except -1:
    cdef entry_t* entry = offer.entry
    cdef selector_t* selector
    if entry == NULL or offer != entry.below.offer or (entry.state != OFFERED and entry.state != BOUND):
        raise broken("Links", "engine", f"offer {offer.number} is of a message that is not offered")
    if offer.number == 0 or offer.number > books.e.offered:
        raise broken("Once", of_entry(entry), f"its offer {offer.number} was not issued")
    selector = <selector_t*> entry.holder
    if <uintptr_t> selector not in books.selectors:
        raise broken("Links", of_entry(entry), "it is offered, though no selector holds it")
    if selector.destination != NULL:
        named = <object> selector.destination.name
    else:
        named = field_text(&selector.to_destination, content_at(entry))
    handle = books.core.destinations.get(named)
    if handle is None or offer.destination != &(<DestinationRef> handle).destination:
        raise broken("Links", of_entry(entry), f"it is offered under another destination than {named!r}")
    return 0


cdef int check_destinations(Books books) except -1:
    cdef DestinationRef reference
    cdef SelectorHandle handle
    cdef uint64_t offers = 0
    cdef dict pins = {}
    for handle in books.core._selectors.values():
        if handle.selector.destination != NULL:
            pins[<uintptr_t> handle.selector.destination] = pins.get(<uintptr_t> handle.selector.destination, 0) + 1
    for name, reference in books.core.destinations.items():
        if reference.destination.name != <void*> name:
            raise broken("Links", f"destination {name!r}", "its name is not the one that it is known by")
        check_outlet(&reference.destination, f"destination {name!r}")
        if reference.destination.pins != pins.pop(<uintptr_t> &reference.destination, 0) + (reference.destination.outlet != NULL):
            raise broken(
                "Recount", f"destination {name!r}", f"{reference.destination.pins} selectors name it, found another number")
        if reference.destination.pins == 0 and reference.destination.count == 0:
            raise broken("Links", f"destination {name!r}", "it is still there, though no selector or offer refers to it")
        offers += check_destination(&reference.destination, f"destination {name!r}")
    if pins:
        raise broken("Links", "engine", "a selector names a destination that is not known")
    if offers != books.e.offer_count:
        raise broken("Recount", "engine", f"{books.e.offer_count} offers, but {offers} under the destinations")
    return 0


cdef int check_outlet(destination_t* destination, str where) except -1:
    """One of an outlet that has an offer stands in its line, and the outlet is not quiet."""
    cdef destination_t* at = NULL if destination.outlet == NULL else destination.outlet.head
    cdef uint32_t found = 0
    while at != NULL:
        found += at == destination
        if at.next == NULL and destination.outlet.tail != at:
            raise broken("Links", where, "the line of its outlet ends elsewhere")
        at = at.next
    if found != destination.stands or (destination.outlet != NULL and destination.count and not found):
        raise broken("Links", where, f"it stands {found} times in the line of its outlet")
    if destination.outlet != NULL and destination.count and destination.outlet.quiet:
        raise broken("Quiet", where, "it has offers, though its outlet is quiet")
    return 0


cdef uint64_t check_destination(const destination_t* destination, str where) except? 0:
    """A destination's own list of offers is in order; returns how many there are."""
    cdef offer_t* offer = destination.head
    cdef offer_t* before = NULL
    cdef uint64_t count = 0
    while offer != NULL:
        if offer.above != before or offer.destination != destination or (before != NULL and offer.number <= before.number):
            raise broken("Order", where, f"offer {offer.number} is out of order, or of another destination")
        if offer.entry == NULL or offer != offer.entry.below.offer:
            raise broken("Links", where, f"offer {offer.number} is of a message that is not offered")
        count += 1
        before = offer
        offer = offer.below
    if destination.tail != before or destination.count != count:
        raise broken("Recount", where, f"{destination.count} offers and a last one, found {count}")
    return count


# ---- heaps

cdef bint stands(const heap_t* heap, const node_t* node) noexcept:
    return 0 < node.position <= heap.count and heap.nodes[node.position - 1] == node


cdef int check_heap(const heap_t* heap, str where) except -1:
    """No key in the heap is below its parent's, and every node knows its position."""
    cdef uint32_t i
    if heap.count > heap.capacity:
        raise broken("Recount", where, f"a heap of {heap.count} nodes has room for {heap.capacity}")
    for i in range(heap.count):
        if heap.nodes[i].position != i + 1:
            raise broken("Order", where, f"the node at {i + 1} in a heap has the stored position {heap.nodes[i].position}")
        if heap.nodes[i].key < heap.nodes[(i - 1) // 2 if i else 0].key:
            raise broken("Order", where, f"in a heap {heap.nodes[i].key} stands below {heap.nodes[(i - 1) // 2].key}")
    return 0
