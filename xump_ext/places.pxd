"""The places of a selector in lines: a list, and once there are many (a field names its targets) a table by target.

The table's buckets are lists by the target's slot; it doubles when there are more places than buckets. Slots are dense, so a
place is found, and a selector leaves a line, in a few instructions.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free

from xump_ext.graph cimport place_t, queue_t, selector_t

cdef enum:
    PLACES_FEW = 8          # in a list; a power of two

cdef inline place_t* place_in(const selector_t* selector, const queue_t* target) noexcept:
    """The selector's place in the line of `target`, or NULL."""
    cdef place_t* place
    if selector.place_table == NULL:
        place = selector.places
        while place != NULL and place.target != target:
            place = place.other
    else:
        place = selector.place_table[target.slot & selector.place_mask]
        while place != NULL and place.target != target:
            place = place.beside
    return place

cdef inline void place_bucket(selector_t* selector, place_t* place) noexcept:
    cdef place_t** bucket = &selector.place_table[place.target.slot & selector.place_mask]
    place.beside = bucket[0]
    bucket[0] = place

cdef inline int place_table_double(selector_t* selector) except -1:
    cdef uint32_t size = 2 * selector.place_count
    cdef place_t** table = <place_t**> calloc(size, sizeof(place_t*))
    cdef place_t* place = selector.places
    if table == NULL:
        raise MemoryError()
    free(selector.place_table)
    selector.place_table = table
    selector.place_mask = size - 1
    while place != NULL:
        place_bucket(selector, place)
        place = place.other
    return 0

cdef inline int place_keep(selector_t* selector, place_t* place) except -1:
    """A new one. The table doubles when there are as many places as buckets."""
    if selector.place_count >= PLACES_FEW and selector.place_count > selector.place_mask:
        place_table_double(selector)
    place.other = selector.places
    if place.other != NULL:
        place.other.another = place
    selector.places = place
    selector.place_count += 1
    if selector.place_table != NULL:
        place_bucket(selector, place)
    return 0

cdef inline void place_drop(selector_t* selector, place_t* place) noexcept:
    """Not its own any more; the last one takes the table with it."""
    cdef place_t** link
    if place.another == NULL:
        selector.places = place.other
    else:
        place.another.other = place.other
    if place.other != NULL:
        place.other.another = place.another
    selector.place_count -= 1
    if selector.place_table == NULL:
        return
    link = &selector.place_table[place.target.slot & selector.place_mask]
    while link[0] != place:
        link = &link[0].beside
    link[0] = place.beside
    if selector.place_count == 0:
        free(selector.place_table)
        selector.place_table = NULL
        selector.place_mask = 0
