"""Sets of items in 8 bytes: what an index holds for one pattern. Nearly all have one item, a few have many.

One item stands in the struct itself. From two on they are an ascending array, a block; blocks are numbered by the index
that owns them, so that the struct stays small enough for four bytes of number. Finding an item is a binary search.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove

from xump_ext.checks cimport require
from xump_ext.hits cimport hits_add, hits_t

cdef enum:
    BLOCK_ITEMS_MIN = 4     # 16 bytes: less than the allocator's own unit

cdef struct items_t:
    uint32_t count
    uint32_t at             # the item when there is one, from two on the number of their block

cdef struct block_t:
    uint32_t* items         # NULL: the block is free
    uint32_t capacity       # of a free block: the number of the next free one, plus one

cdef struct blocks_t:
    block_t* blocks
    uint32_t count          # used and free
    uint32_t capacity
    uint32_t used
    uint32_t free           # the number of the first free one, plus one


cdef inline int items_add(blocks_t* blocks, items_t* items, uint32_t item) except -1:
    """Whether it is new. Appending an item that is greater than all others costs a step, any other a move of those behind it."""
    cdef block_t* block
    cdef uint32_t at
    if items.count == 0:
        items.at = item
        items.count = 1
        return True
    if items.count == 1:
        if items.at == item:
            return False
        at = block_new(blocks)
        blocks.blocks[at].items[0] = items.at
        items.at = at
    block = &blocks.blocks[items.at]
    at = items_place(block.items, items.count, item)
    if at < items.count and block.items[at] == item:
        return False
    if items.count == block.capacity:
        block_resize(block, block.capacity * 2)
    memmove(block.items + at + 1, block.items + at, (items.count - at) * sizeof(uint32_t))
    block.items[at] = item
    items.count += 1
    return True


cdef inline bint items_remove(blocks_t* blocks, items_t* items, uint32_t item) noexcept:
    """Whether it was there."""
    cdef block_t* block
    cdef uint32_t at
    if items.count <= 1:
        if items.count == 0 or items.at != item:
            return False
        items.count = 0
        return True
    block = &blocks.blocks[items.at]
    at = items_place(block.items, items.count, item)
    if at == items.count or block.items[at] != item:
        return False
    items.count -= 1
    memmove(block.items + at, block.items + at + 1, (items.count - at) * sizeof(uint32_t))
    if items.count == 1:
        at = items.at
        items.at = block.items[0]
        block_free(blocks, at)
    elif items.count * 4 <= block.capacity and block.capacity > BLOCK_ITEMS_MIN:
        block_shrink(block)
    return True


cdef inline int items_hit(const blocks_t* blocks, const items_t* items, hits_t* hits) except -1 nogil:
    """Appends all of them."""
    cdef uint32_t* block
    cdef uint32_t i
    if items.count == 1:
        return hits_add(hits, items.at)
    if items.count:
        block = blocks.blocks[items.at].items
        for i in range(items.count):
            hits_add(hits, block[i])
    return 0


cdef inline int items_check(const blocks_t* blocks, const items_t* items) except -1:
    cdef uint32_t i
    if items.count > 1:
        require(items.at < blocks.count and blocks.blocks[items.at].items != NULL, "items have a block of their own")
        require(items.count <= blocks.blocks[items.at].capacity, "items lie within their block")
        for i in range(1, items.count):
            require(blocks.blocks[items.at].items[i - 1] < blocks.blocks[items.at].items[i], "items ascend")
    return 0


cdef inline uint32_t items_place(const uint32_t* items, uint32_t count, uint32_t item) noexcept nogil:
    """Where the item is or would be."""
    cdef uint32_t low = 0, high = count, middle
    if item > items[count - 1]:
        return count
    while low < high:
        middle = (low + high) >> 1
        if items[middle] < item:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline int block_resize(block_t* block, uint32_t capacity) except -1:
    cdef uint32_t* items = <uint32_t*> realloc(block.items, capacity * sizeof(uint32_t))
    if items == NULL:
        raise MemoryError()
    block.items = items
    block.capacity = capacity
    return 0


cdef inline void block_shrink(block_t* block) noexcept:
    """Gives half of it back; where that is refused, the block is merely larger than needed."""
    cdef uint32_t* items = <uint32_t*> realloc(block.items, block.capacity // 2 * sizeof(uint32_t))
    if items != NULL:
        block.items = items
        block.capacity //= 2


cdef inline uint32_t block_new(blocks_t* blocks) except? 0xFFFFFFFF:
    """The number of a block with room for `BLOCK_ITEMS_MIN`."""
    cdef block_t* grown
    cdef uint32_t capacity, number
    cdef uint32_t* items
    if blocks.free == 0 and blocks.count == blocks.capacity:
        capacity = blocks.capacity * 2 if blocks.capacity else 8
        grown = <block_t*> realloc(blocks.blocks, capacity * sizeof(block_t))
        if grown == NULL:
            raise MemoryError()
        blocks.blocks = grown
        blocks.capacity = capacity
    items = <uint32_t*> malloc(BLOCK_ITEMS_MIN * sizeof(uint32_t))
    if items == NULL:
        raise MemoryError()
    if blocks.free:
        number = blocks.free - 1
        blocks.free = blocks.blocks[number].capacity
    else:
        number = blocks.count
        blocks.count += 1
    blocks.blocks[number].items = items
    blocks.blocks[number].capacity = BLOCK_ITEMS_MIN
    blocks.used += 1
    return number


cdef inline void block_free(blocks_t* blocks, uint32_t number) noexcept:
    free(blocks.blocks[number].items)
    blocks.blocks[number].items = NULL
    blocks.blocks[number].capacity = blocks.free
    blocks.free = number + 1
    blocks.used -= 1


cdef inline void blocks_free(blocks_t* blocks) noexcept:
    cdef uint32_t number
    for number in range(blocks.count):
        free(blocks.blocks[number].items)
    free(blocks.blocks)
    blocks.blocks = NULL
    blocks.count = blocks.capacity = blocks.used = blocks.free = 0


cdef inline size_t blocks_size(const blocks_t* blocks) noexcept:
    """Bytes held."""
    cdef size_t size = blocks.capacity * sizeof(block_t)
    cdef uint32_t number
    for number in range(blocks.count):
        if blocks.blocks[number].items != NULL:
            size += blocks.blocks[number].capacity * sizeof(uint32_t)
    return size
