"""The shim from Python: compiles `shim.c`, starts processes under it, and inside of them switches it on and off.

    with recording(folder, file):       everything that happens under the folder goes into the file
        shim.mark(5)                    what the program says, between what it does
    events = read(file)
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("shim.c")
BUILT = ROOT / "build" / "faults" / "shim.so"
HEAD = struct.Struct("<BBHHxxQQQ")

_compiling = threading.Lock()


class Kind(IntEnum):
    """What a call does; the order is that of the enum in `shim.c`."""

    MARK = 0
    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    ALLOCATE = 4
    SYNC = 5
    SYNC_DIRECTORY = 6
    RENAME = 7
    LINK = 8
    UNLINK = 9
    MKDIR = 10
    RMDIR = 11
    OPEN = 12
    READ = 13
    CLOSE = 14


class Event(NamedTuple):
    """A call that was carried out."""

    kind: Kind
    at_once: bool = False
    """A write that is durable when it returns (O_DSYNC)."""
    file: int = 0
    offset: int = 0
    length: int = 0
    name: str = ""
    other: str = ""
    data: bytes = b""


def compiled() -> Path:
    """The library, compiled if it is not there or older than its source; by one thread, as several start processes."""
    with _compiling:
        if not BUILT.exists() or BUILT.stat().st_mtime < SOURCE.stat().st_mtime:
            BUILT.parent.mkdir(parents=True, exist_ok=True)
            made = BUILT.with_name(f"{BUILT.name}.{os.getpid()}")
            compiler = os.environ.get("CC", "cc")
            subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", made, SOURCE, "-ldl", "-pthread"], check=True)
            made.replace(BUILT)
    return BUILT


def start(module: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts `python -m module` under the shim; what it says can be read."""
    environment = os.environ | {"LD_PRELOAD": str(compiled()), "PYTHONHASHSEED": "0"}
    return subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=ROOT, env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def is_loaded() -> bool:
    return str(BUILT) in os.environ.get("LD_PRELOAD", "")


# ---- inside a process that was started under it

_library: ctypes.CDLL | None = None


def library() -> ctypes.CDLL:
    global _library
    if _library is None:
        assert is_loaded(), "this process was not started under the shim"
        _library = ctypes.PyDLL(str(BUILT))
        _library.faults_begin.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        _library.faults_mark.argtypes = [ctypes.c_uint64]
        _library.faults_inject.argtypes = [ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.c_int]
        _library.faults_calls.restype = _library.faults_failures.restype = ctypes.c_uint64
    return _library


@contextmanager
def recording(folder: Path, file: Path | None) -> Iterator[None]:
    """Watches a folder; None: for faults only, nothing is recorded."""
    library().faults_begin(os.fsencode(folder), None if file is None else os.fsencode(file))
    try:
        yield
    finally:
        library().faults_end()


def mark(value: int) -> None:
    library().faults_mark(value)


def freeze() -> None:
    """The power goes: whatever the process still does, its files stay as they are, until the recording ends."""
    library().faults_freeze()


def inject(kinds: tuple[Kind, ...], nth: int, forever: bool, how: int | str) -> None:
    """The nth call of these kinds fails. `how`: an errno, or "short"."""
    code = errno.ENOSPC if isinstance(how, str) else how
    library().faults_inject(sum(1 << kind for kind in kinds), nth, forever, code, how == "short")


def failures() -> int:
    """How many calls have failed since `inject`."""
    return library().faults_failures()


def allocate_cheaply(yes: bool) -> None:
    library().faults_cheap(yes)


def read(file: Path) -> list[Event]:
    """The events of a record."""
    raw, at, events = file.read_bytes(), 0, []
    while at < len(raw):
        kind, at_once, first, second, number, offset, length = HEAD.unpack_from(raw, at)
        at += HEAD.size
        name, other = os.fsdecode(raw[at : at + first]), os.fsdecode(raw[at + first : at + first + second])
        at += first + second
        data = raw[at : at + length] if kind == Kind.WRITE else b""
        at += len(data)
        events.append(Event(Kind(kind), bool(at_once), number, offset, length, name, other, data))
    return events
