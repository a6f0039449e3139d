"""The round robin: of the ready selectors that find room, the one served longest ago takes a message (rule 4).

A selector that finds no room joins the waiting list of the target (`credit.pyx`) and leaves its clause's heap. Two cases need
more. Where room depends on the message, the first selectors in the waiting lists of ROOM_VARIES are tried as well. Where the
message names the target, all ready selectors are tried in order.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort

from xump_ext.memory.heap cimport heap_root, node_t
from xump_ext.select.credit cimport can_take, has_room, may_put, waiter_oldest
from xump_ext.state.constants cimport ROOM_VARIES
from xump_ext.state.envelope cimport target_of
from xump_ext.state.graph cimport clause_t, engine_t, entry_t, queue_t, selector_t, waiter_t, waitset_t
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.returned_heap cimport order_of
from xump_ext.state.waiter_table cimport waiter_in


cdef selector_t* choose_of_waitset(engine_t* engine, waitset_t* waitset, entry_t* entry, uint64_t before) except? NULL:
    """As `choose`, among all clauses that the entries of a waitset wait for."""
    cdef clause_t* on_stack[16]
    cdef clause_t** clauses = on_stack
    cdef uint32_t i
    if waitset.member_count > 16:
        clauses = <clause_t**> malloc(waitset.member_count * sizeof(clause_t*))
        if clauses == NULL:
            raise MemoryError()
    for i in range(waitset.member_count):
        clauses[i] = waitset.members[i].lane.clause
    try:
        return choose(engine, clauses, waitset.member_count, entry, before)
    finally:
        if clauses != on_stack:
            free(clauses)


cdef selector_t* choose_with_room(engine_t* engine, clause_t* clause, entry_t* entry, uint64_t before) except? NULL:
    cdef node_t* node = heap_root(&clause.ready)
    cdef selector_t* best
    if engine.lists[ROOM_VARIES] != NULL:
        return choose(engine, &clause, 1, entry, before)
    while node != NULL and node.key < before:
        best = <selector_t*> node.owner
        if not best.puts or may_put(engine, best, entry, best.target):
            return best
        node = heap_root(&clause.ready)
    return NULL


cdef selector_t* choose(
    engine_t* engine, clause_t** clauses, uint32_t count, entry_t* entry, uint64_t before
) except? NULL:
    """The selector served longest ago, its key below `before`, that is ready and finds room; or NULL. A selector that finds none
    joins a waiting list and leaves the heap."""
    cdef selector_t* best
    cdef selector_t* head
    cdef node_t* node
    cdef uint64_t tried = 0
    cdef uint32_t i
    for i in range(count):
        if clauses[i].names_queue:
            return choose_by_field(engine, clauses, count, entry, before)
    while True:
        best = NULL
        for i in range(count):
            node = heap_root(&clauses[i].ready)
            if node != NULL and node.key < (before if best == NULL else best.ready.key):
                best = <selector_t*> node.owner
        if engine.lists[ROOM_VARIES] != NULL:
            head = head_where_room_varies(engine, clauses, count, entry, tried, before if best == NULL else best.ready.key)
            if head != NULL:
                if has_room(head.target, entry, head):
                    return head
                tried = head.ready.key
                continue
        if best == NULL or not best.puts or may_put(engine, best, entry, best.target):
            return best


cdef selector_t* head_where_room_varies(
    engine_t* engine, clause_t** clauses, uint32_t count, entry_t* entry, uint64_t after, uint64_t before
) except? NULL:
    """Of the selectors that are first in a waiting list of ROOM_VARIES, the one with the lowest key between `after` and `before`.

    It may find room for this entry, unless it waits for an older one. A selector whose target a field names is left out: it is in
    its clause's heap anyway. NULL: there is none.
    """
    cdef queue_t* queue = engine.lists[ROOM_VARIES]
    cdef selector_t* selector
    cdef selector_t* best = NULL
    while queue != NULL:
        selector = queue.waiters_head.selector
        if after < selector.ready.key < before and head_may_take(queue, clauses, count, entry):
            best = selector
            before = selector.ready.key
        queue = queue.listed[ROOM_VARIES].next
    return best


cdef bint head_may_take(queue_t* queue, clause_t** clauses, uint32_t count, entry_t* entry) except -1:
    """Whether the first selector in the waiting list is of one of these clauses, names its target, can take, and waits for no
    older message."""
    cdef selector_t* selector = queue.waiters_head.selector
    cdef entry_t* oldest
    cdef uint32_t i
    if selector.clause.names_queue or not can_take(selector):
        return False
    for i in range(count):
        if clauses[i] == selector.clause:
            oldest = waiter_oldest(queue.waiters_head)
            return oldest == NULL or order_of(oldest) >= order_of(entry)
    return False


cdef bint older_waits(const selector_t* selector, const entry_t* entry, queue_t* target) except -1:
    """Whether the selector waits for room in `target` for an older message, which goes first, whatever room there is."""
    cdef waiter_t* waiter = waiter_in(selector, target)
    cdef entry_t* oldest = NULL if waiter == NULL else waiter_oldest(waiter)
    return oldest != NULL and order_of(oldest) < order_of(entry)


cdef int by_key(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<node_t**> a)[0].key, y = (<node_t**> b)[0].key
    return (x > y) - (x < y)


cdef selector_t* choose_by_field(
    engine_t* engine, clause_t** clauses, uint32_t count, entry_t* entry, uint64_t before
) except? NULL:
    """`choose` where a field of the message names the target of some of them. Such a selector that finds no room stays in the
    heap: it may find room elsewhere. One that names its target is not in the heap while it waits; as first in a waiting list of
    ROOM_VARIES it counts all the same. Costs a sort of the ready selectors."""
    cdef selector_t* selector
    cdef queue_t* queue = engine.lists[ROOM_VARIES]
    cdef queue_t* target
    cdef uint32_t i, j, total = 0
    cdef node_t** nodes
    for i in range(count):
        total += clauses[i].ready.count
    while queue != NULL:
        total += 1
        queue = queue.listed[ROOM_VARIES].next
    nodes = <node_t**> malloc(total * sizeof(node_t*) + 1)
    if nodes == NULL:
        raise MemoryError()
    try:
        total = 0
        for i in range(count):
            for j in range(clauses[i].ready.count):
                nodes[total] = clauses[i].ready.nodes[j]
                total += 1
        queue = engine.lists[ROOM_VARIES]
        while queue != NULL:
            if head_may_take(queue, clauses, count, entry):
                nodes[total] = &queue.waiters_head.selector.ready
                total += 1
            queue = queue.listed[ROOM_VARIES].next
        qsort(nodes, total, sizeof(node_t*), by_key)
        for i in range(total):
            if nodes[i].key >= before:
                break
            selector = <selector_t*> nodes[i].owner
            if not selector.puts:
                return selector
            target = target_of(selector, content_at(entry))
            if selector.waiters != NULL and not selector.clause.names_queue:
                if has_room(target, entry, selector):
                    return selector
            elif target != NULL and not older_waits(selector, entry, target) and may_put(engine, selector, entry, target):
                return selector
        return NULL
    finally:
        free(nodes)
