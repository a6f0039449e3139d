"""Postings: the set of items that an index holds for one pattern, in 8 bytes.

Nearly all postings have one item, few have many. A single item lies in the struct itself. Two or more lie in an ascending array
of their own. The index that owns the arrays numbers them, and the struct has the number: four bytes where a pointer takes eight.
Finding an item is a binary search.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove

from xump_ext.memory.require cimport require
from xump_ext.memory.u32_vector cimport u32_vector_add, u32_vector_t

cdef enum:
    POSTINGS_MIN = 4        # 16 bytes: less than the allocator's own unit

cdef struct postings_t:
    uint32_t count
    uint32_t at             # the only item; of two or more, the number of their array

cdef struct posting_array_t:
    uint32_t* postings      # NULL: the array is free
    uint32_t capacity       # of a free array: the number of the next free one, plus one

cdef struct posting_arrays_t:
    posting_array_t* arrays
    uint32_t count          # used and free
    uint32_t capacity
    uint32_t used
    uint32_t free           # the number of the first free array, plus one; 0: none


cdef inline int postings_add(posting_arrays_t* arrays, postings_t* postings, uint32_t item) except -1:
    """Adds an item; returns whether it is new. The greatest item costs one step, any other moves those behind it."""
    cdef posting_array_t* array
    cdef uint32_t at
    if postings.count == 0:
        postings.at = item
        postings.count = 1
        return True
    if postings.count == 1:
        if postings.at == item:
            return False
        at = posting_array_new(arrays)
        arrays.arrays[at].postings[0] = postings.at
        postings.at = at
    array = &arrays.arrays[postings.at]
    at = postings_position(array.postings, postings.count, item)
    if at < postings.count and array.postings[at] == item:
        return False
    if postings.count == array.capacity:
        posting_array_resize(array, array.capacity * 2)
    memmove(array.postings + at + 1, array.postings + at, (postings.count - at) * sizeof(uint32_t))
    array.postings[at] = item
    postings.count += 1
    return True


cdef inline bint postings_remove(posting_arrays_t* arrays, postings_t* postings, uint32_t item) noexcept:
    """Removes an item; returns whether it was there."""
    cdef posting_array_t* array
    cdef uint32_t at
    if postings.count <= 1:
        if postings.count == 0 or postings.at != item:
            return False
        postings.count = 0
        return True
    array = &arrays.arrays[postings.at]
    at = postings_position(array.postings, postings.count, item)
    if at == postings.count or array.postings[at] != item:
        return False
    postings.count -= 1
    memmove(array.postings + at, array.postings + at + 1, (postings.count - at) * sizeof(uint32_t))
    if postings.count == 1:
        at = postings.at
        postings.at = array.postings[0]
        posting_array_free(arrays, at)
    elif postings.count * 4 <= array.capacity and array.capacity > POSTINGS_MIN:
        posting_array_shrink(array)
    return True


cdef inline int postings_collect(const posting_arrays_t* arrays, const postings_t* postings, u32_vector_t* hits) except -1 nogil:
    """Appends all items."""
    cdef uint32_t* array
    cdef uint32_t i
    if postings.count == 1:
        return u32_vector_add(hits, postings.at)
    if postings.count:
        array = arrays.arrays[postings.at].postings
        for i in range(postings.count):
            u32_vector_add(hits, array[i])
    return 0


cdef inline int postings_check(const posting_arrays_t* arrays, const postings_t* postings) except -1:
    cdef uint32_t i
    if postings.count > 1:
        require(postings.at < arrays.count and arrays.arrays[postings.at].postings != NULL, "items have a block of their own")
        require(postings.count <= arrays.arrays[postings.at].capacity, "items lie within their block")
        for i in range(1, postings.count):
            require(arrays.arrays[postings.at].postings[i - 1] < arrays.arrays[postings.at].postings[i], "items ascend")
    return 0


cdef inline uint32_t postings_position(const uint32_t* postings, uint32_t count, uint32_t item) noexcept nogil:
    """The position that the item has, or would have."""
    cdef uint32_t low = 0, high = count, middle
    if item > postings[count - 1]:
        return count
    while low < high:
        middle = (low + high) >> 1
        if postings[middle] < item:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline int posting_array_resize(posting_array_t* array, uint32_t capacity) except -1:
    cdef uint32_t* postings = <uint32_t*> realloc(array.postings, capacity * sizeof(uint32_t))
    if postings == NULL:
        raise MemoryError()
    array.postings = postings
    array.capacity = capacity
    return 0


cdef inline void posting_array_shrink(posting_array_t* array) noexcept:
    """Frees half of the array. If realloc fails, the array stays larger than needed."""
    cdef uint32_t* postings = <uint32_t*> realloc(array.postings, array.capacity // 2 * sizeof(uint32_t))
    if postings != NULL:
        array.postings = postings
        array.capacity //= 2


cdef inline uint32_t posting_array_new(posting_arrays_t* arrays) except? 0xFFFFFFFF:
    """The number of a new array with room for `POSTINGS_MIN` items."""
    cdef posting_array_t* grown
    cdef uint32_t capacity, number
    cdef uint32_t* postings
    if arrays.free == 0 and arrays.count == arrays.capacity:
        capacity = arrays.capacity * 2 if arrays.capacity else 8
        grown = <posting_array_t*> realloc(arrays.arrays, capacity * sizeof(posting_array_t))
        if grown == NULL:
            raise MemoryError()
        arrays.arrays = grown
        arrays.capacity = capacity
    postings = <uint32_t*> malloc(POSTINGS_MIN * sizeof(uint32_t))
    if postings == NULL:
        raise MemoryError()
    if arrays.free:
        number = arrays.free - 1
        arrays.free = arrays.arrays[number].capacity
    else:
        number = arrays.count
        arrays.count += 1
    arrays.arrays[number].postings = postings
    arrays.arrays[number].capacity = POSTINGS_MIN
    arrays.used += 1
    return number


cdef inline void posting_array_free(posting_arrays_t* arrays, uint32_t number) noexcept:
    free(arrays.arrays[number].postings)
    arrays.arrays[number].postings = NULL
    arrays.arrays[number].capacity = arrays.free
    arrays.free = number + 1
    arrays.used -= 1


cdef inline void posting_arrays_free(posting_arrays_t* arrays) noexcept:
    cdef uint32_t number
    for number in range(arrays.count):
        free(arrays.arrays[number].postings)
    free(arrays.arrays)
    arrays.arrays = NULL
    arrays.count = arrays.capacity = arrays.used = arrays.free = 0


cdef inline size_t posting_arrays_size(const posting_arrays_t* arrays) noexcept:
    """Bytes held."""
    cdef size_t size = arrays.capacity * sizeof(posting_array_t)
    cdef uint32_t number
    for number in range(arrays.count):
        if arrays.arrays[number].postings != NULL:
            size += arrays.arrays[number].capacity * sizeof(uint32_t)
    return size
