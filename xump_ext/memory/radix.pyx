"""A radix tree of items, for taking them in order of their keys: it sorts only as far as the next ones need it.

`radix.pxd` explains it.
"""

from libc.string cimport memcpy, memset

from xump_ext.errors import InvariantError
from xump_ext.memory.prefetch cimport prefetch
from xump_ext.memory.slab cimport cell_get, cell_put

cdef enum:
    BRANCH = 1              # added to the address of a branch
    DEPTH_MAX = 24          # two numbers of 64 bits, six or more bits a level

cdef extern from * nogil:
    int __builtin_clzll(unsigned long long bits)
    int __builtin_ctzll(unsigned long long bits)
    int __builtin_popcountll(unsigned long long bits)


cdef inline branch_t* branch_of(uintptr_t child) noexcept:
    return <branch_t*> (child - BRANCH)


cdef inline uint32_t digit_of(const branch_t* branch, const item_t* item) noexcept:
    return <uint32_t> (((item.rank if branch.by_rank else item.key) >> branch.shift) & (DIGITS - 1))


cdef inline bint leads_to(const branch_t* branch, const item_t* item) noexcept:
    """Whether the item agrees with all below the branch in the bits above its digit."""
    if branch.by_rank:
        return item.key == branch.key and (item.rank ^ branch.rank) >> branch.shift >> DIGIT_BITS == 0
    return (item.key ^ branch.key) >> branch.shift >> DIGIT_BITS == 0


cdef inline int digit_shift(uint64_t difference) noexcept:
    """Where a digit lies whose highest bit is the highest one in which keys differ."""
    return max(63 - __builtin_clzll(difference) - (DIGIT_BITS - 1), 0)


# ---- blocks and leaves

cdef inline size_t block_bytes(uint32_t capacity) noexcept:
    return sizeof(block_t) + (capacity - 1) * sizeof(item_t)


cdef inline void block_free(block_t* block) noexcept:
    cell_put(block, block_bytes(block.capacity))


cdef int block_push(uintptr_t* place) except -1:
    """A new first block for a leaf that is full, or not there yet."""
    cdef block_t* first = <block_t*> place[0]
    cdef uint32_t capacity = BLOCK_FEW if first == NULL else min(first.capacity * 4, BLOCK_MANY)
    cdef block_t* block = <block_t*> cell_get(block_bytes(capacity))
    block.next = first
    block.behind = 0 if first == NULL else first.behind + first.count
    block.count = 0
    block.capacity = capacity
    place[0] = <uintptr_t> block
    return 0


cdef inline int leaf_add(uintptr_t* place, const item_t* item) except -1:
    cdef block_t* block = <block_t*> place[0]
    if block == NULL or block.count == block.capacity:
        block_push(place)
        block = <block_t*> place[0]
    block.items[block.count] = item[0]
    block.count += 1
    return 0


cdef inline uint64_t leaf_count(uintptr_t leaf) noexcept:
    return (<block_t*> leaf).behind + (<block_t*> leaf).count


cdef block_t* joined(block_t* front, block_t* back) noexcept:
    """The blocks of `front`, then those of `back`."""
    cdef block_t* block = front
    if front == NULL or back == NULL:
        return back if front == NULL else front
    while True:
        block.behind += back.behind + back.count
        if block.next == NULL:
            block.next = back
            return front
        block = block.next


# ---- branches

cdef branch_t* branch_new(const item_t* item, bint by_rank, int shift) except NULL:
    cdef branch_t* branch = <branch_t*> cell_get(sizeof(branch_t))
    memset(branch, 0, sizeof(branch_t))
    branch.key = item.key
    branch.rank = item.rank
    branch.by_rank = by_rank
    branch.shift = <uint8_t> shift
    return branch


cdef branch_t* branch_above(uintptr_t* place, const item_t* item) except NULL:
    """A branch in the place of one to which the item's key does not lead, above that."""
    cdef branch_t* below = branch_of(place[0])
    cdef branch_t* above
    cdef item_t old = item_t(below.key, below.rank, NULL)
    cdef bint by_rank = item.key == below.key
    cdef int shift = digit_shift(item.rank ^ below.rank if by_rank else item.key ^ below.key)
    if by_rank == below.by_rank:        # the digits must not overlap
        shift = max(shift, below.shift + DIGIT_BITS)
    above = branch_new(item, by_rank, shift)
    above.children[digit_of(above, &old)] = place[0]
    above.used = <uint64_t> 1 << digit_of(above, &old)
    place[0] = <uintptr_t> above + BRANCH
    return above


cdef branch_t* branch_for(block_t* leaf) except? NULL:
    """An empty branch that divides the items of the leaf; NULL: all keys are equal."""
    cdef block_t* block = leaf
    cdef item_t* first = &leaf.items[0]
    cdef uint64_t key = 0, rank = 0
    cdef uint32_t i
    while block != NULL:
        prefetch(block.next)
        for i in range(block.count):
            key |= block.items[i].key ^ first.key
            rank |= block.items[i].rank ^ first.rank
        block = block.next
    if key:
        return branch_new(first, False, digit_shift(key))
    return branch_new(first, True, digit_shift(rank)) if rank else NULL


cdef bint leaf_divide(uintptr_t* place) except -1:
    """Puts a branch in the place of a leaf, and its items below that. False: all keys are equal."""
    cdef block_t* left = <block_t*> place[0]
    cdef block_t* block
    cdef branch_t* branch = branch_for(left)
    cdef item_t* item
    if branch == NULL:
        return False
    try:
        while left != NULL:
            prefetch(left.next)
            while left.count:
                item = &left.items[left.count - 1]
                leaf_add(&branch.children[digit_of(branch, item)], item)
                left.count -= 1
            block = left
            left = block.next
            block_free(block)
    except MemoryError:                 # it is one leaf again, and no item was lost
        undivided(place, branch, left)
        raise
    for digit in range(DIGITS):
        branch.used |= <uint64_t> (branch.children[digit] != 0) << digit
    place[0] = <uintptr_t> branch + BRANCH
    return True


cdef void undivided(uintptr_t* place, branch_t* branch, block_t* left) noexcept:
    for digit in range(DIGITS):
        left = joined(<block_t*> branch.children[digit], left)
    place[0] = <uintptr_t> left
    cell_put(branch, sizeof(branch_t))


# ---- the tree

cdef int radix_add(radix_t* radix, const item_t* item) except -1:
    cdef uintptr_t* place = &radix.root
    cdef branch_t* branch = NULL
    cdef uint32_t digit = 0
    cdef uint64_t count
    while place[0]:
        if place[0] & BRANCH:
            branch = branch_of(place[0])
            if not leads_to(branch, item):
                branch = branch_above(place, item)
            digit = digit_of(branch, item)
            place = &branch.children[digit]
            continue
        count = leaf_count(place[0])
        if count < LEAF_MANY or count & (count - 1) or not leaf_divide(place):
            break
    leaf_add(place, item)
    if branch != NULL:
        branch.used |= <uint64_t> 1 << digit
    radix.count += 1
    return 0


cdef int radix_take(radix_t* radix, item_t* items, int most) except -1:
    cdef uintptr_t* path[DEPTH_MAX]
    cdef uintptr_t* place = &radix.root
    cdef int depth = 0, count
    if radix.count == 0:
        return 0
    while True:
        while place[0] & BRANCH:
            path[depth] = place
            depth += 1
            place = next_child(place)
        if leaf_count(place[0]) <= most or not leaf_divide(place):
            break
    count = leaf_take(place, items, most)
    while place[0] == 0:
        if depth == 0 or not branch_has_more(path[depth - 1], place):
            path_shorten(path, depth, place)
            break
        place = next_child(path[depth - 1])
        if place[0] & BRANCH or leaf_count(place[0]) > most - count:
            break
        count += leaf_take(place, items + count, most - count)
    radix.count -= count
    return count


cdef inline uintptr_t* next_child(const uintptr_t* place) noexcept:
    """The first child of the branch in that place."""
    return &branch_of(place[0]).children[__builtin_ctzll(branch_of(place[0]).used)]


cdef inline bint branch_has_more(const uintptr_t* place, const uintptr_t* child) noexcept:
    """Takes an emptied child out of the branch in that place. False: it is the last one, and still in it."""
    cdef branch_t* branch = branch_of(place[0])
    cdef uint64_t rest = branch.used & ~(<uint64_t> 1 << <int> (child - branch.children))
    if rest:
        branch.used = rest
    return rest != 0


cdef int leaf_take(uintptr_t* place, item_t* items, int most) noexcept:
    cdef block_t* block = <block_t*> place[0]
    cdef int count = 0
    cdef uint32_t taken
    while block != NULL and count < most:
        taken = min(block.count, <uint32_t> (most - count))
        block.count -= taken
        memcpy(items + count, &block.items[block.count], taken * sizeof(item_t))
        count += taken
        if block.count == 0:
            place[0] = <uintptr_t> block.next
            block_free(block)
            block = <block_t*> place[0]
    return count


cdef void path_shorten(uintptr_t** path, int depth, uintptr_t* place) noexcept:
    """Takes an emptied place out of its branch, and frees branches that have nothing left."""
    cdef branch_t* branch
    while depth:
        depth -= 1
        branch = branch_of(path[depth][0])
        branch.used &= ~(<uint64_t> 1 << <int> (place - branch.children))
        if branch.used:
            return
        cell_put(branch, sizeof(branch_t))
        place = path[depth]
        place[0] = 0


# ---- passes over all items

cdef void radix_filter(radix_t* radix, keeps_t keeps) noexcept:
    radix.count = filtered(&radix.root, keeps)


cdef uint64_t filtered(uintptr_t* place, keeps_t keeps) noexcept:
    """How many are left below a place; it is 0 if there is none."""
    cdef branch_t* branch
    cdef uint64_t count = 0, left
    if place[0] == 0:
        return 0
    if not place[0] & BRANCH:
        return leaf_filtered(place, keeps)
    branch = branch_of(place[0])
    for digit in range(DIGITS):
        left = filtered(&branch.children[digit], keeps)
        count += left
        if left == 0:
            branch.used &= ~(<uint64_t> 1 << digit)
    if count == 0:
        cell_put(branch, sizeof(branch_t))
        place[0] = 0
    return count


cdef uint64_t leaf_filtered(uintptr_t* place, keeps_t keeps) noexcept:
    cdef block_t* left = <block_t*> place[0]
    cdef block_t* kept = NULL
    cdef block_t* block
    while left != NULL:
        block = left
        left = block.next
        block_filtered(block, keeps)
        while kept != NULL and kept.count < kept.capacity and block.count:
            block.count -= 1
            kept.items[kept.count] = block.items[block.count]
            kept.count += 1
        if block.count == 0:
            block_free(block)
            continue
        block.next = kept
        block.behind = 0 if kept == NULL else kept.behind + kept.count
        kept = block
    place[0] = <uintptr_t> kept
    return 0 if kept == NULL else leaf_count(place[0])


cdef void block_filtered(block_t* block, keeps_t keeps) noexcept:
    """The key of an item is read from its owner: all of the block's are fetched at once."""
    cdef uint32_t i, kept = 0
    for i in range(block.count):
        prefetch(block.items[i].owner)
    for i in range(block.count):
        if keeps(&block.items[i]):
            block.items[kept] = block.items[i]
            kept += 1
    block.count = kept


cdef int wrong(str what) except -1:
    raise InvariantError(f"Recount: memory: {what}")


cdef int radix_check(const radix_t* radix) except -1:
    cdef uint64_t count = checked(radix.root, NULL)
    if count != radix.count:
        return wrong(f"a radix tree counts {radix.count} items of {count}")
    return 0


cdef uint64_t checked(uintptr_t child, const branch_t* above) except? 0:
    """How many items there are below a child."""
    cdef branch_t* branch
    cdef uint64_t count = 0
    if child == 0:
        return 0
    if not child & BRANCH:
        return leaf_checked(<block_t*> child, above)
    branch = branch_of(child)
    if above != NULL and above.by_rank == branch.by_rank and above.shift <= branch.shift:
        return wrong("a branch has not a lower digit than the one above")
    if above != NULL and above.by_rank and not branch.by_rank:
        return wrong("a branch by key is below one by rank")
    if branch.used == 0:
        return wrong("a branch has nothing below it")
    for digit in range(DIGITS):
        if (branch.used >> digit & 1) != (branch.children[digit] != 0):
            return wrong("a branch has a child that it does not know, or knows one that it has not")
        count += checked(branch.children[digit], branch)
        # What is below the child agrees with it, and so the first item that is found there tells for all.
        if branch.children[digit] and not stands(branch, digit, branch.children[digit]):
            return wrong("a child is below a branch to which it does not belong")
    return count


cdef bint stands(const branch_t* branch, uint32_t digit, uintptr_t child) noexcept:
    cdef item_t item
    if child & BRANCH:
        item = item_t(branch_of(child).key, branch_of(child).rank, NULL)
    else:
        item = (<block_t*> child).items[0]
    return leads_to(branch, &item) and digit_of(branch, &item) == digit


cdef uint64_t leaf_checked(const block_t* leaf, const branch_t* above) except? 0:
    cdef const block_t* block = leaf
    cdef uint64_t count = leaf_count(<uintptr_t> leaf), seen = 0
    while block != NULL:
        if block.count == 0 or block.count > block.capacity:
            return wrong(f"a block has {block.count} items in {block.capacity} places")
        if block.behind != count - seen - block.count:
            return wrong("a block counts the items behind it wrongly")
        for i in range(block.count):
            if above != NULL and not (leads_to(above, &block.items[i])
                                      and digit_of(above, &block.items[i]) == digit_of(above, &leaf.items[0])):
                return wrong("an item is in a leaf to which its key does not lead")
        seen += block.count
        block = block.next
    return count
