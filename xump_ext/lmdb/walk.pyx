"""Walks the trees of an LMDB file without LMDB, and trusts no byte of it.

`lmdb/walk.pxd` draws the pages. There is no I/O here: the walk asks the function `read` for pages, as many at a time as it can
tell that it will need. It reports damage to the function `tell`, which may raise, and leaves out what is damaged.

It verifies that each page is reached once, has its own number and kind, and that its nodes fill its upper part to the byte (LMDB
leaves no gaps, and would damage a page with a gap as soon as it moves the nodes); that keys are in order, and between the keys
of the branch above; that a value in overflow pages has all of them. Of records it verifies the CRCs, and that the key is the
record's own. Of the list of free pages it verifies that each is free once, that the lists have the length and order that LMDB
gives them, and that no list is of a transaction to come.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcmp, memcpy, memset

from xump_ext.records.kinds cimport KEY_BYTES, head_t
from xump_ext.records.record cimport RECORD_PAYLOAD, RECORD_WHOLE, key_write, record_state

cdef enum:
    READ_BYTES = 1 << 20        # read at once, and handed out at once
    GAP_PAGES = 16              # a read may include so many pages that are not wanted, and as many more as are wanted
    # errors of a record
    SHORT = 1
    HEAD = 2
    PAYLOAD = 3
    LENGTH = 4
    OTHER_KEY = 5

cdef uint64_t EMPTY = 0xFFFFFFFFFFFFFFFF        # the root of a tree without pages


cdef inline uint16_t u16(const uint8_t* at) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, at, sizeof(value))
    return value


cdef inline uint64_t u64(const uint8_t* at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, at, sizeof(value))
    return value


# ---- nodes of a page that `filled` has checked

cdef inline const uint8_t* node_of(const uint8_t* page, uint32_t index) noexcept nogil:
    return page + u16(page + HEADER + 2 * index)


cdef inline part_t node_key(const uint8_t* node) noexcept nogil:
    cdef part_t key
    key.at = node + NODE
    key.size = u16(node + 6)
    return key


cdef inline uint64_t value_bytes(const uint8_t* node) noexcept nogil:
    return u16(node) | <uint64_t> u16(node + 2) << 16


cdef inline uint64_t node_bytes(const uint8_t* node, uint16_t kind) noexcept nogil:
    """Bytes of a node in its page, of which LMDB makes an even number."""
    cdef uint64_t size = NODE + u16(node + 6)
    if kind == LEAF:
        size += NUMBER if u16(node + 4) == BIG else value_bytes(node)
    return (size + 1) & ~<uint64_t> 1


cdef inline uint64_t child_of(const uint8_t* node) noexcept nogil:
    return value_bytes(node) | <uint64_t> u16(node + 4) << 32


cdef inline object number_of(part_t key):
    return u64(key.at) if key.size == NUMBER else bytes_of(key).hex()


cdef inline bytes bytes_of(part_t part):
    return PyBytes_FromStringAndSize(<const char*> part.at, part.size)


cdef class Walk:
    """Goes through a tree once, in order of its keys.

    `tree` is the meta page's description of the tree, as the store's `Tree` has it. `last` is the last page of the file that
    counts. `reached` has a byte for each page of the file: 0 until the page is reached, then `mark`. `mark` is MAIN for the tree
    of the records, or FREE_LIST for the tree of free pages, whose keys are integers. `read(buffer, page)` fills a buffer from
    that page on and returns the number of bytes, which is less at the end of the file. `tell(page, what, key, record)` reports
    a damaged page or, with a key, a damaged entry in it.
    """

    def __cinit__(self, tree, uint32_t page_bytes, uint64_t last, bytearray reached not None, uint8_t mark, read, tell):
        if not 256 <= page_bytes <= 0x8000 or page_bytes & (page_bytes - 1):
            raise ValueError(f"page_bytes={page_bytes}; allowed are powers of two from 256 to 32768")
        if mark != MAIN and mark != FREE_LIST:
            raise ValueError(f"mark={mark}; allowed are {MAIN} and {FREE_LIST}")
        self.tree, self.read, self.tell = tree, read, tell
        self.depth, self.root = tree[2], tree[7]
        self.page_bytes, self.mark, self.last, self.whole = page_bytes, mark, last, True
        PyObject_GetBuffer(reached, &self.reached, PyBUF_WRITABLE)
        self.count = self.reached.len
        self.limit = last + 1 if last < self.count else self.count
        self.window = PyByteArray_FromStringAndSize(NULL, READ_BYTES)
        self.near.at = <uint8_t*> PyByteArray_AS_STRING(self.window)
        self.near.room = READ_BYTES // page_bytes

    def __dealloc__(self):
        PyBuffer_Release(&self.reached)

    @property
    def entry(self):
        """For `tell`: the key of the entry that is damaged or whose value is lost, as it stands there. None: a page is lost."""
        return bytes_of(node_key(node_of(self.leaf, self.node - 1))) if self.node else None

    @property
    def between(self):
        """For `tell`: the bounds (low, high) of the keys that are lost with a page; or the keys before and behind an entry, whose
        own key may be damaged, too. None stands for no bound; the low one is included."""
        cdef part_t low = self.low, high = self.high
        if self.node > 1:
            low = node_key(node_of(self.leaf, self.node - 2))
        if self.node and self.node < self.nodes:
            high = node_key(node_of(self.leaf, self.node))
        return None if low.at == NULL else bytes_of(low), None if high.at == NULL else bytes_of(high)

    cdef int bad(self, uint64_t number, what) except -1:
        """Reports a damaged page; returns 0."""
        self.whole = False
        self.tell(number, what, None, None)
        return 0

    cdef int behind(self, uint64_t number) except -1:
        return self.bad(number, "lies behind the end of the file")

    cdef int reach(self, uint64_t first, uint64_t pages) except -1:
        """Marks these pages as reached. Returns 0, and reports it, if they are not there or were reached before."""
        cdef uint8_t* at = <uint8_t*> self.reached.buf
        cdef uint64_t i
        if first < 2 or first >= self.limit or pages > self.limit - first:
            return self.bad(first, f"is named, of {self.limit} pages")
        for i in range(first, first + pages):
            if at[i]:
                return self.bad(first, "is named twice")
        memset(at + first, self.mark, pages)
        self.pages += pages
        return 1

    cdef uint64_t fill(self, bytearray buffer, uint64_t at, uint64_t first, uint64_t pages) except? 0:
        """Reads pages into a buffer; returns the number of them that were there."""
        cdef uint64_t found
        with memoryview(buffer)[at : at + pages * self.page_bytes] as part:
            found = self.read(part, first)
        return min(found // self.page_bytes, pages)

    # ---- from leaf to leaf

    cdef bint next_page(self) noexcept:
        """Goes on to the next child of the branches on the way: its number, and the bounds of its keys. False: there is none."""
        cdef branch_t* branch
        cdef uint32_t index
        self.low.at = self.high.at = NULL
        if not self.begun:
            self.begun = True
            self.number = self.root
            return self.root != EMPTY
        while self.level:
            branch = &self.way[self.level - 1]
            if branch.next < branch.count:
                index = branch.next
                branch.next += 1
                self.number = child_of(node_of(branch.page, index))
                self.low = node_key(node_of(branch.page, index)) if index else branch.low
                self.high = node_key(node_of(branch.page, index + 1)) if index + 1 < branch.count else branch.high
                return True
            self.level -= 1
        return False

    cdef int next_leaf(self) except -1:
        """Goes on to the next sound leaf; returns whether there is one. At the end it compares what it counted with the tree's
        own counts."""
        self.node = self.nodes = 0
        if self.over:
            return 0
        if not self.begun and self.root != EMPTY:
            if not 1 <= self.depth <= DEPTH_MAX:
                self.over = True
                return self.bad(0, f"the tree has depth {self.depth}")
            self.branch_pages = PyByteArray_FromStringAndSize(NULL, self.depth * self.page_bytes)
        while self.next_page():
            if not self.reach(self.number, 1):
                continue
            if self.level + 1 < self.depth:
                self.enter_branch()
            elif self.enter_leaf():
                return 1
        self.over = True
        self.compare()
        return 0

    cdef int compare(self) except -1:
        found, says = (self.branches, self.leaves, self.overflows, self.entries), tuple(self.tree[3:7])
        if self.whole and found != says:
            text = "a tree has {} branches, {} leaves, {} overflow pages and {} entries, and says {}, {}, {} and {}"
            self.bad(0, text.format(*found, *says))
        return 0

    cdef int enter_branch(self) except -1:
        """Enters a branch, so that its children come next; returns whether the page is a sound branch."""
        cdef uint64_t at = <uint64_t> self.level * self.page_bytes
        cdef const uint8_t* page = <const uint8_t*> PyByteArray_AS_STRING(self.branch_pages) + at
        cdef branch_t* branch = &self.way[self.level]
        cdef uint32_t count
        if self.fill(self.branch_pages, at, self.number, 1) == 0:
            return self.behind(self.number)
        self.branches += 1
        count = self.filled(page, BRANCH)
        if count == 0:
            return 0
        if not self.in_order(page, 1, count):       # the first key has no meaning
            return self.bad(self.number, "has keys that are not in order")
        branch.page = page
        branch.next = 0
        branch.count = count
        branch.low = self.low
        branch.high = self.high
        self.level += 1
        return 1

    cdef int enter_leaf(self) except -1:
        """Enters a leaf, so that its entries come next; returns whether the page is a sound leaf.

        Values in overflow pages may still be damaged.
        """
        cdef const uint8_t* page
        cdef uint32_t count
        if self.number < self.near.first or self.number >= self.near.first + self.near.count:
            self.read_leaves()
            if self.near.count == 0:
                return self.behind(self.number)
        self.leaves += 1
        page = self.near.at + (self.number - self.near.first) * self.page_bytes
        count = self.filled(page, LEAF)
        if count == 0:
            return 0
        if not self.in_order(page, 0, count):
            return self.bad(self.number, "has keys that are not in order")
        self.leaf = page
        self.nodes = count
        self.entries += count
        return 1

    cdef int read_leaves(self) except -1:
        """Reads the leaf, and those of its next siblings that lie around it. If the leaf is not there, no page is held."""
        cdef uint64_t low = self.number, high = self.number, wanted = 1, page, first, last
        cdef branch_t* branch
        cdef uint32_t i
        if self.level:
            branch = &self.way[self.level - 1]
            for i in range(branch.next, branch.count):
                page = child_of(node_of(branch.page, i))
                if page >= self.limit:
                    break
                first = min(low, page)
                last = max(high, page)
                if last - first >= self.near.room or last - first > 2 * wanted + GAP_PAGES:
                    break
                low = first
                high = last
                wanted += 1
        self.near.count = 0
        self.near.first = low
        self.near.count = self.fill(self.window, 0, low, high - low + 1)
        if self.near.count <= self.number - low:
            self.near.count = 0
        return 0

    cdef uint32_t filled(self, const uint8_t* page, uint16_t kind) except? 0:
        """The number of nodes of the page, which fill its upper part. 0: the page is of another kind or damaged, which is
        reported."""
        cdef uint16_t flags = u16(page + 10), lower = u16(page + 12), upper = u16(page + 14), at
        cdef uint32_t count, i
        cdef uint64_t size, filled = 0
        if u64(page) != self.number or flags != kind:
            what = "branch" if kind == BRANCH else "leaf"
            return self.bad(self.number, f"should be a {what}, says that it is page {u64(page)} with flags {flags}")
        if lower & 1 or not HEADER + 2 <= lower <= upper <= self.page_bytes:
            return self.bad(self.number, f"is filled up to {lower} and from {upper} on, of {self.page_bytes} bytes")
        count = (lower - HEADER) // 2
        for i in range(count):
            at = u16(page + HEADER + 2 * i)
            if at < upper or at > self.page_bytes - NODE or at & 1:
                return self.bad(self.number, "has a node outside of what is filled")
            size = node_bytes(page + at, kind)
            if size > self.page_bytes - at or (kind == LEAF and u16(page + at + 4) > BIG):
                return self.bad(self.number, f"a node at byte {at} has {size} bytes, flags {u16(page + at + 4)}")
            filled += size
        if filled != self.page_bytes - upper:
            return self.bad(self.number, f"has nodes of {filled} bytes, and is filled with {self.page_bytes - upper}")
        return count

    cdef bint in_order(self, const uint8_t* page, uint32_t first, uint32_t count) noexcept:
        """Whether the keys from number `first` on ascend, and lie within the bounds of the branch above."""
        cdef part_t key, before
        cdef uint32_t i
        if first >= count:
            return True
        before = node_key(node_of(page, first))
        if self.low.at != NULL and self.less(before, self.low):
            return False
        for i in range(first + 1, count):
            key = node_key(node_of(page, i))
            if not self.less(before, key):
                return False
            before = key
        return self.high.at == NULL or self.less(before, self.high)

    cdef bint less(self, part_t one, part_t other) noexcept:
        cdef int order
        if self.mark == FREE_LIST and one.size == NUMBER and other.size == NUMBER:
            return u64(one.at) < u64(other.at)
        order = memcmp(one.at, other.at, min(one.size, other.size))
        return order < 0 or (order == 0 and one.size < other.size)

    # ---- from entry to entry

    cdef int next_entry(self, part_t* key, part_t* value) except -1:
        """Gives the next entry; returns whether there is one. Its bytes stay in place until the entry after it is asked for."""
        cdef const uint8_t* node
        while True:
            while self.node < self.nodes:
                node = node_of(self.leaf, self.node)
                self.node += 1
                key[0] = node_key(node)
                value.at = key.at + key.size
                value.size = value_bytes(node)
                if u16(node + 4) == BIG:
                    value.at = self.overflow(u64(value.at), value.size)
                    if value.at == NULL:
                        continue
                return 1
            if not self.next_leaf():
                return 0

    cdef const uint8_t* overflow(self, uint64_t first, uint64_t size) except? NULL:
        """The start of a value of that size in overflow pages from that page on. NULL: it is damaged, which is reported."""
        cdef const uint8_t* page
        cdef uint64_t pages = self.pages_of(size), says
        if not self.reach(first, pages):
            return NULL
        if first < self.far.first or first + pages > self.far.first + self.far.count:
            self.read_far(first, pages)
            if self.far.count < pages:
                self.behind(first)
                return NULL
        page = self.far.at + (first - self.far.first) * self.page_bytes
        says = value_bytes(page + 12)
        if u64(page) != first or u16(page + 10) != OVERFLOW or says != pages:
            self.bad(first, f"should be {pages} overflow pages, says that it is page {u64(page)} with flags {u16(page + 10)}")
            return NULL
        self.overflows += pages
        return page + HEADER

    cdef uint64_t pages_of(self, uint64_t size) noexcept:
        return (HEADER + size + self.page_bytes - 1) // self.page_bytes

    cdef int read_far(self, uint64_t first, uint64_t pages) except -1:
        """Reads these overflow pages, and those of the leaf's next values as long as they lie one behind the other."""
        cdef uint64_t end = first + pages, more
        cdef const uint8_t* node
        cdef uint32_t i
        for i in range(self.node, self.nodes):
            node = node_of(self.leaf, i)
            if u16(node + 4) == BIG:
                more = self.pages_of(value_bytes(node))
                if (u64(node + NODE + u16(node + 6)) != end or end + more > self.limit
                        or (end + more - first) * self.page_bytes > READ_BYTES):
                    break
                end += more
        self.far.count = 0
        if self.far_window is None or end - first > self.far.room:
            self.far.room = max(end - first, <uint64_t> READ_BYTES // self.page_bytes)
            self.far_window = PyByteArray_FromStringAndSize(NULL, self.far.room * self.page_bytes)
            self.far.at = <uint8_t*> PyByteArray_AS_STRING(self.far_window)
        self.far.first = first
        self.far.count = self.fill(self.far_window, 0, first, end - first)
        return 0

    # ---- for the store

    def first(self):
        """The (key, value) of the first entry, or None if there is none."""
        cdef part_t key, value
        return (bytes_of(key), bytes_of(value)) if self.next_entry(&key, &value) else None

    def next_records(self, uint32_t salt, bytes own not None):
        """The next whole records, one behind the other, about 1 MiB; None if there are no more. O(bytes).

        The caller uses them before it asks for the next. The entry under the key `own` is no record.
        """
        cdef part_t key, value
        cdef uint64_t used = 0
        cdef bytearray larger
        cdef int wrong
        if self.piece is None:
            self.piece = PyByteArray_FromStringAndSize(NULL, 2 * READ_BYTES)
        while used < READ_BYTES and self.next_entry(&key, &value):
            wrong = record_wrong(key, value, salt)
            if wrong:
                if key.size != <uint64_t> len(own) or memcmp(key.at, <const char*> own, key.size):
                    self.tell(self.number, what_is_wrong(wrong, key, value), bytes_of(key), bytes_of(value))
                continue
            if used + value.size > <uint64_t> PyByteArray_GET_SIZE(self.piece):
                larger = PyByteArray_FromStringAndSize(NULL, used + value.size)
                memcpy(PyByteArray_AS_STRING(larger), PyByteArray_AS_STRING(self.piece), used)
                self.piece = larger
            memcpy(PyByteArray_AS_STRING(self.piece) + used, value.at, value.size)
            used += value.size
            self.records += 1
            self.end = max(self.end, (<const head_t*> value.at).position + value.size)
        return memoryview(self.piece)[:used] if used else None

    def free_pages(self, uint64_t transaction):
        """Reads the list of free pages, as of that transaction: (number of free pages, number of those behind the file's end).
        Marks them as reached."""
        cdef part_t key, value
        cdef uint64_t free = 0
        cdef set beyond = set()
        while self.next_entry(&key, &value):
            if key.size != NUMBER or not 1 <= u64(key.at) <= transaction:
                self.bad(self.number, f"has a list of free pages of transaction {number_of(key)}, of {transaction}")
            elif value.size < NUMBER or value.size % NUMBER or u64(value.at) != value.size // NUMBER - 1:
                self.bad(self.number, "a list of free pages has no length that can be")
            else:
                free += self.free_of_list(value.at, beyond)
        return free + len(beyond), len(beyond)

    cdef uint64_t free_of_list(self, const uint8_t* pages, set beyond) except? 0:
        """Marks the pages of one list, which has their number before them; returns how many are in the file."""
        cdef uint8_t* reached = <uint8_t*> self.reached.buf
        cdef uint64_t i, number, before = self.last + 1, free = 0
        for i in range(u64(pages)):
            number = u64(pages + NUMBER + NUMBER * i)
            if number > self.last or number < 2:
                self.bad(self.number, f"lists page {number} as free, of {self.last + 1}")
            elif number >= before:
                self.bad(self.number, "has a list of free pages that is not in order")
                break
            elif number in beyond if number >= self.count else reached[number] == FREE:
                self.bad(number, "is listed as free twice")
            elif number >= self.count:      # LMDB need not have written pages that were free from the start
                beyond.add(number)
            elif reached[number]:
                self.bad(number, "is in use and listed as free")
            else:
                reached[number] = FREE
                free += 1
            before = number
        return free


# ---- records under their keys

cdef int record_wrong(part_t key, part_t record, uint32_t salt) noexcept nogil:
    """The error of a record under a key; 0: there is none."""
    cdef const head_t* head = <const head_t*> record.at
    cdef unsigned char own[KEY_BYTES]
    cdef int state
    if record.size < sizeof(head_t):
        return SHORT
    state = record_state(<const char*> record.at, record.size, head.position, salt)
    if state != RECORD_WHOLE:
        return PAYLOAD if state == RECORD_PAYLOAD else HEAD
    if head.length != record.size:
        return LENGTH
    if not key_write(head, own) or key.size != KEY_BYTES or memcmp(key.at, own, KEY_BYTES):
        return OTHER_KEY
    return 0


cdef str what_is_wrong(int wrong, part_t key, part_t record):
    """The error as text, for people."""
    if wrong == SHORT:
        return f"of {record.size} bytes: less than a record's head"
    if wrong == LENGTH:
        return f"of {(<const head_t*> record.at).length} bytes, which is kept as {record.size}"
    if wrong == OTHER_KEY:
        return f"which stands under a key that is not its own, {bytes_of(key).hex()}"
    return "whose content does not fit its CRC" if wrong == PAYLOAD else "whose head does not fit its CRC"


def wrong_record(bytes key not None, bytes record not None, uint32_t salt):
    """The error of a record that is kept under a key, as text, for people; None if there is none. O(bytes)."""
    cdef part_t its, kept
    cdef int wrong
    its.at = <const uint8_t*> <const char*> key
    its.size = len(key)
    kept.at = <const uint8_t*> <const char*> record
    kept.size = len(record)
    wrong = record_wrong(its, kept, salt)
    return what_is_wrong(wrong, its, kept) if wrong else None
