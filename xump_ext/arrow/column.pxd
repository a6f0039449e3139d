"""The layout of an Arrow column and the inline code that reads its rows; declarations of `column.pyx`."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from xump_ext.arrow.c_data cimport ArrowArray, ArrowSchema, bit_at, int32_at, int64_at

cdef enum:
    # The layout of values in the buffers.
    COLUMN_NULL = 0         # no buffers, every value is null
    COLUMN_BOOL
    COLUMN_INT8
    COLUMN_INT16
    COLUMN_INT32
    COLUMN_INT64
    COLUMN_UINT8
    COLUMN_UINT16
    COLUMN_UINT32
    COLUMN_UINT64
    COLUMN_FLOAT16
    COLUMN_FLOAT32
    COLUMN_FLOAT64
    COLUMN_OFFSETS          # text or bytes, between offsets of 32 bits
    COLUMN_OFFSETS_LARGE    # the same, with offsets of 64 bits
    COLUMN_VIEWS            # 16 bytes a value: inline up to 12 bytes, else a place in a block, one of several data buffers
    COLUMN_FIXED            # bytes, all values of one width
    COLUMN_DICTIONARY       # indices into another column

cdef enum:
    # The types that a column may have; null is always allowed.
    TEXTS_ALLOWED
    BYTES_ALLOWED
    HEADERS_ALLOWED
    MOMENTS_ALLOWED
    INTEGERS_ALLOWED

cdef enum:
    NO_DECIMAL = -1000      # no decimal has so many digits

# The type of a column, as the schema has it.
cdef struct type_t:
    int kind                # of the values; with a dictionary, of its values
    int index_kind          # of the indices into a dictionary; COLUMN_NULL without one
    bint text
    int64_t width           # of COLUMN_FIXED
    int64_t unit            # of moments and spans: in nanoseconds. Of dates in milliseconds: minus the milliseconds of a day
    int decimals            # of a decimal number: how many of its digits are behind the point; NO_DECIMAL

# A column of one chunk. Row 0 is the chunk's first row, whatever the offsets of the arrays above. Validity and values are copies
# that begin at a multiple of eight rows, so that a row has the same number in both.
cdef struct column_t:
    int kind
    int index_kind          # of COLUMN_DICTIONARY
    bint text
    bint ascii              # text without a byte above 127; False where the text was not read
    int64_t first           # number of row 0 in the copies: 0 to 7
    int64_t rows
    int64_t width           # of COLUMN_FIXED: of each value; of COLUMN_VIEWS: of all blocks together
    int64_t longest         # no text or bytes value is longer
    const uint8_t* validity     # NULL: no value is null
    const uint8_t* parent       # validity of the struct that the column is in; a null struct has no values
    int64_t parent_first
    const char* values      # numbers, offsets, views or indices; of COLUMN_FIXED the bytes, in the producer's memory
    const char* bytes       # the bytes behind offsets, in the producer's memory or in `own_bytes`
    char* own_bytes         # a copy made by `column_own`, or NULL
    const void** blocks     # the data buffers of views
    column_t* dictionary
    void** strings          # a dictionary's values as str, which the reader makes as they occur; NULL before

cdef inline bint column_null(const column_t* column, int64_t row) noexcept nogil:
    return column.validity != NULL and not bit_at(column.validity, column.first + row)

# Whether a value is null, or in a null struct.
cdef inline bint column_absent(const column_t* column, int64_t row) noexcept nogil:
    return column_null(column, row) or (column.parent != NULL and not bit_at(column.parent, column.parent_first + row))

# A number, a bool, or an index into a dictionary; a float as the bits of a double.
cdef inline int64_t column_number(const column_t* column, int kind, int64_t row) noexcept nogil:
    cdef int64_t at = column.first + row
    cdef const char* values = column.values
    cdef int64_t number
    cdef double real
    cdef float single
    cdef int16_t short_
    cdef uint16_t ushort
    cdef uint32_t uint
    if kind == COLUMN_INT64 or kind == COLUMN_UINT64 or kind == COLUMN_FLOAT64:
        return int64_at(values, at)
    if kind == COLUMN_INT32:
        return int32_at(values, at)
    if kind == COLUMN_BOOL:
        return bit_at(<const uint8_t*> values, at)
    if kind == COLUMN_INT8:
        return (<const int8_t*> values)[at]
    if kind == COLUMN_UINT8:
        return (<const uint8_t*> values)[at]
    if kind == COLUMN_INT16:
        memcpy(&short_, values + 2 * at, 2)
        return short_
    if kind == COLUMN_UINT16:
        memcpy(&ushort, values + 2 * at, 2)
        return ushort
    if kind == COLUMN_UINT32:
        memcpy(&uint, values + 4 * at, 4)
        return uint
    if kind == COLUMN_FLOAT32:
        memcpy(&single, values + 4 * at, 4)
        real = single
    else:
        real = half_at(values + 2 * at)
    memcpy(&number, &real, 8)
    return number

# Finds a value of text or bytes; False for null.
cdef inline bint column_bytes(const column_t* column, int64_t row, const char** text, int64_t* size) noexcept nogil:
    cdef int64_t at, start
    cdef const char* view
    if column_null(column, row):
        return False
    if column.kind == COLUMN_DICTIONARY:
        row = column_number(column, column.index_kind, row)
        column = column.dictionary
        if column_null(column, row):
            return False
    at = column.first + row
    if column.kind == COLUMN_OFFSETS:
        start = int32_at(column.values, at)
        size[0] = int32_at(column.values, at + 1) - start
        text[0] = column.bytes + start
    elif column.kind == COLUMN_OFFSETS_LARGE:
        start = int64_at(column.values, at)
        size[0] = int64_at(column.values, at + 1) - start
        text[0] = column.bytes + start
    elif column.kind == COLUMN_VIEWS:
        view = column.values + 16 * at
        size[0] = int32_at(view, 0)
        text[0] = view + 4 if size[0] <= 12 else <const char*> column.blocks[int32_at(view, 2)] + int32_at(view, 3)
    elif column.kind == COLUMN_FIXED:
        size[0] = column.width
        text[0] = column.values + column.width * at
    else:
        return False
    return True

cdef double half_at(const char* value) noexcept nogil
# Well-formed UTF-8: no surrogate, nothing overlong, nothing past U+10FFFF.
cdef bint utf8_valid(const char* text, int64_t size) noexcept nogil

# Raises TypeError for a type that is not `allowed`. `what` names the column in errors.
cdef int type_read(type_t* type, const ArrowSchema* schema, int allowed, object what) except -1
# Parts of a schema, which raise ValueError if they are missing or damaged.
cdef bytes format_of(const ArrowSchema* schema, object what)
cdef str name_of(const ArrowSchema* schema)
cdef int children_check(const ArrowSchema* schema, object what) except -1
# Raises ValueError unless the array is alive and has at least `rows` rows, and so many children and buffers (-1: any number).
cdef int array_check(const ArrowArray* array, int64_t rows, int64_t children, int64_t buffers, object what) except -1
cdef const uint8_t* validity_of(const ArrowArray* array, object what) except? NULL
# Checks that offsets start at 0 or later and never decrease; returns the longest distance between two of them.
cdef int64_t offsets_check(const char* offsets, int64_t first, int64_t rows, bint large, object what, int64_t row_first) except -1
# Opens rows `start` to `start + rows` of an array and checks them. `parent` has the validity of the struct around them, from
# `parent_first` on. `row_first` is the number of row 0 in errors, or -1 where the rows are entries of something else. Raises
# ValueError with the row for damage, and for values longer than `bytes_max`. The caller closes the column in any case.
# Cost: a copy of offsets and a pass over them, and a pass over the bytes of text if `utf8` is set (text that is read as str).
cdef int column_open(
    column_t* column, const type_t* type, const ArrowArray* array, int64_t start, int64_t rows, const uint8_t* parent,
    int64_t parent_first, int64_t bytes_max, bint utf8, object what, int64_t row_first
) except -1
# The bytes that the column's rows keep in memory: of values, texts and bodies. Of views that is all that their blocks have.
cdef int64_t column_held(const column_t* column) noexcept
# Copies the bytes of text or bytes values too; of a dictionary, those of its values.
cdef int column_own(column_t* column) except -1
# Makes numbers of the column's times, nanoseconds or days, and texts of its decimals, unless they are such already. ValueError
# with the row for a moment that does not fit into 64 bits.
cdef int column_convert(column_t* column, const type_t* type, object what, int64_t row_first) except -1
cdef void column_close(column_t* column) noexcept
# Raises ValueError with the row for an integer that is not from `least` to `most`.
cdef int range_check(const column_t* column, int64_t least, int64_t most, object what, int64_t row_first) except -1
# A copy of bits `first - first % 8` to `first + rows`; bit `first` has the number `first % 8` in it.
cdef const uint8_t* bits_copy(const uint8_t* bits, int64_t first, int64_t rows) except NULL
# A copy of the values of that kind, with the same bounds as in `bits_copy`.
cdef const char* values_copy(const char* values, int kind, int64_t first, int64_t rows) except NULL
cdef object row_text(object what, int64_t row_first, int64_t row)
