"""Reading ahead: the next batch of an outbox is read while the one before is sent, and waits for a disk.

One thread reads at a time: the relay's, or the one here, and the relay waits for that before it uses the reader again.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from sqlalchemy import Engine

from xump.sql.direct import Direct
from xump.sql.reading import Reader


class Ahead:
    """Reads for one relay, by psycopg, on a connection of its own.

    Args:
        engine: For PostgreSQL with psycopg.
        reader: What knows how far it has read.
    """

    def __init__(self, engine: Engine, reader: Reader) -> None:
        self._reader, self._direct = reader, Direct(engine, binary=True)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="xump-read")
        self._next: Future[list[Any]] | None = None

    def read(self) -> list[Any] | None:
        """The batch that was read ahead, or one that is read now. None: rows are parked, and `Reader.read` must see to them.

        Raises:
            DBAPIError: The database cannot be asked.
        """
        begun, self._next = self._next, None
        return (begun.result() if begun is not None else None) or self._reader.stream(self._direct)

    def go_on(self) -> None:
        """Begin to read what comes behind the batch that was read last, if there is more."""
        if self._reader.more:
            self._next = self._thread.submit(self._reader.go_on, self._direct)

    def drop(self) -> None:
        """Wait until nothing is read, and forget what was. If that failed, the next read tells."""
        begun, self._next = self._next, None
        if begun is not None:
            wait([begun])

    def close(self) -> None:
        """End the thread and the connection."""
        self._thread.shutdown()
        self._direct.close()
