"""The match index: finds the patterns of all operators that match one field of the envelope.

An index serves the values of one field: the address, `reply_to`, or one header. It keeps each pattern in the structure that
answers its operator fastest, and a look-up skips structures without patterns:

    eq          a hash table
    topic       a hash table if there is no wildcard, else the trie (`match/topic.pyx`)
    prefix      a hash table and the list of lengths (`match/prefix.pyx`)
    others      a list; their functions are called, one pattern after the other

`xump.operators` checks patterns, and that an operator exists. The engine remembers the hits of an address; the index itself
remembers nothing between look-ups.
"""

cimport cython
from bisect import bisect_left
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint64_t

from xump_ext.match.posting_list cimport posting_arrays_free, posting_arrays_size, postings_collect
from xump_ext.match.string_table cimport (
    string_t, string_table_add_posting, string_table_check_postings, string_table_find, string_table_free,
    string_table_remove_posting, string_table_size, string_text, text_hash,
)
from xump_ext.memory.require cimport require
from xump_ext.memory.u32_vector cimport u32_vector_add, u32_vector_free

# Held in C: an engine may end together with the interpreter, and then the names in modules are already None.
cdef object position_in = bisect_left


@cython.final
cdef class MatchIndex:
    """Patterns over one field of the envelope, and for each its postings: the items (small numbers) that have this pattern.

    A look-up costs O(length of the value) for the built-in operators, whatever the number of patterns, and one call for each
    pattern of a registered operator.

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
        string_table_free(&self.exact)
        string_table_free(&self.literal)
        posting_arrays_free(&self.arrays)

    def __len__(self):
        return self.item_count

    def add(self, str operator not None, str pattern not None, uint32_t item, function=None):
        """Adds an item to a pattern; returns whether it is new there. If not, nothing changes.

        An operator that is not built in needs its `function(pattern, value) -> bool`. O(length of the pattern).
        """
        cdef bytes text = pattern.encode("utf-8", "surrogatepass")
        cdef string_table_t* table = self.table_of(operator, pattern)
        cdef bint new
        if table != NULL:
            new = string_table_add_posting(table, &self.arrays, text_hash(table.seed, text, len(text)), 0, text, len(text), item)
        elif operator == "topic":
            new = self.topics.insert(text, len(text), item)
        elif operator == "prefix":
            new = self.prefixes.insert(text, len(text), item)
        else:
            new = self.add_registered(operator, pattern, item, function)
        self.item_count += new
        return new

    def remove(self, str operator not None, str pattern not None, uint32_t item):
        """Removes an item from a pattern, and what no item needs any longer; returns whether it was there.

        O(length of the pattern).
        """
        cdef bytes text = pattern.encode("utf-8", "surrogatepass")
        cdef string_table_t* table = self.table_of(operator, pattern)
        cdef bint found
        if table != NULL:
            found = string_table_remove_posting(
                table, &self.arrays, text_hash(table.seed, text, len(text)), 0, text, len(text), item)
        elif operator == "topic":
            found = self.topics.erase(text, len(text), item)
        elif operator == "prefix":
            found = self.prefixes.erase(text, len(text), item)
        else:
            found = self.remove_registered(operator, pattern, item)
        self.item_count -= found
        if self.item_count == 0:
            posting_arrays_free(&self.arrays)
        return found

    def __sizeof__(self):
        return (object.__sizeof__(self) + string_table_size(&self.exact) + string_table_size(&self.literal)
                + posting_arrays_size(&self.arrays) + self.topics.size() + self.prefixes.size())

    def match_list(self, str value not None):
        """The items of all patterns that match, sorted; an item is there once for each such pattern."""
        cdef u32_vector_t hits = u32_vector_t(NULL, 0, 0)
        cdef bytes text = value.encode("utf-8", "surrogatepass")
        try:
            self.match(text, len(text), &hits)
            return sorted([hits.items[i] for i in range(hits.count)])
        finally:
            u32_vector_free(&hits)

    cdef int match(self, const char* value, Py_ssize_t value_bytes, u32_vector_t* hits) except -1:
        cdef uint64_t hashed
        cdef string_t* found
        if self.exact.count or self.literal.count:
            hashed = text_hash(self.exact.seed, value, value_bytes)         # both tables have one seed, and so one hash
            found = string_table_find(&self.exact, hashed, 0, value, value_bytes)
            if found != NULL:
                postings_collect(&self.arrays, &found.meaning.postings, hits)
            found = string_table_find(&self.literal, hashed, 0, value, value_bytes)
            if found != NULL:
                postings_collect(&self.arrays, &found.meaning.postings, hits)
        if self.topics.item_count:
            self.topics.match(value, value_bytes, hits)
        if self.prefixes.item_count:
            self.prefixes.match(value, value_bytes, hits)
        if self.registered:
            self.match_registered(value, value_bytes, hits)
        return 0

    cdef int match_registered(self, const char* value, Py_ssize_t value_bytes, u32_vector_t* hits) except -1:
        """Calls the function of every pattern. One that raises an Exception does not match, and `errors` gets it; anything else
        that is raised propagates."""
        cdef uint32_t item
        cdef list postings
        text = PyUnicode_DecodeUTF8(value, value_bytes, "surrogatepass")
        for (operator, pattern), (function, postings) in list(self.registered.items()):
            try:
                matches = bool(function(pattern, text))
            except Exception as error:
                self.errors.append((operator, pattern, error))
                continue
            if matches:
                for item in postings:
                    u32_vector_add(hits, item)
        return 0

    cdef string_table_t* table_of(self, str operator, str pattern) except? NULL:
        """The table of a pattern that a value must equal; NULL for any other pattern."""
        if operator == "eq":
            return &self.exact
        if operator == "topic" and "*" not in pattern and "#" not in pattern:
            return &self.literal
        return NULL

    cdef bint add_registered(self, str operator, str pattern, uint32_t item, object function) except -1:
        cdef list postings
        cdef Py_ssize_t at
        entry = self.registered.get((operator, pattern))
        if entry is None:
            if not callable(function):
                raise TypeError(f"operator {operator!r} is not built in: add() needs its function, got {function!r}")
            entry = self.registered[operator, pattern] = (function, [])
        postings = entry[1]
        at = position_in(postings, item)
        if at < len(postings) and postings[at] == item:
            return False
        postings.insert(at, item)
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
        """The number of things held, by kind; all 0 without patterns."""
        cdef dict topics = self.topics.counts()
        return {"items": self.item_count, "texts": self.exact.count + self.literal.count + self.prefixes.strings.count,
                "lengths": self.prefixes.length_count, "nodes": topics["nodes"], "edges": topics["edges"],
                "words": topics["words"], "blocks": topics["blocks"] + self.prefixes.arrays.used + self.arrays.used,
                "registered": len(self.registered)}

    def check(self):
        """Verifies every invariant from scratch; raises AssertionError. O(everything held)."""
        cdef size_t postings = 0, arrays = 0
        self.topics.check()
        self.prefixes.check()
        self.check_table(&self.exact, &postings, &arrays)
        self.check_table(&self.literal, &postings, &arrays)
        require(arrays == self.arrays.used, "every block of items belongs to a text")
        postings += self.topics.item_count + self.prefixes.item_count
        for _, held in self.registered.values():
            require(held and held == sorted(set(held)), "items ascend, and a pattern is there for them")
            postings += <size_t> len(held)
        require(postings == self.item_count, "items are counted")

    cdef int check_table(self, const string_table_t* table, size_t* postings, size_t* arrays) except -1:
        cdef string_t* text
        cdef size_t i
        string_table_check_postings(table, &self.arrays, postings, arrays)
        for i in range(table.capacity):
            text = table.slots[i].text
            if text != NULL:
                require(table.slots[i].hash == text_hash(table.seed, string_text(text), text.text_bytes), "a text has its hash")
        return 0
