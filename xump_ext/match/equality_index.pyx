"""An index of conditions that test one header for equality, as `{"region": "EU"}` does.

A message costs one look-up for each of its headers. There are two hash tables: one of the names of headers, and one of values,
keyed by (name, type, bytes). Equal values share one form, so equal values have equal bytes:

    int, float      a float that is a whole number of 64 bits becomes that int (and -0.0 becomes 0); any other float stays
                    a float. Nothing is rounded: 2**53 + 1 is no float. NaN equals nothing.
    bool            equals only itself; True is not 1
    str, bytes      equal only themselves; text is not bytes

An int that no header can hold equals the float of exactly that value, if there is one, else nothing.
"""

import struct
import sys

cimport cython
from libc.stdint cimport int64_t

from xump_ext.match.posting_list cimport posting_arrays_free, posting_arrays_size, postings_collect
from xump_ext.match.string_table cimport (
    HASH_B, string_t, string_table_add, string_table_add_posting, string_table_check, string_table_check_postings,
    string_table_drop, string_table_find, string_table_free, string_table_remove_posting, string_table_size, string_text,
    text_hash,
)
from xump_ext.memory.require cimport require
from xump_ext.memory.u32_vector cimport u32_vector_free
from xump_ext.message.headers cimport (
    HEADER_BYTES, HEADER_FALSE, HEADER_FLOAT, HEADER_INT, HEADER_STR, HEADER_TRUE, header_next, header_t,
)
from xump_ext.message.message cimport Message

cdef enum:
    NEVER = 7               # the type of values that no header equals: NaN, and ints too large for a header
    TYPES = 8

# Held in C: an engine may end together with the interpreter, and then the names in modules are already None.
cdef str BYTE_ORDER = sys.byteorder
cdef object pack = struct.pack

cdef enum: INT_END = 0x8000000000000000


cdef inline uint64_t form_of_float(double real, int64_t* integer) noexcept nogil:
    """The type of the form of a float; sets `integer` when that is an int."""
    cdef double end = <double> <uint64_t> INT_END       # 2**63, exactly
    if real != real:
        return NEVER
    if -end <= real < end and <double> <int64_t> real == real:
        integer[0] = <int64_t> real
        return HEADER_INT
    return HEADER_FLOAT


cdef inline uint64_t group_of(uint64_t name, uint64_t type) noexcept nogil:
    return name * TYPES + type


cdef inline uint64_t group_hash(uint64_t seed, uint64_t group, const char* text, size_t text_bytes) noexcept nogil:
    return text_hash(seed ^ (group * <uint64_t> HASH_B), text, text_bytes)


cdef tuple form_of(object value):
    """The form of a Python value: type and bytes. Raises TypeError for a value that no header can hold."""
    cdef int64_t integer = 0
    cdef uint64_t type = NEVER
    if isinstance(value, bool):
        return (HEADER_TRUE if value else HEADER_FALSE), b""
    if isinstance(value, str):
        return HEADER_STR, value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return HEADER_BYTES, bytes(value)
    if isinstance(value, int):
        if -2**63 <= value < 2**63:
            return HEADER_INT, int(value).to_bytes(8, BYTE_ORDER, signed=True)
        try:
            real = float(value)
        except OverflowError:
            return NEVER, hex(value).encode()
        return (HEADER_FLOAT, pack("d", real)) if int(real) == value else (NEVER, hex(value).encode())
    if isinstance(value, float):
        type = form_of_float(value, &integer)
        if type == HEADER_INT:
            return HEADER_INT, integer.to_bytes(8, BYTE_ORDER, signed=True)
        return type, pack("d", value) if type == HEADER_FLOAT else b"nan"
    raise TypeError(f"a header is compared with a bool, int, float, str or bytes, got {value.__class__.__name__}")


@cython.final
cdef class EqualityIndex:
    """Conditions `header == value`, and for each its postings: the items (small numbers) that have this condition.

    A look-up costs O(headers of the message + hits), whatever the number of conditions.

    >>> from xump_ext.message.message import Message
    >>> index = EqualityIndex()
    >>> index.add("tier", "gold", 1), index.add("size", 10, 2)
    (True, True)
    >>> index.match_list(Message(headers={"tier": "gold", "size": 10.0}))
    [1, 2]
    """

    def __cinit__(self):
        self.names.seed = self.values.seed = <uint64_t> <Py_ssize_t> hash("xump")

    def __dealloc__(self):
        self.release()

    def __len__(self):
        return self.item_count

    def add(self, str header not None, value, uint32_t item):
        """Adds an item to a condition; returns whether it is new there. If not, nothing changes. O(length of header and
        value)."""
        cdef bytes text = header.encode("utf-8", "surrogatepass"), form
        cdef uint64_t hashed = text_hash(self.names.seed, text, len(text)), group, type
        cdef size_t values = self.values.count
        cdef string_t* name
        cdef bint new
        type, form = form_of(value)
        name = string_table_add(&self.names, hashed, 0, text, len(text))
        if name.references == 0:
            self.name_id += 1
            name.meaning.id = self.name_id
        group = group_of(name.meaning.id, type)
        try:
            new = string_table_add_posting(
                &self.values, &self.arrays, group_hash(self.values.seed, group, form, len(form)), group, form, len(form), item)
        except MemoryError:
            if name.references == 0:
                string_table_drop(&self.names, hashed, name)
            raise
        name.references += <uint32_t> (self.values.count - values)
        self.item_count += new
        return new

    def remove(self, str header not None, value, uint32_t item):
        """Removes an item from a condition, and what no item needs any longer; returns whether it was there.

        O(length of header and value).
        """
        cdef bytes text = header.encode("utf-8", "surrogatepass"), form
        cdef uint64_t hashed = text_hash(self.names.seed, text, len(text)), group, type
        cdef size_t values = self.values.count
        cdef string_t* name
        type, form = form_of(value)
        name = string_table_find(&self.names, hashed, 0, text, len(text))
        if name == NULL:
            return False
        group = group_of(name.meaning.id, type)
        if not string_table_remove_posting(
                &self.values, &self.arrays, group_hash(self.values.seed, group, form, len(form)), group, form, len(form), item):
            return False
        name.references -= <uint32_t> (values - self.values.count)
        if name.references == 0:
            string_table_drop(&self.names, hashed, name)
        self.item_count -= 1
        if self.item_count == 0:
            self.release()
        return True

    cdef int match(self, const content_t* content, u32_vector_t* hits) except -1 nogil:
        cdef uint32_t position
        cdef header_t header
        cdef string_t* found
        if self.item_count == 0:
            return 0
        position = header_next(content, 0, &header)
        while position:
            found = string_table_find(
                &self.names, text_hash(self.names.seed, header.name, header.name_bytes), 0, header.name, header.name_bytes)
            if found != NULL:
                found = self.value_find(found.meaning.id, &header)
                if found != NULL:
                    postings_collect(&self.arrays, &found.meaning.postings, hits)
            position = header_next(content, position, &header)
        return 0

    cdef string_t* value_find(self, uint64_t name, header_t* header) noexcept nogil:
        """The entry of a header's value in the table; NULL if no condition asks for that value."""
        cdef uint64_t type = header.type, group
        cdef const char* text = NULL
        cdef size_t text_bytes = 0
        if type == HEADER_FLOAT:
            type = form_of_float(header.real, &header.integer)
            if type == NEVER:
                return NULL
        if type == HEADER_STR or type == HEADER_BYTES:
            text = header.value
            text_bytes = header.value_bytes
        elif type == HEADER_INT:
            text = <const char*> &header.integer
            text_bytes = sizeof(int64_t)
        elif type == HEADER_FLOAT:
            text = <const char*> &header.real
            text_bytes = sizeof(double)
        group = group_of(name, type)
        return string_table_find(&self.values, group_hash(self.values.seed, group, text, text_bytes), group, text, text_bytes)

    def match_list(self, Message message not None):
        """The items of all conditions that hold, sorted; an item is there once for each such condition."""
        cdef u32_vector_t hits = u32_vector_t(NULL, 0, 0)
        try:
            self.match(message.content, &hits)
            return sorted([hits.items[i] for i in range(hits.count)])
        finally:
            u32_vector_free(&hits)

    def __sizeof__(self):
        return object.__sizeof__(self) + string_table_size(
            &self.names) + string_table_size(&self.values) + posting_arrays_size(&self.arrays)

    cdef void release(self) noexcept:
        """Frees all memory; the index is empty again."""
        string_table_free(&self.names)
        string_table_free(&self.values)
        posting_arrays_free(&self.arrays)

    # ---- checking

    def counts(self):
        """The number of things held, by kind; all 0 without conditions."""
        return {"items": self.item_count, "names": self.names.count, "values": self.values.count, "blocks": self.arrays.used}

    def check(self):
        """Verifies every invariant from scratch; raises AssertionError. O(conditions)."""
        cdef size_t postings = 0, arrays = 0, i
        cdef dict references = {}, expected = {}
        cdef string_t* text
        string_table_check(&self.names)
        string_table_check_postings(&self.values, &self.arrays, &postings, &arrays)
        require(postings == self.item_count, "items are counted")
        require(arrays == self.arrays.used, "every block of items belongs to a value")
        for i in range(self.names.capacity):
            text = self.names.slots[i].text
            if text != NULL:
                require(self.names.slots[i].hash == text_hash(self.names.seed, string_text(text), text.text_bytes),
                        "a name has its hash")
                require(0 < text.meaning.id <= self.name_id, "a name's id was given")
                references[text.meaning.id] = text.references
        require(<size_t> len(references) == self.names.count, "two names have two ids")
        for i in range(self.values.capacity):
            text = self.values.slots[i].text
            if text != NULL:
                require(self.values.slots[i].hash == group_hash(self.values.seed, text.group, string_text(text), text.text_bytes),
                        "a value has its hash")
                expected[text.group // TYPES] = expected.get(text.group // TYPES, 0) + 1
        require(references == expected, "a name has a reference from each of its values")
