"""The store contract: what the engine and a store owe each other.

The core keeps the index of every queue: ids, states, frontier, links. A durable store is a log of records (`records/kinds.pxd` draws
them) and a source of bodies. What runs change is gathered in the core's *journal* and handed over as a **group**: one call of
the store, one buffer, whatever the number of messages. A body that was not written yet is served from the core.

Who calls what, when
--------------------
1. The engine's user calls `create_store(name, type, **options)`; the engine calls `factory(name, **options)`, which opens the
   store, or makes it: locks it (`StoreLocked`, which names the owner's pid), verifies what it finds (`StoreCorrupt`: what was
   found, what to do), makes durable what is there, the directory's entry included. An error leaves files as they were.
2. Once, before anything is written: `scan()`.
3. Then, from one thread at a time, without the engine's lock: `write(batch)`, `sync()` as the durability asks, and after each
   write `oldest()` and, when what it gave is durable elsewhere, `release()`. In `process` and `none` durability `sync` is
   called at `close` only (`none`: never).
4. At any time, from any thread, also while a `write` or `sync` goes on: `fetch`, `room`.
5. Once, at the end: `close()`. Nothing is called afterwards.

What is promised
----------------
- **Atomic, in order.** After a crash a store has the groups up to some point, each of them whole. A group is one `write`.
- **Durable** is what was written before a `sync()` that returned. Nothing before.
- **Failure.** `write` and `sync` raise `StoreFailed` (or OSError) when the disk says no; the engine then poisons the store:
  nothing is written any more, no fsync is tried again, every call that would need it raises `StoreFailed` until the store is
  opened anew.
- **Room.** A store never fails to write for lack of space what it said it had `room` for, and keeps enough beside that for every
  message in it to be settled. The engine raises `StoreFull` before anything happens.
- **Positions.** A record's position is its place in one endless log; the first group written after `scan` begins at `end`. A
  store that finds records by key may ignore positions; one that finds them by position may move a live record by `oldest`.
- **No locks of the engine's** are held, and the interpreter's lock is given up, during file I/O.
- **Looking changes nothing.** `recognises`, `check` and `view` leave every byte on the disk as it is.

A store inherits from `Backend`, or looks like it. `xump.testing` runs the conformance suite over it.
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
    """One thing that is wrong in a store."""

    position: int | None
    """Of the record in the log, or None where it has none."""
    queue: int
    id: int
    """The queue's number and the message's id; 0 where that is not known."""
    bytes: int
    what: str
    """For people: what was found, and where in the file."""
    harmless: bool = False
    """Opening the store mends it, and nothing is lost."""


@dataclass(frozen=True)
class Remains:
    """What a damaged store still has of a queue."""

    name: str
    messages: int
    """That are whole."""
    history: int
    """Of these: in the history. The others are ready when the store is opened."""
    doubtful: int
    """Of those that are ready: what was lost may have said that they were settled, in the history, or handed out. `repair` marks
    them as redelivered."""
    lost: int | None
    """Messages of which the queue's books say that they should be there; at least so many. None: the books are lost, too."""
    exact: bool
    """Whether so many are lost, neither more nor less."""


@dataclass
class Report:
    """What `check` and `repair` found."""

    records: int = 0
    bytes: int = 0
    cut: int = 0
    """Bytes of a torn tail: what was being written in a crash. That is no damage."""
    damage: list[Damage] = field(default_factory=list)
    queues: dict[int, str] = field(default_factory=dict)
    """Where there is damage: the names of the queues by their numbers, as far as they are whole."""
    remains: dict[int, Remains] = field(default_factory=dict)
    """Where records are damaged: what is left of each queue, by its number. Stores need not say it."""
    lost: int = 0
    """Records that are damaged or missing; at least so many."""
    notes: list[str] = field(default_factory=list)
    """What else there is to say of the damage, for people."""
    quarantine: str | None = None
    """Where `repair` put what was damaged."""


class Demand(NamedTuple):
    """What the engine knows when it asks a store for its oldest part."""

    wanted_bytes: int
    """What a call lacks room for: the store gives until that is there, if it can be. 0: nothing lacks room."""
    live_bytes: int
    """What the live messages take of the store."""
    carried_bytes: int
    """Bytes of records that `oldest` gave and that were written once more, altogether."""


class Committer(Protocol):
    """What the engine calls of a committer, at the end of a call of its own, without its lock."""

    def changed(self) -> object:
        """A call has changed something in the store."""

    def crowded(self) -> object:
        """Much was gathered: it should be written."""

    def make_room(self, wanted: int, /) -> object:
        """A call lacks room for so many bytes: write what was gathered, and clean the log. Nothing has changed yet."""


class Backend(ABC):
    """A durable store. `factory(name, **options)` gives one that is open."""

    type: ClassVar[str]
    durable: ClassVar[bool] = True

    name: str
    durability: str
    """One of `DURABILITIES`; the engine goes by it."""
    group_ms: float
    """In `group` durability: how long the engine may gather before it writes."""
    salt: int
    """32 bits, drawn at random when the store was made: what the CRCs of its records are salted with."""
    end: int
    """The position where the log goes on; a multiple of 8. Right after `scan`; the engine counts on from there."""
    cut: int
    """Bytes of a torn tail that were cut off when it was opened; 0: it was closed well, or whole."""
    group_bytes: int = 1 << 20
    """When so much came in, the engine writes it, whatever `group_ms` says. A call that brings more is one group all the same."""
    kept_bytes: int = 0
    """Of its room, what publishes leave to messages that move on within the store, so that these come to an end, and make room:
    three quarters of it to the first step of each message, as much of the rest to the second, and so on. At least twice what the
    largest message takes is left in any case. May change; asked for with `room`."""
    damage: Sequence[Damage] = ()
    """Of a view that was scanned: what it left out."""

    @abstractmethod
    def scan(self) -> Iterator[tuple[int | None, Buffer]]:
        """The records that make up the store, verified, as (position, whole records one behind the other), in an order in which
        they may be applied: ENTER before MARK of the same message unless it was carried forward, SETTLE and GONE after what
        they undo; QUEUE and STATE may stand behind what is in the queue, where they were carried forward. A buffer is used
        before the next is asked for. GROUP records may be among them. Where the store does not know positions, each record has
        its own in its head, and the position given is not looked at: None."""

    @abstractmethod
    def write(self, batch: Any) -> None:
        """Writes a group, atomically and behind all before. `batch` has the buffer protocol (the whole group, its GROUP record
        first, valid during the call), `position`, `number` and `records`. For stores that keep records under keys,
        `xump_ext.records.record.items(batch)` gives it as two lists: (key, record) to put, and (first, last) key of ranges to delete."""

    @abstractmethod
    def sync(self) -> None:
        """Returns when all that was written is durable. Called once more after a failure: never."""

    @abstractmethod
    def fetch(self, queue: int, id: int, position: int) -> tuple[int, Buffer]:
        """The ENTER record of a live message: (position, a buffer that begins with it). The buffer may go on with the records
        that follow: they will be asked for next. StoreFailed, StoreCorrupt, KeyError when it is not there."""

    @abstractmethod
    def room(self) -> int:
        """Bytes of records that may still be written, those left aside for settling not counted. Asked once a group."""

    def oldest(self, demand: Demand) -> tuple[int, int, Buffer] | None:
        """When old space is needed: (begin, end, whole records) of the oldest part of the log. The engine writes what of it is
        live once more, in a group, and calls `release(end)` when that is durable. None: no need, now or ever."""
        return None

    def release(self, position: int) -> None:  # noqa: B027 - a store that never gives anything by `oldest` has nothing to do
        """Nothing before this position is needed any more."""

    @abstractmethod
    def close(self) -> None:
        """Gives up files and lock. All is written; it is durable as the durability promises."""

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Whether what is at the path is a store of this type, be it damaged, open, or of another version; for the commands that
        are given a path only. O(1), reads a few bytes. OSError where they cannot be read. Without this, users must name the
        type."""
        return False

    @classmethod
    def view(cls, path: str) -> Backend:
        """The store, to be looked at: `scan` and `fetch` as ever, `write` and `sync` forget what they are given. StoreLocked
        while a process owns it, StoreCorrupt where no store of this type is. A view may leave out what is damaged, and say it in
        `damage`, where `scan` would raise StoreCorrupt. Without this, the type cannot be browsed."""
        raise NotImplementedError(f"stores of type {cls.type!r} cannot be looked at without being opened")

    @classmethod
    @abstractmethod
    def check(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """Reads the whole store without changing anything, verifies every CRC and link, and lists all damage. `progress(done,
        all)` is called now and then, with bytes. StoreLocked while a process owns it; StoreCorrupt where no store of this type
        is."""

    @classmethod
    @abstractmethod
    def repair(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """Puts what is damaged beside the store, in a file that the report names, record by record, so that the rest opens.
        What is whole stays as it is, but that a message of which more may have been said in what is lost, as that it was settled
        or handed out, gets a MARK that says redelivered. A store without damage is not changed."""

    @classmethod
    @abstractmethod
    def compact(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """Gives space that is not needed back to the file system. The store must be whole; a crash leaves the old one or the
        new."""

    def stats(self) -> dict[str, Any]:
        """For people: bytes used and allowed, groups, syncs, segments."""
        return {}
