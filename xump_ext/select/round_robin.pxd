"""Declarations of `round_robin.pyx`, and the choice among the selectors of one condition, inline."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.memory.heap cimport node_t
from xump_ext.select.credit cimport has_plain_room
from xump_ext.state.constants cimport ROOM_VARIES
from xump_ext.state.graph cimport clause_t, engine_t, entry_t, selector_t, waitset_t

# The selector that takes a message: of those in these clauses that are ready and find room, the one served longest ago, if its
# key is below `before`. NULL: there is none.
cdef selector_t* choose(
    engine_t* engine, clause_t** clauses, uint32_t count, entry_t* entry, uint64_t before
) except? NULL
cdef selector_t* choose_of_waitset(engine_t* engine, waitset_t* waitset, entry_t* entry, uint64_t before) except? NULL

# The same among the selectors of one clause, some of which put messages into queues, or where room varies.
cdef selector_t* choose_with_room(engine_t* engine, clause_t* clause, entry_t* entry, uint64_t before) except? NULL

cdef inline bint is_idle(const engine_t* engine, const clause_t* clause) noexcept:
    """Whether `choose_one` finds none, for any message."""
    return clause.ready.count == 0 and engine.lists[ROOM_VARIES] == NULL

cdef inline selector_t* choose_one(engine_t* engine, clause_t* clause, entry_t* entry, uint64_t before) except? NULL:
    """`choose` among the selectors of one clause: the common case. Short, so that it is compiled in where it is called."""
    cdef node_t* node
    if engine.lists[ROOM_VARIES] == NULL and clause.ready.count:
        node = clause.ready.nodes[0]
        if node.key < before and (not (<selector_t*> node.owner).puts or has_plain_room((<selector_t*> node.owner).target)):
            return <selector_t*> node.owner
    return choose_with_room(engine, clause, entry, before)

cdef inline selector_t* choose_waiting(engine_t* engine, entry_t* entry, uint64_t before) except? NULL:
    """`choose` for a message that waits: among the clauses in whose lanes its waitset is."""
    cdef waitset_t* waitset = <waitset_t*> entry.holder
    if waitset.member_count == 1 and not waitset.members[0].lane.clause.names_queue:
        return choose_one(engine, waitset.members[0].lane.clause, entry, before)
    return choose_of_waitset(engine, waitset, entry, before)
