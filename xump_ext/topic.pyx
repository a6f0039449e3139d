"""The trie of topic patterns: words split by `.`, `*` is one word, `#` any number of words, none included.

Words are interned, so that a node's children are found by two numbers in one flat table. A match goes through the
address once, word by word, and keeps the list of nodes that it is at; it never goes back, and it never recurses:

    plain       nodes reached without a `#`. A trie has one path to each, so none can be reached twice.
    open        nodes behind a `#`: entered once, such a node stays until the end, for a `#` takes any word.
    floating    nodes below an open one. They can be reached at any word, and by several ways at the same word; a stamp
                lets each in once a word.

So a match costs at most (words x nodes below a `#`), however many `#` the patterns have: what a backtracking matcher
tries exponentially often is tried once here. The commonest `#`, the last word of a pattern without another, needs none
of this: it is a list on the node before it (`tail`), whose items match as soon as the match has come there.

An empty text has no words. `a..b` has three, the second one empty; `*` matches it.
"""

cimport cython
from libc.stdlib cimport free, realloc

from xump_ext.cells cimport memory_zeroed
from xump_ext.checks cimport require
from xump_ext.hits cimport hits_add, hits_free
from xump_ext.items cimport blocks_free, blocks_size, items_add, items_check, items_hit, items_remove
from xump_ext.texts cimport (
    HASH_A, text_of, texts_add, texts_check, texts_drop, texts_find, texts_free, texts_size)
from xump_ext.words cimport ID_UNREAD, word_find, word_read

cdef enum:
    EDGE_SLOTS_MIN = 16
    NODES_MIN = 16

cdef enum: CLOCK_MAX = 0xFFFFFFF0


cdef inline size_t edge_home(uint64_t word, uint32_t node) noexcept nogil:
    """The low bits say where a search for the edge starts."""
    cdef uint64_t hashed = (word ^ (<uint64_t> node << 32)) * <uint64_t> HASH_A
    return <size_t> (hashed ^ hashed >> 32)


@cython.final
cdef class TopicTrie:
    """Topic patterns and the items behind them. `match` costs a step per word and node that the match is at.

    >>> trie = TopicTrie()
    >>> trie.add("flight.*.JFK", 1), trie.add("flight.#", 2)
    (True, True)
    >>> trie.match_list("flight.UA.JFK"), trie.match_list("flight")
    ([1, 2], [2])
    """

    def __cinit__(self):
        self.words.seed = <uint64_t> <Py_ssize_t> hash("xump")

    def __dealloc__(self):
        self.release()

    def __len__(self):
        return self.item_count

    def add(self, str pattern not None, uint32_t item):
        """Whether the item is new for this pattern; if not, nothing has changed. Costs a step per word."""
        cdef bytes text = pattern.encode("utf-8", "surrogatepass")
        return self.insert(text, len(text), item)

    def remove(self, str pattern not None, uint32_t item):
        """Whether the item was there. Costs a step per word; what no pattern needs any more is freed."""
        cdef bytes text = pattern.encode("utf-8", "surrogatepass")
        return self.erase(text, len(text), item)

    def match_list(self, str value not None):
        """The items of all patterns that match, sorted."""
        cdef hits_t hits = hits_t(NULL, 0, 0)
        cdef bytes text = value.encode("utf-8", "surrogatepass")
        try:
            self.match(text, len(text), &hits)
            return sorted([hits.items[i] for i in range(hits.count)])
        finally:
            hits_free(&hits)

    def __sizeof__(self):
        return object.__sizeof__(self) + self.size()

    cdef size_t size(self) noexcept:
        """Bytes held beside the object itself."""
        cdef size_t scratch = self.open.capacity + self.plain[0].capacity + self.plain[1].capacity
        scratch += self.floating[0].capacity + self.floating[1].capacity
        return (self.node_capacity * sizeof(node_t) + self.edge_capacity * sizeof(edge_t) + texts_size(&self.words)
                + blocks_size(&self.blocks) + self.path_capacity * sizeof(step_t) + scratch * sizeof(uint32_t))

    # ---- adding and removing

    cdef bint insert(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1:
        cdef bint new
        if self.node_count == 0:
            self.node_new()
        try:
            new = items_add(&self.blocks, self.end_of(pattern, pattern_bytes, True), item)
        except MemoryError:
            self.prune()
            raise
        self.item_count += new
        return new

    cdef bint erase(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1:
        cdef items_t* end
        if self.item_count == 0:
            return False
        end = self.end_of(pattern, pattern_bytes, False)
        if end == NULL or not items_remove(&self.blocks, end, item):
            return False
        self.item_count -= 1
        if self.item_count == 0:
            self.release()
        else:
            self.prune()
        return True

    cdef items_t* end_of(self, const char* pattern, size_t pattern_bytes, bint make) except? NULL:
        """The items of a pattern, and `path` leads to them; without `make` NULL when there is no such pattern."""
        cdef const char* at = pattern
        cdef const char* end = pattern + pattern_bytes
        cdef word_t word
        cdef text_t* text
        cdef uint32_t node = 0, child
        cdef bint last, below_many = False, behind_many = False
        self.path_count = 0
        if pattern_bytes == 0:
            return &self.nodes[0].here
        while True:
            self.path_reserve()
            at = word_read(pattern, at, end, self.words.seed, &word)
            last = at == end
            text = NULL
            if word.text_bytes == 1 and word.text[0] == c"#":
                if last and not below_many:
                    return &self.nodes[node].tail
                if behind_many:             # `#.#` is `#`
                    if last:
                        return &self.nodes[node].here
                    at += 1
                    continue
                below_many = behind_many = True
                child = self.nodes[node].many
                if child == 0 and make:
                    child = self.node_new()
                    self.nodes[node].many = child
            elif word.text_bytes == 1 and word.text[0] == c"*":
                behind_many = False
                child = self.nodes[node].one
                if child == 0 and make:
                    child = self.node_new()
                    self.nodes[node].one = child
            else:
                behind_many = False
                child = self.edge_find(word_find(&self.words, &word), node)
                if child == 0 and make:
                    child = self.edge_new(&word, node)
                text = texts_find(&self.words, word.hash, 0, word.text, word.text_bytes)
            if child == 0:
                return NULL
            self.path[self.path_count] = step_t(node, child, text, word.hash)
            self.path_count += 1
            node = child
            if last:
                return &self.nodes[node].here
            at += 1

    cdef int path_reserve(self) except -1:
        """Room for one step more, made before the step is: so every new node stands in the path."""
        cdef step_t* path
        cdef uint32_t capacity
        if self.path_count == self.path_capacity:
            capacity = self.path_capacity * 2 if self.path_capacity else 16
            path = <step_t*> realloc(self.path, capacity * sizeof(step_t))
            if path == NULL:
                raise MemoryError()
            self.path = path
            self.path_capacity = capacity
        return 0

    cdef void prune(self) noexcept:
        """Walks `path` back and takes away the nodes that nothing needs any more."""
        cdef step_t* step
        cdef node_t* node
        while self.path_count:
            step = &self.path[self.path_count - 1]
            node = &self.nodes[step.node]
            if node.here.count or node.tail.count or node.one or node.many or node.edges:
                return
            if step.word != NULL:
                self.edge_drop(step.word.meaning.id, step.parent)
                step.word.references -= 1
                if step.word.references == 0:
                    texts_drop(&self.words, step.hash, step.word)
            elif self.nodes[step.parent].one == step.node:
                self.nodes[step.parent].one = 0
            else:
                self.nodes[step.parent].many = 0
            self.node_drop(step.node)
            self.path_count -= 1

    cdef void release(self) noexcept:
        """Gives all memory back; the trie is as new."""
        free(self.nodes)
        free(self.edges)
        free(self.path)
        self.nodes = NULL
        self.edges = NULL
        self.path = NULL
        self.node_count = self.node_capacity = self.node_free = self.node_used = 0
        self.edge_count = self.edge_capacity = 0
        self.path_count = self.path_capacity = 0
        texts_free(&self.words)
        blocks_free(&self.blocks)
        hits_free(&self.plain[0])
        hits_free(&self.plain[1])
        hits_free(&self.floating[0])
        hits_free(&self.floating[1])
        hits_free(&self.open)

    # ---- nodes and edges

    cdef uint32_t node_new(self) except? 0:
        """The number of an empty node; the root's is 0."""
        cdef node_t* nodes
        cdef uint32_t capacity, node = self.node_free
        if node:
            self.node_free = self.nodes[node].one
        else:
            if self.node_count == self.node_capacity:
                capacity = self.node_capacity + self.node_capacity // 2 if self.node_capacity else NODES_MIN
                nodes = <node_t*> realloc(self.nodes, capacity * sizeof(node_t))
                if nodes == NULL:
                    raise MemoryError()
                self.nodes = nodes
                self.node_capacity = capacity
            node = self.node_count
            self.node_count += 1
        self.nodes[node] = node_t(0, 0, 0, 0, items_t(0, 0), items_t(0, 0))
        self.node_used += 1
        return node

    cdef void node_drop(self, uint32_t node) noexcept:
        self.nodes[node].one = self.node_free
        self.node_free = node
        self.node_used -= 1

    cdef uint32_t edge_find(self, uint64_t word, uint32_t node) noexcept nogil:
        """The child of a node by a word, or 0."""
        cdef size_t mask = self.edge_capacity - 1, at = edge_home(word, node) & mask
        if word == 0 or self.nodes[node].edges == 0:
            return 0
        while self.edges[at].child and not (self.edges[at].word == word and self.edges[at].node == node):
            at = (at + 1) & mask
        return self.edges[at].child

    cdef uint32_t edge_new(self, const word_t* word, uint32_t node) except 0:
        """A new child of a node by a word."""
        cdef text_t* text
        cdef uint32_t child = 0
        cdef size_t at
        if self.edge_count * 2 >= self.edge_capacity and not self.edges_resize(self.edge_capacity * 2):
            raise MemoryError()
        text = texts_add(&self.words, word.hash, 0, word.text, word.text_bytes)
        try:
            child = self.node_new()
        except MemoryError:
            if text.references == 0:
                texts_drop(&self.words, word.hash, text)
            raise
        if text.references == 0:
            self.word_id += 1
            text.meaning.id = self.word_id
        text.references += 1
        at = edge_home(text.meaning.id, node) & (self.edge_capacity - 1)
        while self.edges[at].child:
            at = (at + 1) & (self.edge_capacity - 1)
        self.edges[at] = edge_t(text.meaning.id, node, child)
        self.edge_count += 1
        self.nodes[node].edges += 1
        return child

    cdef void edge_drop(self, uint64_t word, uint32_t node) noexcept:
        """Removes the edge of a node by a word; those behind it fill the slot."""
        cdef size_t mask = self.edge_capacity - 1, hole = edge_home(word, node) & mask, at
        while self.edges[hole].word != word or self.edges[hole].node != node:
            hole = (hole + 1) & mask
        at = hole
        while True:
            at = (at + 1) & mask
            if self.edges[at].child == 0:
                break
            if ((at - edge_home(self.edges[at].word, self.edges[at].node)) & mask) >= ((at - hole) & mask):
                self.edges[hole] = self.edges[at]
                hole = at
        self.edges[hole].child = 0
        self.edge_count -= 1
        self.nodes[node].edges -= 1
        if self.edge_count * 8 < self.edge_capacity and self.edge_capacity > EDGE_SLOTS_MIN:
            self.edges_resize(self.edge_capacity // 2)      # where that is refused, the table stays as it is

    cdef bint edges_resize(self, size_t capacity) noexcept:
        cdef edge_t* edges
        cdef size_t i, at
        capacity = max(capacity, <size_t> EDGE_SLOTS_MIN)
        edges = <edge_t*> memory_zeroed(capacity * sizeof(edge_t))
        if edges == NULL:
            return False
        for i in range(self.edge_capacity):
            if self.edges[i].child:
                at = edge_home(self.edges[i].word, self.edges[i].node) & (capacity - 1)
                while edges[at].child:
                    at = (at + 1) & (capacity - 1)
                edges[at] = self.edges[i]
        free(self.edges)
        self.edges = edges
        self.edge_capacity = capacity
        return True

    # ---- matching

    cdef int match(self, const char* value, size_t value_bytes, hits_t* hits) except -1 nogil:
        cdef const char* at = value
        cdef const char* end = value + value_bytes
        cdef uint32_t node, turn = 0
        cdef uint32_t opened
        cdef word_t word
        if self.item_count == 0:
            return 0
        if self.clock >= CLOCK_MAX - value_bytes:       # a match takes one tick, and one for each word
            for node in range(self.node_count):
                self.nodes[node].stamp = 0
            self.clock = 0
        self.clock += 1
        opened = self.clock
        self.open.count = self.plain[0].count = self.floating[0].count = 0
        hits_add(&self.plain[0], 0)
        while value_bytes:
            at = word_read(value, at, end, self.words.seed, &word)
            self.clock += 1
            self.step_floating(&word, turn, opened)
            self.step_plain(&word, turn, opened, hits)
            self.step_open(&word, turn, opened)
            turn ^= 1
            if at == end or not (self.plain[turn].count or self.open.count):
                break
            at += 1
        return self.finish(turn, opened, hits)

    cdef int step_plain(self, word_t* word, uint32_t turn, uint32_t opened, hits_t* hits) except -1 nogil:
        """Takes a word from each plain node."""
        cdef hits_t* next = &self.plain[turn ^ 1]
        cdef uint32_t i, number
        cdef node_t* node
        next.count = 0
        for i in range(self.plain[turn].count):
            number = self.plain[turn].items[i]
            node = &self.nodes[number]
            items_hit(&self.blocks, &node.tail, hits)
            if node.many:
                self.enter(&self.open, node.many, opened)
            if node.one:
                hits_add(next, node.one)
            if node.edges:
                number = self.edge_find(self.word_id_of(word), number)
                if number:
                    hits_add(next, number)
        return 0

    cdef int step_floating(self, word_t* word, uint32_t turn, uint32_t opened) except -1 nogil:
        """Takes a word from each floating node."""
        cdef uint32_t i
        self.floating[turn ^ 1].count = 0
        for i in range(self.floating[turn].count):
            self.step_below(word, self.floating[turn].items[i], turn, opened)
        return 0

    cdef int step_open(self, word_t* word, uint32_t turn, uint32_t opened) except -1 nogil:
        """Takes a word from each open node, which stays; comes after the others, for they open nodes at this very word."""
        cdef uint32_t i = 0
        while i < self.open.count:
            self.step_below(word, self.open.items[i], turn, opened)
            i += 1
        return 0

    cdef int step_below(self, word_t* word, uint32_t number, uint32_t turn, uint32_t opened) except -1 nogil:
        """Takes a word from a node below a `#`."""
        cdef node_t* node = &self.nodes[number]
        if node.many:
            self.enter(&self.open, node.many, opened)
        if node.one:
            self.enter(&self.floating[turn ^ 1], node.one, self.clock)
        if node.edges:
            number = self.edge_find(self.word_id_of(word), number)
            if number:
                self.enter(&self.floating[turn ^ 1], number, self.clock)
        return 0

    cdef int finish(self, uint32_t turn, uint32_t opened, hits_t* hits) except -1 nogil:
        """Takes the hits where the address ends."""
        cdef node_t* node
        cdef uint32_t i
        for i in range(self.plain[turn].count):
            node = &self.nodes[self.plain[turn].items[i]]
            items_hit(&self.blocks, &node.tail, hits)
            items_hit(&self.blocks, &node.here, hits)
            if node.many:
                self.enter(&self.open, node.many, opened)
        for i in range(self.floating[turn].count):
            node = &self.nodes[self.floating[turn].items[i]]
            items_hit(&self.blocks, &node.here, hits)
            if node.many:
                self.enter(&self.open, node.many, opened)
        i = 0
        while i < self.open.count:
            node = &self.nodes[self.open.items[i]]
            items_hit(&self.blocks, &node.here, hits)
            if node.many:
                self.enter(&self.open, node.many, opened)
            i += 1
        return 0

    cdef int enter(self, hits_t* list, uint32_t node, uint32_t stamp) except -1 nogil:
        """Puts a node into a list, unless it has this stamp already."""
        if self.nodes[node].stamp != stamp:
            self.nodes[node].stamp = stamp
            hits_add(list, node)
        return 0

    cdef uint64_t word_id_of(self, word_t* word) noexcept nogil:
        """The id of the address's word, looked up when it is first needed."""
        if word.id == ID_UNREAD:
            word.id = word_find(&self.words, word)
        return word.id

    # ---- checking

    def counts(self):
        """What is held, by kind; all 0 when there are no patterns. The root is no node here."""
        return {"items": self.item_count, "nodes": max(self.node_used, 1) - 1, "edges": self.edge_count,
                "words": self.words.count, "blocks": self.blocks.used}

    def check(self):
        """Verify every invariant from scratch; raises AssertionError. Costs a walk over the trie."""
        cdef dict word_of = {}, used = {}
        cdef size_t i, items = 0, nodes = 0, edges = 0, blocks = 0
        cdef word_t word
        cdef text_t* text
        cdef uint32_t number
        cdef edge_t* edge
        texts_check(&self.words)
        for i in range(self.words.capacity):
            text = self.words.slots[i].text
            if text != NULL:
                word_read(text_of(text), text_of(text), text_of(text) + text.text_bytes, self.words.seed, &word)
                require(word.hash == self.words.slots[i].hash and word.text_bytes == text.text_bytes,
                        "a word has its hash")
                require(0 < text.meaning.id <= self.word_id, "a word's id was given")
                word_of[text.meaning.id] = text.references
        require(<size_t> len(word_of) == self.words.count, "two words have two ids")
        children = {}
        for i in range(self.edge_capacity):
            edge = &self.edges[i]
            if edge.child:
                edges += 1
                require(self.edge_find(edge.word, edge.node) == edge.child, "an edge is found where it is")
                used[edge.word] = used.get(edge.word, 0) + 1
                children.setdefault(edge.node, []).append(edge.child)
        require(edges == self.edge_count and edges * 2 <= self.edge_capacity,
                "edges are counted, and half of their table is empty")
        require(used == word_of, "a word has a reference from each of its edges")
        seen = set()
        pending = [(0, False)] if self.node_count else []
        while pending:
            number, below_many = pending.pop()
            require(number < self.node_count and number not in seen, "a node has one parent")
            seen.add(number)
            nodes += 1
            items += self.check_node(number, below_many)
            blocks += (self.nodes[number].here.count > 1) + (self.nodes[number].tail.count > 1)
            below = children.pop(number, [])
            require(len(below) == self.nodes[number].edges, "a node counts its edges")
            pending.extend((child, below_many) for child in below)
            if self.nodes[number].one:
                pending.append((self.nodes[number].one, below_many))
            if self.nodes[number].many:
                pending.append((self.nodes[number].many, True))
        require(not children, "every edge starts at a node")
        require(nodes == self.node_used, "every node hangs on the root")
        require(items == self.item_count, "items are counted")
        require(blocks == self.blocks.used, "every block of items belongs to a node")
        number = self.node_free
        while number:
            require(number not in seen and nodes < self.node_count, "a free node is free, once")
            number = self.nodes[number].one
            nodes += 1
        require(nodes == self.node_count, "a node is used or free")

    cdef size_t check_node(self, uint32_t number, bint below_many) except? 0:
        """The number of its items."""
        cdef node_t* node = &self.nodes[number]
        require(not number or node.here.count or node.tail.count or node.one or node.many or node.edges,
                "a node is there for something")
        require(not below_many or node.tail.count == 0, "below a `#` there are no tails")
        require(node.stamp <= self.clock, "no node was entered later than now")
        items_check(&self.blocks, &node.here)
        items_check(&self.blocks, &node.tail)
        return node.here.count + node.tail.count
