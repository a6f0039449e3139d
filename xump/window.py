"""Windows that several selectors share. `WindowHandle` in the core has their properties, this file their calls."""

from __future__ import annotations

from xump._arguments import COUNT_MAX, check_count
from xump_ext.engine.windows import WindowHandle


class Window(WindowHandle):
    """A credit window (prefetch) that several selectors share. Created by `Engine.create_window`.

    >>> from xump import Engine, always, deliver
    >>> with Engine() as engine:
    ...     both = engine.create_window(3)
    ...     for name in ("mail", "news"):
    ...         queue = engine.create_queue(name)
    ...         reader = engine.create_selector(name, when=always, do=deliver("reader"), credit=10, window=both)
    ...         ids = engine.publish_many(name, [("a",), ("b",)])
    ...     taken = engine.take(10, "reader")
    ...     len(taken), both.available, both.outstanding
    (3, 0, 3)
    """

    def resize(self, credit: int) -> None:
        """Give the window another credit. Settles nothing.

        Args:
            credit: How many messages its selectors together may have outstanding, 0 to 2**62. It may be less than there are now:
                then they take nothing until enough of those are settled.

        Raises:
            WindowNotFound: The window was deleted.
            TypeError, ValueError: `credit` is wrong.

        If it raises, nothing has changed. Cost: O(1), and the run that follows.
        """
        check_count("credit", credit, 0, COUNT_MAX, "an int")
        self.engine._resize_window(self, credit)

    def delete(self) -> bool:
        """Delete this window, as `Engine.delete_window` does.

        Returns:
            Whether it existed still.
        """
        return bool(self.engine.delete_window(self))
