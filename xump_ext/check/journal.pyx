"""Verifies the books of durable stores (counters and links) from scratch.

They are kept by `log/journal.pyx`, `log/append.pyx`, `log/fences.pyx`, `log/owners.pyx` and `log/marks.pyx`. Their laws:

    Links      stores, their queues and the lists of changes to be written refer to each other; an owned entry in RAM and the
               durable message that owns it know each other
    Recount    bytes of contents in memory, bytes of live messages in the store, and records behind fences are those that a walk
               finds; the open group has as many records as it counts
    Order      records stand at their positions; only groups and ids that were issued are durable
    Once       a durable message owns one entry in RAM, and an entry has one owner; what MARKs say of a message is kept as long as
               its end waits
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t

from xump_ext.check.structure cimport broken, of_entry, of_queue
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.log.adopt cimport adoptions_of
from xump_ext.log.fences cimport LATE
from xump_ext.log.journal cimport Journal
from xump_ext.log.live_sizes cimport size_class
from xump_ext.log.marks cimport Owner
from xump_ext.log.meta cimport Map, map_length, queue_map
from xump_ext.log.owners cimport has_owner
from xump_ext.log.seen cimport seen_bytes
from xump_ext.log.writer cimport charge_of, entry_charge, made_bytes, store_queue
from xump_ext.records.kinds cimport GONE, MAGIC, MARK, RECORD_HISTORIC, SETTLE, STATE, group_record_t, head_t, seen_record_t
from xump_ext.state.constants cimport HISTORY, OWNED, SHADOW, STAINED, UNLIMITED
from xump_ext.state.graph cimport SIZE_CLASSES, entry_t, fence_t, queue_t, store_t
from xump_ext.state.index cimport cursor_start, cursor_step, cursor_t, index_get
from xump_ext.state.lazy_content cimport is_lazy, is_loaded


cdef int check_journal(Books books) except -1:
    """All checks of this file; they rely on the queues and their indexes."""
    cdef Journal journal
    cdef dict waiting = {}      # store -> charges of messages that have ended, though the log does not say so yet
    check_stores(books)
    check_queues(books)
    check_owners(books, waiting)
    for journal in books.core.journals:
        check_touched(books, &journal.store)
        check_open_group(&journal.store)
        check_fences(books, &journal.store, waiting)
        check_bytes(&journal.store, waiting.get(<uintptr_t> &journal.store, []))
    return 0


cdef str of_store(const store_t* store):
    return f"store {(<Journal> store.handle).name!r}"


# ---- stores and their queues

cdef int check_stores(Books books) except -1:
    """The engine links the stores of its journals, each once."""
    cdef Journal journal
    cdef store_t* store = books.e.stores
    cdef set known = {<uintptr_t> &(<Journal> each).store for each in books.core.journals}
    cdef set slots = set(), listed = set()
    while store != NULL:
        if <uintptr_t> store not in known or <uintptr_t> store in listed:
            raise broken("Links", "engine", "the list of its durable stores is not that of its journals")
        listed.add(<uintptr_t> store)
        slots.add(store.slot)
        store = store.next
    if listed != known or books.e.store_count != len(known):
        raise broken("Recount", "engine", f"{books.e.store_count} durable stores, {len(listed)} linked, found {len(known)}")
    if len(slots) != len(known) or (slots and max(slots) >= 64):
        raise broken("Once", "engine", f"durable stores share a number: {sorted(slots)}")
    for journal in books.core.journals:
        store = &journal.store
        if store.engine != books.e or store.handle != <void*> journal or store.queues != <void*> journal.queues:
            raise broken("Links", of_store(store), "its engine, its journal or its queues are those of another one")
    if books.e.claim != NULL:
        raise broken("Quiet", "engine", "a durable message waits for an entry in RAM that never came")
    return check_dirty(books, known)


cdef int check_dirty(Books books, set known) except -1:
    """The list of changed stores has those that say so."""
    cdef Journal journal
    cdef store_t* store = books.e.changed_stores
    cdef set listed = set()
    while store != NULL:
        if <uintptr_t> store not in known or <uintptr_t> store in listed:
            raise broken("Links", "engine", "the list of stores that have something to write is broken")
        listed.add(<uintptr_t> store)
        store = store.next_changed
    for journal in books.core.journals:
        if journal.store.is_changed != (<uintptr_t> &journal.store in listed):
            raise broken(
                "Links", of_store(&journal.store), "its flag and the list of stores that have something to write disagree")
    return 0


cdef int check_queues(Books books) except -1:
    """A durable queue is the one that its store has under its number."""
    cdef QueueHandle handle
    cdef Journal journal
    cdef queue_t* queue
    cdef set stores = {<uintptr_t> &(<Journal> each).store for each in books.core.journals}
    for journal in books.core.journals:
        for number, address in journal.queues.items():
            if address not in books.queues or (<queue_t*> <uintptr_t> address).store != &journal.store:
                raise broken("Links", of_store(&journal.store), f"its queue number {number} is not there, or of another store")
    for handle in books.core._queues.values():
        queue = handle.queue
        if queue.durable != (queue.store != NULL) or (queue.store != NULL and <uintptr_t> queue.store not in stores):
            raise broken("Links", of_queue(queue), "its store is not one of this engine's")
        if queue.uncommon != (queue.special != 0 or queue.durable):
            raise broken("Links", of_queue(queue), f"it is durable: {queue.durable}, special: {queue.special}; it says of both: "
                                                   f"{queue.uncommon}")
        if queue.durable:
            check_durable_queue(queue)
        elif queue.touched or queue.durable_id or queue.frontier_waits:
            raise broken("Links", of_queue(queue), "it is in RAM, though its log has something to do")
    return 0


cdef int check_durable_queue(queue_t* queue) except -1:
    cdef Journal journal = <Journal> queue.store.handle
    if store_queue(queue.store, queue.number) != queue or not 0 < queue.number <= journal.last_number:
        raise broken("Once", of_queue(queue), f"its number, {queue.number} of {journal.last_number}, is not its own")
    if queue.durable_id >= queue.next_id or queue.written_id >= queue.next_id:
        raise broken("Order", of_queue(queue), f"ids up to {queue.durable_id} are durable, up to {queue.written_id} written; the "
                     f"next one is {queue.next_id}")
    if queue.handed > queue.promised and not queue.touched and not queue.store.failed:
        raise broken("Order", of_queue(queue), f"ids up to {queue.handed} were handed out, and the log says {queue.promised}")
    return 0


# ---- owners

cdef int check_owners(Books books, dict waiting) except -1:
    """An entry is owned exactly if the engine knows its owner; the message that owns it is a shadow, or in no index."""
    cdef QueueHandle handle
    cdef cursor_t at
    cdef entry_t* entry
    cdef set shadows = set(), owned = set()
    for handle in books.core._queues.values():
        at = cursor_start(handle.queue)
        entry = cursor_step(&at)
        while entry != NULL:
            check_flags(entry)
            if entry.flags & OWNED:
                owned.add(<uintptr_t> entry)
            if entry.flags & SHADOW:
                shadows.add(<uintptr_t> entry)
            entry = cursor_step(&at)
    if owned != set(books.core.owners.by_entry):
        raise broken("Links", "engine", f"{len(owned)} messages in RAM are owned by a durable one, "
                     f"{len(books.core.owners.by_entry)} owners are known")
    check_shadows(books, shadows, waiting)
    if shadows:
        raise broken("Links", of_entry(<entry_t*> <uintptr_t> shadows.pop()), "it is a shadow, though it owns no entry in RAM")
    return 0


cdef int check_flags(entry_t* entry) except -1:
    cdef bint durable = entry.queue.durable
    if durable and (entry.flags & OWNED or is_lazy(entry)):
        raise broken(
            "Links", of_entry(entry), "it is durable, though its content is in Arrow columns or another durable message owns it")
    if not durable and (entry.flags & (SHADOW | STAINED) or not (is_loaded(entry) or is_lazy(entry))):
        raise broken("Links", of_entry(entry), "it is in RAM, though its flags or its content are those of a durable message")
    if entry.flags & SHADOW and entry.state != HISTORY:
        raise broken("Links", of_entry(entry), "it is a shadow, though it has not ended here")
    if entry.flags & OWNED and entry.parent != NULL and has_owner(entry.parent):
        raise broken("Once", of_entry(entry), "two durable messages own it")
    return 0


cdef int check_shadows(Books books, set shadows, dict waiting) except -1:
    """Each owner is a message of its own. Takes the shadows that own an entry out of `shadows`."""
    cdef queue_t* queue
    cdef entry_t* entry
    cdef Owner owner
    cdef set found = set()
    cdef set stores = {<uintptr_t> &(<Journal> each).store for each in books.core.journals}
    for address, owner in books.core.owners.by_entry.items():
        store, number, id, charge = <uintptr_t> owner.store, owner.queue, owner.id, owner.charge
        if store not in stores or (store, number, id) in found:
            raise broken("Once", "engine", f"message {id} of queue number {number} owns two entries, or is of no store")
        found.add((store, number, id))
        if books.core.owners.ids_of(<store_t*> <uintptr_t> store).get(number, {}).get(id) != address:
            raise broken("Links", "engine", f"message {id} of queue number {number} owns another entry than its store finds")
        queue = store_queue(<store_t*> <uintptr_t> store, number)
        if queue == NULL:
            raise broken("Links", "engine", f"message {id} of queue number {number} owns an entry, though the queue was deleted")
        entry = index_get(&queue.index, id)
        if entry == NULL:
            waiting.setdefault(store, []).append(charge)
        elif <uintptr_t> entry not in shadows:
            raise broken("Links", of_entry(entry), "it owns an entry in RAM, though it is no shadow")
        else:
            shadows.remove(<uintptr_t> entry)
    if not stores.issuperset(books.core.owners.ended):
        raise broken("Links", "engine", "what MARKs say is kept for messages of a store that there is not")
    if sum([len(ids) for queues in books.core.owners.by_message.values() for ids in queues.values()]) != len(found):
        raise broken("Links", "engine", "a store finds owners that own no entry")
    return 0


# ---- changes that are to be written

cdef int check_touched(Books books, store_t* store) except -1:
    """The list of queues whose STATE the open group gets."""
    cdef queue_t* queue = store.touched
    cdef set listed = set()
    while queue != NULL:
        if <uintptr_t> queue not in books.queues or <uintptr_t> queue in listed or queue.store != store:
            raise broken("Links", of_store(store), "the list of queues whose state is to be written is not a list of its queues")
        listed.add(<uintptr_t> queue)
        queue = queue.next_touched
    for address in (<dict> store.queues).values():
        queue = <queue_t*> <uintptr_t> address
        if queue.touched != (address in listed):
            raise broken("Links", of_queue(queue), "its flag and the list of queues whose state is to be written disagree")
    return 0


cdef int check_open_group(store_t* store) except -1:
    """The open group: its records, one behind the other."""
    cdef uint64_t at = sizeof(group_record_t), count = 0
    cdef const head_t* head
    cdef queue_t* queue
    cdef set settles = set()
    if store.failed:
        return 0            # it is never written
    if store.size < at or store.size > store.capacity or store.durable >= store.group:
        raise broken("Recount", of_store(store), f"its open group, number {store.group}, has {store.size} bytes of "
                     f"{store.capacity}; groups up to {store.durable} are durable")
    while at < store.size:
        head = <const head_t*> (store.data + at)
        if at + sizeof(head_t) > store.size or head.magic != MAGIC or head.length < sizeof(head_t) or (
                head.length > store.size - at or head.position != store.position + at):
            raise broken("Order", of_store(store), f"at byte {at} of its open group there is no record")
        if head.kind == SETTLE:
            settles.add((at, head.queue))
        count += 1
        at += head.length
    if count != store.records:
        raise broken("Recount", of_store(store), f"{store.records} records in its open group, found {count}")
    for address in (<dict> store.queues).values():
        queue = <queue_t*> <uintptr_t> address
        if queue.settled_group == store.group and (queue.settled_at, queue.number) not in settles:
            raise broken("Links", of_queue(queue), "the record of what was settled last is not in the open group")
    return 0


cdef int check_fences(Books books, store_t* store, dict waiting) except -1:
    """Records that wait for other stores are of this store's queues, and each fence is for a group that there is."""
    cdef set stores = {<uintptr_t> &(<Journal> each).store for each in books.core.journals}
    cdef dict states = {}, late = {}
    cdef set ends = set()
    cdef fence_t* fence
    cdef queue_t* queue
    cdef uint64_t i
    where = f"{of_store(store)}, what waits for others"
    if store.fence_count and (store.fences == NULL or store.fence_count > store.fence_mask + 1):
        raise broken("Recount", where, f"{store.fence_count} records and fences in {store.fence_mask + 1} places")
    for i in range(store.fence_count):
        fence = &store.fences[(store.fence_head + i) & store.fence_mask]
        if fence.other != NULL:
            if <uintptr_t> fence.other not in stores or (fence.other == store and 0 < fence.group < UNLIMITED) or (
                    fence.group > fence.other.group and fence.other != store):
                raise broken("Links", where, "a fence waits for a store or a group that does not exist")
            continue
        queue = store_queue(store, fence.queue)
        if fence.kind not in (SETTLE, MARK, STATE, GONE, LATE) or (fence.id == 0) != (fence.kind == GONE):
            raise broken("Links", where, f"a record of kind {fence.kind}, of message {fence.id}")
        if (queue == NULL) != (fence.queue in <dict> store.leaving):
            raise broken("Links", where, f"the end of queue number {fence.queue} and the list of leaving queues disagree")
        if fence.kind == SETTLE:
            waiting.setdefault(<uintptr_t> store, []).append(fence.charge)
        if fence.kind == SETTLE or (fence.kind == MARK and fence.flags & RECORD_HISTORIC):
            ends.add((fence.queue, fence.id))
        if queue == NULL:
            continue
        if fence.id > queue.next_id or (fence.kind == SETTLE and index_get(&queue.index, fence.id) != NULL):
            raise broken("Order", where, f"message {fence.id} of {of_queue(queue)} has not ended, or never was")
        if fence.kind == STATE:
            states.setdefault(fence.queue, []).append(fence.id)
        elif fence.kind == LATE:
            late.setdefault(fence.queue, []).append(fence.id)
    if not ends.issuperset(books.core.owners.ended.get(<uintptr_t> store, ())):
        raise broken("Links", where, "what MARKs say is kept for messages whose ends wait nowhere")
    for name, (number, group) in (<dict> store.departed).items():
        if (group == 0) != (number in <dict> store.leaving) or group > store.group:
            raise broken("Links", where, f"the end of queue {name!r}, number {number}, is in group {group}")
    for number, address in (<dict> store.queues).items():
        check_frontier(<queue_t*> <uintptr_t> address, states.get(number, []))
        check_late(<queue_t*> <uintptr_t> address, late.get(number, []))
    return 0


cdef int check_frontier(queue_t* queue, list ids) except -1:
    """The frontier in the log waits for copies in other stores: it may pass their messages when the copies are durable."""
    if queue.frontier_waits != len(ids):
        raise broken("Recount", of_queue(queue), f"its frontier waits for {queue.frontier_waits} copies, found {len(ids)}")
    if ids and not (0 < queue.frontier_safe <= min(ids) and queue.frontier_safe < max(ids)):
        raise broken("Order", of_queue(queue), f"its frontier is safe up to {queue.frontier_safe}, and waits for a copy of "
                     f"message {min(ids) - 1}")
    return 0


cdef int check_late(queue_t* queue, list ids) except -1:
    """The ends of messages whose late copies are not durable wait for them."""
    if queue.late_waits != len(ids):
        raise broken("Recount", of_queue(queue), f"ends in it wait for {queue.late_waits} late copies, found {len(ids)}")
    if ids and not 0 < queue.late_safe <= min(ids):
        raise broken("Order", of_queue(queue), f"it has late copies from {queue.late_safe} on, and one waits of {min(ids)}")
    return 0


cdef list map_charges(Map map):
    """Bytes of the record of a map, if it has one."""
    return [] if map is None or map.number == 0 else [charge_of(map_length(map.items))]


cdef list adoptions_charges(const queue_t* queue):
    """Bytes of the record of its adoptions, if it has one. It may name queues that are gone."""
    return [] if adoptions_of(queue) is None or adoptions_of(queue).number == 0 else [adoptions_of(queue).charge]


cdef int check_bytes(store_t* store, list waiting) except -1:
    """Bytes of contents in memory, and of messages and maps in the store. Messages count in that have ended without the log
    saying so."""
    cdef uint64_t resident = 0, live = 0
    cdef list charges = list(waiting) + map_charges((<Journal> store.handle).map)
    cdef list sizes = [0] * SIZE_CLASSES
    cdef uint32_t top = 0
    cdef cursor_t at
    cdef entry_t* entry
    for address in (<dict> store.queues).values():
        at = cursor_start(<queue_t*> <uintptr_t> address)
        entry = cursor_step(&at)
        while entry != NULL:
            if is_loaded(entry):
                resident += made_bytes(entry)
            charges.append(entry_charge(entry))
            entry = cursor_step(&at)
        charges += map_charges(queue_map(<queue_t*> <uintptr_t> address))
        charges += adoptions_charges(<queue_t*> <uintptr_t> address)
        charges += [sizeof(seen_record_t)] * (seen_bytes(<queue_t*> <uintptr_t> address) // sizeof(seen_record_t))
    for charge in charges:
        live += charge
        sizes[size_class(charge)] += 1
        top = max(top, size_class(charge))
    if store.resident != resident:
        raise broken("Recount", of_store(store), f"contents in memory count {store.resident} bytes, found {resident}")
    if store.live != live:
        raise broken("Recount", of_store(store), f"messages in it count {store.live} bytes, found {live}")
    if [store.sizes[i] for i in range(SIZE_CLASSES)] != sizes or store.size_top != top:
        raise broken("Recount", of_store(store), f"of some size it counts more or fewer messages than there are; the largest is "
                     f"of class {top}, and it counts up to {store.size_top}")
    return 0
