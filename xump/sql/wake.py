"""Waking relays and workers when something may be there for them: a hint, never a fact. They look by themselves, too.

A NOTIFY inside a transaction holds a lock of the whole cluster until the commit is on the disk, and makes PREPARE TRANSACTION
fail. So it is not the default; after the commit it costs little.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

from xump.sql.errors import ConfigurationError
from xump.sql.sender import LISTEN_SECONDS, REOPEN_SECONDS, Sender

logger = logging.getLogger("xump.sql")
NOTICES_MAX = 1000


class Wake:
    """How a commit wakes those who wait. Made by `Wake.local()`, `.queue()`, `.notify()` or `.notify_in_transaction()`."""

    @staticmethod
    def local() -> Wake:
        """Wake what waits in this process."""
        return Wake()

    @staticmethod
    def notify(engine: Engine, *, every: float = 0.005, channel: str = "xump") -> Wake:
        """Wake what waits on this PostgreSQL, by a NOTIFY after the commit, on a connection of our own: one each `every` s."""
        return Notify(engine, every, channel)

    @staticmethod
    def notify_in_transaction(engine: Engine, *, channel: str = "xump") -> Wake:
        """The same, with the NOTIFY in your transaction: for few writers, and not with two-phase commits."""
        return NotifyInTransaction(engine, 0.0, channel)

    @staticmethod
    def queue(engine: Any, queue: str) -> Wake:
        """Wake by a message: in a queue of an `xump.Engine`, which a selector delivers to the destination `queue`; or, if
        `engine` is the URL of a broker (`amqp://`), to an exchange of that name, which wakes all processes that wait at it."""
        if isinstance(engine, str):
            # By its name: it is a Wake, and so imports this module.
            made: Wake = importlib.import_module("xump.sql.broker_wake").BrokerWake(engine, queue)
            return made
        return QueueWake(engine, queue)

    def __init__(self) -> None:
        self._waiting: weakref.WeakSet[threading.Event | Any] = weakref.WeakSet()
        self._lock = threading.Lock()

    def signal(self) -> None:
        """Wake now. Raises nothing: a hint that was not given costs a poll's time."""
        with self._lock:
            waiting = list(self._waiting)
        for one in waiting:
            one.set()

    @property
    def tells_presence(self) -> bool:
        """Whether `absent` may find any."""
        return False

    def absent(self, names: Iterable[str]) -> set[str]:
        """Those of these names that were joined when they were asked about before and are not any more, as far as is known."""
        return set()

    def join(self, event_: Any, name: str | None = None) -> Callable[[], None]:
        """Have `event_.set()` called at each wake-up; returns a function that ends it. The name is that of a worker."""
        with self._lock:
            self._waiting.add(event_)

        def _leave() -> None:
            with self._lock:
                self._waiting.discard(event_)

        return _leave

    def written(self, connection: Connection | Session) -> None:
        """Something was written in this connection: wake after its commit, if it tells when that is."""
        if isinstance(connection, Session):
            _watch(connection, self)

    @contextmanager
    def waking(self) -> Iterator[None]:
        """Wake when the block has ended without an exception: put your commit into it."""
        yield
        self.try_signal()

    def try_signal(self) -> None:
        """Wake after a commit. The commit stands: an exception would say that it does not."""
        try:
            self.signal()
        except Exception:
            logger.exception("a wake-up after a commit failed; relays and workers look by themselves within their poll")


def _watch(session: Session, wake: Wake) -> None:
    wakes = session.info.get("xump_wakes")
    if wakes is None:
        wakes = session.info["xump_wakes"] = set()
        event.listen(session, "after_commit", _after_commit)
        event.listen(session, "after_rollback", _after_rollback)
    wakes.add(wake)


def _after_commit(session: Session) -> None:
    if session.in_nested_transaction():         # a savepoint was released
        return
    wakes, session.info["xump_wakes"] = session.info["xump_wakes"], set()
    for wake in wakes:
        wake.try_signal()


def _after_rollback(session: Session) -> None:
    if not session.in_nested_transaction():
        session.info["xump_wakes"].clear()


class _Notices:
    """See `Hints`. One NOTIFY each `every` seconds at most."""

    def __init__(self, connection: Connection, channel: str, every: float) -> None:
        self._connection, self._channel, self._every = connection, channel, every

    def give(self) -> None:
        self._connection.exec_driver_sql(f"NOTIFY {self._channel}")
        time.sleep(self._every)

    def look_after(self) -> None:
        """PostgreSQL asks nothing of a connection that is idle."""


class Notify(Wake):
    """NOTIFY after the commit."""

    def __init__(self, engine: Engine, every: float, channel: str) -> None:
        super().__init__()
        if engine.dialect.name != "postgresql" or engine.dialect.driver not in ("psycopg", "psycopg_async"):
            raise ConfigurationError("Wake.notify is for PostgreSQL with the driver psycopg, and this engine is for "
                                     f"{engine.dialect.name}+{engine.dialect.driver}: use Wake.local() or Wake.queue(...)")
        if not channel.isidentifier() or not channel.islower():
            raise ValueError(f"channel must be a word of small letters, got {channel!r}")
        self._engine, self._every, self._channel = engine, every, channel
        self._sender = Sender("xump-notify", self._connected, self._failed)
        self._listener: threading.Thread | None = None

    def signal(self) -> None:
        """Ask the thread that notifies; it sends one NOTIFY for all that ask within `every`."""
        super().signal()
        self._sender.ask()

    @contextmanager
    def _connected(self) -> Iterator[_Notices]:
        with self._engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            yield _Notices(connection, self._channel, self._every)

    @staticmethod
    def _failed(error: Exception) -> None:
        logger.error("NOTIFY failed; relays and workers look by themselves within their poll", exc_info=error)

    def join(self, event_: Any, name: str | None = None) -> Callable[[], None]:
        """Listen, too, from the first one that joins on."""
        leave = super().join(event_)
        with self._lock:
            if self._listener is None:
                self._listener = threading.Thread(target=self._listen, name="xump-listen", daemon=True)
                self._listener.start()
        return leave

    def _listen(self) -> None:
        import psycopg

        while self._someone_waits():
            try:
                url = self._engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute(f"LISTEN {self._channel}")
                    Wake.signal(self)           # what was notified before
                    while self._someone_waits():
                        for _ in connection.notifies(timeout=LISTEN_SECONDS, stop_after=1):
                            Wake.signal(self)
            except psycopg.Error:
                logger.exception("LISTEN failed; relays and workers look by themselves within their poll")
                time.sleep(REOPEN_SECONDS)

    def _someone_waits(self) -> bool:
        with self._lock:
            if not self._waiting:
                self._listener = None
                return False
            return True


class NotifyInTransaction(Notify):
    """NOTIFY by the transaction itself."""

    def written(self, connection: Connection | Session) -> None:
        """Notify in this transaction: once, whatever it writes. Nothing is left to do after the commit."""
        core = connection.connection() if isinstance(connection, Session) else connection
        transaction = core.get_transaction()
        if getattr(transaction, "xid", None) is not None:
            raise ConfigurationError("PostgreSQL cannot prepare a transaction that has notified: use Wake.notify(engine) with "
                                     "two-phase commits")
        innermost = core.get_nested_transaction() or transaction        # what a savepoint notified goes with it
        if core.info.get("xump_notified") is not innermost:
            core.execute(text(f"NOTIFY {self._channel}"))
            core.info["xump_notified"] = innermost


class QueueWake(Wake):
    """A message in a queue of an Engine, as the seed of this idea has it."""

    def __init__(self, engine: Any, queue: str) -> None:
        super().__init__()
        self._engine, self._queue = engine, queue
        if queue not in engine.queues:
            # One notice that waits is as good as many, and nobody may be there to take them.
            engine.create_queue(queue, limit=NOTICES_MAX, when_full="drop_oldest")
        self._listener: threading.Thread | None = None

    def signal(self) -> None:
        """Publish an empty message."""
        super().signal()
        self._engine.publish(self._queue, "wake")

    def join(self, event_: Any, name: str | None = None) -> Callable[[], None]:
        """Take what comes, from the first one that joins on."""
        leave = super().join(event_)
        with self._lock:
            if self._listener is None:
                self._listener = threading.Thread(target=self._take, name="xump-wake", daemon=True)
                self._listener.start()
        return leave

    def _take(self) -> None:
        from xump.actions import deliver
        from xump.conditions import always
        from xump.errors import Closed

        with suppress(Closed):
            self._engine.create_selector(self._queue, when=always, do=deliver(self._queue), name=f"wake {self._queue}")
            for delivery in self._engine.deliveries(self._queue, timeout=None):
                delivery.ack()
                Wake.signal(self)
