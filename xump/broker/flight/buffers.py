"""The memory in which batches come and go: it is kept for the next ones.

A batch of 10,000 rows lies in slices of gRPC's, from malloc, then in a buffer of Arrow's, from mimalloc. Both hand freed memory
back at once, and the system clears it page by page when it is wanted again: 40,000 page faults for a million rows, which is more
than half of what staging them costs. So mimalloc waits for `KEPT_SECONDS`, and malloc keeps `KEPT_BYTES` until no client calls.

Where the C library is not glibc, or pyarrow was imported before and its mimalloc has begun, that part stays as it is.
"""

from __future__ import annotations

import ctypes
import os
import sys

KEPT_SECONDS = 10
KEPT_BYTES = 256 << 20
MAPPED_BYTES = 32 << 20
"""A larger block is mapped by itself: the most that malloc allows."""

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""The numbers of these settings in malloc.h."""
THRESHOLD_BYTES = 128 << 10
"""The values of both before anything is changed."""

MIMALLOC = "MIMALLOC_PURGE_DELAY"


def import_pyarrow() -> None:
    """Import pyarrow, with a mimalloc that keeps memory for a while: it reads its environment once, when it is loaded."""
    if "pyarrow" in sys.modules or MIMALLOC in os.environ:
        return
    os.environ[MIMALLOC] = str(1000 * KEPT_SECONDS)
    try:
        import pyarrow  # noqa: F401
    finally:
        del os.environ[MIMALLOC]            # programs that this one starts are asked nothing


class Buffers:
    """The bytes that malloc keeps, while Flight listens."""

    def __init__(self) -> None:
        self._library = _glibc()

    def keep(self) -> None:
        """From now on keep what batches have left."""
        self._set(KEPT_BYTES, MAPPED_BYTES)

    def give_back(self) -> None:
        """Give it back to the system."""
        if self._library is not None:
            self._library.malloc_trim(0)

    def keep_none(self) -> None:
        """From now on keep as little as before, and give back the rest."""
        self._set(THRESHOLD_BYTES, THRESHOLD_BYTES)
        self.give_back()

    def _set(self, trim: int, mapped: int) -> None:
        if self._library is not None:
            self._library.mallopt(TRIM_THRESHOLD, trim)
            self._library.mallopt(MMAP_THRESHOLD, mapped)


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    found = ctypes.CDLL(None)
    return found if hasattr(found, "mallopt") and hasattr(found, "malloc_trim") else None
