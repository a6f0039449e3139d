"""A radix tree of items, for whoever takes them in order of their keys: it sorts only as far as the next ones need it.

    branch: 6 bits of the key ─┬─ branch: a lower 6 bits ─┬─ leaf: items in any order
                               ├─ leaf                    └─ leaf
                               └─ leaf

A key has 128 bits: `key`, then `rank`. An item is appended to the leaf that its key leads to, and stays there unsorted. Only a
leaf that has the lowest keys is divided, by the highest bits in which its items differ, when they are asked for. So an item
moves down a few times, each time in a pass over neighbours in memory, and never up: adding and taking cost O(1) whatever the
number of items and the order in which they come, and no more than one step for each six bits. A leaf that grows to `LEAF_MANY`
is divided at once, so that no later pass is long.

A leaf is a list of blocks that grow from 4 to 40 items: 24.6 bytes an item where there are many.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t, uintptr_t

cdef enum:
    DIGIT_BITS = 6
    DIGITS = 64
    BLOCK_FEW = 4           # items in the first block of a leaf …
    BLOCK_MANY = 40         # … and in a full one: 984 bytes, the largest cell that a slab has
    LEAF_MANY = 32768       # a leaf of so many, or twice as many, and so on, is divided

cdef struct item_t:
    uint64_t key
    uint64_t rank           # orders items of equal keys
    void* owner

cdef struct block_t:        # of a leaf; the first one has room, or is full
    block_t* next
    uint64_t behind         # items in the blocks behind it
    uint32_t count
    uint32_t capacity
    item_t items[1]         # `capacity` of them

cdef struct branch_t:
    uint64_t key            # of one of the items below it: all agree in the bits above its digit
    uint64_t rank
    uint64_t used           # one bit for each child that there is
    uint8_t shift           # of its digit
    bint by_rank            # its digit is of the rank: all items below it have the same key
    uintptr_t children[DIGITS]

cdef struct radix_t:
    uintptr_t root          # 0, a block_t*, or a branch_t* with BRANCH added
    uint64_t count

ctypedef bint (*keeps_t)(const item_t* item) noexcept

# Without memory they raise MemoryError: nothing was added, nothing was taken, and it can be tried again.
cdef int radix_add(radix_t* radix, const item_t* item) except -1
# Takes the first leaf, or `most` of the items in it if more are equal, and the leaves behind it as far as there is room: none of
# those that are left has a lower key. They are not sorted.
cdef int radix_take(radix_t* radix, item_t* items, int most) except -1
# Drops all that `keeps` does not keep; asked once of each. Blocks are full again behind it.
cdef void radix_filter(radix_t* radix, keeps_t keeps) noexcept
# InvariantError if counts or keys are wrong. O(n).
cdef int radix_check(const radix_t* radix) except -1

cdef inline bint is_below(const item_t* item, const item_t* other) noexcept nogil:
    return item.key < other.key or (item.key == other.key and item.rank < other.rank)
