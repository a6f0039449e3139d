"""Checks Arrow columns when they are opened, so that reading a row cannot fail.

The C data interface hands over bare pointers. Opening a column checks all that a consumer can know: the type is one that we read,
the arrays have the buffers and children of their type and enough rows, offsets, views and indices stay within what they point
into, and text is UTF-8. The interface does not tell the length of most buffers; there the producer is trusted, as everywhere in
Arrow.

Some producers write into their buffers afterwards (a numpy array behind a table), although the interface forbids it, and rows may
be read much later. So validity, offsets, views, indices and numbers are copied before they are checked. That costs a few bytes a
row, and nothing out of bounds is ever read. The bytes of text and bodies are not copied; the code that reads text checks it
again.

Bytes under a null are not checked, except for offsets, which must never decrease.
"""

import re

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport free
from libc.string cimport memcpy, memset, strlen

from xump_ext.arrow.c_data cimport int32_at, int64_at, offset_at
from xump_ext.memory.short_copy cimport ascii_only
from xump_ext.memory.slab cimport memory_large

cdef extern from "Python.h":
    double PyFloat_Unpack2(const char* value, int little_endian) noexcept nogil

# More rows than any memory holds. Offset and length of three levels of arrays, times a body of 2**26 bytes, stay below 2**63.
cdef int64_t ROWS_MAX = (<int64_t> 1) << 34

cdef dict KINDS = {
    b"n": (COLUMN_NULL, "null"),
    b"b": (COLUMN_BOOL, "bool"),
    b"c": (COLUMN_INT8, "int8"),
    b"s": (COLUMN_INT16, "int16"),
    b"i": (COLUMN_INT32, "int32"),
    b"l": (COLUMN_INT64, "int64"),
    b"C": (COLUMN_UINT8, "uint8"),
    b"S": (COLUMN_UINT16, "uint16"),
    b"I": (COLUMN_UINT32, "uint32"),
    b"L": (COLUMN_UINT64, "uint64"),
    b"e": (COLUMN_FLOAT16, "float16"),
    b"f": (COLUMN_FLOAT32, "float32"),
    b"g": (COLUMN_FLOAT64, "float64"),
    b"u": (COLUMN_OFFSETS, "utf8"),
    b"U": (COLUMN_OFFSETS_LARGE, "large_utf8"),
    b"vu": (COLUMN_VIEWS, "utf8_view"),
    b"z": (COLUMN_OFFSETS, "binary"),
    b"Z": (COLUMN_OFFSETS_LARGE, "large_binary"),
    b"vz": (COLUMN_VIEWS, "binary_view"),
    b"w": (COLUMN_FIXED, "fixed_size_binary"),
}
cdef frozenset TEXTS = frozenset((b"u", b"U", b"vu"))
cdef frozenset BYTES = TEXTS | {b"z", b"Z", b"vz", b"w"}
cdef frozenset INDICES = frozenset((b"c", b"s", b"i", b"l", b"C", b"S", b"I", b"L"))
cdef dict ALLOWED = {
    TEXTS_ALLOWED: (TEXTS, "utf8, large_utf8, utf8_view, dictionaries of these and null"),
    BYTES_ALLOWED: (BYTES, "binary, large_binary, binary_view, fixed_size_binary, utf8, large_utf8, utf8_view, dictionaries of "
                           "these and null"),
    HEADERS_ALLOWED: (frozenset(KINDS), "bool, integers, floats, utf8 and binary in all their forms, timestamps, dates, times, "
                                        "durations, decimals, dictionaries of text or bytes, and null"),
    MOMENTS_ALLOWED: (frozenset((b"l",)), "timestamps with a time zone, int64 (POSIX nanoseconds) and null"),
    INTEGERS_ALLOWED: (frozenset((b"c", b"s", b"i", b"l", b"C", b"S", b"I")), "int8 to int64, uint8 to uint32 and null"),
}
cdef dict UNITS = {b"tss:": 10 ** 9, b"tsm:": 10 ** 6, b"tsu:": 1000, b"tsn:": 1}       # of timestamps, in nanoseconds
cdef dict TIMES = {         # other times that headers may have: their layout, and their unit
    b"tdD": (COLUMN_INT32, 1), b"tdm": (COLUMN_INT64, -86_400_000),
    b"tts": (COLUMN_INT32, 10 ** 9), b"ttm": (COLUMN_INT32, 10 ** 6), b"ttu": (COLUMN_INT64, 1000), b"ttn": (COLUMN_INT64, 1),
    b"tDs": (COLUMN_INT64, 10 ** 9), b"tDm": (COLUMN_INT64, 10 ** 6), b"tDu": (COLUMN_INT64, 1000), b"tDn": (COLUMN_INT64, 1),
}
cdef object DECIMAL = re.compile(rb"d:([0-9]{1,2}),(-?[0-9]{1,3})(?:,(32|64|128|256))?")


# ---- types

cdef int type_read(type_t* type, const ArrowSchema* schema, int allowed, object what) except -1:
    cdef const ArrowSchema* values = schema
    cdef const char* letters
    formats, names = ALLOWED[allowed]
    type.index_kind = COLUMN_NULL
    if schema.dictionary != NULL:
        values = schema.dictionary
        index = format_of(schema, what)
        if index not in INDICES or values.dictionary != NULL:
            raise TypeError(f"{what} is a dictionary with indices of the Arrow format {index!r}, allowed are integers")
        type.index_kind = KINDS[index][0]
        formats = formats & BYTES
    format = format_of(values, what)
    type.unit = 1
    type.decimals = NO_DECIMAL
    if allowed == HEADERS_ALLOWED and schema.dictionary == NULL and header_type_read(type, format):
        return 0
    if allowed == MOMENTS_ALLOWED and format[:4] in UNITS:      # an int64; a time zone follows
        if len(format) == 4:
            raise TypeError(f"{what} has timestamps without a time zone, which name no moment; give them theirs: "
                            "pyarrow.compute.assume_timezone(column, 'UTC')")
        type.unit = UNITS[format[:4]]
        format = b"l"
    letters = format
    key = b"w" if letters[0] == c"w" and format[:2] == b"w:" and format[2:].isdigit() else format
    if (key not in formats and key != b"n") or format == b"w":
        name = KINDS[key][1] if key in KINDS else f"Arrow format {format.decode('ascii', 'backslashreplace')!r}"
        raise TypeError(f"{what} is of type {name}{' in a dictionary' if schema.dictionary != NULL else ''}, allowed are {names}")
    type.kind = KINDS[key][0]
    type.text = key in TEXTS
    type.width = 0
    if type.kind == COLUMN_FIXED:
        width = int(format[2:]) if len(format) < 20 else ROWS_MAX
        if width >= 1 << 31:
            raise ValueError(f"{what} is of fixed-size values of {format[2:40].decode()} bytes, allowed are {(1 << 31) - 1}")
        type.width = width
    return 0


cdef bint header_type_read(type_t* type, bytes format) except -1:
    """Read a type of times or decimals; False: it is none. `column_convert` makes of them what headers have."""
    cdef const char* letters = format
    if letters[0] != c"t" and letters[0] != c"d":
        return False
    type.text = False
    type.width = 0
    if format[:4] in UNITS:
        type.kind, type.unit = COLUMN_INT64, UNITS[format[:4]]
        return True
    if format in TIMES:
        type.kind, type.unit = TIMES[format]
        return True
    found = DECIMAL.fullmatch(format)
    if found is None:
        return False
    type.kind = COLUMN_FIXED
    type.width = int(found.group(3) or 128) // 8
    type.decimals = int(found.group(2))
    return True


cdef bytes format_of(const ArrowSchema* schema, object what):
    if schema.release == NULL:
        raise ValueError(f"{what} has a schema that was released")
    if schema.format == NULL:
        raise ValueError(f"{what} has a schema without a format")
    return <bytes> schema.format[:strlen(schema.format)]


cdef str name_of(const ArrowSchema* schema):
    cdef Py_ssize_t size = 0 if schema.name == NULL else strlen(schema.name)
    if not utf8_valid(schema.name, size):
        raise ValueError(f"the name of a column is not UTF-8: {schema.name[:min(size, 40)]!r}")
    return schema.name[:size].decode() if size else ""


cdef int children_check(const ArrowSchema* schema, object what) except -1:
    cdef int64_t child
    if schema.n_children < 0 or (schema.n_children > 0 and schema.children == NULL):
        raise ValueError(f"{what} has {schema.n_children} children")
    for child in range(schema.n_children):
        if schema.children[child] == NULL or schema.children[child].release == NULL:
            raise ValueError(f"{what} lacks child {child}")
    return 0


# ---- arrays

cdef int array_check(const ArrowArray* array, int64_t rows, int64_t children, int64_t buffers, object what) except -1:
    cdef int64_t child
    if array.release == NULL:
        raise ValueError(f"{what} has an array that was released")
    if not (0 <= array.length <= ROWS_MAX and 0 <= array.offset <= ROWS_MAX):
        raise ValueError(f"{what} has an array of length {array.length} at offset {array.offset}, allowed are 0 to {ROWS_MAX}")
    if array.length < rows:
        raise ValueError(f"{what} has an array of length {array.length}, shorter than the {rows} rows it is part of")
    if not -1 <= array.null_count <= array.length:
        raise ValueError(f"{what} has {array.null_count} nulls in {array.length} rows")
    if buffers >= 0 and (array.n_buffers != buffers or (buffers > 0 and array.buffers == NULL)):
        raise ValueError(f"{what} has {array.n_buffers} buffers, its type has {buffers}")
    if children >= 0 and (array.n_children != children or (children > 0 and array.children == NULL)):
        raise ValueError(f"{what} has {array.n_children} children, its type has {children}")
    for child in range(children):
        if array.children[child] == NULL:
            raise ValueError(f"{what} lacks child {child}")
    return 0


cdef const uint8_t* validity_of(const ArrowArray* array, object what) except? NULL:
    if array.buffers[0] == NULL and array.null_count > 0:
        raise ValueError(f"{what} has {array.null_count} nulls and no validity bitmap")
    if array.null_count == 0:
        return NULL
    return <const uint8_t*> array.buffers[0]


cdef object row_text(object what, int64_t row_first, int64_t row):
    return f"{what}, row {row_first + row}" if row_first >= 0 else f"{what}, entry {row}"


cdef int column_open(
    column_t* column, const type_t* type, const ArrowArray* array, int64_t start, int64_t rows, const uint8_t* parent,
    int64_t parent_first, int64_t bytes_max, bint utf8, object what, int64_t row_first
) except -1:
    cdef int kind = COLUMN_DICTIONARY if type.index_kind != COLUMN_NULL else type.kind
    cdef const uint8_t* validity
    cdef const char* values
    cdef int64_t first
    memset(column, 0, sizeof(column_t))
    column.kind = kind
    column.index_kind = type.index_kind
    column.text = type.text
    column.width = type.width
    column.rows = rows
    column.parent = parent
    column.parent_first = parent_first
    array_check(array, start + rows, -1, buffer_count(kind), what)
    if kind == COLUMN_NULL or rows == 0:
        column.kind = COLUMN_NULL
        return 0
    if kind == COLUMN_VIEWS and (array.n_buffers < 3 or array.buffers == NULL):
        raise ValueError(f"{what} has {array.n_buffers} buffers, its type has 3 or more")
    validity = validity_of(array, what)
    values = <const char*> array.buffers[1]
    if values == NULL and not (kind == COLUMN_FIXED and type.width == 0):
        raise ValueError(f"{what} has {rows} rows and no buffer for their {'offsets' if buffer_count(kind) == 3 else 'values'}")
    first = array.offset + start
    column.first = first & 7
    if validity != NULL:
        column.validity = bits_copy(validity, first, rows)
    if kind == COLUMN_FIXED:
        column.values = ""
        if type.width:
            column.values = values + type.width * (first - column.first)
    else:
        column.values = values_copy(values, type.index_kind if kind == COLUMN_DICTIONARY else kind, first, rows)
    if kind == COLUMN_DICTIONARY:
        dictionary_open(column, type, array, bytes_max, utf8, what, row_first)
    elif kind == COLUMN_OFFSETS or kind == COLUMN_OFFSETS_LARGE:
        column.longest = offsets_check(column.values, column.first, rows, kind == COLUMN_OFFSETS_LARGE, what, row_first)
        column.bytes = <const char*> array.buffers[2]
        if column.bytes == NULL:
            if column.longest > 0:
                raise ValueError(f"{what} has values and no buffer for their bytes")
            column.bytes = ""
    elif kind == COLUMN_VIEWS:
        views_check(column, array, what, row_first)
    elif kind == COLUMN_FIXED:
        column.longest = type.width
    if column.longest > bytes_max:
        longest_check(column, bytes_max, what, row_first)
    if utf8 and type.text and kind != COLUMN_DICTIONARY:
        text_check(column, bytes_max, what, row_first)
    return 0


cdef int range_check(const column_t* column, int64_t least, int64_t most, object what, int64_t row_first) except -1:
    cdef int64_t row, number
    if column.kind == COLUMN_NULL:
        return 0
    for row in range(column.rows):
        if not column_absent(column, row):
            number = column_number(column, column.kind, row)
            if not least <= number <= most:
                raise ValueError(f"{row_text(what, row_first, row)}: {number}, allowed are {least} to {most}")
    return 0


cdef int64_t buffer_count(int kind) noexcept:
    if kind == COLUMN_NULL or kind == COLUMN_VIEWS:
        return -1               # checked elsewhere, or not at all
    return 3 if kind == COLUMN_OFFSETS or kind == COLUMN_OFFSETS_LARGE else 2


cdef void column_close(column_t* column) noexcept:
    cdef int64_t value
    if column.dictionary != NULL:
        if column.strings != NULL:
            for value in range(column.dictionary.rows):
                Py_XDECREF(<PyObject*> column.strings[value])
            PyMem_Free(column.strings)
        column_close(column.dictionary)
        PyMem_Free(column.dictionary)
    free(<void*> column.validity)
    if column.kind != COLUMN_FIXED:
        free(<void*> column.values)
    free(column.own_bytes)
    memset(column, 0, sizeof(column_t))


# ---- copies

cdef const uint8_t* bits_copy(const uint8_t* bits, int64_t first, int64_t rows) except NULL:
    return <const uint8_t*> values_copy(<const char*> bits, COLUMN_BOOL, first, rows)


cdef const char* values_copy(const char* values, int kind, int64_t first, int64_t rows) except NULL:
    cdef int64_t start = values_bytes(kind, first & ~7) - values_bytes(kind, 0)
    cdef int64_t size = values_bytes(kind, (first & 7) + rows)
    cdef char* copy = <char*> memory_large(size + 1)
    memcpy(copy, values + start, size)
    return copy


cdef int64_t values_bytes(int kind, int64_t rows) noexcept:
    """The bytes that the values of so many rows take in a buffer."""
    if kind == COLUMN_BOOL:
        return (rows + 7) >> 3
    if kind == COLUMN_INT8 or kind == COLUMN_UINT8:
        return rows
    if kind == COLUMN_INT16 or kind == COLUMN_UINT16 or kind == COLUMN_FLOAT16:
        return 2 * rows
    if kind == COLUMN_INT32 or kind == COLUMN_UINT32 or kind == COLUMN_FLOAT32:
        return 4 * rows
    if kind == COLUMN_OFFSETS:
        return 4 * (rows + 1)
    if kind == COLUMN_OFFSETS_LARGE:
        return 8 * (rows + 1)
    return 16 * rows if kind == COLUMN_VIEWS else 8 * rows


cdef int64_t column_held(const column_t* column) noexcept:
    cdef int64_t first = column.first, last = column.first + column.rows, size
    if column.kind == COLUMN_NULL:
        return 0
    size = 0 if column.validity == NULL else (column.rows + 7) >> 3
    if column.kind == COLUMN_DICTIONARY:
        return size + values_bytes(column.index_kind, column.rows) + column_held(column.dictionary)
    if column.kind == COLUMN_FIXED:
        return size + column.width * column.rows
    size += values_bytes(column.kind, column.rows)
    if column.kind == COLUMN_OFFSETS:
        return size + int32_at(column.values, last) - int32_at(column.values, first)
    if column.kind == COLUMN_OFFSETS_LARGE:
        return size + int64_at(column.values, last) - int64_at(column.values, first)
    return size + column.width if column.kind == COLUMN_VIEWS else size


cdef int column_own(column_t* column) except -1:
    cdef const char* text = NULL
    cdef int64_t row, size = 0, total = 0
    cdef int64_t* offsets
    if column.kind == COLUMN_DICTIONARY:
        return column_own(column.dictionary)
    if column.kind == COLUMN_NULL:
        return 0
    for row in range(column.rows):
        if not column_absent(column, row) and column_bytes(column, row, &text, &size):
            total += size
    column.own_bytes = <char*> memory_large(total + 1)
    offsets = <int64_t*> memory_large((column.first + column.rows + 1) * 8)
    total = 0
    for row in range(column.rows):
        offsets[column.first + row] = total
        if not column_absent(column, row) and column_bytes(column, row, &text, &size):
            memcpy(column.own_bytes + total, text, size)
            total += size
    offsets[column.first + column.rows] = total
    free(<void*> column.values)
    column.kind = COLUMN_OFFSETS_LARGE
    column.values = <const char*> offsets
    column.bytes = column.own_bytes
    return 0


cdef int column_convert(column_t* column, const type_t* type, object what, int64_t row_first) except -1:
    if column.kind == COLUMN_NULL:
        return 0
    if type.decimals != NO_DECIMAL:
        return decimals_convert(column, type.decimals)
    return times_convert(column, type.unit, what, row_first) if type.unit != 1 else 0


cdef int times_convert(column_t* column, int64_t unit, object what, int64_t row_first) except -1:
    cdef int64_t most = INT64_MAX // unit if unit > 0 else INT64_MAX
    cdef int64_t row, number
    cdef int64_t* converted = <int64_t*> memory_large((column.first + column.rows) * 8 + 1)
    for row in range(column.rows):
        number = 0 if column_absent(column, row) else column_number(column, column.kind, row)
        if not -most <= number <= most:
            free(converted)
            raise ValueError(f"{row_text(what, row_first, row)}: {number} units of {unit} ns do not fit into 64 bits of ns")
        converted[column.first + row] = number * unit if unit > 0 else <int64_t> (<object> number // <object> -unit)
    free(<void*> column.values)
    column.kind = COLUMN_INT64
    column.values = <const char*> converted
    return 0


cdef int decimals_convert(column_t* column, int decimals) except -1:
    """Decimal numbers as texts: they are exact, as a float would not be."""
    cdef list texts = []
    cdef const char* value = NULL
    cdef int64_t row, size = 0, total = 0
    cdef int64_t* offsets
    cdef bytes text
    for row in range(column.rows):
        text = b""
        if not column_absent(column, row) and column_bytes(column, row, &value, &size):
            text = decimal_text(int.from_bytes(value[:size], "little", signed=True), decimals)
        texts.append(text)
    joined = b"".join(texts)
    column.own_bytes = <char*> memory_large(len(joined) + 1)
    memcpy(column.own_bytes, <const char*> joined, len(joined))
    offsets = <int64_t*> memory_large((column.first + column.rows + 1) * 8)
    column.longest = 0
    for row in range(column.rows):
        offsets[column.first + row] = total
        size = len(texts[row])
        total += size
        column.longest = max(column.longest, size)
    offsets[column.first + column.rows] = total
    column.kind = COLUMN_OFFSETS_LARGE      # the values were the producer's, so there is nothing to free
    column.values = <const char*> offsets
    column.bytes = column.own_bytes
    column.ascii = True
    return 0


cdef bytes decimal_text(object number, int decimals):
    """A decimal number whose last `decimals` digits are behind the point; below 0: so many zeros follow its digits."""
    digits = str(abs(number))
    if decimals > 0:
        digits = digits.zfill(decimals + 1)
        digits = f"{digits[:-decimals]}.{digits[-decimals:]}"
    elif number:
        digits += "0" * -decimals
    return f"{'-' if number < 0 else ''}{digits}".encode()


# ---- values

cdef int64_t offsets_check(
    const char* offsets, int64_t first, int64_t rows, bint large, object what, int64_t row_first
) except -1:
    cdef int64_t row, size, longest = 0
    cdef bint decreasing = False
    if offset_at(offsets, first, large) < 0:
        raise ValueError(f"{what} starts at offset {offset_at(offsets, first, large)}, allowed is 0 or more")
    if large:
        for row in range(first, first + rows):
            size = <int64_t> (<uint64_t> int64_at(offsets, row + 1) - <uint64_t> int64_at(offsets, row))
            decreasing |= int64_at(offsets, row + 1) < int64_at(offsets, row)
            longest = size if size > longest else longest
    else:
        for row in range(first, first + rows):
            size = <int64_t> int32_at(offsets, row + 1) - int32_at(offsets, row)
            decreasing |= size < 0
            longest = size if size > longest else longest
    if not decreasing:
        return longest
    for row in range(first, first + rows):
        if offset_at(offsets, row + 1, large) < offset_at(offsets, row, large):
            break
    raise ValueError(f"{row_text(what, row_first, row - first)}: offset {offset_at(offsets, row, large)} is followed by "
                     f"{offset_at(offsets, row + 1, large)}, offsets never decrease")


cdef int views_check(column_t* column, const ArrowArray* array, object what, int64_t row_first) except -1:
    cdef int64_t blocks = array.n_buffers - 3, row
    cdef const char* sizes = <const char*> array.buffers[array.n_buffers - 1]
    cdef const char* view
    cdef int32_t size, block, start
    column.blocks = array.buffers + 2
    if blocks and sizes == NULL:
        raise ValueError(f"{what} has {blocks} blocks and no buffer for their sizes")
    for row in range(blocks):
        column.width += int64_at(sizes, row)
    for row in range(column.rows):
        if column_absent(column, row):
            continue
        view = column.values + 16 * (column.first + row)
        size, block, start = int32_at(view, 0), int32_at(view, 2), int32_at(view, 3)
        if size < 0:
            raise ValueError(f"{row_text(what, row_first, row)}: a view of {size} bytes")
        if size > 12:
            if not 0 <= block < blocks or column.blocks[block] == NULL:
                raise ValueError(f"{row_text(what, row_first, row)}: a view into block {block}, there are {blocks}")
            if start < 0 or <int64_t> start + size > int64_at(sizes, block):
                raise ValueError(f"{row_text(what, row_first, row)}: a view of bytes {start} to {<int64_t> start + size} of a "
                                 f"block that has {int64_at(sizes, block)}")
        if size > column.longest:
            column.longest = size
    return 0


cdef int dictionary_open(
    column_t* column, const type_t* type, const ArrowArray* array, int64_t bytes_max, bint utf8, object what, int64_t row_first
) except -1:
    """Opens the column of distinct values, then checks every index. A value that is too long is an error only in a row."""
    cdef type_t value_type = type[0]
    cdef column_t* dictionary
    cdef int64_t row, index
    cdef object inner = f"the dictionary of {what}"
    if array.dictionary == NULL:
        raise ValueError(f"{what} lacks its dictionary")
    dictionary = <column_t*> PyMem_Calloc(1, sizeof(column_t))
    if dictionary == NULL:
        raise MemoryError()
    column.dictionary = dictionary
    value_type.index_kind = COLUMN_NULL
    array_check(array.dictionary, 0, -1, -1, inner)
    column_open(dictionary, &value_type, array.dictionary, 0, array.dictionary.length, NULL, 0, INT64_MAX, False, inner, -1)
    column.longest = dictionary.longest
    if utf8 and type.text and dictionary.kind != COLUMN_NULL:
        text_check(dictionary, bytes_max, inner, -1)
    column.ascii = dictionary.ascii
    for row in range(column.rows):
        if column_absent(column, row):
            continue
        index = column_number(column, column.index_kind, row)
        if not 0 <= index < dictionary.rows:
            reason = f"into a dictionary of {dictionary.rows} values"
            if column.index_kind == COLUMN_UINT64:
                raise ValueError(f"{row_text(what, row_first, row)}: index {<uint64_t> index} {reason}")
            raise ValueError(f"{row_text(what, row_first, row)}: index {index} {reason}")
    return 0


cdef int longest_check(const column_t* column, int64_t bytes_max, object what, int64_t row_first) except -1:
    """Raises for a row above the limit. There may be none: the long value may lie under a null, or unused in a dictionary."""
    cdef int64_t row, size = 0
    cdef const char* text = NULL
    for row in range(column.rows):
        if not column_absent(column, row) and column_bytes(column, row, &text, &size) and size > bytes_max:
            raise ValueError(f"{row_text(what, row_first, row)}: {size} bytes, allowed are {bytes_max}")
    return 0


cdef int text_check(column_t* column, int64_t bytes_max, object what, int64_t row_first) except -1:
    """Checks text: all of it at once when it is ASCII, as most is; else value by value."""
    cdef bint large = column.kind == COLUMN_OFFSETS_LARGE
    cdef int64_t row, start, end, size = 0
    cdef const char* text = NULL
    if column.kind != COLUMN_VIEWS and column.longest <= bytes_max:
        start = offset_at(column.values, column.first, large)
        end = offset_at(column.values, column.first + column.rows, large)
        if ascii_only(column.bytes + start, end - start):
            column.ascii = True
            return 0
    column.ascii = column.kind == COLUMN_VIEWS
    for row in range(column.rows):
        if column_absent(column, row) or not column_bytes(column, row, &text, &size) or size > bytes_max:
            continue
        if ascii_only(text, size):
            continue
        column.ascii = False
        if not utf8_valid(text, size):
            raise ValueError(f"{row_text(what, row_first, row)}: {text[:min(size, 40)]!r} is not UTF-8")
    return 0


cdef bint utf8_valid(const char* text, int64_t size) noexcept nogil:
    cdef const uint8_t* at = <const uint8_t*> text
    cdef const uint8_t* end = at + size
    cdef uint8_t lead
    cdef uint8_t lowest, highest        # of the second byte
    cdef int more
    while at < end:
        lead = at[0]
        at += 1
        if lead < 0x80:
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        if end - at < more:
            return False
        lowest = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80       # below: overlong
        highest = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF      # above: surrogates, past U+10FFFF
        if not lowest <= at[0] <= highest:
            return False
        while more > 1:
            more -= 1
            at += 1
            if at[0] & 0xC0 != 0x80:
                return False
        at += 1
    return True


cdef double half_at(const char* value) noexcept nogil:
    return PyFloat_Unpack2(value, 1)
