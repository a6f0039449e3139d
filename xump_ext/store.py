"""The contract between the engine and a durable store.

The core keeps the index of every queue: ids, states, frontier, links. A durable store keeps a log of records (`records/kinds.pxd`
draws them) and reads bodies back. The core's *journal* gathers the changes of runs and hands them over as a **group**: one call
of the store with one buffer, whatever the number of messages. A body that is not written yet is served from the core.

The order of calls
------------------
1. The program calls `create_store(name, type, **options)`, and the engine calls `factory(name, **options)`. That opens the store
   or makes it: it locks it (`StoreLocked` names the owner's pid), verifies what is there (`StoreCorrupt` says what was found and
   what to do), and makes that durable, the entry in its directory included. An error leaves the files as they were.
2. The engine calls `scan()` once, before it writes anything.
3. Then it calls, from one thread at a time and without the engine lock, `write(batch)`, and `sync()` as the durability asks.
   After each write it calls `oldest()`, and `release()` when the records that `oldest` gave are durable elsewhere. With the
   durability `process` it calls `sync` only at `close`; with `none`, never.
4. It may call `fetch` and `room` at any time, from any thread, also during a `write` or `sync`.
5. It calls `close()` once, at the end, and nothing afterwards.

The promises
------------
- **Atomic, in order.** After a crash a store has the groups up to some point, each of them whole. A group is one `write`.
- **Durable.** A group is durable when a `sync()` that was called after its `write` has returned, and not before.
- **Failure.** `write` and `sync` raise `StoreFailed` (or OSError) when the disk fails. From then on it is a failed store: the
  engine writes nothing more and retries no fsync, and every call that needs the store raises `StoreFailed` until it is opened
  again.
- **Room.** For as many bytes as `room` has promised, a store never fails to write for lack of space. Beside that it keeps enough
  space for settling every message in it. The engine raises `StoreFull` before anything happens.
- **Positions.** A record's position is its place in one endless log; the first group written after `scan` begins at `end`. A
  store that finds records by key may ignore positions. A store that finds them by position may have live records moved, by
  `oldest`.
- **No locks.** During file I/O no lock of the engine is held, and the interpreter's lock is released.
- **Looking changes nothing.** `recognises`, `check` and `view` leave every byte on the disk as it is.

A store inherits from `Backend`, or has the same methods. `xump.testing` runs the conformance suite over it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer

DURABILITIES = ("sync", "group", "process", "none")


@dataclass(frozen=True)
class Damage:
    """One damaged place in a store."""

    position: int | None
    """The record's position in the log, or None if it has none."""
    queue: int
    id: int
    """The queue's number and the message's id; 0 if not known."""
    bytes: int
    what: str
    """For people: the kind of damage, and where in the file it is."""
    harmless: bool = False
    """True if opening the store mends it and nothing is lost."""


@dataclass(frozen=True)
class Remains:
    """The part of a queue that a damaged store still has."""

    name: str
    messages: int
    """The number of whole messages."""
    history: int
    """The number of these in the history. The others are ready when the store is opened."""
    doubtful: int
    """The number of ready ones that lost records may have settled, moved to the history, or noted as handed out. `repair` marks
    them as redelivered."""
    lost: int | None
    """The least number of messages that are missing by the queue's books (its counters). None: the books are lost, too."""
    exact: bool
    """Whether exactly `lost` messages are missing."""


@dataclass
class Report:
    """The findings of `check` and `repair`."""

    records: int = 0
    bytes: int = 0
    cut: int = 0
    """Bytes of a torn tail: the unfinished write of a crash. That is no damage."""
    damage: list[Damage] = field(default_factory=list)
    queues: dict[int, str] = field(default_factory=dict)
    """If there is damage: the names of the queues by their numbers, as far as the names are whole."""
    remains: dict[int, Remains] = field(default_factory=dict)
    """If records are damaged: the remains of each queue, by its number. A store may leave it empty."""
    lost: int = 0
    """The least number of records that are damaged or missing."""
    notes: list[str] = field(default_factory=list)
    """Further remarks on the damage, for people."""
    quarantine: str | None = None
    """The file into which `repair` put the damaged records."""


class Demand(NamedTuple):
    """The engine's figures, for a store that is asked for its oldest part."""

    wanted_bytes: int
    """The room, in bytes, that a call lacks: the store gives parts until there is so much, if possible. 0: there is room."""
    live_bytes: int
    """The bytes of the log, about, that are still needed."""
    largest_bytes: int
    """The bytes that the largest live message takes, or a quarter more at most."""
    carried_bytes: int
    """The bytes, in all, that were written to copy forward what `oldest` gave, with the heads of groups."""
    refused_bytes: int = 0
    """The least room, in bytes, that one of the messages waits for which selectors would bring; 0: none waits."""
    stands_still: bool = False
    """Messages wait for that room, and nothing was written to the store for a while: the log is cleaned for any gain that lets
    them in."""


class Committer(Protocol):
    """The committer of a store, as the engine sees it: called at the end of an engine's call, without the engine lock."""

    def changed(self) -> object:
        """A call has changed something in the store."""

    def failure(self) -> Exception:
        """The error to raise when a call needs the failed store."""

    def crowded(self) -> object:
        """The open group has grown large and should be written."""

    def make_room(self, wanted: int, /) -> object:
        """A call lacks room for so many bytes: writes the open group and cleans the log. The call has changed nothing yet."""


    def when(self, ticket: int, fence: int, told: Callable[[BaseException | None], object], /) -> object:
        """Have `told` called when the changes of this ticket are as durable as the store promises."""


class Backend(ABC):
    """A durable store. `factory(name, **options)` returns an open one."""

    type: ClassVar[str]
    durable: ClassVar[bool] = True

    name: str
    durability: str
    """One of `DURABILITIES`; the engine writes and syncs by it."""
    group_ms: float
    """With the durability `group`: the milliseconds that the engine may gather changes before it writes them."""
    salt: int
    """32 bits, drawn at random when the store is made. The CRCs of its records are salted with them."""
    end: int
    """The position where the log goes on, a multiple of 8. It is read after `scan`; from there on the engine counts itself."""
    cut: int
    """Bytes of a torn tail that were cut off at opening; 0: it was closed cleanly, or its log is whole."""
    group_bytes: int = 1 << 20
    """The engine writes a group as soon as it has so many bytes, before `group_ms` is over. One call is always one group, though,
    however large."""
    kept_bytes: int = 0
    """The part of the room that publishes leave to messages that move on within the store, so that these can come to their end
    and make room. Three quarters of it are for the first step of a message, three quarters of the rest for the second, and so on.
    Twice the size of the largest message is left beside it. The value may change; the engine reads it together with `room`."""
    copies_forward: bool = False
    """Whether it gives live records by `oldest`. Then the engine leaves twice the size of the largest message once more: the
    store can always copy one."""
    damage: Sequence[Damage] = ()
    """Of a view that was scanned: the damaged parts that it left out."""

    @abstractmethod
    def scan(self) -> Iterator[tuple[int | None, Buffer]]:
        """The records that make up the store, verified, as (position, whole records one behind the other).

        They come in an order in which they may be applied: ENTER before MARK of the same message, unless the ENTER was copied
        forward; SETTLE and GONE after the records that they undo. QUEUE and STATE may come behind the messages of their queue,
        if they were copied forward. GROUP records may be among them. The engine uses a buffer before it asks for the next. A
        store that does not know positions gives None: then each record has its position in its head.
        """

    @abstractmethod
    def write(self, batch: Any) -> None:
        """Writes a group, atomically and behind all groups before it.

        `batch` has the buffer protocol (the whole group, its GROUP record first, valid during the call), `position`, `number` and
        `records`. For stores that keep records under keys, `xump_ext.records.record.items(batch)` gives the group as two lists:
        (key, record) to put, and (first key, last key) of the ranges to delete.
        """

    @abstractmethod
    def sync(self) -> None:
        """Returns when everything written before is durable. The engine never calls it again after a failure."""

    @abstractmethod
    def fetch(self, queue: int, id: int, position: int) -> tuple[int, Buffer]:
        """The ENTER record of a live message: (position, a buffer that begins with it).

        The buffer may go on with the records that follow, because they are mostly asked for next. Raises StoreFailed,
        StoreCorrupt, and KeyError if the record is not there.
        """

    @abstractmethod
    def room(self) -> int:
        """The bytes of records that may still be written, without those reserved for settling. Asked once a group."""

    def oldest(self, demand: Demand) -> tuple[int, int, Buffer] | None:
        """The oldest part of the log, if its space is needed: (begin, end, whole records). None: it is not needed now, or never.

        The engine copies the live records of that part forward, in a group, and calls `release(end)` when the group is durable.
        """
        return None

    def release(self, position: int) -> None:  # noqa: B027 - a store that never gives anything by `oldest` has nothing to do
        """The store may reuse everything before this position."""

    @abstractmethod
    def close(self) -> None:
        """Closes the files and gives up the lock. Everything is written before, and durable as the durability promises."""

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Whether there is a store of this type at the path, be it damaged, open, or of another version.

        For commands that get only a path; without this method, users must name the type. O(1): reads a few bytes. Raises OSError
        if they cannot be read.
        """
        return False

    @classmethod
    def view(cls, path: str) -> Backend:
        """A read-only view of the store: `scan` and `fetch` work as ever, `write` and `sync` do nothing.

        Raises StoreLocked while a process owns the store, and StoreCorrupt if there is no store of this type. Where `scan` would
        raise StoreCorrupt, a view may leave out the damaged part and report it in `damage`. Without this method, stores of the
        type cannot be browsed.
        """
        raise NotImplementedError(f"stores of type {cls.type!r} cannot be looked at without being opened")

    @classmethod
    @abstractmethod
    def check(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """Reads the whole store without changing anything, verifies every CRC and link, and lists all damage.

        Calls `progress(done, all)` now and then, in bytes. Raises StoreLocked while a process owns the store, and StoreCorrupt if
        there is no store of this type.
        """

    @classmethod
    @abstractmethod
    def repair(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """Moves damaged records, one by one, into a file beside the store, which the report names, so that the rest opens.

        Whole records stay as they are. A message that lost records may have settled or noted as handed out gets a MARK that says
        redelivered. A store without damage is not changed.
        """

    @classmethod
    @abstractmethod
    def compact(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """Gives unused space back to the file system. The store must be whole. A crash leaves the old store or the new one."""

    def stats(self) -> dict[str, Any]:
        """Figures for people: bytes used and allowed, groups, syncs, segments."""
        return {}
