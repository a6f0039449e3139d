"""Publishing and transactions: the third part of the engine's class, after `EngineStores`."""

from collections.abc import Iterable, Mapping
from typing import Any

from xump_ext.engine.handles import QueueHandle
from xump_ext.engine.stores import EngineStores
from xump_ext.message.message import Message, _Body, _HeaderValue

class EnginePublish(EngineStores):
    def publish(
        self,
        queue: str | QueueHandle,
        address: str = "",
        body: _Body = b"",
        headers: Mapping[str, _HeaderValue] | None = None,
        *,
        reply_to: str | None = None,
        message_id: str | None = None,
    ) -> int: ...
    def publish_many(self, queue: str | QueueHandle, messages: Iterable[Message | tuple[Any, ...]]) -> range: ...
    def _commit(self, transaction: Any) -> None: ...
