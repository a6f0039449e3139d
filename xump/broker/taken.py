"""Messages that a client has taken over Flight."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow

if TYPE_CHECKING:
    from xump.broker.client import Client


class Taken:
    """Messages that are taken; made by `Client.take`. Iterate over it for record batches, and answer what they have."""

    def __init__(self, client: Client, session: str, reader: Any, schema: pyarrow.Schema) -> None:
        self._client = client
        self._session = session
        self._reader = reader
        self.schema = schema
        """The columns."""
        self.batches = client._batches(reader)
        """The batches, each once."""

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        return self.batches

    def ack(self, ids: Any) -> int:
        """Ack messages: a batch, or a part of it, or their ids, which suffice if all are of one queue. Returns how many, when
        that is durable. Raises `StaleDelivery` if one was answered before, or went back; then none is acked."""
        return int(self._client._ask("ack", session=self._session, ids=_ids(ids))["acked"])

    def nack(self, ids: Any) -> int:
        """Give messages back. Arguments and errors are those of `ack`."""
        return int(self._client._ask("nack", session=self._session, ids=_ids(ids))["nacked"])

    def close(self) -> None:
        """End the stream; what is not answered goes back."""
        self._reader.cancel()
        self.batches.close()        # type: ignore[attr-defined]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


def _ids(given: Any) -> list[Any]:
    if isinstance(given, (pyarrow.RecordBatch, pyarrow.Table)):
        return [list(key) for key in zip(given.column("queue").to_pylist(), given.column("id").to_pylist(), strict=True)]
    if hasattr(given, "to_pylist"):
        given = given.to_pylist()
    return [list(one) if isinstance(one, tuple) else one for one in given]
