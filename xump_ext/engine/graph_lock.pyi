"""The lock of calls that change the graph: creating and deleting stores, queues, selectors and windows, one at a time."""

from typing import Any

from xump_ext.engine.teller import Teller

class GraphLock:
    """The lock of calls that change the graph: one thread at a time, which may enter it again. A context manager."""

    def __new__(cls, teller: Teller, engine: Any) -> GraphLock: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
