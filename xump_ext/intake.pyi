"""Publishing, and transactions: a part of the engine, see `core.pyi`."""

from collections.abc import Iterable, Mapping
from typing import Any

from xump_ext.durable import Durable
from xump_ext.faces import QueueFace
from xump_ext.message import Message, _Body, _HeaderValue

class Intake(Durable):
    def publish(
        self,
        queue: str | QueueFace,
        address: str = "",
        body: _Body = b"",
        headers: Mapping[str, _HeaderValue] | None = None,
        *,
        reply_to: str | None = None,
        message_id: str | None = None,
    ) -> int: ...
    def publish_many(self, queue: str | QueueFace, messages: Iterable[Message | tuple[Any, ...]]) -> range: ...
    def _commit(self, transaction: Any) -> None: ...
