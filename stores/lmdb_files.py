"""The files of an `lmdb` store: a directory with the environment, LMDB's lock file, and the file that its owner locks.

    orders.xump/data.mdb    the environment           orders.xump/owner       locked by the process that owns the store
    orders.xump/lock.mdb    LMDB's own                orders.xump/data.new    an environment in the making, or left by a crash

A directory, because these files belong together: you copy, move or delete one thing with one name. LMDB would let several
processes in, so the store has a lock of its own.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import lmdb

from xump_ext.errors import StoreCorrupt, StoreFailed, StoreFull

from . import lmdb_meta, paths
from .belonging import belong
from .lmdb_content import META_KEY, DamagedMeta, NotOurs, OtherVersion, StoreMeta, pack_meta
from .lmdb_pages import BadPage, NotLmdb, Pages
from .owner import Claim, claim, fill_standard

DATA, LOCK, NEW, OWNER = "data.mdb", "lock.mdb", "data.new", "owner"
OURS = frozenset((DATA, LOCK, NEW, OWNER))

IF_MESSAGES = "restore it, or, if messages are in it, run: xump repair "
MAP_BYTES_FIRST = 64 << 20
FILE_MODE = 0o644
# The size of LMDB's lock file: at least its header, and a cache line for each reader.
LOCK_BYTES, LOCK_BYTES_READER = 1024, 64

# The errors of LMDB that mean damage to its file.
DAMAGE = lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, lmdb.VersionMismatchError

# Every py-lmdb reads files of LMDB 0.9, and so does `lmdb_pages`. Newer ones bring both engines along.
FORMAT: dict[str, Any] = {"lib_version": 0} if hasattr(lmdb.Environment, "lib_version") else {}


def data_of(path: str) -> str:
    """The file of a store's environment."""
    return os.path.join(path, DATA)


def is_there(path: str) -> bool:
    """Whether a store's directory has an environment. Raises `StoreCorrupt` for a path that is no store and no place for one."""
    if not os.path.lexists(path):
        return False
    if not os.path.isdir(path):
        raise StoreCorrupt(f"{path} is a file; an lmdb store is a directory: choose another place, or move the file away")
    names = set(os.listdir(path))
    if DATA in names:
        return True
    if LOCK in names:       # LMDB makes it after the environment
        raise StoreCorrupt(f"{path} has no {DATA} any more, only {LOCK}; put it back, or delete the directory for a new store")
    others = sorted(names - OURS)
    if others:
        shown = ", ".join(others[:3]) + ", …" * (len(others) > 3)
        raise StoreCorrupt(f"{path} is a directory with other things in it ({shown}) and no {DATA}; give the path of a new or "
                           "empty directory, or of an lmdb store")
    return False


def recognises(path: str) -> bool:
    """Whether a path is a store of this type, in whatever state: by its own entry, or, if that cannot be read, by its files."""
    names = set(os.listdir(path)) if os.path.isdir(path) else set()
    if DATA not in names:
        return {LOCK, OWNER} <= names
    try:
        with Pages(data_of(path)) as pages:
            lmdb_meta.read_meta(pages)
    except (OtherVersion, DamagedMeta):
        return True
    except NotOurs:
        return False
    except (NotLmdb, BadPage):
        return OWNER in names
    return True


def own(path: str, purpose: str, shared: bool = False) -> Claim:
    """Claims a store's directory, which must exist; `shared`: to read only, beside other readers. Raises `StoreLocked`;
    OSError."""
    return claim(os.path.join(path, OWNER), store=path, purpose=purpose, shared=shared, create=True)


def must_be_there(path: str) -> None:
    """Raises `StoreCorrupt` for a path without a store of this type."""
    if not is_there(path):
        what = "an empty directory" if os.path.isdir(path) else "nothing"
        raise StoreCorrupt(f"no lmdb store at {path}: there is {what}")


def pages_of(path: str, anyway: bool = False) -> Pages:
    """Opens the environment's file to read its pages. Raises `StoreCorrupt` for one that cannot be read."""
    try:
        pages = Pages(data_of(path), anyway)
    except NotLmdb as error:
        raise StoreCorrupt(f"{path}: {DATA} is no LMDB file that can be read: {error}; {IF_MESSAGES}{path}") from None
    try:
        if pages.damaged_meta is None:
            pages.damaged_meta = lmdb_meta.other_transaction(pages)
    except BaseException:
        pages.close()
        raise
    return pages


def meta_of(path: str) -> StoreMeta:
    """Reads the store's own entry without LMDB, and the list of free pages. Raises `StoreCorrupt`, also for the environment of
    another program."""
    try:
        with pages_of(path) as pages:
            least = pages.least_bytes()
            if pages.bytes < least:
                raise BadPage(pages.count, f"the file was cut: it has {pages.bytes} bytes, and needs at least {least}")
            if pages.damaged_meta:
                raise BadPage(0, pages.damaged_meta)
            found = lmdb_meta.read_meta(pages)
            pages.free()        # LMDB writes by it, and makes its map as long as the meta page says
            return found
    except (BadPage, DamagedMeta) as error:
        raise corrupt(path, str(error)) from None
    except NotOurs as error:
        raise StoreCorrupt(f"{path}: {error}; choose another place") from None


def corrupt(path: str, what: str) -> StoreCorrupt:
    return StoreCorrupt(f"{path} is damaged: {what}; run: xump repair {path}")


def build(path: str, meta: StoreMeta, chunks: Iterable[Iterable[tuple[bytes, bytes]]]) -> str:
    """Makes a new, durable environment beside the old one, out of the store's own entry and others in the order of their keys;
    returns its file.

    Removes it again after an error. Raises `StoreFull` for a full disk."""
    file = os.path.join(path, NEW)
    discard(path, NEW)
    fill_standard()
    try:
        like = os.stat(data_of(path)) if os.path.exists(data_of(path)) else None      # None: a new store
        # No other process reads it, and it counts only once it is synced.
        environment = lmdb.open(os.fsencode(file), subdir=False, map_size=MAP_BYTES_FIRST, sync=False, lock=False,
                                mode=FILE_MODE if like is None else 0o600, **FORMAT)
        try:
            for chunk in chunks:
                entries = list(chunk)
                while True:
                    try:
                        with environment.begin(write=True) as transaction:
                            transaction.put(META_KEY, pack_meta(meta._replace(transaction=transaction.id())))
                            transaction.cursor().putmulti(entries, append=True)
                        break
                    except lmdb.MapFullError:
                        environment.set_mapsize(2 * environment.info()["map_size"])
            environment.sync(True)
        finally:
            environment.close()
        if like is not None:
            _give(file, like)
    except BaseException as error:
        discard(path, NEW)
        if isinstance(error, lmdb.Error | OSError) and no_space(error):
            raise StoreFull(f"no room on the disk of {path}: {error}; nothing was changed; make room there, and try again"
                            ) from error
        if isinstance(error, lmdb.Error):
            raise StoreFailed(f"{path}: a new {DATA} cannot be written: {error}; nothing was changed; find the cause, and try "
                              "again") from error
        raise
    return file


def status_of(path: str) -> os.stat_result:
    """The system's word on the store's environment."""
    return os.stat(data_of(path))


def _give(file: str, like: os.stat_result) -> None:
    """Gives a new file the user, group and mode of another one, durably."""
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        belong(fd, like)
        os.fsync(fd)
    finally:
        os.close(fd)


def discard(path: str, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(path, name))


def take_place(path: str, new: str) -> None:
    """Makes a new file the environment from now on, also after a crash."""
    os.replace(new, data_of(path))
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(path, LOCK))     # it lists the readers of the old one
    sync_directory(path)


def reserve_lock(path: str, readers: int) -> None:
    """Gives LMDB's lock file its blocks before LMDB writes to it by a map: on a full disk that would end the process. Raises
    `StoreFull`."""
    fd = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        size = LOCK_BYTES + LOCK_BYTES_READER * readers
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        elif os.fstat(fd).st_size < size:
            os.pwrite(fd, bytes(size), 0)
    except OSError as error:
        if no_space(error):
            raise StoreFull(f"no room on the disk of {path}, not even for its locks: {error}; make room there, and open it again"
                            ) from error
        raise
    finally:
        os.close(fd)


def fill_holes(fd: int, size: int) -> None:
    """Gives a file that length, and blocks everywhere, if the disk has them: a copy of a store may lack some."""
    status = os.fstat(fd)
    if status.st_size < size or status.st_blocks * 512 < size:
        _allocate(fd, 0, size)


def extend(fd: int, begin: int, end: int) -> bool:
    """Gives blocks to a part of the environment's file that LMDB does not know yet; returns whether the disk had them."""
    return _allocate(fd, begin, end - begin)


def _allocate(fd: int, at: int, size: int) -> bool:
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, at, size)
        elif os.fstat(fd).st_size <= at:    # else that part is there, though perhaps without blocks
            zeros, end = bytes(1 << 20), at + size
            while at < end:
                at += os.pwrite(fd, zeros[: end - at], at)
    except OSError as error:
        if not no_space(error):
            raise
        return False
    return True


def sync_directory(path: str) -> None:
    """Makes the names in a directory durable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        os.sync()       # a directory that the process may pass through, but not read
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# ---- errors

def no_space(error: lmdb.Error | OSError) -> bool:
    return _code(error) in paths.NO_SPACE


def _code(error: lmdb.Error | OSError) -> int:
    """The system's number of an error, which py-lmdb tells in words only; 0: it has none."""
    if isinstance(error, OSError):
        return error.errno or 0
    return next((code for code in errno.errorcode if os.strerror(code) in str(error)), 0)


@contextmanager
def explaining(path: str, failed: str = paths.OPENING) -> Iterator[None]:
    """A context manager for all that is asked of LMDB and the system for a store: see `paths.explained`. Only what LMDB finds in
    its file is damage."""
    with paths.explaining(path, failed):
        try:
            yield
        except DAMAGE as error:
            raise StoreCorrupt(f"{path} {failed}: {error}; run: xump check {path}") from error
        except lmdb.Error as error:
            if code := _code(error):
                raise paths.explained(OSError(code, os.strerror(code)), path, failed) from error
            raise StoreFailed(f"{path} {failed}: LMDB says {error}; find the cause, and try again") from error
