"""The waiters of one selector, found by their target: a list, and a hash table once there are many.

A selector has many waiters only if a field names its targets. The table's buckets are lists by the target's slot, and it doubles
when there are more waiters than buckets. Slots are dense, so a waiter is found, and removed, in a few instructions.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free

from xump_ext.state.graph cimport queue_t, selector_t, waiter_t

cdef enum:
    WAITERS_FEW = 8          # so many are in a list alone; a power of two

cdef inline waiter_t* waiter_in(const selector_t* selector, const queue_t* target) noexcept:
    """The selector's waiter in the waiting list of `target`, or NULL."""
    cdef waiter_t* waiter
    if selector.waiter_table == NULL:
        waiter = selector.waiters
        while waiter != NULL and waiter.target != target:
            waiter = waiter.next_of_selector
    else:
        waiter = selector.waiter_table[target.slot & selector.waiter_mask]
        while waiter != NULL and waiter.target != target:
            waiter = waiter.next_in_bucket
    return waiter

cdef inline void waiter_bucket(selector_t* selector, waiter_t* waiter) noexcept:
    cdef waiter_t** bucket = &selector.waiter_table[waiter.target.slot & selector.waiter_mask]
    waiter.next_in_bucket = bucket[0]
    bucket[0] = waiter

cdef inline int waiter_table_double(selector_t* selector) except -1:
    cdef uint32_t size = 2 * selector.waiter_count
    cdef waiter_t** table = <waiter_t**> calloc(size, sizeof(waiter_t*))
    cdef waiter_t* waiter = selector.waiters
    if table == NULL:
        raise MemoryError()
    free(selector.waiter_table)
    selector.waiter_table = table
    selector.waiter_mask = size - 1
    while waiter != NULL:
        waiter_bucket(selector, waiter)
        waiter = waiter.next_of_selector
    return 0

cdef inline int waiter_add(selector_t* selector, waiter_t* waiter) except -1:
    """Adds a new waiter to the selector's; the table doubles if there are as many as buckets."""
    if selector.waiter_count >= WAITERS_FEW and selector.waiter_count > selector.waiter_mask:
        waiter_table_double(selector)
    waiter.next_of_selector = selector.waiters
    if waiter.next_of_selector != NULL:
        waiter.next_of_selector.previous_of_selector = waiter
    selector.waiters = waiter
    selector.waiter_count += 1
    if selector.waiter_table != NULL:
        waiter_bucket(selector, waiter)
    return 0

cdef inline void waiter_remove(selector_t* selector, waiter_t* waiter) noexcept:
    """Removes a waiter from the selector's; the table is freed with the last one."""
    cdef waiter_t** link
    if waiter.previous_of_selector == NULL:
        selector.waiters = waiter.next_of_selector
    else:
        waiter.previous_of_selector.next_of_selector = waiter.next_of_selector
    if waiter.next_of_selector != NULL:
        waiter.next_of_selector.previous_of_selector = waiter.previous_of_selector
    selector.waiter_count -= 1
    if selector.waiter_table == NULL:
        return
    link = &selector.waiter_table[waiter.target.slot & selector.waiter_mask]
    while link[0] != waiter:
        link = &link[0].next_in_bucket
    link[0] = waiter.next_in_bucket
    if selector.waiter_count == 0:
        free(selector.waiter_table)
        selector.waiter_table = NULL
        selector.waiter_mask = 0
