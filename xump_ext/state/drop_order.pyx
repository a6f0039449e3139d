"""The drop order of a queue: its bound messages, the one that is dropped first at the root.

`drop_order.pxd` explains it.
"""

from libc.stdlib cimport calloc, free

from xump_ext.errors import InvariantError
from xump_ext.memory.grow cimport array_grow
from xump_ext.state.constants cimport BOUND
from xump_ext.state.graph cimport selector_t
from xump_ext.state.index cimport index_get

cdef enum:
    FEW = 64                # so many items are never too many


cdef inline drop_order_t* drop_order_of(const queue_t* queue) noexcept:
    return <drop_order_t*> queue.drop_order


cdef inline entry_t* bound_entry(const queue_t* queue, const drop_item_t* item) noexcept:
    """The message of an item, or NULL if the item is stale."""
    cdef entry_t* entry = index_get(&queue.index, item.id)
    return entry if entry != NULL and entry.state == BOUND else NULL


# ---- the heap

cdef void item_rise(drop_order_t* order, uint64_t at) noexcept:
    cdef drop_item_t item = order.items[at]
    cdef uint64_t above
    while at:
        above = (at - 1) >> 1
        if order.items[above].worth <= item.worth:
            break
        order.items[at] = order.items[above]
        at = above
    order.items[at] = item


cdef void item_sink(drop_order_t* order, uint64_t at) noexcept:
    cdef drop_item_t item = order.items[at]
    cdef uint64_t below
    while True:
        below = 2 * at + 1
        if below >= order.count:
            break
        if below + 1 < order.count and order.items[below + 1].worth < order.items[below].worth:
            below += 1
        if order.items[below].worth >= item.worth:
            break
        order.items[at] = order.items[below]
        at = below
    order.items[at] = item


cdef void root_remove(drop_order_t* order) noexcept:
    order.count -= 1
    order.items[0] = order.items[order.count]
    if order.count:
        item_sink(order, 0)


cdef int item_append(drop_order_t* order, const entry_t* entry) except -1:
    array_grow(<void**> &order.items, order.count, &order.capacity, sizeof(drop_item_t))
    order.items[order.count] = drop_item_t(worth_of(entry), entry.id)
    order.count += 1
    return 0


# ---- the order of a queue

cdef int order_make(queue_t* queue) except -1:
    """A heap of all that is bound now. O(those)."""
    cdef drop_order_t* order = <drop_order_t*> calloc(1, sizeof(drop_order_t))
    cdef const selector_t* selector = queue.own
    cdef const entry_t* entry
    cdef uint64_t at
    if order == NULL:
        raise MemoryError()
    queue.drop_order = order
    try:
        while selector != NULL:
            entry = selector.holding.head if selector.infinite else NULL
            while entry != NULL:
                item_append(order, entry)
                entry = entry.next
            selector = selector.next_own
    except MemoryError:
        drop_order_free(queue)
        raise
    for at in range(order.count // 2, 0, -1):
        item_sink(order, at - 1)
    return 0


cdef entry_t* drop_order_least(queue_t* queue, const entry_t* newest) except? NULL:
    cdef drop_order_t* order
    cdef entry_t* entry = NULL
    cdef drop_item_t root
    cdef bint newest_met = False
    if queue.drop_order == NULL:
        order_make(queue)
    order = drop_order_of(queue)
    while order.count:
        root = order.items[0]
        entry = bound_entry(queue, &root)
        if entry != NULL and entry != newest:
            break
        newest_met = newest_met or entry != NULL
        entry = NULL
        root_remove(order)
    if newest_met:                  # there is room: it was taken out just now
        order.items[order.count] = drop_item_t(worth_of(newest), newest.id)
        order.count += 1
        item_rise(order, order.count - 1)
    return entry


cdef int drop_order_add(queue_t* queue, const entry_t* entry) except -1:
    cdef drop_order_t* order = drop_order_of(queue)
    if order.count > 2 * queue.ready + FEW:
        drop_order_free(queue)
        return 0
    item_append(order, entry)
    item_rise(order, order.count - 1)
    return 0


cdef void drop_order_free(queue_t* queue) noexcept:
    if queue.drop_order != NULL:
        free(drop_order_of(queue).items)
        free(queue.drop_order)
    queue.drop_order = NULL


cdef int drop_order_check(const queue_t* queue) except -1:
    cdef const drop_order_t* order = drop_order_of(queue)
    cdef const selector_t* selector = queue.own
    cdef const entry_t* entry
    cdef uint64_t at
    cdef set found = set()
    if order == NULL:
        return 0
    for at in range(order.count):
        if at and order.items[(at - 1) >> 1].worth > order.items[at].worth:
            raise InvariantError("Recount: the drop order of a queue is no heap")
        entry = bound_entry(queue, &order.items[at])
        if entry != NULL and worth_of(entry) == order.items[at].worth:
            found.add(entry.id)
    while selector != NULL:
        entry = selector.holding.head if selector.infinite else NULL
        while entry != NULL:
            if entry.id not in found:
                raise InvariantError(f"Recount: the drop order of a queue lacks the bound message {entry.id}")
            entry = entry.next
        selector = selector.next_own
    return 0
