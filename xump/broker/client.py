"""A client of a broker over Arrow Flight: many messages at once, as columns.

`xump.broker.Client` and `AsyncClient` are found there without pyarrow being imported before they are used.
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

import pyarrow
from pyarrow import flight

from xump.broker import columns
from xump.broker.answers import (
    NOTHING,
    AccessRefused,
    BrokerUnreachable,
    Committed,
    Offsets,
    Plan,
    Published,
    Staged,
    Target,
    raised,
)
from xump.broker.taken import Taken
from xump_ext.message.times import datetime_ns

if TYPE_CHECKING:
    from xump.types import Stats

    Start = int | datetime | Literal["head", "current"] | None

__all__ = [
    "AccessRefused", "BrokerUnreachable", "Client", "Committed", "Offsets", "Plan", "Published", "Staged", "Taken", "Target",
]

WINDOW = 8
"""So many batches are under way before an answer is waited for."""

KEEPALIVE_MS = 310_000
"""After so long without a word the broker is asked whether it is there. gRPC's servers refuse to be asked every 5 minutes or more
often."""

COMMIT_SECONDS = 600.0
"""So long a commit is asked for, unless the program says otherwise."""

PAUSE_SECONDS_MAX = 2.0


class Client:
    """Publishes into, and reads from, the queues of a broker, over Arrow Flight.

    Args:
        endpoint: Where the broker listens: `grpc://HOST:PORT`, or `grpc+tls://HOST:PORT`.
        token: A token that the broker gave, instead of user and password. It ends after a day, and with the broker.
        user, password: Log in as this user; None: whoever is on the broker's machine, if the broker has no file of users.
        tls_root_certs: The certificates, PEM, that the broker's one is checked with; None: those of the system.
        vhost: The virtual host.
        timeout: After how many seconds without an answer the broker counts as unreachable.

    It connects when it is first used, and may be used by several threads. Errors of the engine are raised as the engine raises
    them. `BrokerUnreachable` is a `ConnectionError`, and `AccessRefused` a `PermissionError`.

    >>> import pyarrow
    >>> from xump import Engine
    >>> from xump.broker import Broker, Client
    >>> with Engine() as engine, Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0") as broker:
    ...     with Client(broker.flight.url) as client:
    ...         client.create_queue("jobs", limit=1000)
    ...         client.publish("jobs", pyarrow.table({"address": ["resize", "rotate"], "body": [b"cat.png", b"dog.png"]}))
    ...         client.browse("jobs", columns=["id", "address"]).read_all().to_pylist()
    Published(rows=2, first_id=1, last_id=2)
    [{'id': 1, 'address': 'resize'}, {'id': 2, 'address': 'rotate'}]
    """

    def __init__(
        self, endpoint: str = "grpc://127.0.0.1:8815", *, token: str | None = None, user: str | None = None,
        password: str | None = None, tls_root_certs: bytes | None = None, vhost: str = "/", timeout: float = 30.0,
    ) -> None:
        if "://" not in endpoint:
            endpoint = f"{'grpc' if tls_root_certs is None else 'grpc+tls'}://{endpoint}"
        self.endpoint = endpoint
        """Where the broker listens."""
        self._headers = [(b"xump-vhost", quote(vhost, safe="").encode())]
        if token is not None:
            self._headers.append((b"authorization", b"Bearer " + token.encode()))
        elif user is not None:
            self._headers.append((b"authorization", b"Basic " + base64.b64encode(f"{user}:{password or ''}".encode())))
        self._tls_root_certs = tls_root_certs
        self._timeout = timeout
        self._lock = threading.Lock()
        self._connection: flight.FlightClient | None = None
        self._greeted = False

    # ---- the connection

    def _connected(self) -> flight.FlightClient:
        with self._lock:
            if self._connection is None:
                options: dict[str, Any] = {"generic_options": [("grpc.keepalive_time_ms", KEEPALIVE_MS)]}
                if self._tls_root_certs is not None:
                    options["tls_root_certs"] = self._tls_root_certs
                try:
                    self._connection = flight.FlightClient(self.endpoint, **options)
                except (pyarrow.ArrowException, ValueError) as error:
                    raise ValueError(f"endpoint={self.endpoint!r}: {error}") from None
                self._greeted = False
            return self._connection

    def _stream(self) -> tuple[flight.FlightClient, flight.FlightCallOptions]:
        """A connection that has answered, for a stream: a stream has no time limit."""
        if not self._greeted:
            self._ask("ping")
            self._greeted = True
        return self._connected(), flight.FlightCallOptions(headers=self._headers)

    def _ask(self, action: str, /, timeout: float | None = None, **options: Any) -> Any:
        with self._asking():
            given = flight.FlightCallOptions(timeout=self._timeout if timeout is None else timeout, headers=self._headers)
            body = json.dumps({name: value for name, value in options.items() if value is not None}).encode()
            [result] = self._connected().do_action(flight.Action(action, body), given)
            return json.loads(result.body.to_pybytes())

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """A block that asks the broker: its errors are raised as the engine raises them."""
        try:
            yield
        except pyarrow.ArrowException as error:
            made = raised(error, self.endpoint)
            if isinstance(made, BrokerUnreachable):
                self._drop()
            raise made from None
        except (flight.FlightError, OSError) as error:          # pragma: no cover - pyarrow's errors are ArrowException
            raise raised(error, self.endpoint) from None

    def _drop(self) -> None:
        """The next call connects anew."""
        with self._lock:
            self._connection = None
            self._greeted = False

    def close(self) -> None:
        """Close the connection. Another call opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    # ---- publishing

    def publish(
        self, queue: str, batches: Any, *, address: str | None = None, producer: str | None = None, sequence: int | None = None,
        on_full: Literal["wait", "error"] = "wait",
    ) -> Published:
        """Publish rows, and return when all of them are durable.

        Args:
            queue: The queue that they enter.
            batches: A record batch, table or `RecordBatchReader` of pyarrow, an iterable of record batches, or anything with the
                Arrow PyCapsule interface. Columns are those of `Engine.publish_batch`.
            address: The address of all rows, which then have no column `address`.
            producer: A name of the sender's own; `sequence` is then the number of the first batch, and the others follow it. A
                batch that is sent again with its number enters once, also after a crash of the broker.
            sequence: As above.
            on_full: `"wait"`: while the queue has no room, the stream waits; `"error"`: a batch that does not fit whole raises
                `QueueFull`, and does not enter. The rows that entered before are `error.published`.

        Returns:
            How many rows, and the ids of the first and the last one; 0: none is known, as for rows that had entered before.

        Raises:
            QueueNotFound, QueueFull, StoreFull, TypeError, ValueError: As `Engine.publish_batch`.
            BrokerUnreachable: The broker is not there, or not any more: what had not been answered may have entered.
            AccessRefused: The user may not write to the queue.

        Cost: that of `Engine.publish_batch`, and of a copy through the network.
        """
        total = NOTHING
        for one in self.publishing(queue, batches, address=address, producer=producer, sequence=sequence, on_full=on_full):
            total = total.plus(one)
        return total

    def publishing(
        self, queue: str, batches: Any, *, address: str | None = None, producer: str | None = None, sequence: int | None = None,
        on_full: Literal["wait", "error"] = "wait",
    ) -> Iterator[Published]:
        """As `publish`: an iterator that yields what is known of each batch, once it is durable. Up to 8 are under way.

        An error may come in place of what would have been yielded: its `published` counts all rows that have entered.
        """
        options: dict[str, Any] = {"queue": queue, "on_full": on_full}
        if producer is not None or sequence is not None:
            options |= {"producer": producer, "sequence": 0 if sequence is None else sequence}
        total = NOTHING
        try:
            for answer in self._put(options, _of_its_program(columns.batches_of(batches, address))):
                one = Published.read(answer)
                total = total.plus(one)
                yield one
        except Exception as error:          # the broker's knows more than the answers that have come
            error.published = max(total, getattr(error, "published", NOTHING))          # type: ignore[attr-defined]
            raise

    def _put(self, options: Mapping[str, Any], batches: Iterator[pyarrow.RecordBatch]) -> Iterator[dict[str, Any]]:
        first = next(batches, None)
        if first is None:
            self._ask("target", queue=options["queue"])         # it has to be there all the same
            return
        with self._asking():
            connection, given = self._stream()
            writer, answers = connection.do_put(flight.FlightDescriptor.for_command(json.dumps(options)), first.schema, given)
        waiting = 0
        own: Exception | None = None
        try:
            batch: pyarrow.RecordBatch | None = first
            while batch is not None:
                with self._asking():
                    self._write(writer, batch)
                waiting += 1
                while waiting >= WINDOW:
                    yield self._answer(writer, answers)
                    waiting -= 1
                try:
                    batch = next(batches, None)
                    columns.check_alike(first, batch)
                except Exception as error:      # the program's: what was sent before enters, and its answers are told first
                    own, batch = error, None
            with self._asking():
                writer.done_writing()
            for _ in range(waiting):
                yield self._answer(writer, answers)
            if own is not None:
                raise own
        finally:
            with suppress(pyarrow.ArrowException):
                writer.close()

    def _write(self, writer: Any, batch: pyarrow.RecordBatch, metadata: bytes | None = None) -> None:
        """Write; if the broker has ended the stream, raise what it says."""
        try:
            if metadata is None:
                writer.write_batch(batch)
            else:
                writer.write_metadata(pyarrow.py_buffer(metadata))
        except pyarrow.ArrowException:
            writer.close()              # raises what the broker says
            raise

    def _answer(self, writer: Any, answers: Any) -> dict[str, Any]:
        with self._asking():
            found = answers.read()
            if found is None:           # the stream has ended: closing it says why
                writer.close()
                raise flight.FlightUnavailableError("the broker has ended the stream")
            answer: dict[str, Any] = json.loads(found.to_pybytes())
            return answer

    # ---- reading

    def browse(
        self, queue: str, *, start: Start = None, end: int | datetime | None = None, where: str | Mapping[str, Any] | None = None,
        state: str = "all", reverse: bool = False, columns: Sequence[str] | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> pyarrow.RecordBatchReader:
        """Read messages without taking them, in order of their ids.

        Args:
            queue: The queue.
            start: From which id, or aware datetime, on; `"head"` or `"current"` as in `Queue.browse`. None: from the oldest.
            end: Up to which id, or before which time; None: up to the last one that is durable and stable now.
            where: A filter, as a text or a dict.
            state: `"ready"`, `"delayed"`, `"outstanding"`, `"history"` or `"all"`.
            reverse: Whether the newest goes first.
            columns: The columns that are wanted; None: all of `browse_batch`.
            headers: Types of headers by name, as `{"size": "int64"}`: the column `headers` is then a struct with these fields.
                Without it, it is a map of texts.

        Returns:
            A reader of record batches, up to 2,048 rows or 1 MiB each.

        Raises:
            QueueNotFound, InvalidFilter, ValueError: As `Queue.browse_batch`.
            BrokerUnreachable, AccessRefused: As `publish`.

        It shows nothing above `min(durable_id, stable_id)`, as they are when it begins: an id that it shows stays, also after a
        crash, and what a commit lets in is shown whole, or not at all.
        """
        options = {
            "queue": queue, "start": _place(start), "end": _place(end), "where": where, "state": state, "reverse": reverse,
            "columns": None if columns is None else list(columns),
            "headers": None if headers is None else {name: str(kind) for name, kind in headers.items()}}
        reader = self._get(options)
        with self._asking():
            schema = reader.schema
        return pyarrow.RecordBatchReader.from_batches(schema, self._batches(reader))

    def _get(self, options: Mapping[str, Any]) -> Any:
        with self._asking():
            connection, given = self._stream()
            ticket = json.dumps({name: value for name, value in options.items() if value is not None})
            return connection.do_get(flight.Ticket(ticket.encode()), given)

    def _batches(self, reader: Any) -> Iterator[pyarrow.RecordBatch]:
        ended = False
        try:
            while True:
                with self._asking():
                    try:
                        chunk = reader.read_chunk()
                    except StopIteration:
                        ended = True
                        return
                if chunk.data.num_rows:
                    yield chunk.data
        finally:
            if not ended:
                reader.cancel()

    def take(self, source: str, *, destination: bool = False, credit: int = 1000, timeout: float | None = None) -> Taken:
        """Take messages, which you then ack or nack.

        Args:
            source: A queue, of which a consumer is made that lives as long as the stream; or a destination.
            destination: Whether `source` is a destination.
            credit: How many messages may be unanswered.
            timeout: The stream ends when nothing has come for so many seconds, while it had credit; None: never.

        Returns:
            A context manager, and an iterator of record batches. Messages not answered when the block ends go back.

        Raises:
            QueueNotFound: There is no such queue.
            BrokerUnreachable, AccessRefused: As `publish`.
        """
        session = secrets.token_hex(16)
        options = {"take": source if destination else {"queue": source}, "session": session, "credit": credit, "timeout": timeout}
        reader = self._get(options)
        with self._asking():
            schema = reader.schema
        return Taken(self, session, reader, schema)

    # ---- the graph

    def create_queue(self, name: str, **properties: Any) -> None:
        """Create a queue, with the properties that a topology has, such as `limit=1000`; one that is there already with these is
        left as it is. Raises `Conflict` if it has others."""
        self._ask("create_queue", name=name, properties=properties)

    def delete_queue(self, name: str) -> bool:
        """Delete a queue with its messages. Returns whether there was one."""
        return bool(self._ask("delete_queue", name=name)["deleted"])

    def lease(self, name: str, seconds: float) -> None:
        """Have a queue last so many seconds from now on, 1 or more, unless you ask again: then the broker deletes it with its
        messages, at its next look after its clients, a few seconds later. The lease outlives the broker, which counts anew when
        it starts. Raises `QueueNotFound`."""
        self._ask("lease", name=name, seconds=seconds)

    def purge(self, name: str, upto: int | None = None) -> int:
        """Delete the ready and delayed messages of a queue; with `upto`, those up to that id. Returns how many there were."""
        return int(self._ask("purge", name=name, upto=upto)["purged"])

    def apply(self, topology: Mapping[str, Any]) -> None:
        """Create the queues and selectors of a topology, as `Engine.apply`. The operator of the broker opens stores."""
        self._ask("apply", topology=dict(topology))

    def topology(self) -> dict[str, Any]:
        """The stores, queues and selectors, as `Engine.topology`."""
        found: dict[str, Any] = self._ask("topology")
        return found

    def stats(self) -> Stats:
        """The counters and gauges, as `Engine.stats`, of the queues that the user may read."""
        found: Stats = self._ask("stats")
        found["selectors"] = {int(id): one for id, one in found["selectors"].items()}
        return found

    def queues(self) -> list[dict[str, Any]]:
        """The queues that the user may read: name, store, and counts."""
        found: list[dict[str, Any]] = self._ask("queues")
        return found

    def clock(self) -> int:
        """The clock of the broker's engine, in POSIX nanoseconds: what `at` and `expires` are judged by."""
        return int(self._ask("clock")["now"])

    def sync(self, queue: str | None = None) -> None:
        """Wait until all that was done before is on the disk. Raises `TimeoutError` after 20 seconds; call it again."""
        self._ask("sync", queue=queue)

    def target(self, queue: str) -> Target:
        """A queue as a writer sees it, for which it needs no permission to read."""
        return Target(**self._ask("target", queue=queue))

    # ---- for readers by id

    def offsets(self, queue: str) -> Offsets:
        """A queue as a reader by id sees it."""
        found = self._ask("offsets", queue=queue)
        return Offsets(**{name: found[name] for name in Offsets._fields})

    def plan(self, queue: str, partitions: int, start: int | None = None, end: int | None = None) -> Plan:
        """Divide the messages from one id to another into parts with about as many messages each: `parts` are (first, last)."""
        found = self._ask("plan", queue=queue, partitions=partitions, start=start, end=end)
        return Plan([(first, last) for first, last in found["parts"]], found["incarnation"], found["rows"])

    # ---- what becomes visible whole

    def stage(
        self, run: str, partition: int, attempt: int, target: str, batches: Any, *, key: tuple[str, int] | None = None,
        address: str | None = None,
    ) -> Staged:
        """Send rows that are to enter a queue later, when `commit` says so; until then nobody sees them.

        Args:
            run: A name of your own, of 1 to 200 characters without a slash.
            partition: Which part of the run this is: parts enter in the order that `commit` gives.
            attempt: A number that no other try at this part has.
            target: The queue that they are for.
            batches, address: As for `publish`.
            key: (application, version): if this version was committed before, the rows are counted, and not sent.

        Returns:
            The attempt, which `commit` asks for. All of it is durable, as the target's store is.

        Raises:
            TransactionError: The run was committed, aborted or dropped before; or `version` is before the last one.
            StoreFull: The store is full, or the broker's `staging_bytes` are used up.
            QueueNotFound, TypeError, ValueError, BrokerUnreachable, AccessRefused: As `publish`. Nothing of it is left then.
        """
        about: dict[str, Any] = {"run": run, "partition": partition, "attempt": attempt, "target": target, "key": key}
        found = iter(columns.batches_of(batches, address))
        if self._ask("stage", **about)["committed"]:
            return Staged(run, partition, attempt, sum(batch.num_rows for batch in found), True)
        first = next(found, None)
        if first is None:
            return Staged(run, partition, attempt, 0, False)
        with self._asking():
            connection, given = self._stream()
            command = json.dumps({"stage": {name: value for name, value in about.items() if value is not None}})
            writer, answers = connection.do_put(flight.FlightDescriptor.for_command(command), first.schema, given)
        rows = 0
        try:
            batch: pyarrow.RecordBatch | None = first
            while batch is not None:
                with self._asking():
                    self._write(writer, batch)
                rows += batch.num_rows
                batch = next(found, None)
            with self._asking():
                self._write(writer, first, json.dumps({"seal": rows}).encode())
            sealed = self._answer(writer, answers)["rows"]
        finally:
            with suppress(pyarrow.ArrowException):
                writer.close()
        return Staged(run, partition, attempt, int(sealed), False)

    def commit(
        self, run: str, target: str, winners: Iterable[Staged], *, key: tuple[str, int] | None = None,
        timeout: float | None = COMMIT_SECONDS,
    ) -> Committed:
        """Let what was staged enter its target: whole, once, in the order of `winners`.

        Other rows that the run has staged for this target are dropped.

        Args:
            run, target: As for `stage`.
            winners: The answers of `stage`.
            key: (application, version). A version that was committed before is not published again, whatever its run.
            timeout: How many seconds to ask for it, on new connections if there is no answer; None: for ever.

        Returns:
            How many rows; whether that was decided `again`, by another run or call; whether all have `entered`, or wait for
            room in the target; and a warning, or None. In either case it is decided and durable.

        Raises:
            TransactionError: Nothing was published: the run was aborted or dropped, a winner is not there, or `version` is
                before the last one.
            BrokerUnreachable: There was no answer in time: it may be decided, or not. Ask again with the same arguments.
        """
        given = [[one.partition, one.attempt, one.rows] for one in winners]
        asked = 0
        answer: dict[str, Any] = {}

        def ask(left: float) -> bool:
            """Whether the answer is the last one."""
            nonlocal asked
            asked += 1
            answer.update(self._ask("commit", min(left, self._timeout), run=run, target=target, winners=given, key=key))
            return not answer["longer"]

        self._until(timeout, ask)
        again = answer["again"] and (asked == 1 or answer["run"] != run)
        return Committed(answer["rows"], again, answer["entered"], answer["warning"])

    def abort(self, run: str, target: str, *, timeout: float | None = None) -> str:
        """Drop what a run has staged for a target. Returns `"aborted"`; or `"committed"`, if it was, and then nothing changes."""
        answer: dict[str, Any] = {}

        def ask(left: float) -> bool:
            """Any answer is the last one."""
            answer.update(self._ask("abort", min(left, self._timeout), run=run, target=target))
            return True

        self._until(self._timeout if timeout is None else timeout, ask)
        return str(answer["state"])

    def _until(self, timeout: float | None, ask: Callable[[float], bool]) -> None:
        """Ask until it is answered, on new connections if the broker is not there."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.05
        while True:
            left = self._timeout if deadline is None else max(deadline - time.monotonic(), 0.001)
            try:
                if ask(left):
                    return
            except BrokerUnreachable:
                if deadline is not None and time.monotonic() + pause >= deadline:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, PAUSE_SECONDS_MAX)
            else:
                if deadline is not None and time.monotonic() >= deadline:
                    return


def _of_its_program(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """These batches. An error of the program that makes them may be that of another stream, and counts the rows of that one."""
    try:
        yield from batches
    except Exception as error:
        error.published = NOTHING           # type: ignore[attr-defined]
        raise


def _place(given: object) -> Any:
    return {"ns": datetime_ns(given, "the time")} if isinstance(given, datetime) else given
