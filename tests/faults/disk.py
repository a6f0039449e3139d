"""A disk that loses power: what it may hold at any moment, by the events of a record.

Synced bytes are there. Unsynced writes may be there or not, in any order, each by sectors of 512 B or 4 KiB. In particular

    bytes       `fsync` of a file makes what was written to it durable, and its length; not its name
    length      is kept or lost apart from the bytes, in order: zeros stand for bytes that did not come
    names       a directory's `fsync` makes durable what was created, renamed, linked and unlinked in it; before that any of these
                may be lost, those before others (a journal), or any of them; each of them is all or nothing

A `Disk` goes through the events once. After any of them `as_it_is` gives what a killed process leaves, and `after_power_loss` one
of the states that a power failure may leave, drawn by a generator of random numbers.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.shim import Event, Kind

DIRECTORY = -1
UNRECORDED = "lock.mdb"     # LMDB writes to it by a map, and makes it anew whenever nobody has the store open


@dataclass(frozen=True)
class Change:
    """A write to a file that is not synced: bytes at an offset, or (`data` None) a length."""

    number: int
    offset: int
    data: bytes | None
    size: int
    """The length of the file afterwards."""


@dataclass
class File:
    """The bytes of a file, without the zeros at the end, and its length: as they are, and on the disk for sure."""

    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    durable: bytearray = field(default_factory=bytearray)
    durable_size: int = 0
    pending: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        apply(self.data, change)
        self.size = change.size
        self.pending.append(change)

    def sync(self, changes: Iterable[Change] | None = None) -> None:
        """All, or one write by itself."""
        for change in list(self.pending if changes is None else changes):
            apply(self.durable, change)
            end = change.offset + len(change.data or b"")
            self.durable_size = change.size if changes is None else max(self.durable_size, end)
            self.pending.remove(change)


def apply(data: bytearray, change: Change) -> None:
    if change.data is None:
        del data[change.offset :]
        return
    if len(data) < change.offset:
        data.extend(bytes(change.offset - len(data)))
    data[change.offset : change.offset + len(change.data)] = change.data


@dataclass(frozen=True)
class Naming:
    """A change of names: each of these names leads to that file from now on, or to nothing (None)."""

    number: int
    names: tuple[tuple[str, int | None], ...]

    def is_in(self, directory: str) -> bool:
        return any(os.path.dirname(name) == directory for name, _ in self.names)


@dataclass(frozen=True)
class State:
    """The files of a disk: by name, directories first, the key of a file (names of one file share it); and the files by it."""

    names: dict[str, int]
    files: dict[int, tuple[bytes, int]]

    @classmethod
    def of(cls, folder: Path) -> State:
        """What lies in a folder."""
        names: dict[str, int] = {}
        files: dict[int, tuple[bytes, int]] = {}
        for path in sorted(folder.rglob("*")):
            names[str(path.relative_to(folder))] = DIRECTORY if path.is_dir() else path.stat().st_ino
            if path.is_file():
                data = path.read_bytes()
                files[path.stat().st_ino] = data.rstrip(b"\0"), len(data)
        return cls(names, files)

    def key(self) -> int:
        """Equal for equal states."""
        files = tuple((key, hash(data), size) for key, (data, size) in self.files.items())
        return hash((tuple(sorted(self.names.items())), files))

    def write(self, folder: Path) -> None:
        """Puts the state into an empty folder."""
        first: dict[int, Path] = {}
        for name, key in sorted(self.names.items()):
            path = folder / name
            if key == DIRECTORY:
                path.mkdir()
            elif key in first:
                path.hardlink_to(first[key])
            else:
                data, size = self.files[key]
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
                os.write(fd, data)
                os.ftruncate(fd, size)
                os.close(fd)
                first[key] = path


class Disk:
    """The disk of a program that has done nothing yet, or that goes on from a state which is durable."""

    def __init__(self, state: State | None = None) -> None:
        self.files: dict[int, File] = {}
        self.names: dict[str, int] = {}
        self.pending: list[Naming] = []
        self.number = 0         # of events
        self._by_inode: dict[int, int] = {}
        if state is not None:
            self.names = dict(state.names)
            for key, (data, size) in state.files.items():
                self.files[key] = File(bytearray(data), size, bytearray(data), size)
        self.durable_names = dict(self.names)

    def lies_in(self, folder: Path) -> None:
        """Events to come name files by the inodes that they have there."""
        self._by_inode = {os.stat(folder / name).st_ino: key for name, key in self.names.items() if key != DIRECTORY}

    # ---- what the program does

    def take(self, event: Event) -> bool:
        """Carries out an event; returns whether it leaves more than before in the balance, or less."""
        self.number += 1
        kind = event.kind
        if kind == Kind.SYNC_DIRECTORY:
            return self._sync_names(event.name)
        if kind in (Kind.CREATE, Kind.RENAME, Kind.LINK, Kind.UNLINK, Kind.MKDIR, Kind.RMDIR):
            self._name(event)
            return True
        file = self.files[self._by_inode[event.file]]
        if kind == Kind.SYNC:
            changed = bool(file.pending)
            file.sync()
            return changed
        if kind == Kind.WRITE:
            change = Change(self.number, event.offset, event.data, max(file.size, event.offset + event.length))
        elif kind == Kind.TRUNCATE:
            change = Change(self.number, event.offset, None, event.offset)
        else:
            assert kind == Kind.ALLOCATE, kind
            change = Change(self.number, len(file.data), b"", max(file.size, event.offset + event.length))
        file.change(change)
        if event.at_once:
            file.sync([change])
        return True

    def _name(self, event: Event) -> None:
        name, other = event.name, event.other
        names: list[tuple[str, int | None]]
        if event.kind == Kind.CREATE:
            key = self._by_inode[event.file] = max(self.files, default=0) + 1
            self.files[key] = File()
            names = [(name, key)]
        elif event.kind == Kind.MKDIR:
            names = [(name, DIRECTORY)]
        elif event.kind == Kind.RENAME:
            assert self.names[name] != DIRECTORY, "no store renames a directory"
            names = [(other, self.names[name]), (name, None)]
        elif event.kind == Kind.LINK:
            names = [(other, self.names[name])]
        else:
            names = [(name, None)]
        naming = Naming(self.number, tuple(names))
        rename(self.names, naming)
        self.pending.append(naming)

    def _sync_names(self, directory: str) -> bool:
        synced = [naming for naming in self.pending if naming.is_in(directory)]
        for naming in synced:
            rename(self.durable_names, naming)
            self.pending.remove(naming)
        return bool(synced)

    # ---- what may be there

    def as_it_is(self) -> State:
        """What a killed process leaves."""
        return self._state(self.names, {key: (bytes(file.data), file.size) for key, file in self.files.items()})

    def is_settled(self) -> bool:
        """Whether nothing can be lost."""
        return not self.pending and not any(file.pending for file in self.files.values())

    def after_power_loss(self, chance: random.Random) -> State:
        """One of the states that a power failure may leave."""
        way = chance.choice(["lost", "some", "some", "some", "first", "first", "names", "torn last"])
        if way == "first" or way == "torn last":
            return self._first(chance, torn=way == "torn last")
        names = dict(self.durable_names)
        for naming in self._drawn_names(chance, way):
            rename(names, naming)
        files = {}
        for key, file in self.files.items():
            if way == "some" or (way == "names" and chance.random() < 0.5):
                files[key] = drawn(file, chance)
            else:
                files[key] = bytes(file.durable), file.durable_size
        return self._state(names, files)

    def _drawn_names(self, chance: random.Random, way: str) -> list[Naming]:
        if way == "lost" or not self.pending:
            return []
        if chance.random() < 0.5:       # a journal
            return self.pending[: chance.randint(0, len(self.pending))]
        return [naming for naming in self.pending if chance.random() < 0.5]

    def _first(self, chance: random.Random, torn: bool) -> State:
        """All up to some event, and nothing that came later; of the last write perhaps a part."""
        numbers = sorted({*(naming.number for naming in self.pending),
                          *(change.number for file in self.files.values() for change in file.pending)})
        last = chance.choice(numbers) if numbers else 0
        names, files = dict(self.durable_names), {}
        for naming in self.pending:
            if naming.number <= last:
                rename(names, naming)
        for key, file in self.files.items():
            data, size = bytearray(file.durable), file.durable_size
            for change in file.pending:
                if change.number < last or (change.number == last and not torn):
                    apply(data, change)
                    size = change.size
                elif change.number == last:
                    put_parts(data, change, chance, 0.5)
                    size = chance.choice([size, change.size])
            files[key] = cut(data, size), size
        return self._state(names, files)

    def _state(self, names: dict[str, int], files: dict[int, tuple[bytes, int]]) -> State:
        """Without what is in a directory that is not there, and without files that have no name."""
        there = {name: key for name, key in names.items()
                 if not os.path.dirname(name) or names.get(os.path.dirname(name)) == DIRECTORY}
        used = set(there.values())
        return State(there, {key: files[key] for key in sorted(used) if key != DIRECTORY})

    # ---- the record itself

    def audit(self, folder: Path) -> None:
        """The record has all: what it leads to is what lies in the folder."""
        found = {str(path.relative_to(folder)) for path in folder.rglob("*")}
        assert found == set(self.names), f"recorded {sorted(self.names)}, found {sorted(found)}"
        for name, key in self.names.items():
            if key != DIRECTORY and os.path.basename(name) != UNRECORDED:
                file, data = self.files[key], (folder / name).read_bytes()
                assert len(data) == file.size, f"{name} has {len(data)} bytes, recorded were {file.size}"
                assert data.startswith(file.data) and not data[len(file.data) :].strip(b"\0"), f"{name} is not what was recorded"


def rename(names: dict[str, int], naming: Naming) -> None:
    for name, key in naming.names:
        if key is None:
            names.pop(name, None)
        else:
            names[name] = key


def cut(data: bytearray, size: int) -> bytes:
    return bytes(data[:size])


def drawn(file: File, chance: random.Random) -> tuple[bytes, int]:
    """A file after a power failure: of what was not synced some is there, in some order; and one of the lengths it had."""
    if not file.pending:
        return bytes(file.durable), file.durable_size
    data, whole, kept = bytearray(file.durable), chance.random(), chance.choice([0.1, 0.5, 0.9])
    sizes = [file.durable_size, *(change.size for change in file.pending)]
    last = chance.randrange(len(sizes))
    changes = list(enumerate(file.pending, 1))
    if chance.random() < 0.5:
        chance.shuffle(changes)
    for number, change in changes:
        if change.data is None:
            if number <= last:
                apply(data, change)
        elif chance.random() < kept:
            if chance.random() < whole:
                apply(data, change)
            else:
                put_parts(data, change, chance, chance.random())
    natural = max(len(data), file.durable_size)
    size = sizes[last] if chance.random() < 0.5 else max(natural, sizes[last])
    return cut(data, size), size


def put_parts(data: bytearray, change: Change, chance: random.Random, kept: float) -> None:
    """Some sectors of a write."""
    sector = chance.choice([512, 4096])
    start, end = change.offset, change.offset + len(change.data or b"")
    while start < end:
        stop = min(end, (start // sector + 1) * sector)
        if chance.random() < kept:
            part = (change.data or b"")[start - change.offset : stop - change.offset]
            apply(data, Change(change.number, start, part, 0))
        start = stop
