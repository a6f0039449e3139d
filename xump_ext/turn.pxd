"""Whose turn it is: the declarations of `turn.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.credit cimport may_put
from xump_ext.graph cimport CHOOSY, clause_t, engine_t, entry_t, group_t, selector_t
from xump_ext.heap cimport heap_root, node_t

# The one served longest ago (its key below `before`) of those of these clauses who are ready and find room; NULL: nobody is.
cdef selector_t* choose(
    engine_t* engine, clause_t** clauses, uint32_t count, entry_t* entry, uint64_t before
) except? NULL
cdef selector_t* choose_of_group(engine_t* engine, group_t* group, entry_t* entry, uint64_t before) except? NULL

cdef inline selector_t* choose_one(engine_t* engine, clause_t* clause, entry_t* entry, uint64_t before) except? NULL:
    """`choose` among the selectors of one condition, which is most often all there is."""
    cdef node_t* node = heap_root(&clause.ready)
    cdef selector_t* best
    if engine.lists[CHOOSY] != NULL:
        return choose(engine, &clause, 1, entry, before)
    while node != NULL and node.key < before:
        best = <selector_t*> node.owner
        if not best.puts or may_put(engine, best, entry, best.target):
            return best
        node = heap_root(&clause.ready)
    return NULL

cdef inline selector_t* choose_waiting(engine_t* engine, entry_t* entry, uint64_t before) except? NULL:
    """Who takes a message that waits: one of those whose lanes its group stands in."""
    cdef group_t* group = <group_t*> entry.holder
    if group.member_count == 1 and not group.members[0].lane.clause.names_queue:
        return choose_one(engine, group.members[0].lane.clause, entry, before)
    return choose_of_group(engine, group, entry, before)
