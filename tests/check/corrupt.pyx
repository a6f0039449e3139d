"""Where in memory the books of an engine are: tests make one field wrong at a time, and see whether `check` finds it.

Each function gives a mapping of field names to (address, bytes); "self" is the struct. Compiled by the
test that uses it; nothing here is shipped.
"""

from libc.stdint cimport uint32_t, uintptr_t

from xump_ext.engine.core cimport Core
from xump_ext.engine.handles cimport QueueHandle, SelectorHandle
from xump_ext.log.journal cimport Journal
from xump_ext.memory.slab cimport cell_bytes, cell_get, cell_put, cells, chunk_of, chunk_t
from xump_ext.select.plan cimport Plan
from xump_ext.select.waiting cimport route_slots
from xump_ext.state.constants cimport DIRTY, RETURNED, ROOM_VARIES
from xump_ext.state.envelope cimport DestinationRef
from xump_ext.state.graph cimport (
    clause_t, destination_t, engine_t, entry_t, fence_t, lane_t, member_t, offer_t, page_t, queue_t, route_t, selector_t, store_t,
    waiter_t, waitset_t,
)
from xump_ext.state.index cimport index_get


cdef tuple at(const void* address, size_t size):
    return <uintptr_t> address, size


cdef queue_t* queue_named(Core core, name):
    return (<QueueHandle> core._queues[name]).queue


cdef selector_t* selector_numbered(Core core, id):
    return (<SelectorHandle> core._selectors[id]).selector


cdef entry_t* entry_at(Core core, name, id):
    return index_get(&queue_named(core, name).index, id)


def exhaust(sizes):
    """Takes all cells of these sizes that there are, and keeps them."""
    for size in sizes:
        try:
            while True:
                cell_get(size)
        except MemoryError:
            pass


def fill_entries():
    """Takes all cells for entries out of chunks with room, so that what is made next has chunks of its own; gives the cells."""
    taken = []
    while cells.chunks[cell_bytes(sizeof(entry_t)) >> 3] != NULL:
        taken.append(<uintptr_t> cell_get(sizeof(entry_t)))
    return taken


def give_entries(taken):
    """Gives back what `fill_entries` took."""
    for cell in reversed(taken):
        cell_put(<void*> <uintptr_t> cell, sizeof(entry_t))


def engine(Core core):
    cdef engine_t* e = &core.e
    cdef chunk_t* chunk = chunk_of(entry_at(core, "idle", 1))
    return {
        "sequence": at(&e.sequence, sizeof(e.sequence)),
        "run_start": at(&e.run_start, sizeof(e.run_start)),
        "offered": at(&e.offered, sizeof(e.offered)),
        "nacks": at(&e.nacks, sizeof(e.nacks)),
        "dirty": at(&e.lists[DIRTY], sizeof(e.lists[DIRTY])),
        "field_lines": at(&e.lists[ROOM_VARIES], sizeof(e.lists[ROOM_VARIES])),
        "able.count": at(&e.runnable.count, sizeof(e.runnable.count)),
        "run_queue_count": at(&e.run_queue_count, sizeof(e.run_queue_count)),
        "backlogs.count": at(&e.backlogs.count, sizeof(e.backlogs.count)),
        "parked_count": at(&e.parked_count, sizeof(e.parked_count)),
        "offers_head": at(&e.offers_head, sizeof(e.offers_head)),
        "offers_tail": at(&e.offers_tail, sizeof(e.offers_tail)),
        "offer_count": at(&e.offer_count, sizeof(e.offer_count)),
        "chunks": at(&cells.chunks[chunk.cell_bytes >> 3], sizeof(chunk)),
        "chunk.live": at(&chunk.live, sizeof(chunk.live)),
        "chunk.fresh": at(&chunk.fresh, sizeof(chunk.fresh)),
        "chunk.listed": at(&chunk.listed, sizeof(chunk.listed)),
        "chunk.cell_bytes": at(&chunk.cell_bytes, sizeof(chunk.cell_bytes)),
        "called_name": at(&e.called_name, sizeof(e.called_name)),
        "entries": at(&e.entries, sizeof(e.entries)),
    }


def queue(Core core, name):
    cdef queue_t* q = queue_named(core, name)
    return {
        "self": at(q, 0),
        "next_id": at(&q.next_id, sizeof(q.next_id)),
        "frontier": at(&q.frontier, sizeof(q.frontier)),
        "timestamp": at(&q.timestamp, sizeof(q.timestamp)),
        "ready": at(&q.ready, sizeof(q.ready)),
        "unrouted": at(&q.unrouted, sizeof(q.unrouted)),
        "outstanding": at(&q.outstanding, sizeof(q.outstanding)),
        "history.head": at(&q.history.head, sizeof(q.history.head)),
        "history.tail": at(&q.history.tail, sizeof(q.history.tail)),
        "history.count": at(&q.history.count, sizeof(q.history.count)),
        "history_limit": at(&q.history_limit, sizeof(q.history_limit)),
        "limit": at(&q.limit, sizeof(q.limit)),
        "limit_given": at(&q.limit_given, sizeof(q.limit_given)),
        "slot": at(&q.slot, sizeof(q.slot)),
        "held": at(&q.held, sizeof(q.held)),
        "active": at(&q.active, sizeof(q.active)),
        "dying": at(&q.dying, sizeof(q.dying)),
        "waiters_head": at(&q.waiters_head, sizeof(q.waiters_head)),
        "waiters_tail": at(&q.waiters_tail, sizeof(q.waiters_tail)),
        "overflow": at(&q.overflow, sizeof(q.overflow)),
        "sources": at(&q.sources, sizeof(q.sources)),
        "selectors": at(&q.selectors, sizeof(q.selectors)),
        "dirty": at(&q.is_listed[DIRTY], sizeof(q.is_listed[DIRTY])),
        "returned": at(&q.is_listed[RETURNED], sizeof(q.is_listed[RETURNED])),
        "field_lines": at(&q.is_listed[ROOM_VARIES], sizeof(q.is_listed[ROOM_VARIES])),
        "field_lines.previous": at(&q.listed[ROOM_VARIES].previous, sizeof(q.listed[ROOM_VARIES].previous)),
        "watched": at(&q.watched, sizeof(q.watched)),
        "field_copies": at(&q.field_copies, sizeof(q.field_copies)),
        "overflown": at(&q.overflown, sizeof(q.overflown)),
        "settled": at(&q.settled, sizeof(q.settled)),
        "deleted": at(&q.deleted, sizeof(q.deleted)),
        "dropped": at(&q.dropped[0], sizeof(q.dropped[0])),
        "engine": at(&q.engine, sizeof(q.engine)),
        "waitsets": at(&q.waitsets, sizeof(q.waitsets)),
    }


def index(Core core, name):
    cdef queue_t* q = queue_named(core, name)
    cdef page_t* page = q.index.head
    cdef page_t* root = q.index.root
    cdef page_t** below = &root.lower if root.lower != NULL else &root.higher
    cdef size_t i = 0
    while q.index.table[i] == NULL:
        i += 1
    return {
        "count": at(&q.index.count, sizeof(q.index.count)),
        "tail": at(&q.index.tail, sizeof(q.index.tail)),
        "table": at(&q.index.table[i], sizeof(q.index.table[i])),
        "mask": at(&q.index.mask, sizeof(q.index.mask)),
        "number": at(&page.number, sizeof(page.number)),
        "live": at(&page.live, sizeof(page.live)),
        "previous": at(&page.next.previous, sizeof(page.next.previous)),
        "slot": at(&page.slots[1], sizeof(page.slots[1])),
        "root": at(&q.index.root, sizeof(q.index.root)),
        "root.rank": at(&root.rank, sizeof(root.rank)),
        "below": at(below, sizeof(below[0])),
    }


def page_below(Core core, name):
    """One that stands below the root of the tree."""
    cdef page_t* root = queue_named(core, name).index.root
    return {"self": at(root.lower if root.lower != NULL else root.higher, 0)}


def entry(Core core, name, id):
    cdef entry_t* e = entry_at(core, name, id)
    return {
        "self": at(e, 0),
        "id": at(&e.id, sizeof(e.id)),
        "sequence": at(&e.sequence, sizeof(e.sequence)),
        "timestamp": at(&e.timestamp, sizeof(e.timestamp)),
        "content": at(&e.content, sizeof(e.content)),
        "queue": at(&e.queue, sizeof(e.queue)),
        "link": at(&e.link, sizeof(e.link)),
        "next": at(&e.next, sizeof(e.next)),
        "holder": at(&e.holder, sizeof(e.holder)),
        "parent": at(&e.parent, sizeof(e.parent)),
        "below": at(&e.below, sizeof(e.below)),
        "state": at(&e.state, sizeof(e.state)),
        "flags": at(&e.flags, sizeof(e.flags)),
    }


def offer(Core core, name, id):
    cdef offer_t* o = entry_at(core, name, id).below.offer
    return {
        "self": at(o, 0),
        "entry": at(&o.entry, sizeof(o.entry)),
        "destination": at(&o.destination, sizeof(o.destination)),
        "number": at(&o.number, sizeof(o.number)),
        "previous": at(&o.previous, sizeof(o.previous)),
        "next": at(&o.next, sizeof(o.next)),
        "above": at(&o.above, sizeof(o.above)),
        "below": at(&o.below, sizeof(o.below)),
    }


def destination(Core core, name):
    cdef destination_t* d = &(<DestinationRef> core.destinations[name]).destination
    return {
        "head": at(&d.head, sizeof(d.head)),
        "tail": at(&d.tail, sizeof(d.tail)),
        "count": at(&d.count, sizeof(d.count)),
        "pins": at(&d.pins, sizeof(d.pins)),
    }


def selector(Core core, id):
    cdef selector_t* s = selector_numbered(core, id)
    return {
        "self": at(s, 0),
        "ready.key": at(&s.ready.key, sizeof(s.ready.key)),
        "ready.position": at(&s.ready.position, sizeof(s.ready.position)),
        "id": at(&s.id, sizeof(s.id)),
        "verb": at(&s.verb, sizeof(s.verb)),
        "role": at(&s.role, sizeof(s.role)),
        "puts": at(&s.puts, sizeof(s.puts)),
        "enabled": at(&s.enabled, sizeof(s.enabled)),
        "infinite": at(&s.infinite, sizeof(s.infinite)),
        "window": at(&s.window, sizeof(s.window)),
        "available": at(&s.available, sizeof(s.available)),
        "source": at(&s.source, sizeof(s.source)),
        "target": at(&s.target, sizeof(s.target)),
        "clause": at(&s.clause, sizeof(s.clause)),
        "destination": at(&s.destination, sizeof(s.destination)),
        "waiters": at(&s.waiters, sizeof(s.waiters)),
        "waiter_count": at(&s.waiter_count, sizeof(s.waiter_count)),
        "refusals": at(&s.refusals, sizeof(s.refusals)),
        "holding.head": at(&s.holding.head, sizeof(s.holding.head)),
        "holding.count": at(&s.holding.count, sizeof(s.holding.count)),
        "taken.tail": at(&s.taken.tail, sizeof(s.taken.tail)),
        "taken.count": at(&s.taken.count, sizeof(s.taken.count)),
        "start": at(&s.start, sizeof(s.start)),
        "served": at(&s.served, sizeof(s.served)),
        "paid": at(&s.paid, sizeof(s.paid)),
        "returned": at(&s.returned, sizeof(s.returned)),
        "next_same_target": at(&s.next_same_target, sizeof(s.next_same_target)),
    }


def waiter(Core core, id):
    """A selector in the waiting list of a queue."""
    cdef waiter_t* p = selector_numbered(core, id).waiters
    return {
        "self": at(p, 0),
        "selector": at(&p.selector, sizeof(p.selector)),
        "target": at(&p.target, sizeof(p.target)),
        "previous": at(&p.previous, sizeof(p.previous)),
        "next": at(&p.next, sizeof(p.next)),
        "next_of_selector": at(&p.next_of_selector, sizeof(p.next_of_selector)),
        "previous_of_selector": at(&p.previous_of_selector, sizeof(p.previous_of_selector)),
    }


def clause(Core core, id):
    """That of a selector, and the first lane of it."""
    cdef clause_t* c = selector_numbered(core, id).clause
    cdef lane_t* lane = c.lanes
    return {
        "slot": at(&c.slot, sizeof(c.slot)),
        "consuming": at(&c.consuming, sizeof(c.consuming)),
        "names_queue": at(&c.names_queue, sizeof(c.names_queue)),
        "count": at(&c.count, sizeof(c.count)),
        "enabled": at(&c.enabled, sizeof(c.enabled)),
        "woken_from": at(&c.woken_from, sizeof(c.woken_from)),
        "ready.count": at(&c.ready.count, sizeof(c.ready.count)),
        "lanes": at(&c.lanes, sizeof(c.lanes)),
        "open.count": at(&c.open.count, sizeof(c.open.count)),
        "closed_last": at(&c.closed_last, sizeof(c.closed_last)),
        "closings": at(&c.closings, sizeof(c.closings)),
        "lane.previous": at(&lane.previous, sizeof(lane.previous)),
        "lane.open.key": at(&lane.open.key, sizeof(lane.open.key)),
        "lane.open.position": at(&lane.open.position, sizeof(lane.open.position)),
        "lane.closed": at(&lane.closed, sizeof(lane.closed)),
        "lane.closed_before": at(&lane.closed_before, sizeof(lane.closed_before)),
        "lane.closed_after": at(&lane.closed_after, sizeof(lane.closed_after)),
        "lane.clause": at(&lane.clause, sizeof(lane.clause)),
        "lane.queue": at(&lane.queue, sizeof(lane.queue)),
        "lane.members": at(&lane.members, sizeof(lane.members)),
        "lane.waitsets.count": at(&lane.waitsets.count, sizeof(lane.waitsets.count)),
        "lane.runnable.position": at(&lane.runnable.position, sizeof(lane.runnable.position)),
    }


def waitset(Core core, name, id):
    """That in which an entry waits, and its first membership."""
    cdef waitset_t* g = <waitset_t*> entry_at(core, name, id).holder
    cdef member_t* member = g.members[0]
    return {
        "self": at(g, 0),
        "queue": at(&g.queue, sizeof(g.queue)),
        "head": at(&g.head, sizeof(g.head)),
        "tail": at(&g.tail, sizeof(g.tail)),
        "returned": at(&g.returned[0], sizeof(g.returned[0])) if g.returned_count else None,
        "returned_count": at(&g.returned_count, sizeof(g.returned_count)),
        "returned_capacity": at(&g.returned_capacity, sizeof(g.returned_capacity)),
        "count": at(&g.count, sizeof(g.count)),
        "defaulted": at(&g.defaulted, sizeof(g.defaulted)),
        "parked": at(&g.parked, sizeof(g.parked)),
        "pinned": at(&g.pinned, sizeof(g.pinned)),
        "previous": at(&g.previous, sizeof(g.previous)),
        "next": at(&g.next, sizeof(g.next)),
        "member_count": at(&g.member_count, sizeof(g.member_count)),
        "slot_count": at(&g.slot_count, sizeof(g.slot_count)),
        "node.key": at(&member.node.key, sizeof(member.node.key)),
        "node.position": at(&member.node.position, sizeof(member.node.position)),
        "node.owner": at(&member.node.owner, sizeof(member.node.owner)),
        "lane": at(&member.lane, sizeof(member.lane)),
    }


def route(Core core, name):
    """One that a queue remembers, and that messages wait with."""
    cdef Plan plan = <Plan> queue_named(core, name).plan
    cdef route_t* r = NULL
    cdef uint32_t i
    for i in range(plan.route_mask + 1):
        r = plan.routes[i]
        while r != NULL and r.waits.one == NULL:
            r = r.next
        if r != NULL:
            break
    return {
        "slots": at(route_slots(r), sizeof(uint32_t)),
        "slot_count": at(&r.slot_count, sizeof(r.slot_count)),
        "copy_count": at(&r.copy_count, sizeof(r.copy_count)),
        "clauses": at(&r.clauses[0], sizeof(r.clauses[0])),
        "names_queue": at(&r.names_queue, sizeof(r.names_queue)),
        "waitset": at(&r.waits.one, sizeof(r.waits.one)),
        "hash": at(&r.hash, sizeof(r.hash)),
        "route_count": at(&plan.route_count, sizeof(plan.route_count)),
        "known_count": at(&plan.known_count, sizeof(plan.known_count)),
    }


def durable(Core core):
    """What an engine knows of its stores."""
    cdef engine_t* e = &core.e
    return {
        "stores": at(&e.stores, sizeof(e.stores)),
        "store_count": at(&e.store_count, sizeof(e.store_count)),
        "claim": at(&e.claim, sizeof(e.claim)),
    }


def store(Core core, name):
    """That of a durable queue."""
    cdef queue_t* q = queue_named(core, name)
    cdef store_t* s = q.store
    cdef Journal journal = <Journal> s.handle
    return {
        "self": at(s, 0),
        "engine": at(&s.engine, sizeof(s.engine)),
        "slot": at(&s.slot, sizeof(s.slot)),
        "next": at(&s.next, sizeof(s.next)),
        "is_changed": at(&s.is_changed, sizeof(s.is_changed)),
        "touched": at(&s.touched, sizeof(s.touched)),
        "size": at(&s.size, sizeof(s.size)),
        "position": at(&s.position, sizeof(s.position)),
        "records": at(&s.records, sizeof(s.records)),
        "durable": at(&s.durable, sizeof(s.durable)),
        "live": at(&s.live, sizeof(s.live)),
        "size_top": at(&s.size_top, sizeof(s.size_top)),
        "resident": at(&s.resident, sizeof(s.resident)),
        "fence_count": at(&s.fence_count, sizeof(s.fence_count)),
        "fence_mask": at(&s.fence_mask, sizeof(s.fence_mask)),
        "last_number": at(&journal.last_number, sizeof(journal.last_number)),
    }


def durable_queue(Core core, name):
    cdef queue_t* q = queue_named(core, name)
    return {
        "store": at(&q.store, sizeof(q.store)),
        "durable": at(&q.durable, sizeof(q.durable)),
        "number": at(&q.number, sizeof(q.number)),
        "touched": at(&q.touched, sizeof(q.touched)),
        "next_touched": at(&q.next_touched, sizeof(q.next_touched)),
        "handed": at(&q.handed, sizeof(q.handed)),
        "settled_at": at(&q.settled_at, sizeof(q.settled_at)),
        "settled_group": at(&q.settled_group, sizeof(q.settled_group)),
        "durable_id": at(&q.durable_id, sizeof(q.durable_id)),
        "written_id": at(&q.written_id, sizeof(q.written_id)),
        "frontier_safe": at(&q.frontier_safe, sizeof(q.frontier_safe)),
        "frontier_waits": at(&q.frontier_waits, sizeof(q.frontier_waits)),
    }


def fence(Core core, name, number):
    """What waits for another store, in the store of a durable queue."""
    cdef store_t* s = queue_named(core, name).store
    cdef fence_t* f = &s.fences[(s.fence_head + <uint32_t> number) & s.fence_mask]
    return {
        "other": at(&f.other, sizeof(f.other)),
        "group": at(&f.group, sizeof(f.group)),
        "id": at(&f.id, sizeof(f.id)),
        "charge": at(&f.charge, sizeof(f.charge)),
        "queue": at(&f.queue, sizeof(f.queue)),
        "kind": at(&f.kind, sizeof(f.kind)),
    }
