"""Checks the tree of a filter and lays it out in rows, which `filter.pyx` copies into memory.

Operands come before their operation, so the root is the last row. A header has one row, however often the filter names it; its
`left` is the slot that it is resolved into. The literals of IN are sorted and lie side by side, for a binary search. Whole floats
among them become integers, so that 1 and 1.0 are one number. Everything is checked here; the evaluator checks nothing.
"""

cimport cython
from libc.stdint cimport uint8_t

from xump_ext.message.headers cimport HEADER_BYTES, HEADER_FALSE, HEADER_FLOAT, HEADER_INT, HEADER_STR, HEADER_TRUE

filter_depth_max = DEPTH_MAX

UNARY = {"not": NOT, "neg": NEGATE, "is null": IS_NULL}
BINARY = {
    "and": AND, "or": OR, "=": EQUAL, "<>": UNEQUAL, "<": LESS, "<=": LESS_EQUAL, ">": MORE, ">=": MORE_EQUAL,
    "+": ADD, "-": SUBTRACT, "*": MULTIPLY, "/": DIVIDE,
}
SYSTEM = {
    "address": SYS_ADDRESS, "reply_to": SYS_REPLY_TO, "timestamp": SYS_TIMESTAMP, "size": SYS_SIZE,
    "delivery_count": SYS_DELIVERY_COUNT,
}
# The number of elements of a node, its operation included. It is checked first, and no later code checks the bounds of a tuple.
ELEMENTS = (
    dict.fromkeys(UNARY, 2) | dict.fromkeys(BINARY, 3)
    | {"literal": 2, "header": 2, "sys": 2, "call": 2, "in": 3, "like": 4, "between": 4}
)


@cython.final
cdef class Row:
    """A node before it is copied into a filter's memory; fields that its operation does not use are 0."""


@cython.final
cdef class Layout:
    """The rows of a tree, the root last, and their texts."""

    def __cinit__(self):
        self.rows = []
        self.names = {}
        self.arena = bytearray()

    cdef Py_ssize_t add(self, Row row, uint8_t operation) except -1:
        row.operation = operation
        self.rows.append(row)
        return len(self.rows) - 1

    cdef Row text(self, bytes text, uint8_t type):
        cdef Row row = Row()
        row.type = type
        row.text = len(self.arena)
        row.text_bytes = len(text)
        self.arena += text
        return row


cdef Py_ssize_t lay_out(Layout layout, object tree, int level) except -1:
    cdef Row row
    if not isinstance(tree, tuple) or not tree or len(tree) != ELEMENTS.get(tree[0]):
        raise TypeError(f"a tree is a tuple of an operation and its operands, got {str(tree)[:80]}")
    if level > DEPTH_MAX:
        raise ValueError(f"a filter is deeper than {DEPTH_MAX} levels")
    operation = tree[0]
    if operation == "literal":
        return layout.add(literal(layout, tree[1]), LITERAL)
    if operation == "header":
        return place_header(layout, tree[1])
    row = Row()
    if operation == "sys":
        if tree[1] not in SYSTEM:
            raise ValueError(f"unknown name sys.{tree[1]}; there are {', '.join(SYSTEM)}")
        return layout.add(row, SYSTEM[tree[1]])
    if operation == "call":
        raise TypeError("a callable is not compiled; call it")
    row.left = lay_out(layout, tree[1], level + 1)
    if operation == "in":
        place_literals(layout, row, tree[2])
        return layout.add(row, IN)
    if operation == "like":
        row.right = layout.add(layout.text(pattern_of(tree[2], tree[3]), HEADER_STR), LITERAL)
        return layout.add(row, LIKE)
    if operation in UNARY:
        return layout.add(row, UNARY[operation])
    row.right = lay_out(layout, tree[2], level + 1)
    if operation == "between":
        row.third = lay_out(layout, tree[3], level + 1)
        return layout.add(row, BETWEEN)
    return layout.add(row, BINARY[operation])


cdef Py_ssize_t place_header(Layout layout, str name) except -1:
    """The row of a header; there is one for each name."""
    cdef Row row
    if name in layout.names:
        return layout.names[name]
    text = name.encode()
    if not 1 <= len(text) <= 65535:
        raise ValueError(f"a header's name has {len(text)} bytes, allowed are 1 to 65535")
    row = layout.text(text, HEADER_NULL)
    row.left = len(layout.names)
    layout.names[name] = layout.add(row, HEADER)
    return layout.names[name]


cdef Row literal(Layout layout, object value):
    cdef Row row = Row()
    if isinstance(value, str):
        return layout.text(value.encode(), HEADER_STR)
    if isinstance(value, bytes):
        return layout.text(value, HEADER_BYTES)
    if isinstance(value, bool):
        row.type = HEADER_TRUE if value else HEADER_FALSE
    elif isinstance(value, int):
        row.type = HEADER_INT
        row.integer = value
    elif isinstance(value, float):
        row.type = HEADER_FLOAT
        row.real = value
    else:
        raise TypeError(f"a literal is a bool, int, float, str or bytes, got {type(value).__name__}")
    return row


cdef int place_literals(Layout layout, Row row, tuple values) except -1:
    """Adds the literals of IN side by side, in the order of `order_literals`; notes their kinds as bits in `row.integer`."""
    cdef Row found
    cdef dict rows = {}
    if not values:
        raise ValueError("IN needs at least one literal")
    for value in values:
        if isinstance(value, float):
            if value != value:
                row.integer |= 1        # kind 0, that of no value: a NaN is never found, and makes the result unknown
                continue
            if value.is_integer() and -2.0**63 <= value < 2.0**63:
                value = int(value)
        found = literal(layout, value)
        rows[found.type, found.text_bytes, value] = found
        row.integer |= 1 << kind_of(found.type)
    row.right = len(layout.rows)
    row.third = len(rows)
    for key in sorted(rows, key=sort_key):
        layout.add(rows[key], LITERAL)
    return 0


def sort_key(tuple key):
    """Orders literals by type, then by number or length of the text, then by text. Comparing the length first is cheap."""
    type, size, value = key
    return type, size, value.encode() if isinstance(value, str) else value


cdef bytes pattern_of(str pattern, object escape):
    """A pattern of LIKE in the form that `like` takes."""
    cdef bytearray out = bytearray()
    cdef bint escaped = False
    for character in pattern:
        if escaped:
            out += character.encode()
            escaped = False
        elif character == escape:
            escaped = True
        elif character == "_":
            out.append(ANY_ONE)
        elif character != "%":
            out += character.encode()
        elif not out or out[len(out) - 1] != ANY_RUN:
            out.append(ANY_RUN)
    if escaped:
        raise ValueError(f"pattern {pattern!r} ends in its escape character")
    return bytes(out)
