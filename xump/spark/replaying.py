"""Replays a dataframe: its rows are published in the order and the rhythm of a column of times, faster or slower than time went.

Tasks run side by side on machines whose clocks differ, so the broker does the ordering and the timing. A replay has a queue of
its own, `xump.replay/ID`, from which a selector moves everything into the target. Rows come into it delayed: each has the time
`at` at which it is due, by the broker's clock. Rows that are due go on at that time, in order.

The frame is sorted by time and cut into slices of so many seconds. The driver publishes one slice after the other, each whole and
once, and early enough. So what is late keeps its order, and the broker need not hold a replay that takes a day. When the replay
ends, or is stopped, its queue is deleted. The driver renews a lease of that queue: if it is killed, the broker deletes it.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, functions, types

from xump.broker.answers import BrokerUnreachable
from xump.broker.client import Client
from xump.errors import QueueNotFound
from xump.spark.options import WRITING, Options, as_texts, check_for, parsed
from xump.spark.progress import Bar
from xump.spark.publishing import publish
from xump.spark.schema import check_written

PREFIX = "xump.replay/"
"""Queues of replays have names with it."""

LEAD_SECONDS = 5.0
"""So long after the beginning the first row is due: time to send it."""
AHEAD_SECONDS = 30.0
"""A slice has the rows of so many seconds, and is sent so long before the first of them is due."""
LEASE_SECONDS = 60.0
"""So long a replay's queue outlives a driver that was killed."""
LOOK_SECONDS = 0.25
"""How often the driver asks how far it is."""

TIMES = (types.TimestampType, types.TimestampNTZType, types.DateType)
DUE = "at"
"""The column of the times at which rows are due."""
EXPIRES = "expires"
"""The column of the times at which rows expire, which a replay does not have."""
PASSED = "xump_passed"
"""The column of µs after the beginning at which rows are due."""


class Progress(NamedTuple):
    """How far a replay is."""

    rows: int
    """How many rows it has."""
    sent: int
    """How many have come into its queue."""
    published: int
    """How many have gone on, into the target."""
    late: int
    """How many came into its queue when they were due already."""
    worst_seconds: float
    """How late the latest of them came."""


class Replayed(NamedTuple):
    """The result of a replay."""

    rows: int
    """How many rows are in the target."""
    late: int
    """How many came into the replay's queue when they were due already."""
    worst_seconds: float
    """How late the latest of them came."""
    stopped: bool
    """Whether it was stopped before its end."""


def replay(
    df: DataFrame, endpoint: str, queue: str, timestamp: str = "event_time", speed: float | None = 60.0, *,
    lead: float = LEAD_SECONDS, ahead: float = AHEAD_SECONDS, progress: bool | Callable[[Progress], None] = True,
    stop: threading.Event | None = None, **options: Any,
) -> Replayed:
    """Publish rows in the order and the rhythm of a column of times.

    Args:
        df: Its columns are those of `publish`, but for `at` and `expires`, and the column of times.
        endpoint: Where the broker listens, `grpc://HOST:PORT`. The executors must reach it.
        queue: The queue.
        timestamp: The column of times: TIMESTAMP, TIMESTAMP_NTZ or DATE. It is not published.
        speed: How many seconds of it pass in a second; None: all is published as fast as it goes, in order of time, whole and
            once, as by `publish`.
        lead: So many seconds after the beginning the first row is due. Until then the first rows must have come to the broker.
        ahead: Rows are sent in slices of so many seconds, each so many seconds before its first row is due. The broker holds them
            meanwhile. A slice takes two of Spark's jobs: a second is short.
        progress: Whether a bar is shown on stderr, if that is a terminal; or a function that is told how far it is, a few times a
            second.
        stop: An event that stops it when it is set, from another thread.
        options: `address`, `user`, `password`, `token`, `tlsRootCerts` and `timeoutMs`, as for the data source.

    Returns:
        How many rows are in the target, how many were late, and how late. It returns when all have gone on into the target; if
        that is full, when it has had room for all.

    Raises:
        ValueError, TypeError: An argument, an option or a column is wrong, or times are null. Nothing was sent.
        QueueNotFound: There is no such queue.
        BrokerUnreachable, AccessRefused: The broker is not there, or the user may not do this: it takes `configure`, `read` and
            `write` for `xump.replay/…`, and `write` for the target.
        RuntimeError: The replay's queue was deleted from elsewhere.

    Rows with equal times go in any order. If it is stopped, also by an error or Ctrl-C, what was not due is gone, and so is what
    was due and had no room in the target; the rest is there. If the driver is killed, the broker does the same a minute later.

    Cost: df is computed once, sorted, and kept by Spark (`persist`) meanwhile.
    """
    given = _options(endpoint, queue, options)
    _check_numbers(speed, lead, ahead)
    _check_columns(df, timestamp, given)
    ordered = df.orderBy(df[_quoted(timestamp)]).persist()
    try:
        rows, least = _times(ordered, timestamp)
        if speed is None or not rows:
            publish(ordered.drop(timestamp), endpoint, queue, **options)
            return Replayed(rows, 0, 0.0, False)
        passed = functions.round((_micros(ordered, timestamp) - least) / speed).cast("bigint")
        timed = ordered.withColumn(PASSED, passed).drop(timestamp)
        return _Replay(timed, rows, given, options, lead, ahead, stop or threading.Event(), progress).run()
    finally:
        ordered.unpersist()


# ---- what is given

def _options(endpoint: str, queue: str, options: dict[str, Any]) -> Options:
    """Raises ValueError."""
    for name in options:
        if name.lower() in {known.lower() for known in WRITING if known != "address"}:
            raise ValueError(f"option {name} says nothing to a replay: it is exactly once, and a transaction for each partition")
    return check_for(parsed({"endpoint": endpoint, "queue": queue} | as_texts(options)), reading=False)


def _check_numbers(speed: float | None, lead: float, ahead: float) -> None:
    if speed is not None and not (_is_number(speed) and speed > 0):
        raise ValueError(f"speed={speed!r}: expected a number above 0, or None for as fast as it goes")
    for name, seconds in (("lead", lead), ("ahead", ahead)):
        if not (_is_number(seconds) and seconds >= (name == "ahead")):
            raise ValueError(f"{name}={seconds!r}: expected seconds, from {int(name == 'ahead')} on")


def _is_number(given: object) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given)


def _check_columns(df: DataFrame, timestamp: str, given: Options) -> None:
    """Raises ValueError or TypeError."""
    names = df.schema.fieldNames()
    if timestamp not in names:
        raise ValueError(f"timestamp={timestamp!r}: there is no such column; there are {', '.join(names)}")
    kind = df.schema[timestamp].dataType
    if not isinstance(kind, TIMES):
        raise TypeError(f"column {timestamp} is of type {kind.simpleString()}; allowed: "
                        f"{', '.join(one().simpleString() for one in TIMES)}")
    if DUE in names and timestamp != DUE:
        raise ValueError(f"column {DUE} is there: the times at which rows are due are those of column {timestamp}; drop it")
    if EXPIRES in names and timestamp != EXPIRES:
        raise ValueError(f"column {EXPIRES} is there: a row that waits for its time may expire before it comes into the queue, "
                         "and be gone; drop it, or give the queue a ttl, which counts from there")
    check_written(types.StructType([field for field in df.schema.fields if field.name != timestamp]), given)


def _quoted(name: str) -> str:
    """A column's name, in which dots are dots."""
    return "`" + name.replace("`", "``") + "`"


def _micros(df: DataFrame, name: str) -> Column:
    """A column of times as µs since 1970. Times without a zone are taken as they stand: in a zone an hour may be missing."""
    column = df[_quoted(name)]
    if isinstance(df.schema[name].dataType, types.TimestampType):
        return functions.unix_micros(column)
    begin = functions.lit("1970-01-01").cast("timestamp_ntz")
    return functions.timestamp_diff("MICROSECOND", begin, column.cast("timestamp_ntz"))


def _times(ordered: DataFrame, timestamp: str) -> tuple[int, int]:
    """(how many rows, their least time in µs). Raises ValueError if times are missing."""
    micros = _micros(ordered, timestamp)
    found = ordered.agg(functions.count(functions.lit(1)), functions.count(micros), functions.min(micros)).first()
    assert found is not None
    rows, known, least = found
    if known < rows:
        raise ValueError(f"column {timestamp} is null in {rows - known} of {rows} rows: filter them out, or give them times. "
                         "Nothing was sent")
    return rows, least or 0


# ---- the replay itself

class _Slice(NamedTuple):
    """Rows that are sent together."""

    number: int
    """Which one; some have no rows."""
    rows: int
    """How many rows."""
    first: int
    """When the first one is due, in µs after the beginning."""


class _Replay:
    """A replay that is under way."""

    def __init__(
        self, timed: DataFrame, rows: int, given: Options, options: dict[str, Any], lead: float, ahead: float,
        stop: threading.Event, progress: bool | Callable[[Progress], None],
    ) -> None:
        self._timed, self._rows, self._given, self._options, self._stop = timed, rows, given, options, stop
        self._lead, self._length = round(lead * 1e6), round(ahead * 1e6)
        self._run = secrets.token_hex(16)
        self._queue = PREFIX + self._run
        self._begin = 0                 # by the broker's clock, in µs since 1970
        self._sent = self._published = self._entering = self._late = 0
        self._worst = 0.0
        self._tell = progress if callable(progress) else Bar().show if progress else None

    def run(self) -> Replayed:
        """All of it."""
        slices = self._slices()
        with self._given.client as client:
            self._client = client
            self._create()
            ended = threading.Event()
            renewing = threading.Thread(target=self._renew, args=(ended,), name="xump-replay-lease", daemon=True)
            renewing.start()
            try:
                # Nothing is sent yet: it is found out whether the executors reach the broker, and what has to be started and
                # imported there is ready when time runs.
                self._publish(0, self._timed.where(functions.lit(False)))
                self._send(slices)
                self._until(lambda now, waiting: not waiting)
            finally:
                # An error that is on its way says more than one of the end.
                ended.set()
                renewing.join()
                with suppress(BrokerUnreachable):
                    self._end()
        return Replayed(self._published, self._late, self._worst, self._published < self._rows)

    def _slices(self) -> list[_Slice]:
        number = functions.floor(functions.col(PASSED) / self._length)
        found = self._timed.groupBy(number.alias("number")).agg(
            functions.count(functions.lit(1)).alias("rows"), functions.min(PASSED).alias("first"))
        return sorted(_Slice(*row) for row in found.collect())

    def _create(self) -> None:
        """The replay's queue, in the store of the target, so that a row moves in one step."""
        client, target = self._client, self._given.queue
        client.apply({"version": 1, "queues": {self._queue: {"store": client.target(target).store}},
                      "selectors": [{"source": self._queue, "when": "always", "do": {"move_to": target}, "credit": "INFINITE",
                                     "name": self._queue}]})
        client.lease(self._queue, LEASE_SECONDS)

    def _renew(self, ended: threading.Event) -> None:
        """Say that the driver is there, until the replay has ended: a broker that hears nothing deletes the replay's queue. The
        replay itself hears of errors meanwhile."""
        with self._given.client as client:
            while not ended.wait(LEASE_SECONDS / 4):
                with suppress(BrokerUnreachable, QueueNotFound):
                    client.lease(self._queue, LEASE_SECONDS)

    def _send(self, slices: list[_Slice]) -> None:
        """Slice after slice, each before it is due."""
        self._begin = self._client.clock() // 1000 + self._lead
        for number, rows, first in slices:
            self._until_due((number - 1) * self._length)
            if self._stop.is_set():
                return
            passed = functions.col(PASSED)
            found = self._timed.where(functions.floor(passed / self._length) == number)
            self._publish(number + 1, found)
            if self._look()[1] and self._entering:          # the store is full
                self._until(lambda now, waiting: not self._entering)
            self._sent += rows
            now = self._look()[0] // 1000 - self._begin
            if first < now:
                self._late += found.where(passed < now).count()
                self._worst = max(self._worst, (now - first) / 1e6)

    def _publish(self, version: int, found: DataFrame) -> None:
        """Let rows come into the replay's queue, whole and once."""
        passed = functions.col(PASSED)
        due = found.withColumn(DUE, functions.timestamp_micros(passed + self._begin)).drop(PASSED)
        publish(due, self._given.endpoint, self._queue, **self._options, txnAppId=self._run, txnVersion=version)

    # ---- how far it is

    def _until_due(self, passed: int) -> None:
        """Wait until so many µs have passed since the beginning."""
        self._until(lambda now, waiting: now // 1000 >= self._begin + passed)

    def _until(self, reached: Callable[[int, int], bool]) -> None:
        """Wait until `reached(the broker's time in ns, rows that are in the replay's queue)`, or it is stopped."""
        while not self._stop.is_set():
            now, waiting = self._look()
            if self._tell is not None:
                self._tell(Progress(self._rows, self._sent, self._published, self._late, self._worst))
            if reached(now, waiting):
                return
            self._stop.wait(LOOK_SECONDS)

    def _look(self) -> tuple[int, int]:
        """(the broker's time, how many rows are in the replay's queue). A broker that is restarted is waited for."""
        deadline = time.monotonic() + self._given.timeout
        while True:
            try:
                now, found = self._client.clock(), _counts(self._client, self._queue)
            except BrokerUnreachable:
                if time.monotonic() >= deadline or self._stop.wait(LOOK_SECONDS):
                    raise
                continue
            if found is None:
                raise RuntimeError(f"the queue of the replay, {self._queue!r}, is gone: it was deleted, or it was in RAM and the "
                                   f"broker was restarted. {self._published} of {self._rows} rows were published")
            self._entering = found["entering"]
            waiting = found["ready"] + found["delayed"] + found["outstanding"]
            self._published = max(self._sent - waiting, self._published)
            return now, waiting + self._entering

    def _end(self) -> None:
        """Delete the queue. Rows that were not due by now, or had no room in the target, are gone; all others are there."""
        client, deadline = self._client, time.monotonic() + self._given.timeout
        left = 0
        while (found := _counts(client, self._queue)) is not None:
            left += client.purge(self._queue)
            if not found["entering"] or time.monotonic() >= deadline:
                self._published = self._sent - left
                client.delete_queue(self._queue)


def _counts(client: Client, name: str) -> dict[str, Any] | None:
    return next((one for one in client.queues() if one["name"] == name), None)
