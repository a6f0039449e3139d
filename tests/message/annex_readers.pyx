"""Compiled readers of annexes: one that puts fields of all types, one that fails, one that puts too much."""

from libc.stdint cimport uint32_t

from xump_ext.message.annex cimport annex_reader, fields_t, put_bool, put_bytes, put_float, put_int, put_text

cdef int calls = 0


cdef int read_all(const char* data, uint32_t bytes, fields_t* fields) noexcept:
    """The first byte as `n`, the rest as a text and as bytes."""
    global calls
    calls += 1
    if bytes == 0:
        return 0
    if put_int(fields, "n", 1, data[0]) or put_bool(fields, "yes", 3, True) or put_bool(fields, "no", 2, False):
        return -1
    if put_float(fields, "half", 4, data[0] / 2.0) or put_text(fields, "text", 4, data + 1, bytes - 1):
        return -1
    return put_bytes(fields, "bytes", 5, data + 1, bytes - 1)


cdef int read_nothing(const char* data, uint32_t bytes, fields_t* fields) noexcept:
    put_int(fields, "n", 1, 1)
    return -1


cdef int read_much(const char* data, uint32_t bytes, fields_t* fields) noexcept:
    for _ in range(10):
        if put_text(fields, "text", 4, data, bytes):
            return -1
    return 0


def called():
    """How often annexes were read."""
    return calls


def register(int kind, str name):
    """Register one of the readers."""
    if name == "all":
        annex_reader(kind, name, read_all)
    else:
        annex_reader(kind, name, read_nothing if name == "nothing" else read_much)
