"""Windows that several selectors share: their handles."""

from typing import Any, NoReturn

class WindowHandle:
    """The properties of a window that several selectors share. Each costs O(1)."""

    @property
    def name(self) -> str:
        """The name of the window, unique in its engine."""
    @property
    def engine(self) -> Any:
        """The Engine that it belongs to."""
    @property
    def _first(self) -> int: ...
    @property
    def credit(self) -> int:
        """How many messages its selectors together may have outstanding."""
    @property
    def available(self) -> int:
        """Credit that is left; 0 also while more is outstanding than a smaller window allows."""
    @property
    def outstanding(self) -> int:
        """Messages that its selectors have taken and that are not settled."""
    def counters(self) -> dict[str, int]:
        """A dict of all gauges."""
    def __reduce__(self) -> NoReturn: ...
    def _name(self, engine: Any, name: str) -> None: ...
