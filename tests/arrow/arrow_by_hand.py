"""Arrow structs made by hand, so that they may be wrong, and so that every release is counted.

`column`, `table` and their like describe a schema and an array together; `Given` lays them out in memory with ctypes and hands
them over as capsules. Nothing here checks anything.
"""

import ctypes
import struct
from dataclasses import dataclass, field, replace
from typing import Any


class ArrowSchema(ctypes.Structure):
    pass


class ArrowArray(ctypes.Structure):
    pass


class ArrowArrayStream(ctypes.Structure):
    pass


SchemaRelease = ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowSchema))
ArrayRelease = ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArray))
StreamSchema = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ArrowArrayStream), ctypes.POINTER(ArrowSchema))
StreamNext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ArrowArrayStream), ctypes.POINTER(ArrowArray))
StreamError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ArrowArrayStream))
StreamRelease = ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArrayStream))

ArrowSchema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowSchema))),
    ("dictionary", ctypes.POINTER(ArrowSchema)),
    ("release", SchemaRelease),
    ("private_data", ctypes.c_void_p),
]
ArrowArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))),
    ("dictionary", ctypes.POINTER(ArrowArray)),
    ("release", ArrayRelease),
    ("private_data", ctypes.c_void_p),
]
ArrowArrayStream._fields_ = [
    ("get_schema", StreamSchema),
    ("get_next", StreamNext),
    ("get_last_error", StreamError),
    ("release", StreamRelease),
    ("private_data", ctypes.c_void_p),
]

capsule_new = ctypes.pythonapi.PyCapsule_New
capsule_new.restype = ctypes.py_object
capsule_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


@dataclass(frozen=True)
class Column:
    """A schema and an array; `None` for a count means the true one, and `None` in `buffers` or `children` a NULL pointer."""

    format: bytes | None
    length: int
    buffers: list[Any]
    name: bytes | None = b""
    children: list[Any] = field(default_factory=list)
    dictionary: Any = None
    null_count: int = 0
    offset: int = 0
    n_buffers: int | None = None
    schema_children: int | None = None
    array_children: int | None = None
    buffers_missing: bool = False
    children_missing: bool = False
    dictionary_missing: bool = False
    schema_released: bool = False
    array_released: bool = False

    def but(self, **changes: Any) -> "Column":
        return replace(self, **changes)


def numbers(format: str, *values: float) -> bytes:
    return struct.pack(f"<{len(values)}{format}", *values)


def texts(values: list[bytes], format: bytes = b"u", name: bytes = b"address", **changes: Any) -> Column:
    """A column of text or bytes, with offsets of 32 bits, or of 64 for the formats in upper case."""
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    packed = numbers("q" if format.isupper() else "i", *offsets)
    return Column(format, len(values), [None, packed, b"".join(values)], name).but(**changes)


def views(values: list[bytes], format: bytes = b"vu", name: bytes = b"address") -> Column:
    """A column of views, with one block for all that is long."""
    packed, block = b"", b""
    for value in values:
        if len(value) <= 12:
            packed += numbers("i", len(value)) + value.ljust(12, b"\0")
        else:
            packed += numbers("i", len(value)) + value[:4] + numbers("i", 0, len(block))
            block += value
    return Column(format, len(values), [None, packed, block, numbers("q", len(block))], name)


def table(*columns: Column | None, **changes: Any) -> Column:
    length = next((column.length for column in columns if column is not None), 0)
    return Column(b"+s", length, [None], children=list(columns)).but(**changes)


def mapping(offsets: list[int], keys: Column, values: Column) -> Column:
    pairs = Column(b"+s", keys.length, [None], b"entries", [keys, values])
    return Column(b"+m", len(offsets) - 1, [None, numbers("i", *offsets)], b"headers", [pairs])


class Given:
    __arrow_c_array__: Any
    __arrow_c_stream__: Any

    """Data with `__arrow_c_array__`, or `__arrow_c_stream__` when there are `chunks`; counts what is released, and how often.

    It has the memory and the functions that its reader uses until it ends. So hold it longer than the reader: `released` ends it.
    """

    def __init__(
        self,
        *chunks: Column,
        stream: bool = False,
        code: int = 0,
        schema_code: int = 0,
        error: bytes | None = None,
        capsule: bytes | None = None,
    ) -> None:
        self.chunks = chunks
        self.code, self.schema_code = code, schema_code
        self.error = ctypes.c_char_p(error)
        self.capsule = capsule
        self.kept: list[Any] = []
        self.made = {"schema": 0, "array": 0, "stream": 0}
        self.released = {"schema": 0, "array": 0, "stream": 0}
        self.schema_release = SchemaRelease(lambda pointer: self.release("schema", SchemaRelease, pointer.contents))
        self.array_release = ArrayRelease(lambda pointer: self.release("array", ArrayRelease, pointer.contents))
        setattr(self, "__arrow_c_stream__" if stream else "__arrow_c_array__", self.as_stream if stream else self.as_array)

    def release(self, kind: str, callback: Any, given: Any) -> None:
        """As the interface demands: the children that were not moved out, then itself."""
        for child in range(len(self.chunks) and given.private_data or 0):
            pointer = given.children[child]
            if pointer and pointer.contents.release:
                pointer.contents.release(pointer)
        if given.dictionary and given.dictionary.contents.release:
            given.dictionary.contents.release(given.dictionary)
        self.released[kind] += 1
        given.release = callback()

    def schema_of(self, column: Column, out: ArrowSchema | None = None, live: bool = True) -> ArrowSchema:
        """`live`: whether a parent that is alive will release it."""
        schema = ArrowSchema() if out is None else out
        live = live and not column.schema_released
        self.kept.append(schema)
        schema.format, schema.name = column.format, column.name
        schema.flags = 2
        children = [ctypes.pointer(self.schema_of(child, live=live)) if child else None for child in column.children]
        schema.n_children = len(children) if column.schema_children is None else column.schema_children
        schema.private_data = len(children)
        schema.children = (ctypes.POINTER(ArrowSchema) * (len(children) + 1))(*(child for child in children if child))
        for at, child in enumerate(children):
            schema.children[at] = child if child else ctypes.POINTER(ArrowSchema)()
        if column.dictionary is not None:
            schema.dictionary = ctypes.pointer(self.schema_of(column.dictionary, live=live))
        if not column.schema_released:
            schema.release = self.schema_release
            self.made["schema"] += live
        return schema

    def array_of(self, column: Column, out: ArrowArray | None = None, live: bool = True) -> ArrowArray:
        """`live`: whether a parent that is alive will release it."""
        array = ArrowArray() if out is None else out
        live = live and not column.array_released
        self.kept.append(array)
        array.length, array.null_count, array.offset = column.length, column.null_count, column.offset
        array.n_buffers = len(column.buffers) if column.n_buffers is None else column.n_buffers
        array.private_data = len(column.children)
        if not column.buffers_missing:
            held = [
                None if buffer is None else ctypes.create_string_buffer(buffer, max(len(buffer), 1)) for buffer in column.buffers
            ]
            self.kept.append(held)
            pointers = [None if buffer is None else ctypes.cast(buffer, ctypes.c_void_p).value for buffer in held]
            array.buffers = (ctypes.c_void_p * (len(pointers) + 1))(*pointers)
        children = [
            ctypes.pointer(self.array_of(child, live=live and not column.children_missing)) if child else None
            for child in column.children
        ]
        array.n_children = len(children) if column.array_children is None else column.array_children
        if column.children_missing:
            array.private_data = 0
        else:
            array.children = (ctypes.POINTER(ArrowArray) * (len(children) + 1))()
            for at, child in enumerate(children):
                array.children[at] = child if child else ctypes.POINTER(ArrowArray)()
        if column.dictionary is not None and not column.dictionary_missing:
            array.dictionary = ctypes.pointer(self.array_of(column.dictionary, live=live))
        if not column.array_released:
            array.release = self.array_release
            self.made["array"] += live
        return array

    def capsule_of(self, given: Any, name: bytes) -> object:
        name = self.capsule or name
        self.kept.append(name)
        capsule: object = capsule_new(ctypes.addressof(given), name, None)
        return capsule

    def as_array(self, requested_schema: object = None) -> tuple[object, object]:
        self.schema = self.schema_of(self.chunks[0])
        self.array = self.array_of(self.chunks[0])
        return self.capsule_of(self.schema, b"arrow_schema"), self.capsule_of(self.array, b"arrow_array")

    def as_stream(self, requested_schema: object = None) -> object:
        waiting = list(self.chunks)

        def get_schema(pointer: Any, out: Any) -> int:
            if not self.schema_code:
                self.schema_of(self.chunks[0], out.contents)
            return self.schema_code

        def get_next(pointer: Any, out: Any) -> int:
            if waiting:
                self.array_of(waiting.pop(0), out.contents)
                return 0
            out.contents.release = ArrayRelease()
            return self.code

        def release(pointer: Any) -> None:
            self.released["stream"] += 1
            pointer.contents.release = StreamRelease()

        self.stream = ArrowArrayStream(
            StreamSchema(get_schema),
            StreamNext(get_next),
            StreamError(lambda pointer: ctypes.cast(self.error, ctypes.c_void_p).value),
            StreamRelease(release),
        )
        self.made["stream"] += 1
        return self.capsule_of(self.stream, b"arrow_array_stream")

    def end(self) -> None:
        """What a capsule's destructor does: releases what nobody moved out."""
        for name, kind in (("schema", ArrowSchema), ("array", ArrowArray), ("stream", ArrowArrayStream)):
            given = getattr(self, name, None)
            if isinstance(given, kind) and given.release:
                given.release(ctypes.pointer(given))
