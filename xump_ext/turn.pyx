"""Whose turn it is (rule 4): of those who may take a message and are ready, the one served longest ago who finds room for it.

Who finds none joins the line of the target (`credit.pyx`) and is out of the heap of those who are ready. Where room depends on
the message, who stands first in such a line is looked at as well; where the message names the target, all who are ready, in turn.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort

from xump_ext.credit cimport has_room, is_able, may_put, place_oldest
from xump_ext.envelope cimport target_of
from xump_ext.graph cimport CHOOSY, clause_t, engine_t, entry_t, group_t, place_t, queue_t, selector_t
from xump_ext.heap cimport heap_root, node_t
from xump_ext.places cimport place_in
from xump_ext.source cimport content_at


cdef selector_t* choose_of_group(engine_t* engine, group_t* group, entry_t* entry, uint64_t before) except? NULL:
    cdef clause_t* few[16]
    cdef clause_t** clauses = few
    cdef uint32_t i
    if group.member_count > 16:
        clauses = <clause_t**> malloc(group.member_count * sizeof(clause_t*))
        if clauses == NULL:
            raise MemoryError()
    for i in range(group.member_count):
        clauses[i] = group.members[i].lane.clause
    try:
        return choose(engine, clauses, group.member_count, entry, before)
    finally:
        if clauses != few:
            free(clauses)


cdef selector_t* choose(
    engine_t* engine, clause_t** clauses, uint32_t count, entry_t* entry, uint64_t before
) except? NULL:
    """The one served longest ago (its key below `before`) of those who are ready and find room; who finds none joins a line and
    is out of the heap."""
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
        if engine.lists[CHOOSY] != NULL:
            head = choosy_head(engine, clauses, count, entry, tried, before if best == NULL else best.ready.key)
            if head != NULL:
                if has_room(head.target, entry, head):
                    return head
                tried = head.ready.key
                continue
        if best == NULL or not best.puts or may_put(engine, best, entry, best.target):
            return best


cdef selector_t* choosy_head(
    engine_t* engine, clause_t** clauses, uint32_t count, entry_t* entry, uint64_t after, uint64_t before
) except? NULL:
    """Who stands first in a line where room depends on the message may find room for this one, if he waits for no older one: the
    one of these whose key is the lowest between the two; NULL for none. Who has a field for his target is in the heap anyway."""
    cdef queue_t* queue = engine.lists[CHOOSY]
    cdef selector_t* selector
    cdef selector_t* best = NULL
    cdef entry_t* oldest
    cdef uint32_t i
    while queue != NULL:
        selector = queue.line_head.selector
        if after < selector.ready.key < before and not selector.clause.names_queue and is_able(selector):
            for i in range(count):
                if clauses[i] == selector.clause:
                    oldest = place_oldest(queue.line_head)
                    if oldest == NULL or oldest.sequence >= entry.sequence:
                        best = selector
                        before = selector.ready.key
        queue = queue.listed[CHOOSY].next
    return best


cdef bint older_waits(const selector_t* selector, const entry_t* entry, queue_t* target) except -1:
    """Whether the selector stands in the line of `target` for an older message: that one goes first, whatever room there is."""
    cdef place_t* place = place_in(selector, target)
    cdef entry_t* oldest = NULL if place == NULL else place_oldest(place)
    return oldest != NULL and oldest.sequence < entry.sequence


cdef int by_key(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<node_t**> a)[0].key, y = (<node_t**> b)[0].key
    return (x > y) - (x < y)


cdef selector_t* choose_by_field(
    engine_t* engine, clause_t** clauses, uint32_t count, entry_t* entry, uint64_t before
) except? NULL:
    """The same where the message names the target: a selector that is refused here may be welcome elsewhere, so it stays in the
    heap. Costs a sort of those who are ready."""
    cdef selector_t* selector
    cdef queue_t* target
    cdef uint32_t i, j, total = 0
    cdef node_t** nodes
    for i in range(count):
        total += clauses[i].ready.count
    nodes = <node_t**> malloc(total * sizeof(node_t*) + 1)
    if nodes == NULL:
        raise MemoryError()
    total = 0
    for i in range(count):
        for j in range(clauses[i].ready.count):
            nodes[total] = clauses[i].ready.nodes[j]
            total += 1
    qsort(nodes, total, sizeof(node_t*), by_key)
    try:
        for i in range(total):
            if nodes[i].key >= before:
                break
            selector = <selector_t*> nodes[i].owner
            if not selector.puts:
                return selector
            target = target_of(selector, content_at(entry))
            if target != NULL and not older_waits(selector, entry, target) and may_put(engine, selector, entry, target):
                return selector
        return NULL
    finally:
        free(nodes)
