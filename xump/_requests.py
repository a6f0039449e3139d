"""Publishes that wait: for room, or for a reply. `Requesting` is a part of the class `xump.Engine`."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from xump._arguments import check_timeout
from xump._names import REPLIES
from xump._taking import Taking
from xump.errors import RequestTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from xump.queue import Queue
    from xump.types import Body, Headers, Moment
    from xump_ext.engine.publish import Publisher
    from xump_ext.message.message import Message


class _Request:
    """A request that waits for its reply: the core sets `answer`, and calls `wake`."""

    __slots__ = ("answer", "message_id", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.message_id = secrets.token_hex(16)
        self.answer: Message | None = None
        self.wake: Callable[[], object] = wake


def no_reply(queue: str | Queue, timeout: float | None) -> RequestTimeout:
    """The error of a request that was not answered in time; in a building block it does not wait, whatever its timeout."""
    return RequestTimeout(f"no reply from queue {str(queue)!r} within {timeout} seconds")


class Requesting(Taking):
    """The part of `xump.Engine` that asks, and waits for the answer."""

    def request(
        self,
        queue: str | Queue,
        address: str = "",
        body: Body = b"",
        headers: Headers | None = None,
        *,
        timeout: float | None = 30.0,
    ) -> Message:
        """Publish a request, and wait for the reply.

        Args:
            queue: The queue that the request enters.
            address, body, headers: As for `publish`. The request has a random `message_id`, and `reply_to="xump.replies"`.
            timeout: How many seconds to wait for the reply; None: for ever.

        Returns:
            The message that came to the queue `xump.replies` with the `message_id` of the request as its `correlation_id`; or the
            request itself, if it was bounced there. `Delivery.reply` sends such a reply.

        Raises:
            RequestTimeout: No reply came in time. One that comes later is dropped and counted (`late`).
            QueueNotFound, QueueFull, StoreFull, StoreFailed, Closed, TypeError, ValueError: As `publish`.

        Inside your own `building()` block it does not wait. The queue `xump.replies` is made when it is first needed, in RAM; it
        is not part of `topology()`.

        Cost: two publishes, and waking a thread if the reply does not come at once.

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     queue = engine.create_queue("upper")
        ...     def work():
        ...         for delivery in engine.deliveries("worker", timeout=5.0):
        ...             with delivery as message:
        ...                 delivery.reply(message.body.upper())
        ...             break
        ...     selector = engine.create_selector("upper", when=always, do=deliver("worker"))
        ...     thread = threading.Thread(target=work)
        ...     thread.start()
        ...     engine.request("upper", body=b"hello").body
        ...     thread.join()
        b'HELLO'
        """
        check_timeout(timeout)
        woken = threading.Lock()
        woken.acquire()
        request = self._ask(queue, address, body, headers, woken.release)
        try:
            if request.answer is None and not self._is_building():
                self._wait_until(lambda: request.answer is not None, ("reply", request.message_id), woken, timeout)
        finally:
            self._end_request(request)
        if request.answer is None:
            raise no_reply(queue, timeout)
        return request.answer

    def _ask(
        self, queue: str | Queue, address: str, body: Body, headers: Headers | None, wake: Callable[[], None]
    ) -> _Request:
        """Publish the request; `wake()` is called when its reply comes, perhaps at once."""
        request = _Request(wake)
        replies = self._queues.get(REPLIES)
        if replies is None:
            replies = self.create_queue(REPLIES)
        self._begin_request(replies, request)
        try:
            self.publish(queue, address, body, headers, reply_to=REPLIES, message_id=request.message_id)
        except BaseException:
            self._end_request(request)
            raise
        return request

    def _publish_waiting(self, timeout: float | None, queue: str | Queue, *given: Any) -> int:
        """`publish` with a `timeout`: it waits for room. `given`: the other arguments, in order."""
        check_timeout(timeout)
        if self._is_building():
            return self._publish_at_once(queue, *given)
        woken = threading.Lock()
        woken.acquire()
        publisher = self._publish_later(woken.release, queue, *given)
        try:
            if publisher.waits:
                self._wait_until(lambda: not publisher.waits, ("room", id(publisher)), woken, timeout)
        finally:
            still_waits = publisher.waits and self._publish_no_more(publisher)
        return self._publish_no_longer(publisher, still_waits, queue, *given)

    def _publish_no_longer(self, publisher: Publisher, still_waits: bool, queue: str | Queue, *given: Any) -> int:
        """The result of a publish whose wait is over. If it `still_waits` and nobody refused it, the engine was in a building
        block of another thread all the time: it enters now, if there is room."""
        if publisher.error is not None:
            raise publisher.error
        return self._publish_at_once(queue, *given) if still_waits else publisher.id

    def _publish_at_once(
        self, queue: str | Queue, address: str | Message, body: Body, headers: Headers | None, reply_to: str | None,
        message_id: str | None, correlation_id: str | None, delay: float | None, at: Moment | None, ttl: float | None,
        expires: Moment | None, priority: int,
    ) -> int:
        """`publish` without waiting."""
        return self.publish(
            queue, address, body, headers, reply_to=reply_to, message_id=message_id, correlation_id=correlation_id, delay=delay,
            at=at, ttl=ttl, expires=expires, priority=priority)

    def _wait_until(
        self, over: Callable[[], bool], key: tuple[str, object], woken: threading.Lock, timeout: float | None
    ) -> None:
        """Wait until something is `over`, which releases `woken`; and wake for what falls due meanwhile."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not over():
            waiter = self._await((key,), lambda: _release(woken))
            try:
                due = self._seconds_until_due()
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                woken.acquire(timeout=min(span for span in (due, left, threading.TIMEOUT_MAX) if span is not None))
            finally:
                self._withdraw(waiter)
            if over() or (deadline is not None and time.monotonic() >= deadline):
                return
            self.tick()


def _release(lock: threading.Lock) -> None:
    with suppress(RuntimeError):        # somebody else has released it
        lock.release()
