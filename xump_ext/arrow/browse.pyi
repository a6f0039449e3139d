"""The call `browse_batch`: messages of a queue as Arrow columns, none of which is taken."""

from collections.abc import Callable, Container
from typing import Any

from xump_ext.arrow.export import ArrowBatch
from xump_ext.engine.core import Core
from xump_ext.engine.handles import QueueHandle
from xump_ext.match.filter import Filter
from xump_ext.message.message import Message

class Browsed:
    """Rows that were selected so far; each holds a reference to its content."""

def browse_batch(
    core: Core,
    handle: QueueHandle,
    start: Any,
    state: str | None,
    filter: Filter | None,
    call: Callable[[Message], object] | None,
    limit: int | None,
    reverse: bool,
) -> ArrowBatch:
    """The messages of a queue that are selected, as Arrow columns; the arguments are those of `Core._page`, and the filter's
    function, which does not raise."""
def browse_slice(
    core: Core,
    handle: QueueHandle,
    start: Any,
    last_id: int,
    state: str | None,
    filter: Filter | None,
    reverse: bool,
    rows_max: int,
    bytes_max: int,
    looks_max: int,
    named_headers: dict[str, bool] | None,
    columns: Container[str] | None = None,
) -> tuple[ArrowBatch, int | None]:
    """A slice of what `browse_batch` gives: (columns, where the next one begins, or None). `named_headers`: the headers
    that are wanted, and whether as text (`write_named_headers.pyx`); None: all, as a map. `columns`: the names of those that are
    wanted, None: all; the others may hold anything.

    It goes no further than `last_id`, and ends with `rows_max` rows, with the row that has its `bytes_max`-th byte, or when it
    has looked at `looks_max` messages, to the page. So it may have no row, and yet not be the last one.
    """
def id_marks(core: Core, handle: QueueHandle, first_id: int, last_id: int, every: int) -> tuple[int, list[int]]:
    """How many messages there are from one id to another, and the ids of the first one, of the `every`-th after it, and so on.

    Cost: O(messages) in between, nanoseconds each. Between pages others have their turn.
    """
