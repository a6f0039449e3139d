"""Writes the headers that a reader names as a column, each value with its own type.

The types of a struct's fields follow from all values of a batch (`write_headers.pyx`): one message decides how the header of
another one is written. A reader that names types needs each value as it was published. So this column is a struct with a field
for each name *and type* that is there: bool, int64, float64, utf8 or binary. A field is named by the place of its header among
those that are wanted; a header whose values are ints in some messages and texts in others has two fields of one name. No row
has a value in both. A header that is wanted as text has one field for all but bytes, with values as the map of headers has
them.
"""

from libc.stdint cimport UINT32_MAX, int64_t, uint16_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from xump_ext.arrow.column_writer cimport batch_row_t, writer_t
from xump_ext.arrow.export cimport children_alloc, written_t
from xump_ext.arrow.write_headers cimport field_finish, field_start, headers_from, write_value
from xump_ext.memory.u32_vector cimport u32_vector_add, u32_vector_free, u32_vector_t
from xump_ext.message.headers cimport HEADER_BYTES, HEADER_FALSE, HEADER_STR, HEADER_TRUE, field_read, header_t

cdef enum:
    POSITIONS = 64              # so many names of a message are compared with those of the message before
    TYPES = HEADER_BYTES + 1

cdef uint32_t NOT_WANTED = UINT32_MAX

cdef const char* FORMATS[<int> TYPES]
FORMATS[:] = [NULL, NULL, "b", "l", "g", "u", "z"]


# The name of one position in the message before. Most messages have their names in the same order.
cdef struct position_t:
    const char* name            # it lies in the content; NULL: there was none
    uint16_t name_bytes
    uint32_t place


cdef class NamedHeaders:
    """The headers that are wanted, and their fields in one batch."""

    cdef dict places                        # by name, in UTF-8
    cdef list as_text                       # by place
    cdef position_t positions[<int> POSITIONS]
    cdef uint32_t* numbers                  # by place and type: the number of the field plus one
    cdef u32_vector_t fields                # by number: place and type
    cdef u32_vector_t found                 # of each header, in the order of the messages: its field, or NOT_WANTED
    cdef writer_t* writers

    def __cinit__(self, dict wanted):
        """`wanted`: names, and whether a header is wanted as text."""
        self.places = {name.encode(): place for place, name in enumerate(wanted)}
        self.as_text = list(wanted.values())
        self.numbers = <uint32_t*> calloc(len(wanted) * <size_t> TYPES + 1, sizeof(uint32_t))
        if self.numbers == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.numbers)
        free(self.writers)
        u32_vector_free(&self.fields)
        u32_vector_free(&self.found)

    cdef uint32_t place_of(self, int position, const header_t* header) except? 0:
        """The place of a header among those that are wanted, or NOT_WANTED."""
        cdef position_t* known = &self.positions[position] if position < POSITIONS else NULL
        if known != NULL and known.name != NULL and known.name_bytes == header.name_bytes and (
                memcmp(known.name, header.name, header.name_bytes) == 0):
            return known.place
        place = self.places.get(header.name[:header.name_bytes])
        if known != NULL:
            known.name, known.name_bytes = header.name, header.name_bytes
            known.place = NOT_WANTED if place is None else <uint32_t> place
        return NOT_WANTED if place is None else <uint32_t> place

    cdef int find(self, const batch_row_t* rows, Py_ssize_t count) except -1:
        """The first pass: which fields there are, and the field of each header."""
        cdef header_t header
        cdef uint32_t place, field
        cdef int position
        cdef const char* at
        cdef const char* end
        cdef Py_ssize_t row
        for row in range(count):
            position = 0
            at = headers_from(rows[row].content, &end)
            while at < end:
                at = field_read(at, &header)
                place = self.place_of(position, &header)
                position += 1
                if place != NOT_WANTED:
                    field = place * <uint32_t> TYPES + self.type_of(place, &header)
                    if self.numbers[field] == 0:
                        u32_vector_add(&self.fields, field)
                        self.numbers[field] = self.fields.count
                    place = self.numbers[field] - 1
                u32_vector_add(&self.found, place)
        return 0

    cdef uint32_t type_of(self, uint32_t place, const header_t* header) except 0:
        """As which type it is written."""
        if header.type == HEADER_BYTES:
            return HEADER_BYTES
        if self.as_text[place]:
            return HEADER_STR
        return HEADER_TRUE if header.type == HEADER_FALSE else header.type

    cdef int write(self, written_t* column, const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max) except -1:
        """The second pass: the values."""
        cdef char name[16]
        cdef header_t header
        cdef uint32_t number
        cdef const uint32_t* found = self.found.items
        cdef const char* at
        cdef const char* end
        cdef Py_ssize_t row
        self.writers = <writer_t*> calloc(self.fields.count, sizeof(writer_t))
        if self.writers == NULL:
            raise MemoryError()
        column.format = "+s"
        column.buffer_count = 1
        children_alloc(column, count, self.fields.count)
        for number in range(self.fields.count):
            field_start(&column.children[number], &self.writers[number], name,
                        snprintf(name, 16, "%u", self.fields.items[number] // TYPES),
                        FORMATS[self.fields.items[number] % TYPES])
        for row in range(count):
            at = headers_from(rows[row].content, &end)
            while at < end:
                at = field_read(at, &header)
                if found[0] != NOT_WANTED:
                    write_value(&column.children[found[0]], &self.writers[found[0]], row, &header)
                found += 1
        for number in range(self.fields.count):
            field_finish(&column.children[number], &self.writers[number], small_bytes_max)
        return 0


cdef int write_named_headers(
    written_t* column, const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max, dict wanted
) except -1:
    cdef NamedHeaders headers = NamedHeaders(wanted)
    headers.find(rows, count)
    if headers.fields.count == 0:
        column.format = "n"
        column.null_count = count
        return 0
    return headers.write(column, rows, count, small_bytes_max)
