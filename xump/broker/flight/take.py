"""Takes messages with credit: a stream of batches, which the client answers by the actions `ack` and `nack`.

A ticket is a JSON object:

    take        a destination; or {"queue": NAME}: a consumer of that queue is made, and ends with the stream
    session     a name that the client has drawn, by which it answers
    credit      so many messages may be unanswered
    timeout     the stream ends when nothing has come for so many seconds; without it, never. It does not end as long as all
                credit is used: its client works

A batch without rows is a sign of life.
A message that is not answered when the stream ends returns to its queue.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow

from xump import always, deliver
from xump.broker.flight.calls import LOOK_SECONDS, Call
from xump.broker.flight.connections import host_and_port_of
from xump.broker.flight.problems import Refused
from xump.errors import Closed, SelectorNotFound, StaleDelivery, StoreFailed
from xump_ext.arrow.batch import DeliveryBatch, take_batch

if TYPE_CHECKING:
    from xump.broker.vhost import Vhost
    from xump.selector import Selector

BATCH_ROWS_MAX = 2048
"""So many messages a batch has at most."""

SIGN_SECONDS = 30.0
"""So often a stream without messages sends a batch without rows."""
SIGN = pyarrow.py_buffer(bytes(64 << 10))
"""Bytes of its metadata: a client that is frozen is seen when some megabytes wait for it, so this is not small."""

NAMED_MAX = 10
"""An error names so many messages at most."""

DESTINATION = "xump.flight/"
"""The destinations of consumers that are made for a stream, before its user and session."""


Key = tuple[str, str, str]
"""A virtual host, a user, and a session."""

Message = tuple[str, int]
"""A queue, and an id."""


class Taking:
    """A stream that takes."""

    def __init__(self, call: Call, options: dict[str, Any]) -> None:
        session, taken = options.get("session"), options.get("take")
        if set(options) - {"take", "session", "credit", "timeout"} or not isinstance(session, str) or not session:
            raise ValueError(f"a ticket that takes has `take`, `session` and perhaps credit, timeout; got {options!r}")
        credit, timeout, most = options.get("credit", 1000), options.get("timeout"), call.listener.limits.unacked_max
        if type(credit) is not int or not 1 <= credit <= most:
            raise ValueError(f"credit={credit!r}: expected 1 to {most} (Limits.unacked_max)")
        if timeout is not None and (type(timeout) not in (int, float) or not timeout >= 0):
            raise ValueError(f"timeout={timeout!r}: expected seconds")
        self._call = call
        self.credit = credit
        """How many messages may be unanswered."""
        self._timeout: float | None = timeout
        self.session = session
        """The name by which it is answered."""
        self.user = call.user.name
        """Whose it is."""
        self._sign = min(SIGN_SECONDS, call.listener.limits.flight_idle_seconds)
        self._lock = threading.Condition()
        self._unanswered: dict[Message, DeliveryBatch] = {}
        """The batch of each message: the last one, if the engine took it back and it came again. Its old delivery is stale."""
        self._ended = False
        if not isinstance(taken, str) and not (
                isinstance(taken, dict) and set(taken) == {"queue"} and isinstance(taken["queue"], str)):
            raise ValueError(f"take={taken!r}: expected a destination, or {{'queue': NAME}}")
        self._queue: str | None = taken["queue"] if isinstance(taken, dict) else None
        self.source = str(taken) if self._queue is None else self._queue
        """The queue or destination from which it takes."""
        if self._queue is not None:
            call.queue("read", self._queue)
            call.check_takes(self._queue)
            self._destination = f"{DESTINATION}{quote(self.user, safe='')}/{session}"
        else:
            self._destination = self.source
            call.check_destination("read", self.source)
            for selector in list(call.engine.selectors.values()):
                if may_deliver(selector, self.source):
                    call.check("read", selector.source.name)
        self._checked: set[str] = set()
        """Queues of which messages have come that the user may read. Other permissions end the call."""
        self._selector: Selector | None = None
        self._nothing = pyarrow.record_batch(take_batch(call.engine, 0, self._destination, True))
        self.schema = self._nothing.schema
        """The columns."""

    @property
    def vhost(self) -> Vhost:
        """The virtual host."""
        return self._call.vhost

    @property
    def peer(self) -> str:
        """Host and port of the client."""
        return "{}:{}".format(*host_and_port_of(self._call.peer))

    @property
    def key(self) -> Key:
        """No other stream has this."""
        return self._call.vhost.name, self.user, self.session

    @property
    def unanswered(self) -> int:
        """How many messages are unanswered."""
        return len(self._unanswered)

    def batches(self) -> Iterator[Any]:
        """The messages that are taken: record batches, and signs of life as (batch, metadata)."""
        engine = self._call.engine
        if self._queue is not None:
            self._selector = engine.create_selector(
                self._queue, when=always, do=deliver(self._destination), credit=self.credit)
        last = told = time.monotonic()
        try:
            while True:
                self._call.check_open()
                room = self._room()
                if room and (batch := self._take(room)) is not None:
                    yield pyarrow.record_batch(batch)
                    last = time.monotonic()
                elif self._timeout is not None and room and time.monotonic() - last >= self._timeout:
                    return
                elif time.monotonic() >= told + self._sign:           # if the client is frozen, these pile up, and it is seen
                    yield self._nothing, SIGN
                    told = time.monotonic()
                if self._selector is not None and self._selector.id not in engine.selectors:
                    return                  # the queue was deleted
        finally:
            self.end()

    def _room(self) -> int:
        """How many messages may be taken; waits a while for answers if there are none."""
        with self._lock:
            if len(self._unanswered) >= self.credit:
                self._lock.wait(LOOK_SECONDS)
            return min(self.credit - len(self._unanswered), BATCH_ROWS_MAX)

    def _take(self, room: int) -> DeliveryBatch | None:
        engine = self._call.engine
        wait = min(LOOK_SECONDS, self._sign, LOOK_SECONDS if self._timeout is None else self._timeout)
        batch = engine._wait(lambda: take_batch(engine, room, self._destination, True) or None, self._destination, wait)
        if batch is None:
            return None
        rows = pyarrow.record_batch(batch)
        queues = rows.column("queue").to_pylist()
        taken = list(zip(queues, rows.column("id").to_pylist(), strict=True))
        try:
            self._check(set(queues))
        except Refused:
            give_back(batch, taken)
            raise
        with self._lock:
            self._unanswered.update(dict.fromkeys(taken, batch))
        return batch

    def _check(self, queues: set[str]) -> None:
        """Raise `Refused` unless the user may read these queues: selectors may have come since the stream began."""
        for queue in sorted(queues - self._checked):
            self._call.check("read", queue)
            self._checked.add(queue)

    def answer(self, verb: str, ids: Iterable[Any]) -> int:
        """Ack or nack messages: ids, or [queue, id]. Raises `StaleDelivery`, and has done nothing then, unless the engine has
        taken one of a later batch back."""
        with self._lock:
            if self._ended:
                raise StaleDelivery("the stream has ended, and unanswered messages went back to their queue")
            wanted = [self._key(one) for one in ids]
            if len(set(wanted)) != len(wanted) or not all(key in self._unanswered for key in wanted):
                raise self._stale(wanted)
            try:
                for batch, part in by_batch((key, self._unanswered[key]) for key in wanted):
                    (batch.ack if verb == "ack" else batch.nack)(part)
                    for key in part:
                        del self._unanswered[key]
            finally:
                self._lock.notify_all()
            return len(wanted)

    def _stale(self, wanted: list[Message]) -> StaleDelivery:
        """The error for messages that cannot be answered, with some of their names."""
        stale = [list(key) for key, times in Counter(wanted).items() if times > 1 or key not in self._unanswered]
        more = f" and {len(stale) - NAMED_MAX} more" if len(stale) > NAMED_MAX else ""
        return StaleDelivery(f"{len(stale)} of {len(wanted)} messages are not unanswered in this stream, or given twice: "
                             f"{', '.join(map(repr, stale[:NAMED_MAX]))}{more}. None was answered: leave these out")

    def _key(self, given: Any) -> Message:
        if type(given) is int and self._queue is not None:
            return self._queue, given
        if isinstance(given, list) and len(given) == 2 and isinstance(given[0], str) and type(given[1]) is int:
            return given[0], given[1]
        raise ValueError(f"{given!r} is no id: expected an int, for a stream that takes from one queue, or [queue, id]")

    def end(self) -> None:
        """Messages that are not answered go back."""
        with self._lock:
            self._ended = True
            left, self._unanswered = self._unanswered, {}
            self._lock.notify_all()
        with suppress(Closed, StoreFailed, SelectorNotFound):
            if self._selector is not None:
                self._call.engine.delete_selector(self._selector)
                return
            for batch, keys in by_batch(left.items()):
                give_back(batch, sorted(keys))


def may_deliver(selector: Selector, destination: str) -> bool:
    """Whether it delivers to a destination, or may, since messages name where."""
    do = selector.do
    return do.verb == "deliver" and do.queue is None and (do.destination == destination or not isinstance(do.destination, str))


def by_batch(found: Iterable[tuple[Message, DeliveryBatch]]) -> list[tuple[DeliveryBatch, list[Message]]]:
    """The messages of each batch."""
    parts: dict[DeliveryBatch, list[Message]] = {}
    for key, batch in found:
        parts.setdefault(batch, []).append(key)
    return list(parts.items())


def give_back(batch: DeliveryBatch, keys: list[Message]) -> None:
    """Return these messages of a batch to their queues, but those that the engine has taken back."""
    try:
        batch.nack(keys)
    except StaleDelivery:
        for key in keys:
            with suppress(StaleDelivery):
                batch.nack([key])


class Sessions:
    """The streams that take. A virtual host, a user and the name of a session say which one is answered."""

    def __init__(self) -> None:
        self._streams: dict[Key, Taking] = {}

    def add(self, stream: Taking) -> None:
        """A stream begins. Raises ValueError if its name is taken."""
        if self._streams.setdefault(stream.key, stream) is not stream:
            raise ValueError(f"session {stream.session!r} is there already: draw another name")

    def streams(self) -> list[Taking]:
        """All of them."""
        return list(self._streams.values())

    def remove(self, stream: Taking) -> None:
        """It has ended."""
        self._streams.pop(stream.key, None)

    def of(self, session: object, call: Call) -> Taking:
        """The stream of this session that the call is for. Raises `StaleDelivery`."""
        stream = self._streams.get((call.vhost.name, call.user.name, session)) if isinstance(session, str) else None
        if stream is None:
            raise StaleDelivery(f"no stream takes as {session!r}: it has ended, and unanswered messages went back to their queue")
        return stream
