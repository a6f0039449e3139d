"""The user, the group and the mode of files that stand in for others, or beside them: those of the store, whoever writes them.

A repair or a compaction by root leaves a store that its own user can still open.
"""

from __future__ import annotations

import os


def belong(fd: int, like: os.stat_result) -> None:
    """Gives an open file the user, group and mode of another one.

    Raises PermissionError where the process must not give files to that user or group."""
    made = os.fstat(fd)
    if (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid):
        try:
            os.fchown(fd, like.st_uid, like.st_gid)
        except PermissionError as error:
            raise PermissionError(error.errno, f"{error.strerror}: the store belongs to user {like.st_uid} and group "
                                  f"{like.st_gid}, and so must a file that is made for it; do this as that user, or as root"
                                  ) from error
    os.fchmod(fd, like.st_mode & 0o7777)        # last: a change of the user takes some bits away
