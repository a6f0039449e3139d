"""The nodes of a filter before there is memory for them, and what the operations are called."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef enum:
    DEPTH_MAX = 100         # operators on the longest way from the root to a leaf
    HEADER_NULL = 0         # the type of a value that is missing; the others are in `message.pxd`

    # Operations, of values first. The evaluator compares with the borders between the groups.
    LITERAL = 0
    HEADER
    SYS_ADDRESS
    SYS_REPLY_TO
    SYS_TIMESTAMP
    SYS_SIZE
    SYS_DELIVERY_COUNT
    ADD
    SUBTRACT
    MULTIPLY
    DIVIDE
    NEGATE
    AND                     # from here on: truths
    OR
    NOT
    EQUAL
    UNEQUAL
    LESS
    LESS_EQUAL
    MORE
    MORE_EQUAL
    BETWEEN
    IN
    LIKE
    IS_NULL

    # In the patterns of LIKE, which are UTF-8 otherwise: bytes that UTF-8 never contains.
    ANY_RUN = 0xFF          # % in a pattern
    ANY_ONE = 0xFE          # _ in a pattern

# The types that compare with each other have one kind: 0 NULL, 1 bool, 2 number, 3 text, 4 bytes.
cdef inline int kind_of(uint8_t type) noexcept nogil:
    return (type + 1) >> 1 if type < 5 else type - 2

cdef class Row:
    cdef uint8_t operation, type
    cdef uint32_t left, right, third, text_bytes
    cdef int64_t integer
    cdef double real
    cdef Py_ssize_t text    # where it starts in the arena

cdef class Layout:
    cdef list rows
    cdef dict names         # of headers, to the index of their only node
    cdef bytearray arena    # the text that the rows point to
    cdef Py_ssize_t add(self, Row row, uint8_t operation) except -1
    cdef Row text(self, bytes text, uint8_t type)

# Adds a tree, its operands before it; returns the index of its root. Raises TypeError and ValueError for what is no tree.
cdef Py_ssize_t place(Layout layout, object tree, int level) except -1
