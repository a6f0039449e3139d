"""The last part of the engine's class, after `EngineReading`. `xump.Engine` derives from it.

Any stands for classes of the package `xump`, which this one does not know: for a queue `xump.Queue`, for a selector
`xump.Selector`.
"""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from xump_ext.engine.delivery import Delivery
from xump_ext.engine.handles import QueueHandle
from xump_ext.engine.reading import EngineReading
from xump_ext.engine.windows import WindowHandle
from xump_ext.log.journal import Journal
from xump_ext.route.replies import Request

class Core(EngineReading):
    """The compiled base of `xump.Engine`: all nine parts."""

    _builders: dict[int, int]
    _reopened: list[QueueHandle]
    def __del__(self) -> None: ...
    def __reduce__(self) -> NoReturn: ...
    def ack(self, deliveries: Delivery | Iterable[Delivery]) -> None:
        """Acknowledge many deliveries with one call and one run: all of them, or none.

        Args:
            deliveries: A `Delivery`, or an iterable of them.

        Raises:
            StaleDelivery: A delivery was answered before, the engine took it back, or it is given twice.
            StoreFailed: The store of a message has failed: the message is settled in memory, and the store still has it.
            Closed: The engine is closed.
            TypeError: An item is not a `Delivery`.

        If it raises another error, nothing has changed.

        Cost: O(deliveries + queues that the messages were moved through), and the run that follows.

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     worker = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=10)
        ...     ids = engine.publish_many("jobs", [("resize",), ("rotate",)])
        ...     engine.ack(engine.take(10, "worker"))
        ...     jobs.outstanding
        0
        """
    def _take(self, n: int, destination: str | tuple[str, ...] | None) -> list[Delivery]: ...
    def _get(self, handle: Any) -> Delivery | None: ...
    def _ask(
        self, replies: Any, queue: Any, address: Any, body: Any, headers: Any, wake: Callable[[], object] | None
    ) -> Request: ...
    def _end_request(self, request: Request) -> None: ...
    def _has_requests(self) -> bool: ...
    def tick(self) -> None:
        """Do what fell due, and nothing else. Every other call that changes something does that first, too.

        Raises:
            Closed: The engine is closed.

        Cost: that of what fell due, and the run that follows.

        >>> from xump import Engine
        >>> now = 0
        >>> with Engine(clock=lambda: now) as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     number = jobs.publish("resize", delay=60)
        ...     before = jobs.delayed, jobs.ready, engine.next_due
        ...     now = engine.next_due
        ...     engine.tick()
        ...     before, (jobs.delayed, jobs.ready, engine.next_due)
        ((1, 0, 60000000000), (0, 1, None))
        """
    def _create_queue(
        self, handle: Any, properties: dict[str, Any], journal: Journal | None, items: dict[str, bytes]
    ) -> None: ...
    def _free(self) -> None: ...
    def _delete_queue(self, name: Any) -> list[str]: ...
    def _create_selector(
        self,
        handle: Any,
        verb: int,
        role: int,
        terms: tuple[Any, ...],
        queue_field: str | None,
        target: Any,
        destination_field: str | None,
        destination: str | None,
        credit: Any,
        ack_timeout: int | None,
        rank: int,
        ahead: int | None,
        window: WindowHandle | None,
        enabled: bool,
        start: Any,
    ) -> None: ...
    def _delete_selector(self, handle: Any, recalls: bool) -> list[str]: ...
    def _create_window(self, handle: WindowHandle, credit: int) -> None: ...
    def _resize_window(self, handle: WindowHandle, credit: int) -> None: ...
    def _delete_window(self, handle: WindowHandle) -> int | None: ...
    def _enable(self, handle: Any, enabled: bool) -> None: ...
    def _grant(self, handle: Any, n: int) -> None: ...
    def _pay(self, handle: Any, n: int) -> None: ...
    def _hold(self, handle: Any, held: bool) -> None: ...
    def _delete_message(self, handle: Any, id: int) -> bool: ...
    def _purge(self, handle: Any, upto: int, most: int, after: int) -> tuple[int, int]: ...
    def _close(self) -> bool: ...
