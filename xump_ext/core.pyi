"""The engine as Python calls it. `xump.Engine` derives from `Core`.

What is Any here is a class of the package `xump`, which this one does not know: a queue is a `xump.Queue`, a selector a
`xump.Selector`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from xump_ext.delivery import Delivery
from xump_ext.durable import Durable
from xump_ext.faces import QueueFace
from xump_ext.filter import Filter
from xump_ext.journal import Journal
from xump_ext.message import Message, _Body, _HeaderValue

PAGE: int

class Core(Durable):
    def __del__(self) -> None: ...
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
    def ack(self, deliveries: Delivery | Iterable[Delivery]) -> None: ...
    def _commit(self, transaction: Any) -> None: ...
    def _take(self, n: int, destination: str | None) -> list[Delivery]: ...
    def _create_queue(
        self,
        face: Any,
        limit: int | None,
        history_limit: int | None,
        auto_delete: bool,
        letters: str | None,
        delivery_limit: int | None,
        journal: Journal | None,
    ) -> None: ...
    def _free(self) -> None: ...
    def _delete_queue(self, name: Any) -> list[str]: ...
    def _create_selector(
        self,
        face: Any,
        verb: int,
        role: int,
        terms: tuple[Any, ...],
        queue_field: str | None,
        target: Any,
        destination_field: str | None,
        destination: str | None,
        credit: Any,
        enabled: bool,
        start: Any,
    ) -> None: ...
    def _delete_selector(self, face: Any) -> list[str]: ...
    def _enable(self, face: Any, enabled: bool) -> None: ...
    def _grant(self, face: Any, n: int) -> None: ...
    def _pay(self, face: Any, n: int) -> None: ...
    def _hold(self, face: Any, held: bool) -> None: ...
    def _building(self, change: int, reopened: list[Any] | None = None) -> None: ...
    def _page(
        self, face: Any, start: Any, reverse: bool, state: str | None, filter: Filter | None
    ) -> tuple[list[Message], int | None]: ...
    def _fetch(self, face: Any, id: int) -> Message | None: ...
    def _delete_message(self, face: Any, id: int) -> bool: ...
    def _purge(self, face: Any) -> int: ...
    def _counters(self) -> dict[str, int]: ...
    def _close(self) -> bool: ...
