"""Declarations of `round_robin.pyx`, and the choice among the selectors of one condition, inline."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.memory.heap cimport heap_root, node_t
from xump_ext.select.credit cimport may_put
from xump_ext.state.constants cimport ROOM_VARIES
from xump_ext.state.graph cimport clause_t, engine_t, entry_t, selector_t, waitset_t

# The selector that takes a message: of those in these clauses that are ready and find room, the one served longest ago, if its
# key is below `before`. NULL: there is none.
cdef selector_t* choose(
    engine_t* engine, clause_t** clauses, uint32_t count, entry_t* entry, uint64_t before
) except? NULL
cdef selector_t* choose_of_waitset(engine_t* engine, waitset_t* waitset, entry_t* entry, uint64_t before) except? NULL

cdef inline selector_t* choose_one(engine_t* engine, clause_t* clause, entry_t* entry, uint64_t before) except? NULL:
    """`choose` among the selectors of one clause: the common case."""
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

cdef inline selector_t* choose_waiting(engine_t* engine, entry_t* entry, uint64_t before) except? NULL:
    """`choose` for a message that waits: among the clauses in whose lanes its waitset is."""
    cdef waitset_t* waitset = <waitset_t*> entry.holder
    if waitset.member_count == 1 and not waitset.members[0].lane.clause.names_queue:
        return choose_one(engine, waitset.members[0].lane.clause, entry, before)
    return choose_of_waitset(engine, waitset, entry, before)
