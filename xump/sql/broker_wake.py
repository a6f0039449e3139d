"""Waking through a broker, over AMQP 0-9-1 with pika: commits in any process, on any host, wake those that wait in any other.

A process that notifies publishes an empty message to a fanout exchange; one that waits has a queue of its own there, which ends
with its connection. So a queue that is gone says that its worker is gone, too, long before three beats are missed: the cleaner
looks. That is a hint like the message itself. A broker that starts again has lost all queues, and no worker has ended: what
lives renews its leases within the grace that a cleaner gives, and its queue is made anew.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from xump.sql.connections import end
from xump.sql.errors import ConfigurationError
from xump.sql.payload import new_id
from xump.sql.sender import LISTEN_SECONDS, REOPEN_SECONDS, Sender
from xump.sql.wake import Wake

logger = logging.getLogger("xump.sql")
NOT_FOUND = 404
UNSEEN_LOOKS = 10
"""A worker that has no queue after so many looks is woken by something else."""


class _Messages:
    """See `Hints`. Empty messages to an exchange."""

    def __init__(self, connection: Any, channel: Any, exchange: str) -> None:
        self._connection, self._channel, self._exchange = connection, channel, exchange

    def give(self) -> None:
        self._channel.basic_publish(self._exchange, "", b"")

    def look_after(self) -> None:
        """Heartbeats; a broker that wants to end."""
        self._connection.process_data_events(0)


class BrokerWake(Wake):
    """A message to an exchange, which wakes all who wait at it.

    Args:
        url: `amqp://user:password@host/vhost`: Xump's broker, or another one.
        exchange: Its name; it is declared, of type fanout. It begins the names of the queues.
    """

    def __init__(self, url: str, exchange: str) -> None:
        super().__init__()
        if not url.startswith(("amqp://", "amqps://")):
            raise ValueError(f"the URL of a broker begins with amqp:// or amqps://, got {url!r}")
        try:
            import pika
        except ImportError as error:
            raise ConfigurationError("Wake.queue with a URL needs pika, which is not installed: pip install pika") from error
        self._pika, self._parameters, self._exchange = pika, pika.URLParameters(url), exchange
        self._sender = Sender("xump-wake-send", self._connected, partial(self._failed, "a message that wakes was not sent"))
        self._listener: threading.Thread | None = None
        self._names: dict[str, Any] = {}        # events of those who wait, by the names of their queues
        self._seen: set[str] = set()
        self._unseen: Counter[str] = Counter()
        self._look_lock = threading.Lock()

    def _failed(self, what: str, error: Exception) -> None:
        logger.warning("%s: %s: %s; relays and workers look by themselves within their poll", what, type(error).__name__, error)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        connection = self._pika.BlockingConnection(self._parameters)
        try:
            yield connection
        finally:
            end(connection)

    def _channel(self, connection: Any) -> Any:
        channel = connection.channel()
        channel.exchange_declare(self._exchange, "fanout", durable=True)
        return channel

    # ---- notifying

    def signal(self) -> None:
        """Ask the thread that publishes; one message is for all that ask meanwhile."""
        super().signal()
        self._sender.ask()

    @contextmanager
    def _connected(self) -> Iterator[_Messages]:
        with self._opened() as connection:
            yield _Messages(connection, self._channel(connection), self._exchange)

    # ---- waiting

    def join(self, event_: Any, name: str | None = None) -> Callable[[], None]:
        """Have `event_.set()` called at each message; while it is joined there is a queue of this name."""
        leave = super().join(event_)
        queue = self._queue(name or new_id())
        with self._lock:
            self._names[queue] = event_
            if self._listener is None:
                self._listener = threading.Thread(target=self._listen, name="xump-wake", daemon=True)
                self._listener.start()

        def _leave() -> None:
            leave()
            with self._lock:
                self._names.pop(queue, None)

        return _leave

    def _queue(self, name: str) -> str:
        return f"{self._exchange}.{name}"

    def _listen(self) -> None:
        pause = threading.Event()
        while self._wanted():
            try:
                with self._opened() as connection:
                    channel, joined = self._channel(connection), dict[str, str]()
                    while (wanted := self._wanted()) or joined:
                        for queue in [queue for queue in joined if queue not in wanted]:
                            channel.basic_cancel(joined.pop(queue))     # its last consumer: the queue ends
                        for queue, event_ in wanted.items():
                            if queue not in joined:
                                joined[queue] = self._consume(channel, queue, event_)
                        connection.process_data_events(LISTEN_SECONDS)
            except Exception as error:
                self._failed("messages that wake do not come", error)
                pause.wait(REOPEN_SECONDS)

    def _consume(self, channel: Any, queue: str, event_: Any) -> str:
        channel.queue_declare(queue, durable=True, auto_delete=True)
        channel.queue_bind(queue, self._exchange)
        consumer: str = channel.basic_consume(queue, lambda *message: event_.set(), auto_ack=True)
        event_.set()            # what was notified before
        return consumer

    def _wanted(self) -> dict[str, Any]:
        with self._lock:
            if self._listener is not threading.current_thread():
                return {}           # another one has taken over, since nothing was wanted for a moment
            if not self._names:
                self._listener = None
            return dict(self._names)

    # ---- presence

    @property
    def tells_presence(self) -> bool:
        """Whether `absent` may find any."""
        return True

    def absent(self, names: Iterable[str]) -> set[str]:
        """Those of these names that were joined when they were asked about before, and are not any more."""
        with self._look_lock:
            given = set(names)
            asked = {name for name in given if name in self._seen or self._unseen[name] < UNSEEN_LOOKS}
            self._unseen = Counter({name: looks for name, looks in self._unseen.items() if name in given})
            self._seen &= asked
            if not asked:
                return set()
            try:
                # Not kept open: somebody would have to answer its heartbeats until the next look.
                with self._opened() as connection:
                    there = {name for name in sorted(asked) if self._is_there(connection, self._queue(name))}
            except Exception as error:
                self._failed("the broker does not say which workers are there", error)
                return set()
            gone = self._seen - there
            self._unseen.update(asked - there - gone)
            self._seen = there
            return gone

    def _is_there(self, connection: Any, queue: str) -> bool:
        channel = connection.channel()
        try:
            channel.queue_declare(queue, passive=True)
        except self._pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != NOT_FOUND:
                raise
            return False
        channel.close()
        return True
