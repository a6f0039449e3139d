"""The calls `publish_batch` and `take_batch`: many messages in one call, as Arrow columns."""

from collections.abc import Iterable
from typing import NoReturn, Self

from xump_ext.engine.core import Core

def publish_batch(core: Core, queue: object, data: object) -> range:
    """Lets the rows of Arrow data enter a queue, then runs the graph; returns the range of the ids."""
def take_batch(
    core: Core, n: int, destination: str | tuple[str, ...] | None, map_headers: bool = False
) -> DeliveryBatch:
    """Takes up to n deliveries: those that are there, and those that the taking releases. `map_headers`: `write_headers.pyx`."""

class DeliveryBatch:
    """Deliveries as Arrow columns. Created by `Engine.take_batch`.

    The columns are `id`, `queue`, `destination`, `delivery_count`, `timestamp`, `address`, `body`, `headers`, `reply_to`,
    `message_id`, `correlation_id`, `expires` and `priority`. The batch has the Arrow PyCapsule interface:
    `pyarrow.record_batch(batch)`, `polars.DataFrame(batch)`. Its length is the number of deliveries.
    """

    def __new__(cls) -> Self: ...
    @property
    def rows(self) -> int:
        """How many deliveries the batch has."""
    def __reduce__(self) -> NoReturn: ...
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def ack(self, ids: Iterable[int | tuple[str, int]] | None = None) -> None:
        """Acknowledge rows of the batch with one call and one run: all of them, or none.

        Args:
            ids: The ids of the messages: ints, `(queue, id)` pairs if the batch is from several queues, or a part of the column
                `id`, of pyarrow, Polars or numpy. None: all rows that were not answered yet.

        Raises:
            StaleDelivery: A row was answered before, the engine took the message back, or it is given twice.
            StoreFailed: The store of a message has failed: what was decided counts in memory only.
            Closed: The engine is closed.
            TypeError, ValueError: An id is not an int or a pair, or is not in the batch.

        If it raises another error, nothing has changed.

        Cost: O(rows), and the run that follows.
        """
    def nack(self, ids: Iterable[int | tuple[str, int]] | None = None) -> None:
        """Return messages of the batch to their old places in their queues, to be taken again.

        Args:
            ids: As for `ack`.

        Raises:
            StaleDelivery: A row was answered before, the engine took the message back, or it is given twice.
            StoreFailed: The store of a message has failed: what was decided counts in memory only.
            Closed: The engine is closed.
            TypeError, ValueError: An id is not an int or a pair, or is not in the batch.

        If it raises another error, nothing has changed. A message that your program has taken as often as its
        `delivery_limit` allows is dead-lettered.

        Cost: O(rows × log messages that returned before), and the run that follows.
        """
