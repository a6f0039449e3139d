"""Kinds of annexes: their registration, and what a compiled reader puts.

An annex is opaque to the engine: it travels with its message, and only the reader of its kind, if there is one, says which
headers it stands for (`message/headers.pyx`).
"""

from libc.stdint cimport UINT32_MAX
from libc.stdlib cimport realloc

from xump_ext.errors import Conflict
from xump_ext.message.headers cimport annex_register
from xump_ext.message.headers import annex_name

KIND_MAX = 65535
KIND_OWN_MAX = 255
"""Kinds up to this one are Xump's own."""


cdef int annex_reader(int kind, str name, annex_reader_t reader) except -1:
    check_new(kind, name)
    return annex_register(kind, name, reader, None)


def register_annex(kind, name, reader=None):
    """Register a kind of annexes, so that the headers of a message that has one can be read.

    Args:
        kind: The number of the kind, 256 to 65,535; it is what stores keep. 1 to 255 are Xump's own.
        name: A name for people.
        reader: Called with the bytes of an annex when somebody first asks for a header; returns a mapping of headers. If it
            raises, the message has none, and `sys.unraisablehook` gets the error. None: such messages have no headers.

    Raises:
        Conflict: The kind is registered already.
        TypeError, ValueError: An argument is wrong.

    If it raises, nothing is registered. The kind is registered for this process. Messages of a kind that is not registered are
    carried and shown all the same; they have no headers. Compiled readers are registered by `xump_ext/message/annex.pxd`.

    Cost: O(1).

    >>> from xump import Engine, Message, register_annex
    >>> register_annex(4711, "numbered", lambda data: {"n": data[0]})
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     number = jobs.publish(Message("resize", annex=(4711, b"\\x07...")))
    ...     [message.headers["n"] for message in jobs.browse(where="n > 6")]
    [7]
    """
    if isinstance(kind, bool) or not isinstance(kind, int):
        raise TypeError(f"a kind of annexes is an int, got {type(kind).__name__}")
    if not KIND_OWN_MAX < kind <= KIND_MAX:
        raise ValueError(f"a kind of annexes must be from {KIND_OWN_MAX + 1} to {KIND_MAX}, got {kind}")
    if not isinstance(name, str) or not name:
        raise TypeError(f"the name of a kind of annexes is a non-empty str, got {name!r}")
    if reader is not None and not callable(reader):
        raise TypeError(f"the reader of annexes must be callable as reader(data), got {type(reader).__name__}")
    check_new(kind, name)
    annex_register(kind, str.__str__(name), NULL, reader)


cdef int check_new(object kind, object name) except -1:
    before = annex_name(kind)
    if before is not None:
        raise Conflict(f"the kind {kind} of annexes is registered as {before!r} already; choose another number for {name!r}")
    return 0


cdef char* field_begin(fields_t* fields, int type, const char* name, uint16_t name_bytes, uint32_t value_bytes) noexcept:
    cdef size_t needed = <size_t> fields.bytes + 3 + name_bytes + value_bytes
    cdef char* at
    if needed > <size_t> UINT32_MAX // 2:
        return NULL
    if needed > fields.capacity:
        at = <char*> realloc(fields.at, 2 * needed)
        if at == NULL:
            return NULL
        fields.at = at
        fields.capacity = <uint32_t> (2 * needed)
    at = fields.at + fields.bytes
    at[0] = <char> type
    memcpy(at + 1, &name_bytes, 2)
    memcpy(at + 3, name, name_bytes)
    fields.bytes = <uint32_t> needed
    fields.count += 1
    return at + 3 + name_bytes
