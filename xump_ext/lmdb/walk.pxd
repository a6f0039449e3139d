"""The layout of the pages of an LMDB file, and the declarations of `walk.pyx`.

Drawn after the structs MDB_page, MDB_node, MDB_db and MDB_meta of LMDB's mdb.c, data format 1, in the byte order of the machine:

    page      0 number u64   8 pad u16   10 flags u16   12 lower u16   14 upper u16   (overflow: 12 pages u32)
    branch   16 offsets u16 of the nodes, by key; up to lower     node  0 child, 48 bits   6 key bytes u16   8 key
    leaf     likewise                                             node  0 low u16   2 high u16: of the value's size
                                                                        4 flags u16   6 key bytes u16   8 key, value

A value too long for half a page lies in overflow pages, one behind the other, from byte 16 of the first on. Its node has the
number of the first of them in place of the value. The first key of a branch has no meaning. Nodes lie from upper to the end of
the page, in any order and without gaps; each has an even number of bytes.

The tree of free pages has lists of them by the transaction that freed them, a number as key: their count u64, and their numbers,
the highest first.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    HEADER = 16
    NODE = 8
    NUMBER = 8              # bytes of a page's number in place of a value
    DEPTH_MAX = 32          # LMDB's own limit
    # marks of pages that were reached
    MAIN = 1
    FREE_LIST = 2
    FREE = 3
    # flags of a page, and of a node whose value is in overflow pages
    BRANCH = 1
    LEAF = 2
    OVERFLOW = 4
    BIG = 1

cdef struct part_t:
    # Bytes in a page. NULL: there are none; of a bound: no bound.
    const uint8_t* at
    uint64_t size

cdef struct branch_t:
    # A branch on the way from the root to the leaf, the number of its next child, and the bounds of its keys.
    const uint8_t* page
    uint32_t next
    uint32_t count
    part_t low
    part_t high

cdef struct held_t:
    # Pages in memory, one behind the other: `count` pages from page `first` on, with room for `room` pages.
    uint8_t* at
    uint64_t first
    uint64_t count
    uint64_t room

cdef class Walk:
    cdef object tree, read, tell
    # A bytearray never changes its size, because pointers lead into it; a larger one replaces it.
    cdef bytearray branch_pages, window, far_window, piece
    cdef Py_buffer reached
    cdef uint64_t root, last, count, limit
    cdef uint64_t branches, leaves, overflows, entries
    # Pages that were reached; records that were handed out, and the position in the log at which the last of them ends.
    cdef readonly uint64_t pages, records, end
    cdef uint32_t depth, page_bytes
    cdef uint8_t mark
    cdef bint begun, over, whole
    # Leaves, and values in overflow pages.
    cdef held_t near, far
    # The branches on the way to the current page, its number and the bounds of its keys. Of a leaf: the next node, of how many.
    cdef branch_t way[DEPTH_MAX]
    cdef uint32_t level, node, nodes
    cdef const uint8_t* leaf
    cdef uint64_t number
    cdef part_t low, high

    cdef int bad(self, uint64_t number, what) except -1
    cdef int behind(self, uint64_t number) except -1
    cdef int reach(self, uint64_t first, uint64_t pages) except -1
    cdef uint64_t fill(self, bytearray buffer, uint64_t at, uint64_t first, uint64_t pages) except? 0
    cdef bint next_page(self) noexcept
    cdef int next_leaf(self) except -1
    cdef int compare(self) except -1
    cdef int enter_branch(self) except -1
    cdef int enter_leaf(self) except -1
    cdef int read_leaves(self) except -1
    cdef uint32_t filled(self, const uint8_t* page, uint16_t kind) except? 0
    cdef bint in_order(self, const uint8_t* page, uint32_t first, uint32_t count) noexcept
    cdef bint less(self, part_t one, part_t other) noexcept
    cdef int next_entry(self, part_t* key, part_t* value) except -1
    cdef const uint8_t* overflow(self, uint64_t first, uint64_t size) except? NULL
    cdef uint64_t pages_of(self, uint64_t size) noexcept
    cdef int read_far(self, uint64_t first, uint64_t pages) except -1
    cdef uint64_t free_of_list(self, const uint8_t* pages, set beyond) except? 0
