"""Declarations of `filter_layout.pyx`, and the numbers of a filter's operations."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef enum:
    DEPTH_MAX = 100         # operators on the longest way from the root to a leaf
    HEADER_NULL = 0         # the type of a missing value; the other types are in `message/headers.pxd`

    # Operations: first those that give values, then those that give truths. The evaluator compares with the borders between them.
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

    # Wildcards in the patterns of LIKE, which are UTF-8 otherwise: bytes that UTF-8 never contains.
    ANY_RUN = 0xFF          # % in a pattern
    ANY_ONE = 0xFE          # _ in a pattern

# Types that compare with each other have one kind: 0 NULL, 1 bool, 2 number, 3 text, 4 bytes.
cdef inline int kind_of(uint8_t type) noexcept nogil:
    return (type + 1) >> 1 if type < 5 else type - 2

cdef class Row:
    cdef uint8_t operation, type
    cdef uint32_t left, right, third, text_bytes
    cdef int64_t integer
    cdef double real
    cdef Py_ssize_t text    # offset in the arena

cdef class Layout:
    cdef list rows
    cdef dict names         # name of a header to the index of its only row
    cdef bytearray arena    # the texts of the rows
    cdef Py_ssize_t add(self, Row row, uint8_t operation) except -1
    cdef Row text(self, bytes text, uint8_t type)

# Adds a tree, operands first; returns the index of its root. Raises TypeError and ValueError for anything that is not a tree.
cdef Py_ssize_t lay_out(Layout layout, object tree, int level) except -1
