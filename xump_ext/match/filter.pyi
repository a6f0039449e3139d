"""Filters: expressions over headers and envelope, evaluated in C."""

from typing import Any, final

from xump_ext.message.message import Message

@final
class Filter:
    def __new__(cls, tree: tuple[Any, ...]) -> Filter: ...
    def evaluate_message(self, message: Message, delivery_count: int = 0) -> bool | None: ...
    def count(self, messages: list[Message], delivery_count: int = 0) -> int: ...
