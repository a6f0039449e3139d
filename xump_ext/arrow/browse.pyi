"""The call `browse_batch`: messages of a queue as Arrow columns, none of which is taken."""

from collections.abc import Callable
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
