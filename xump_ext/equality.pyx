"""Conditions that test one header for equality, as `{"region": "EU"}` does: found by a look-up per header of the message.

Two hash tables: names of headers, and values, keyed by (name, type, bytes). Values that are equal share one form, so that
equality is equality of bytes:

    int, float      a float that is a whole number of 64 bits is that int (and -0.0 is 0); any other float stays one.
                    Nothing is rounded: 2**53 + 1 is no float. NaN equals nothing.
    bool            only itself; True is not 1
    str, bytes      only themselves; text is not bytes

An int that no header can hold equals the float of exactly that value, if there is one, else nothing.
"""

import struct
import sys

cimport cython
from libc.stdint cimport int64_t

from xump_ext.block cimport HEADER_BYTES, HEADER_FALSE, HEADER_FLOAT, HEADER_INT, HEADER_STR, HEADER_TRUE, header_next, header_t
from xump_ext.checks cimport require
from xump_ext.hits cimport hits_free
from xump_ext.items cimport blocks_free, blocks_size, items_hit
from xump_ext.message cimport Message
from xump_ext.texts cimport (
    HASH_B, text_hash, text_of, text_t, texts_add, texts_add_item, texts_check, texts_check_items, texts_drop, texts_find,
    texts_free, texts_remove_item, texts_size)

cdef enum:
    NEVER = 7               # the type of values that no header equals: NaN, and ints beyond all headers
    TYPES = 8

# Held in C: an engine may end when the interpreter does, and the names of modules are None by then.
cdef str BYTE_ORDER = sys.byteorder
cdef object pack = struct.pack

cdef enum: INT_END = 0x8000000000000000


cdef inline uint64_t form_of_float(double real, int64_t* integer) noexcept nogil:
    """The type under which a float is kept; sets `integer` when that is int."""
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
    """The type and bytes of a Python value. Raises TypeError for what no header can hold."""
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
    """Conditions `header == value`, and the items (small numbers) behind them.

    A look-up costs O(headers of the message + hits), whatever the number of conditions.

    >>> from xump_ext.message import Message
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
        """Whether the item is new for this header and value; if not, nothing has changed. Costs their lengths."""
        cdef bytes text = header.encode("utf-8", "surrogatepass"), form
        cdef uint64_t hashed = text_hash(self.names.seed, text, len(text)), group, type
        cdef size_t values = self.values.count
        cdef text_t* name
        cdef bint new
        type, form = form_of(value)
        name = texts_add(&self.names, hashed, 0, text, len(text))
        if name.references == 0:
            self.name_id += 1
            name.meaning.id = self.name_id
        group = group_of(name.meaning.id, type)
        try:
            new = texts_add_item(&self.values, &self.blocks, group_hash(self.values.seed, group, form, len(form)), group,
                                 form, len(form), item)
        except MemoryError:
            if name.references == 0:
                texts_drop(&self.names, hashed, name)
            raise
        name.references += <uint32_t> (self.values.count - values)
        self.item_count += new
        return new

    def remove(self, str header not None, value, uint32_t item):
        """Whether the item was there. Costs the lengths of header and value; what nothing needs any more is freed."""
        cdef bytes text = header.encode("utf-8", "surrogatepass"), form
        cdef uint64_t hashed = text_hash(self.names.seed, text, len(text)), group, type
        cdef size_t values = self.values.count
        cdef text_t* name
        type, form = form_of(value)
        name = texts_find(&self.names, hashed, 0, text, len(text))
        if name == NULL:
            return False
        group = group_of(name.meaning.id, type)
        if not texts_remove_item(&self.values, &self.blocks, group_hash(self.values.seed, group, form, len(form)), group,
                                 form, len(form), item):
            return False
        name.references -= <uint32_t> (values - self.values.count)
        if name.references == 0:
            texts_drop(&self.names, hashed, name)
        self.item_count -= 1
        if self.item_count == 0:
            self.release()
        return True

    cdef int match(self, const content_t* content, hits_t* hits) except -1 nogil:
        cdef uint32_t position
        cdef header_t header
        cdef text_t* found
        if self.item_count == 0:
            return 0
        position = header_next(content, 0, &header)
        while position:
            found = texts_find(
                &self.names, text_hash(self.names.seed, header.name, header.name_bytes), 0, header.name, header.name_bytes)
            if found != NULL:
                found = self.value_find(found.meaning.id, &header)
                if found != NULL:
                    items_hit(&self.blocks, &found.meaning.items, hits)
            position = header_next(content, position, &header)
        return 0

    cdef text_t* value_find(self, uint64_t name, header_t* header) noexcept nogil:
        """The value that a header has, if any condition asks for it."""
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
        return texts_find(&self.values, group_hash(self.values.seed, group, text, text_bytes), group, text, text_bytes)

    def match_list(self, Message message not None):
        """The items of all conditions that hold, sorted; an item stands once for every condition that it stands behind."""
        cdef hits_t hits = hits_t(NULL, 0, 0)
        try:
            self.match(message.content, &hits)
            return sorted([hits.items[i] for i in range(hits.count)])
        finally:
            hits_free(&hits)

    def __sizeof__(self):
        return object.__sizeof__(self) + texts_size(&self.names) + texts_size(&self.values) + blocks_size(&self.blocks)

    cdef void release(self) noexcept:
        """Gives all memory back; the index is as new."""
        texts_free(&self.names)
        texts_free(&self.values)
        blocks_free(&self.blocks)

    # ---- checking

    def counts(self):
        """What is held, by kind; all 0 when there are no conditions."""
        return {"items": self.item_count, "names": self.names.count, "values": self.values.count, "blocks": self.blocks.used}

    def check(self):
        """Verify every invariant from scratch; raises AssertionError. Costs a walk over the conditions."""
        cdef size_t items = 0, blocks = 0, i
        cdef dict references = {}, expected = {}
        cdef text_t* text
        texts_check(&self.names)
        texts_check_items(&self.values, &self.blocks, &items, &blocks)
        require(items == self.item_count, "items are counted")
        require(blocks == self.blocks.used, "every block of items belongs to a value")
        for i in range(self.names.capacity):
            text = self.names.slots[i].text
            if text != NULL:
                require(self.names.slots[i].hash == text_hash(self.names.seed, text_of(text), text.text_bytes),
                        "a name has its hash")
                require(0 < text.meaning.id <= self.name_id, "a name's id was given")
                references[text.meaning.id] = text.references
        require(<size_t> len(references) == self.names.count, "two names have two ids")
        for i in range(self.values.capacity):
            text = self.values.slots[i].text
            if text != NULL:
                require(self.values.slots[i].hash == group_hash(self.values.seed, text.group, text_of(text), text.text_bytes),
                        "a value has its hash")
                expected[text.group // TYPES] = expected.get(text.group // TYPES, 0) + 1
        require(references == expected, "a name has a reference from each of its values")
