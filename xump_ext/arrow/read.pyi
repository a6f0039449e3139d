"""Reads messages from Arrow data."""

from typing import Protocol, final

from xump_ext.message.message import Message

class _Stream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class _Array(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

@final
class BatchReader:
    def __init__(self, data: _Stream | _Array) -> None: ...
    @property
    def rows(self) -> int: ...
    def messages(self) -> list[Message]: ...
