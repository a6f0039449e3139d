"""The match index: which patterns, of whatever operator, match one field of the envelope.

An index serves the values of one field: the address, the return address, or one header. It puts each pattern where its
operator is answered fastest, and asks only what has patterns:

    eq          a hash table
    topic       without a wildcard the same; else the trie (`topic.pyx`)
    prefix      a hash table and the list of lengths (`prefix.pyx`)
    others      a list: their functions are called, one pattern after the other

What a pattern is, and that an operator exists, is checked outside (`xump.operators`). What an index has found for an
address is remembered by the engine; here every look-up is a cold one.
"""

cimport cython
from bisect import bisect_left
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint64_t

from xump_ext.checks cimport require
from xump_ext.hits cimport hits_add, hits_free
from xump_ext.items cimport blocks_free, blocks_size, items_hit
from xump_ext.texts cimport (
    text_hash, text_of, text_t, texts_add_item, texts_check_items, texts_find, texts_free, texts_remove_item, texts_size)

cdef object place_in = bisect_left      # in C: an engine may end when the interpreter does, and the names of modules are None


@cython.final
cdef class MatchIndex:
    """Patterns over one field of the envelope, and the items (small numbers) behind them.

    A look-up costs O(length of the value) for the built-in operators, whatever the number of patterns, and a call per
    pattern for registered ones.

    >>> index = MatchIndex()
    >>> index.add("eq", "jobs.new", 1), index.add("topic", "jobs.#", 2), index.add("prefix", "jo", 3)
    (True, True, True)
    >>> index.match_list("jobs.new")
    [1, 2, 3]
    """

    def __cinit__(self):
        self.exact.seed = self.literal.seed = <uint64_t> <Py_ssize_t> hash("xump")
        self.topics = TopicTrie()
        self.prefixes = PrefixIndex()
        self.registered = {}
        self.errors = []

    def __dealloc__(self):
        texts_free(&self.exact)
        texts_free(&self.literal)
        blocks_free(&self.blocks)

    def __len__(self):
        return self.item_count

    def add(self, str operator not None, str pattern not None, uint32_t item, function=None):
        """Whether the item is new for this pattern of this operator; if not, nothing has changed.

        An operator that is not built in needs its `function(pattern, value) -> bool`. Costs O(length of the pattern).
        """
        cdef bytes text = pattern.encode("utf-8", "surrogatepass")
        cdef texts_t* table = self.table_of(operator, pattern)
        cdef bint new
        if table != NULL:
            new = texts_add_item(table, &self.blocks, text_hash(table.seed, text, len(text)), 0, text, len(text), item)
        elif operator == "topic":
            new = self.topics.insert(text, len(text), item)
        elif operator == "prefix":
            new = self.prefixes.insert(text, len(text), item)
        else:
            new = self.add_registered(operator, pattern, item, function)
        self.item_count += new
        return new

    def remove(self, str operator not None, str pattern not None, uint32_t item):
        """Whether the item was there. Costs O(length of the pattern); what no pattern needs any more is freed."""
        cdef bytes text = pattern.encode("utf-8", "surrogatepass")
        cdef texts_t* table = self.table_of(operator, pattern)
        cdef bint found
        if table != NULL:
            found = texts_remove_item(table, &self.blocks, text_hash(table.seed, text, len(text)), 0, text, len(text), item)
        elif operator == "topic":
            found = self.topics.erase(text, len(text), item)
        elif operator == "prefix":
            found = self.prefixes.erase(text, len(text), item)
        else:
            found = self.remove_registered(operator, pattern, item)
        self.item_count -= found
        if self.item_count == 0:
            blocks_free(&self.blocks)
        return found

    def __sizeof__(self):
        return (object.__sizeof__(self) + texts_size(&self.exact) + texts_size(&self.literal) + blocks_size(&self.blocks)
                + self.topics.size() + self.prefixes.size())

    def match_list(self, str value not None):
        """The items of all patterns that match, sorted; an item stands once for every pattern that it stands behind."""
        cdef hits_t hits = hits_t(NULL, 0, 0)
        cdef bytes text = value.encode("utf-8", "surrogatepass")
        try:
            self.match(text, len(text), &hits)
            return sorted([hits.items[i] for i in range(hits.count)])
        finally:
            hits_free(&hits)

    cdef int match(self, const char* value, Py_ssize_t value_bytes, hits_t* hits) except -1:
        cdef uint64_t hashed
        cdef text_t* found
        if self.exact.count or self.literal.count:
            hashed = text_hash(self.exact.seed, value, value_bytes)         # one seed, so one hash for both
            found = texts_find(&self.exact, hashed, 0, value, value_bytes)
            if found != NULL:
                items_hit(&self.blocks, &found.meaning.items, hits)
            found = texts_find(&self.literal, hashed, 0, value, value_bytes)
            if found != NULL:
                items_hit(&self.blocks, &found.meaning.items, hits)
        if self.topics.item_count:
            self.topics.match(value, value_bytes, hits)
        if self.prefixes.item_count:
            self.prefixes.match(value, value_bytes, hits)
        if self.registered:
            self.match_registered(value, value_bytes, hits)
        return 0

    cdef int match_registered(self, const char* value, Py_ssize_t value_bytes, hits_t* hits) except -1:
        """Calls every function; one that raises does not match, and `errors` gets it. What is no Exception goes on its way."""
        cdef uint32_t item
        cdef list items
        text = PyUnicode_DecodeUTF8(value, value_bytes, "surrogatepass")
        for (operator, pattern), (function, items) in list(self.registered.items()):
            try:
                matches = bool(function(pattern, text))
            except Exception as error:
                self.errors.append((operator, pattern, error))
                continue
            if matches:
                for item in items:
                    hits_add(hits, item)
        return 0

    cdef texts_t* table_of(self, str operator, str pattern) except? NULL:
        """The table of a pattern that a value must be equal to; NULL for any other."""
        if operator == "eq":
            return &self.exact
        if operator == "topic" and "*" not in pattern and "#" not in pattern:
            return &self.literal
        return NULL

    cdef bint add_registered(self, str operator, str pattern, uint32_t item, object function) except -1:
        cdef list items
        cdef Py_ssize_t at
        entry = self.registered.get((operator, pattern))
        if entry is None:
            if not callable(function):
                raise TypeError(f"operator {operator!r} is not built in: add() needs its function, got {function!r}")
            entry = self.registered[operator, pattern] = (function, [])
        items = entry[1]
        at = place_in(items, item)
        if at < len(items) and items[at] == item:
            return False
        items.insert(at, item)
        return True

    cdef bint remove_registered(self, str operator, str pattern, uint32_t item) except -1:
        entry = self.registered.get((operator, pattern))
        if entry is None or item not in entry[1]:
            return False
        entry[1].remove(item)
        if not entry[1]:
            del self.registered[operator, pattern]
        return True

    # ---- checking

    def counts(self):
        """What is held, by kind; all 0 when there are no patterns."""
        cdef dict topics = self.topics.counts()
        return {"items": self.item_count, "texts": self.exact.count + self.literal.count + self.prefixes.texts.count,
                "lengths": self.prefixes.length_count, "nodes": topics["nodes"], "edges": topics["edges"],
                "words": topics["words"], "blocks": topics["blocks"] + self.prefixes.blocks.used + self.blocks.used,
                "registered": len(self.registered)}

    def check(self):
        """Verify every invariant from scratch; raises AssertionError. Costs a walk over everything held."""
        cdef size_t items = 0, blocks = 0
        self.topics.check()
        self.prefixes.check()
        self.check_table(&self.exact, &items, &blocks)
        self.check_table(&self.literal, &items, &blocks)
        require(blocks == self.blocks.used, "every block of items belongs to a text")
        items += self.topics.item_count + self.prefixes.item_count
        for _, held in self.registered.values():
            require(held and held == sorted(set(held)), "items ascend, and a pattern is there for them")
            items += <size_t> len(held)
        require(items == self.item_count, "items are counted")

    cdef int check_table(self, const texts_t* table, size_t* items, size_t* blocks) except -1:
        cdef text_t* text
        cdef size_t i
        texts_check_items(table, &self.blocks, items, blocks)
        for i in range(table.capacity):
            text = table.slots[i].text
            if text != NULL:
                require(table.slots[i].hash == text_hash(table.seed, text_of(text), text.text_bytes), "a text has its hash")
        return 0
