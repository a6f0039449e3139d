"""Evaluates filters: expressions over headers and envelope, kept as one array of nodes.

The logic is that of SQL, with three values. A missing header is NULL. So is the result of arithmetic on anything but numbers, of
a division by zero, and of integer arithmetic that exceeds 64 bits. A comparison is unknown when a side is NULL or a NaN, when
the sides differ in type (bool, number, text, bytes), and when it orders anything but numbers. NOT unknown is unknown. AND and OR
are unknown unless the other side decides. An int and a float are compared by their exact values. Integer division rounds
towards zero, as in SQL and Java.

A node is evaluated either as a truth, by `truth` (the root, and operands of AND, OR and NOT), or as a value, by `value_of`. Each
function calls the other where the tree goes from one to the other. Values are passed by pointer: into the message, into the node,
or into `scratch`, where the caller has room for a computed value. The recursion is as deep as the tree, at most `DEPTH_MAX`, and
takes up to 400 bytes of stack for each level.

Header names are resolved before the tree is walked, in one pass over the headers, with a slot for each name. A filter with more
than `SLOTS_MAX` names has no slots: it looks up a header when it needs it.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from xump_ext.match.filter_layout cimport (
    ADD, AND, ANY_ONE, ANY_RUN, BETWEEN, DIVIDE, EQUAL, HEADER, HEADER_NULL, IN, IS_NULL, LESS, LESS_EQUAL, LIKE, LITERAL, MORE,
    MORE_EQUAL, MULTIPLY, NEGATE, NOT, OR, SUBTRACT, SYS_ADDRESS, SYS_DELIVERY_COUNT, SYS_SIZE, SYS_TIMESTAMP, UNEQUAL, Layout,
    Row, kind_of, lay_out,
)
from xump_ext.memory.short_copy cimport same_short
from xump_ext.message.headers cimport (
    HEADER_FALSE, HEADER_FLOAT, HEADER_INT, HEADER_STR, HEADER_TRUE, content_t, field_after, field_name_bytes, field_read,
    fields_of, header_find, header_t,
)
from xump_ext.message.message cimport Message

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(PyObject*) nogil
    const void* PyUnicode_DATA(PyObject*) nogil
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject*) nogil
    const char* PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t*)
    void PyErr_Clear()

cdef extern from *:
    bint add_overflows "__builtin_add_overflow"(int64_t, int64_t, int64_t*) nogil
    bint subtract_overflows "__builtin_sub_overflow"(int64_t, int64_t, int64_t*) nogil
    bint multiply_overflows "__builtin_mul_overflow"(int64_t, int64_t, int64_t*) nogil

cdef enum:
    SLOTS_MAX = 16          # 16 x 48 bytes of stack; filters with more names are rare, and only slower
    UNKNOWN = -1            # a truth that is neither true nor false
    UNORDERED = 2           # from `order_numbers` for a NaN; otherwise it gives -1, 0, 1

cdef header_t nothing       # a slot points to it until its header is found
nothing.type = HEADER_NULL

# The headers of a message that a filter names. The slots point to them and do not copy them: a struct that was written field by
# field is slow to read as a whole.
cdef struct resolved_t:
    const header_t* slots[SLOTS_MAX]
    header_t headers[SLOTS_MAX]

# The input of one evaluation.
cdef struct run_t:
    const node_t* nodes
    const content_t* content
    const header_t** slots  # NULL if there are more names than slots
    int64_t timestamp
    uint32_t delivery_count


@cython.final
cdef class Filter:
    """A compiled filter: Filter(tree), with the tree that `xump.filters.compile` returns.

    Raises TypeError for a callable and for anything else that is not a tree, and ValueError for a tree that is too deep. Cost:
    one allocation, of 56 bytes for each node, and the text.

    >>> from xump_ext.message.message import Message
    >>> size_above_100 = Filter((">", ("header", "size"), ("literal", 100)))
    >>> [size_above_100.evaluate_message(Message(headers=h)) for h in ({"size": 700}, {"size": 7}, {})]
    [True, False, None]
    """

    def __cinit__(self, tree):
        layout = Layout()
        lay_out(layout, tree, 0)
        filter_build(self, layout)

    def __dealloc__(self):
        PyMem_Free(self.nodes)

    def __sizeof__(self):
        return object.__sizeof__(self) + self.block_bytes

    cdef int evaluate(self, const content_t* content, int64_t timestamp, uint32_t delivery_count) noexcept nogil:
        cdef resolved_t resolved
        cdef run_t run
        run.nodes = self.nodes
        run.content = content
        run.timestamp = timestamp
        run.delivery_count = delivery_count
        run.slots = NULL
        if self.name_count <= SLOTS_MAX:
            run.slots = resolved.slots
            resolve(content, self.names, self.name_count, &resolved)
        return truth(&run, self.node_count - 1)

    def evaluate_message(self, Message message not None, uint32_t delivery_count=0):
        """True, False, or None for unknown."""
        cdef int result = self.evaluate(message.content, message.timestamp, delivery_count)
        return None if result == UNKNOWN else result == 1

    def count(self, list messages not None, uint32_t delivery_count=0):
        """The number of these messages that the filter selects."""
        cdef Py_ssize_t selected = 0
        cdef Message message
        for message in messages:
            if message is None:
                raise TypeError("expected a list of Message, got None in it")
            if self.evaluate(message.content, message.timestamp, delivery_count) == 1:
                selected += 1
        return selected

    def __repr__(self):
        return f"<Filter: {self.node_count} nodes, {self.name_count} headers>"


cdef int filter_build(Filter filter, Layout layout) except -1:
    """Copies the layout into one allocation: nodes, then names, then text."""
    cdef size_t nodes_bytes = len(layout.rows) * sizeof(node_t)
    cdef size_t names_bytes = len(layout.names) * sizeof(node_t*)
    cdef size_t text_bytes = len(layout.arena)
    cdef uint32_t index
    cdef char* text
    filter.block_bytes = nodes_bytes + names_bytes + text_bytes
    filter.nodes = <node_t*> PyMem_Malloc(filter.block_bytes)
    if filter.nodes == NULL:
        raise MemoryError()
    filter.node_count = len(layout.rows)
    filter.name_count = len(layout.names)
    filter.names = <node_t**> (<char*> filter.nodes + nodes_bytes)
    text = <char*> filter.names + names_bytes
    memcpy(text, <char*> layout.arena, text_bytes)
    memset(filter.nodes, 0, nodes_bytes)
    for index, row in enumerate(layout.rows):
        node_write(&filter.nodes[index], <Row> row, text)
        if filter.nodes[index].operation == HEADER:
            filter.names[filter.nodes[index].left] = &filter.nodes[index]
    return 0


cdef void node_write(node_t* node, Row row, const char* text) noexcept:
    node.operation = row.operation
    node.left = row.left
    node.right = row.right
    node.third = row.third
    node.value.type = row.type
    node.value.integer = row.integer
    node.value.real = row.real
    node.value.value = text + row.text
    node.value.value_bytes = row.text_bytes
    if row.operation == HEADER:
        node.value.name = node.value.value
        node.value.name_bytes = row.text_bytes


# ---- values

cdef void resolve(const content_t* content, node_t** names, uint32_t count, resolved_t* resolved) noexcept nogil:
    """Finds the headers of all names in one pass."""
    cdef uint32_t bytes
    cdef const char* at = fields_of(content, &bytes)
    cdef const char* last = at + bytes
    cdef header_t* header = resolved.headers    # the place of the next one
    cdef const node_t* wanted
    cdef uint32_t slot, next = 0, missing = count
    cdef uint16_t name_bytes
    for slot in range(count):
        resolved.slots[slot] = &nothing
    while missing and at < last:
        name_bytes = field_name_bytes(at)
        for _ in range(count):      # goes round, from behind the name found last: most messages have their headers in one order
            wanted = names[next]
            next = next + 1 if next + 1 < count else 0
            if wanted.value.name_bytes == name_bytes and same_short(wanted.value.name, at + 3, name_bytes):
                break
        else:
            wanted = NULL
        if wanted != NULL and resolved.slots[wanted.left] == &nothing:
            resolved.slots[wanted.left] = header
            at = field_read(at, header)
            header += 1
            missing -= 1
        else:
            at = field_after(at)


cdef inline const header_t* value_of(const run_t* run, uint32_t index, header_t* scratch) noexcept nogil:
    """The value of a node; in `scratch` if it must be computed."""
    cdef const node_t* node = &run.nodes[index]
    if node.operation == LITERAL:
        return &node.value
    if node.operation == HEADER and run.slots != NULL:
        return run.slots[node.left]
    return value_computed(run, index, scratch)


cdef const header_t* value_computed(const run_t* run, uint32_t index, header_t* scratch) noexcept nogil:
    cdef const node_t* node = &run.nodes[index]
    cdef int result
    if node.operation == HEADER:
        if not header_find(run.content, node.value.name, node.value.name_bytes, scratch):
            scratch.type = HEADER_NULL
    elif node.operation <= SYS_DELIVERY_COUNT:
        envelope(run, node.operation, scratch)
    elif node.operation <= NEGATE:
        arithmetic(run, node, scratch)
    else:
        result = truth(run, index)
        scratch.type = HEADER_NULL if result == UNKNOWN else HEADER_TRUE if result else HEADER_FALSE
    return scratch


cdef void envelope(const run_t* run, uint8_t operation, header_t* result) noexcept nogil:
    """The value of a `sys.` name."""
    result.type = HEADER_INT
    if operation == SYS_TIMESTAMP:
        result.integer = run.timestamp
    elif operation == SYS_SIZE:
        result.integer = run.content.body_bytes
    elif operation == SYS_DELIVERY_COUNT:
        result.integer = run.delivery_count
    elif operation == SYS_ADDRESS:
        text_operand(<PyObject*> run.content.address, result)
    else:
        text_operand(<PyObject*> run.content.reply_to, result)


cdef void text_operand(PyObject* text, header_t* result) noexcept nogil:
    """The UTF-8 of a str, or NULL."""
    cdef Py_ssize_t size = 0
    result.type = HEADER_NULL
    if text == NULL:
        return
    if PyUnicode_IS_COMPACT_ASCII(text):
        result.value = <const char*> PyUnicode_DATA(text)
        size = PyUnicode_GET_LENGTH(text)
    else:
        with gil:       # the UTF-8 may have to be made first; the str keeps it
            result.value = PyUnicode_AsUTF8AndSize(text, &size)
            if result.value == NULL:
                PyErr_Clear()
                return
    result.type = HEADER_STR
    result.value_bytes = <uint32_t> size


cdef void arithmetic(const run_t* run, const node_t* node, header_t* result) noexcept nogil:
    cdef header_t left_scratch, right_scratch
    cdef const header_t* left = value_of(run, node.left, &left_scratch)
    if node.operation != NEGATE:
        compute(node.operation, left, value_of(run, node.right, &right_scratch), result)
    elif left.type == HEADER_FLOAT:
        result.type = HEADER_FLOAT
        result.real = -left.real
    elif left.type == HEADER_INT and left.integer != INT64_MIN:
        result.type = HEADER_INT
        result.integer = -left.integer
    else:
        result.type = HEADER_NULL


cdef void compute(uint8_t operation, const header_t* left, const header_t* right, header_t* result) noexcept nogil:
    """The result of an operation on two numbers; NULL for anything else."""
    cdef double a, b
    result.type = HEADER_NULL
    if left.type == HEADER_INT and right.type == HEADER_INT:
        if compute_integer(operation, left.integer, right.integer, &result.integer):
            result.type = HEADER_INT
    elif kind_of(left.type) == kind_of(HEADER_INT) and kind_of(right.type) == kind_of(HEADER_INT):
        a = left.real if left.type == HEADER_FLOAT else <double> left.integer
        b = right.real if right.type == HEADER_FLOAT else <double> right.integer
        if operation == DIVIDE and b == 0.0:
            return
        result.type = HEADER_FLOAT
        if operation == ADD:
            result.real = a + b
        elif operation == SUBTRACT:
            result.real = a - b
        elif operation == MULTIPLY:
            result.real = a * b
        else:
            result.real = a / b


cdef bint compute_integer(uint8_t operation, int64_t a, int64_t b, int64_t* result) noexcept nogil:
    """False if there is no result, or it does not fit in 64 bits."""
    if operation == ADD:
        return not add_overflows(a, b, result)
    if operation == SUBTRACT:
        return not subtract_overflows(a, b, result)
    if operation == MULTIPLY:
        return not multiply_overflows(a, b, result)
    if b == 0 or (b == -1 and a == INT64_MIN):
        return False
    result[0] = a // b      # cdivision: towards zero
    return True


# ---- truths

cdef int truth(const run_t* run, uint32_t index) noexcept nogil:
    """1, 0 or UNKNOWN. A value that is no bool is UNKNOWN."""
    cdef const node_t* node = &run.nodes[index]
    cdef header_t scratch
    cdef const header_t* value
    cdef int left
    if node.operation == AND or node.operation == OR:
        return junction(run, node, node.operation == OR)
    if node.operation == NOT:
        left = truth(run, node.left)
        return UNKNOWN if left == UNKNOWN else 1 - left
    if node.operation >= EQUAL:
        return predicate(run, node)
    value = value_of(run, index, &scratch)
    if value.type == HEADER_TRUE:
        return 1
    return 0 if value.type == HEADER_FALSE else UNKNOWN


cdef int junction(const run_t* run, const node_t* node, int decisive) noexcept nogil:
    """AND or OR; `decisive` is the truth of one side that decides: 0 for AND, 1 for OR."""
    cdef int left = truth(run, node.left)
    cdef int right
    if left == decisive:
        return left
    right = truth(run, node.right)
    return right if right == decisive or left != UNKNOWN else UNKNOWN


cdef int predicate(const run_t* run, const node_t* node) noexcept nogil:
    """The truth of a comparison, BETWEEN, IN, LIKE or IS NULL."""
    cdef header_t left_scratch, right_scratch
    cdef const header_t* left = value_of(run, node.left, &left_scratch)
    cdef const header_t* right
    cdef int low, high
    if node.operation == IN:
        return in_literals(run, node, left)
    if node.operation == IS_NULL:
        return left.type == HEADER_NULL
    right = value_of(run, node.right, &right_scratch)
    if node.operation == LIKE:
        if left.type != HEADER_STR:
            return UNKNOWN
        return like(left.value, left.value_bytes, <const unsigned char*> right.value, right.value_bytes)
    if node.operation == EQUAL:
        return equal(left, right)
    if node.operation == UNEQUAL:
        low = equal(left, right)
        return UNKNOWN if low == UNKNOWN else 1 - low
    if node.operation != BETWEEN:
        return ordered(node.operation, left, right)
    low = ordered(MORE_EQUAL, left, right)
    right = value_of(run, node.third, &right_scratch)
    high = ordered(LESS_EQUAL, left, right)
    if low == 0 or high == 0:
        return 0
    return 1 if low == 1 and high == 1 else UNKNOWN


cdef int equal(const header_t* left, const header_t* right) noexcept nogil:
    cdef int order
    if left.type == HEADER_NULL or kind_of(left.type) != kind_of(right.type):
        return UNKNOWN
    if left.type >= HEADER_STR:
        return left.value_bytes == right.value_bytes and same_short(left.value, right.value, left.value_bytes)
    if left.type <= HEADER_TRUE:
        return left.type == right.type
    order = order_numbers(left, right)
    return UNKNOWN if order == UNORDERED else order == 0


cdef int ordered(uint8_t operation, const header_t* left, const header_t* right) noexcept nogil:
    cdef int order
    if kind_of(left.type) != kind_of(HEADER_INT) or kind_of(right.type) != kind_of(HEADER_INT):
        return UNKNOWN
    order = order_numbers(left, right)
    if order == UNORDERED:
        return UNKNOWN
    if operation == LESS:
        return order < 0
    if operation == LESS_EQUAL:
        return order <= 0
    if operation == MORE:
        return order > 0
    return order >= 0


cdef int order_numbers(const header_t* left, const header_t* right) noexcept nogil:
    """Compares two numbers: -1, 0, 1 or UNORDERED."""
    cdef int order
    if left.type == HEADER_INT and right.type == HEADER_INT:
        return (left.integer > right.integer) - (left.integer < right.integer)
    if left.type == HEADER_INT:
        return order_mixed(left.integer, right.real)
    if right.type == HEADER_INT:
        order = order_mixed(right.integer, left.real)
        return order if order == UNORDERED else -order
    if left.real != left.real or right.real != right.real:
        return UNORDERED
    return (left.real > right.real) - (left.real < right.real)


cdef int order_mixed(int64_t integer, double real) noexcept nogil:
    """Compares exactly: a double would round a 64-bit integer."""
    cdef int64_t whole
    if real != real:
        return UNORDERED
    if real >= 9223372036854775808.0:
        return -1
    if real < -9223372036854775808.0:
        return 1
    whole = <int64_t> real
    if integer != whole:
        return 1 if integer > whole else -1
    # The fraction that was cut off decides. Beyond 2**53, where a double cannot hold every integer, `real` has no fraction.
    return (real < <double> whole) - (real > <double> whole)


# ---- IN and LIKE

cdef int in_literals(const run_t* run, const node_t* node, const header_t* value) noexcept nogil:
    """IN, as a row of comparisons joined by OR: with a literal of another type the result is unknown in place of false."""
    cdef header_t whole
    if value.type == HEADER_FLOAT:
        if value.real != value.real:
            return UNKNOWN
        # `filter_layout` makes integers of whole floats among the literals.
        if -9223372036854775808.0 <= value.real < 9223372036854775808.0 and <double> <int64_t> value.real == value.real:
            whole.type = HEADER_INT
            whole.integer = <int64_t> value.real
            value = &whole
    if found_literal(&run.nodes[node.right], node.third, value):
        return 1
    return 0 if value.type != HEADER_NULL and node.value.integer == 1 << kind_of(value.type) else UNKNOWN


cdef bint found_literal(const node_t* literals, uint32_t count, const header_t* wanted) noexcept nogil:
    """Whether a literal has this value, by binary search."""
    cdef uint32_t low = 0, high = count, middle
    cdef int order
    while low < high:
        middle = (low + high) // 2
        order = order_literals(&literals[middle].value, wanted)
        if order == 0:
            return True
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return False


cdef int order_literals(const header_t* left, const header_t* right) noexcept nogil:
    """Compares literals in the order of `sort_key` (`filter_layout.pyx`)."""
    if left.type != right.type:
        return -1 if left.type < right.type else 1
    if left.type == HEADER_INT or left.type == HEADER_FLOAT:
        return order_numbers(left, right)
    if left.type < HEADER_STR:
        return 0
    if left.value_bytes != right.value_bytes:
        return -1 if left.value_bytes < right.value_bytes else 1
    if left.value_bytes and left.value[0] != right.value[0]:       # mostly decides, without a call
        return -1 if <uint8_t> left.value[0] < <uint8_t> right.value[0] else 1
    return memcmp(left.value, right.value, left.value_bytes)


cdef bint like(const char* text, uint32_t text_bytes, const unsigned char* pattern, uint32_t pattern_bytes) noexcept nogil:
    """Whether a pattern matches all of a text. Only the last % is tried with other lengths, so it takes at most text x pattern
    steps."""
    cdef uint32_t at = 0, wanted = 0            # the positions in text and pattern
    cdef uint32_t run_end = 0, after_run = 0    # the end of the last run in the text, and the position after its % in the pattern
    while at < text_bytes:
        if wanted < pattern_bytes and pattern[wanted] == ANY_RUN:
            wanted += 1
            if wanted == pattern_bytes:
                return True
            run_end = at
            after_run = wanted
        elif wanted < pattern_bytes and pattern[wanted] == ANY_ONE:
            at = after_character(text, at, text_bytes)
            wanted += 1
        elif wanted < pattern_bytes and pattern[wanted] == <unsigned char> text[at]:
            at += 1
            wanted += 1
        elif after_run == 0:
            return False
        else:
            run_end = after_character(text, run_end, text_bytes)
            at = run_end
            wanted = after_run
    if wanted < pattern_bytes and pattern[wanted] == ANY_RUN:
        wanted += 1
    return wanted == pattern_bytes


cdef inline uint32_t after_character(const char* text, uint32_t at, uint32_t text_bytes) noexcept nogil:
    """The start of the next code point."""
    at += 1
    while at < text_bytes and (text[at] & 0xC0) == 0x80:
        at += 1
    return at
