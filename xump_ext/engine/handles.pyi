"""Handles: queues and selectors as Python sees them. `xump.Queue` and `xump.Selector` derive from them, and add verbs."""

import datetime
from collections.abc import Mapping
from typing import Any, NoReturn

from xump.actions import Action
from xump.conditions import Condition
from xump.engine import Engine
from xump.queue import Queue
from xump.store_types import Store
from xump.types import Unmatched, WhenFull
from xump.window import Window
from xump_ext.infinite import Infinite
from xump_ext.message.message import Message, _Body, _HeaderValue
from xump_ext.state.envelope import QueueRef

class QueueHandle(QueueRef):
    """The properties of a queue. Each costs O(1)."""

    @property
    def name(self) -> str:
        """The name of the queue, unique in its engine."""
    @property
    def engine(self) -> Engine:
        """The Engine that it belongs to."""
    @property
    def store(self) -> Store:
        """The Store that keeps its messages."""
    def publish(
        self,
        address: str | Message = "",
        body: _Body = b"",
        headers: Mapping[str, _HeaderValue] | None = None,
        *,
        reply_to: str | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
        delay: float | None = None,
        at: datetime.datetime | int | None = None,
        ttl: float | None = None,
        expires: datetime.datetime | int | None = None,
        priority: int = 0,
        timeout: float | None = 0.0,
    ) -> int:
        """Publish a message into this queue, and run the graph until nothing more happens.

        Args:
            address: The text that the message is routed by (a routing key), at most 65,534 bytes of UTF-8; or a whole
                `Message`: then pass only `delay`, `at`, `ttl` and `timeout` with it.
            body: Up to 64 MiB of bytes.
            headers: Values by name: bool, int (64 bits, signed), float, str or bytes; together at most 1 MiB.
            reply_to: The address for answers.
            message_id: Your own name for the message.
            correlation_id: The `message_id` of the message that this one answers, or what else joins the two.
            delay: After how many seconds the message is due: until then it is in the queue, but not ready.
            at: When the message is due, instead of `delay`: an aware datetime, or POSIX nanoseconds.
            ttl: How many seconds the message may wait from when it is due; then it expires.
            expires: When the message expires, instead of `ttl`: an aware datetime, or POSIX nanoseconds.
            priority: 0 to 255; queues with a priority take higher ones first.
            timeout: How many seconds to wait for room, if the queue is full; None: for ever.

        Returns:
            The id that the queue issued: 1, 2, 3 and so on. 0 if the message went to a dead letter queue instead, or through a
            transit queue, which issues none.

        Raises:
            QueueFull: The queue is full, also after `timeout`, and neither an overflow selector nor a dead letter queue takes the
                message.
            StoreFull, StoreFailed: The store cannot write it.
            QueueNotFound: No queue has this name any more, and no dead letter queue of the engine takes the message.
            TypeError, ValueError: An argument is wrong.

        If it raises, nothing has changed.

        Cost: that of `Engine.publish`, and a call.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     engine.create_queue("jobs").publish("resize", b"cat.png", {"width": 80})
        1
        """
    @property
    def ready(self) -> int:
        """Messages that wait in the queue, routed or not."""
    @property
    def outstanding(self) -> int:
        """Messages that selectors have taken and that are not settled (unacknowledged)."""
    @property
    def delayed(self) -> int:
        """Messages that are in the queue and not due yet: they are not routed, and not counted as ready."""
    @property
    def history(self) -> int:
        """Processed messages that the queue keeps, at most `history_limit`."""
    @property
    def limit(self) -> int | None:
        """How many messages may be ready or delayed; None: any number."""
    @property
    def history_limit(self) -> int | None:
        """How many processed messages are kept; None: all of them."""
    @property
    def delivery_limit(self) -> int | None:
        """After how many takes a nacked message is dead-lettered; None: never."""
    @property
    def auto_delete(self) -> bool:
        """Whether the queue deletes itself with its last selector."""
    @property
    def dead_letter(self) -> str | None:
        """The name of the dead letter queue: it gets messages that cannot be processed here. None: the engine's."""
    @property
    def rewriter(self) -> str | list[str] | None:
        """The name of the registered function that rewrites this queue's dead letters, or a list of the name and its argument.
        None: the engine adds its own headers, `xump_reason` and others.
        """
    @property
    def retry_delay(self) -> list[float] | None:
        """After how many seconds a nacked message is ready again: after its first delivery, its second one and so on; then the
        last of the list. None: at once, or as a queue upstream says.
        """
    @property
    def ttl(self) -> float | None:
        """After how many seconds in the queue a message expires; None: never."""
    @property
    def priority(self) -> int | None:
        """The highest priority of this queue: a message with a higher one counts as this. None: it takes the oldest message
        first, whatever its priority.
        """
    @property
    def dedup(self) -> float | None:
        """For how many seconds the queue remembers the `message_id` of what was published into it, to enter it only once. None:
        it does not.
        """
    @property
    def dedup_limit(self) -> int:
        """How many of these the queue remembers at most."""
    @property
    def limit_bytes(self) -> int | None:
        """The queue has room while the bodies of its ready and delayed messages are together smaller than this; None: always."""
    @property
    def _body_bytes(self) -> int:
        """How many bytes the bodies of ready and delayed messages have, if there is a limit of bytes."""
    @property
    def when_full(self) -> WhenFull:
        """How a publish ends when the queue is full: `"refuse"`: it raises; `"drop_oldest"`: the queue makes room for it;
        `"drop_to_fit"`: the queue drops what is beyond its limits, the message itself in the end.
        """
    @property
    def unmatched(self) -> Unmatched:
        """How a message that no selector matches is treated: `"drop"`, or `"keep"`: it waits for one that does."""
    @property
    def staged(self) -> bool:
        """Whether the queue keeps what is published into it, as it came, until `Engine.adopt` gives it to another queue."""

    @property
    def transit(self) -> bool:
        """Whether the queue keeps nothing: what comes goes on at once to the targets of its selectors, as in an exchange."""
    def _items(self) -> dict[str, bytes]: ...
    def _properties(self) -> dict[str, Any]: ...
    @property
    def held(self) -> bool:
        """Whether the queue is held: it routes nothing until `release()`."""
    @property
    def last_id(self) -> int:
        """The id that the queue issued last; 0: none yet."""
    @property
    def durable_id(self) -> int:
        """Ids up to this one are durable; always 0 in RAM.

        After a crash, higher ids are issued again, to other messages. A program that remembers ids should remember none above
        this one, and `incarnation` beside it.
        """
    @property
    def stable_id(self) -> int:
        """The last id before the oldest adoption that has not finished entering; without one, `last_id`. If your reader stops
        at this id, it sees each adoption completely or not at all.
        """

    @property
    def entering(self) -> int:
        """How many messages of staged queues that this queue has adopted have still to enter: `Engine.enter`."""

    @property
    def adopted_by(self) -> str | None:
        """The name of the queue that has adopted this staged queue, or None."""

    @property
    def incarnation(self) -> int:
        """A random number that this queue got when it was made, and keeps as long as it exists, through reopening and repair.

        An id says which message only together with it: a queue that is deleted and made again begins with id 1, and has another
        incarnation.
        """
    @property
    def frontier(self) -> int:
        """The lowest id that has not been routed yet, or the next one to be issued."""
    def _enabled_selector(self, role: int) -> int | None: ...
    def counters(self) -> dict[str, Any]:
        """A dict of all counters and gauges."""
    def __reduce__(self) -> NoReturn: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def _name(self, engine: Any, name: str, store: Any) -> None: ...

class SelectorHandle:
    """The properties of a selector. Each costs O(1), `blocked` as the targets that it waits for."""

    @property
    def id(self) -> int:
        """The number that the engine gave it; never reused."""
    @property
    def name(self) -> str | None:
        """The name that it was created with, or None."""
    @property
    def engine(self) -> Engine:
        """The Engine that it belongs to."""
    @property
    def source(self) -> Queue:
        """The Queue that it takes or copies messages from."""
    @property
    def when(self) -> Condition:
        """The condition: which messages it selects."""
    @property
    def do(self) -> Action:
        """The action: what the selector does with the messages that `when` selects."""
    @property
    def window(self) -> Window | None:
        """The Window that it shares with other selectors, or None."""
    @property
    def _created(self) -> tuple[Any, ...]: ...
    @property
    def enabled(self) -> bool:
        """Whether the selector is enabled: a disabled one takes and copies nothing."""
    @property
    def credit(self) -> int | Infinite:
        """The credit (prefetch window): available and outstanding together, or INFINITE."""
    @property
    def ack_timeout(self) -> float | None:
        """In how many seconds a delivery must be answered, else it is nacked; None: there is no limit."""
    @property
    def rank(self) -> int:
        """Its rank: of selectors that can take a message, one with a higher rank goes first; 0 unless given."""
    @property
    def ahead(self) -> int | None:
        """How many messages it may offer that your program has not taken yet; None: as many as its credit allows."""
    @property
    def available(self) -> int | Infinite:
        """Credit that is left: how many messages it may take before one is acked; or INFINITE."""
    @property
    def outstanding(self) -> int:
        """Messages that it has taken and that are not settled."""
    @property
    def blocked(self) -> bool:
        """Whether it has credit and a message to take, and waits for room in its target, or for its shared window."""
    def counters(self) -> dict[str, Any]:
        """A dict of all counters and gauges."""
    def __reduce__(self) -> NoReturn: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def _describe(
        self, engine: Any, id: int, name: str | None, source: QueueHandle, when: Any, do: Any, window: Any,
        created: tuple[Any, ...],
    ) -> None: ...
