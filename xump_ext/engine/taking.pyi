"""Taking: which offer or kept-back delivery your program gets next; the iterator over deliveries; putting back."""

from typing import NoReturn, Self

from xump_ext.engine.delivery import Delivery
from xump_ext.engine.engine_lock import EngineLock

def put_back(engine: EngineLock, deliveries: list[Delivery]) -> None:
    """Messages that were taken, and that nobody has seen, return to their old places as if they had not been taken. Stale
    deliveries are left out.
    """

class DeliveryIterator:
    """An iterator over deliveries, which ends when there has been none for `timeout` seconds. Created by `Engine.deliveries`.

    It does not give messages again that were nacked after it was created, unless they came back by time.
    """

    def __new__(cls, engine: EngineLock, destination: str | tuple[str, ...] | None, timeout: float | None) -> Self: ...
    def __reduce__(self) -> NoReturn: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Delivery: ...
    def take(self) -> Delivery | None:
        """The next delivery, or None if there is none now. For `xump.aio`."""
    def warn(self) -> None:
        """Warn if it would wait for ever though there are messages, which it does not give again. For `xump.aio`, too."""
