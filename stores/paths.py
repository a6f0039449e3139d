"""The path of a store, and the errors of what the system is asked for there. Nothing here changes a file."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from xump_ext.errors import StoreFailed, StoreFull, XumpError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# What failed, as the errors say it of a path.
OPENING, CLOSING = "cannot be opened", "was not closed in order"
CHECKING, REPAIRING, COMPACTING = "cannot be checked", "cannot be repaired", "cannot be compacted"


def absolute(path: object) -> str:
    """Makes a path absolute, so that it holds after the process changes its directory. Raises TypeError, ValueError."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"path must be a str or PathLike, got {path!r}")
    if not text:
        raise ValueError(f"path={path!r}: a path is not empty; allowed is that of a store, or where one is to be made")
    if "\0" in text:
        raise ValueError(f"path={path!r}: a path has no character 0")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ValueError(f"path={path!r}: the file system cannot have the character {text[error.start]!r} at {error.start}; "
                         "choose another name") from None
    return os.path.abspath(text)


def check(path: str) -> None:
    """Raises the OSError that opening or making a store at the path would raise, and names the missing part."""
    if os.path.islink(path):
        try:
            os.stat(path)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, f"it is a symbolic link to {os.readlink(path)!r}, which is not there; make "
                                    "that, or choose another place", path) from None
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise OSError(errno.ELOOP, "it is a symbolic link that leads back to itself; choose another place", path) from None
    parent = os.path.dirname(path)
    try:
        status = os.stat(parent)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, f"there is no directory {parent!r}; make it first, or choose another place",
                                path) from None
    except PermissionError as error:
        raise denied(error, path) from None
    except NotADirectoryError:
        status = None
    if status is None or not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, f"{parent!r} is no directory; choose another place", path)


def is_denied(error: BaseException) -> bool:
    """Whether this is a bare refusal by the system, without an explanation yet."""
    return (isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
            and error.strerror == os.strerror(error.errno))


def denied(error: Any, path: str) -> PermissionError:
    """The refusal, with the nearest path that exists and the permissions that the process lacks."""
    there = path
    while not os.path.lexists(there) and there != os.path.dirname(there):
        there = os.path.dirname(there)
    whose = "its directory" if there == path else f"the directory {there!r}"
    return PermissionError(error.errno, f"{error.strerror}: to open or make a store, the process must be able to read and write "
                           f"{whose}, and the store's files; change the permissions, or choose another place", path)


def explained(error: OSError, path: str, failed: str = OPENING) -> OSError:
    """The error that the program gets when the system refuses a call while a store is opened, made, looked after or closed: it
    names the store, and says what to do. An error that says so already is returned as it is. `failed`: what failed, in words."""
    code = error.errno or 0
    if isinstance(error, XumpError) or error.strerror != os.strerror(code):
        return error
    if is_denied(error):
        return denied(error, path)
    if code in NO_SPACE:
        return StoreFull(code, f"{path} {failed}: its disk has no room: {error.strerror}; make room there, and try again")
    at = f" (at {os.fsdecode(error.filename)})" if error.filename not in (None, path) else ""
    return StoreFailed(code, f"{path} {failed}: the system says {error.strerror!r}{at}; find the cause (if it is the disk, in "
                       "the system's log), and try again")


@contextmanager
def explaining(path: str, failed: str = OPENING) -> Iterator[None]:
    """A context manager for all that is asked of the system for a store: its errors are `explained`."""
    try:
        yield
    except OSError as error:
        if (said := explained(error, path, failed)) is error:
            raise
        raise said from error
