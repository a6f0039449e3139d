"""Publishes that wait: for room, or for a reply. `Requesting` is a part of the class `xump.Engine`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xump._arguments import check_timeout
from xump._names import REPLIES
from xump._taking import Taking
from xump.errors import Conflict, RequestTimeout, StoreFull
from xump_ext.engine.core import Core
from xump_ext.message.message import Message

if TYPE_CHECKING:
    from xump.queue import Queue
    from xump.transaction import Transaction
    from xump.types import Body, Headers, Moment
    from xump_ext.engine.publishers import Publisher
    from xump_ext.route.replies import Request


def no_reply(queue: str | Queue, timeout: float | None) -> RequestTimeout:
    """The error of a request that was not answered in time. Inside the thread's own building block it does not wait at all."""
    waited = "" if timeout is None else f" within {timeout} seconds"
    return RequestTimeout(f"no reply from queue {str(queue)!r}{waited}")


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

        >>> import threading
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
        request = self._requested(queue, address, body, headers, None)
        try:
            if not request.served and not self._is_building():
                self._sleep(request, timeout)
        finally:
            self._end_request(request)
        if request.answer is None:
            raise no_reply(queue, timeout)
        return request.answer

    def _requested(
        self, queue: str | Queue, address: str | Message, body: Body, headers: Headers | None, wake: Callable[[], Any] | None
    ) -> Request:
        """Publish a request; `wake()` is called when its reply comes. If it is refused, the queue of replies is not made."""
        is_new = REPLIES not in self._queues
        replies = self._replies(queue, address, body, headers)
        try:
            return self._ask(replies, queue, address, body, headers, wake)
        except BaseException:
            if is_new and not self._has_requests():     # else another thread waits there for its reply
                self.delete_queue(replies)
            raise

    def _replies(self, queue: str | Queue, address: Any, body: Any, headers: Any) -> Queue:
        """The queue to which replies come; it is made when it is first needed, by a request with which nothing is wrong."""
        replies: Queue | None = self._queues.get(REPLIES)
        if replies is None:
            self._check_open()
            if not isinstance(address, Message):
                Message(address, body, headers)
            if self.dead_letter not in self._queues or not isinstance(queue, str):
                self._queue(queue, "queue")
            return self.create_queue(REPLIES)
        if replies.staged or replies.transit:
            kind = "staged" if replies.staged else "a transit queue"
            raise Conflict(f"queue {REPLIES!r} is {kind}, and keeps no replies: delete it; the engine makes one that does")
        return replies

    def _publish_waiting(self, timeout: float | None, queue: str | Queue, *given: Any) -> int:
        """`publish` with a `timeout`: it waits for room. `given`: the other arguments, in order."""
        check_timeout(timeout)
        if self._is_building():
            return self._publish_at_once(queue, *given)
        publisher, still_waits = self._until_in(timeout, lambda held: self._publish_later(held, None, queue, *given))
        return self._publish_no_longer(publisher, still_waits, queue, *given)

    def _commit_waiting(self, timeout: float | None, transaction: Transaction) -> None:
        """Carry out a transaction of publishes into one queue, and changes of maps, as soon as there is room for all of it."""
        if self._is_building():
            return self._commit(transaction)
        publisher, still_waits = self._until_in(timeout, lambda held: self._commit_later(held, None, transaction))
        if publisher.error is not None:
            raise publisher.error
        return self._commit(transaction) if still_waits else None

    def _until_in(self, timeout: float | None, begin: Callable[[list[Publisher]], Publisher]) -> tuple[Publisher, bool]:
        """Wait until a publisher has entered, or cannot. Returns it, and whether it still waited when the time was over.

        The call that would let it in may be one that cleans no store (`not_waiting`), and so find the store full: then this
        thread tries again, and cleans it.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            held: list[Publisher] = []
            try:
                publisher = begin(held)
                waited = publisher.waits
                if waited:
                    self._sleep(publisher, None if end is None else max(end - time.monotonic(), 0.0))
            finally:
                still_waits = self._still_waits(held)
            if not (waited and isinstance(publisher.error, StoreFull)):
                return publisher, still_waits

    def _still_waits(self, held: list[Publisher]) -> bool:
        """Whether the publisher still waited; it does not any more."""
        return any(publisher.waits and self._publish_no_more(publisher) for publisher in held)

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
        """`publish` without waiting, also where a subclass has another default."""
        return Core.publish(
            self, queue, address, body, headers, reply_to=reply_to, message_id=message_id, correlation_id=correlation_id,
            delay=delay, at=at, ttl=ttl, expires=expires, priority=priority)
