"""Reading ahead and deleting behind: while a batch of an outbox is sent, and waits for a disk, the next one is read, and the one
before is deleted. Each has a thread and a connection of its own.

One thread reads at a time: the relay's, or the one here, and the relay waits for that before it uses the reader again. A read
from the front would find what is just being deleted, so the relay waits for that first.
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
        reader: Knows how far it has read.
    """

    def __init__(self, engine: Engine, reader: Reader) -> None:
        self._reader, self._direct = reader, Direct(engine, binary=True)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="xump-read")
        self._next: Future[list[Any]] | None = None

    def taken(self) -> list[Any]:
        """The batch that was read ahead; empty if none was.

        Raises:
            DBAPIError: The database could not be asked.
        """
        begun, self._next = self._next, None
        return [] if begun is None else begun.result()

    def read(self) -> list[Any] | None:
        """A batch that is read now. None: rows are parked, and `Reader.read` must see to them.

        Raises:
            DBAPIError: The database cannot be asked.
        """
        return self._reader.stream(self._direct)

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


class Behind:
    """Deletes for one relay what it has sent, by psycopg, on a connection of its own.

    Args:
        engine: For PostgreSQL with psycopg.
    """

    def __init__(self, engine: Engine) -> None:
        self._direct = Direct(engine)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="xump-delete")
        self._begun: Future[int] | None = None
        self._rows = 0

    def begin(self, rows: int, statement: str, parameters: dict[str, Any]) -> None:
        """Begin to delete so many rows. The deletion that was begun before must have ended."""
        self._rows, self._begun = rows, self._thread.submit(self._direct.change, statement, parameters)

    def ended(self) -> tuple[int, int]:
        """Wait until it has ended. Returns how many rows were to be deleted, and how many were; 0 and 0 if none.

        Raises:
            DBAPIError: Whether they were is not known.
        """
        begun, self._begun = self._begun, None
        return (0, 0) if begun is None else (self._rows, begun.result())

    def close(self) -> None:
        """End the thread and the connection."""
        self._thread.shutdown()
        self._direct.close()
