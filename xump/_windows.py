"""Windows that selectors share: the part of `xump.Engine` that creates and deletes them."""

from __future__ import annotations

from collections.abc import Mapping

from xump._arguments import COUNT_MAX, check_count, check_same
from xump._mappings import Registry
from xump._names import name_of, plain
from xump.errors import Conflict, WindowNotFound
from xump.window import Window
from xump_ext.engine.core import Core


class Windows(Core):
    """The part of `xump.Engine` that creates and deletes windows which selectors share."""

    _last_window = 0

    @property
    def windows(self) -> Mapping[str, Window]:
        """The windows that selectors share, by name: a read-only, live mapping, in the order of creation. A missing name raises
        `WindowNotFound`."""
        return Registry(self._windows, WindowNotFound, "window", self._check_open)

    def create_window(self, credit: int, *, name: str | None = None) -> Window:
        """Create a credit window (prefetch) for several selectors together: `create_selector(..., window=window)`.

        Args:
            credit: How many messages the selectors together may have outstanding, 0 to 2**62.
            name: Its name, unique in the engine. None: the engine names it.

        Returns:
            The window. If one with the same name and credit exists, that one.

        Raises:
            Conflict: A window of this name exists with another credit.
            TypeError, ValueError: An argument is wrong.

        If it raises, nothing has changed.

        Each selector has its own credit besides, and takes a message only while both have some left. A selector that finds the
        window empty stands in line for it, behind those that came before: the credit of an ack goes to the first that has a
        message to take.

        Cost: O(1).

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     window = engine.create_window(1)
        ...     jobs = engine.create_queue("jobs")
        ...     for worker in ("a", "b"):
        ...         selector = engine.create_selector("jobs", when=always, do=deliver(worker), credit=10, window=window)
        ...     ids = engine.publish_many("jobs", [("first",), ("second",)])
        ...     [delivery] = engine.take(10)
        ...     delivery.ack()
        ...     delivery.destination, engine.take(10)[0].destination
        ('a', 'b')
        """
        check_count("credit", credit, 0, COUNT_MAX, "an int")
        if name is not None:
            name = name_of(name, "window name")
        self._check_open()
        with self._graph_lock:
            if name in self._windows:
                found: Window = self._windows[name]
                if credit != found._first:
                    check_same(f"window {name!r}", ("credit",), (found.credit,), (credit,))
                self.tick()
                return found
            window = Window.__new__(Window)
            window._name(self, self._window_name() if name is None else name)
            self._create_window(window, credit)
            return window

    def delete_window(self, window: str | Window) -> bool:
        """Delete a window that no selector shares any more.

        Args:
            window: Its name, or the `Window`. A `Window` means itself, also if another engine has one of that name.

        Returns:
            Whether there was such a window.

        Raises:
            Conflict: Selectors share it: delete those first.
            TypeError: `window` is neither.
        """
        if not isinstance(window, (str, Window)):
            raise TypeError(f"a window is named by a str or given as a Window, got {type(window).__name__}")
        self._check_open()
        with self._graph_lock:
            found = self._windows.get(plain(window) if isinstance(window, str) else window.name)
            if found is None or (isinstance(window, Window) and found is not window):
                self.tick()
                return False
            sharing = self._delete_window(found)
            if sharing:
                raise Conflict(f"window {found.name!r} is shared by {sharing} selectors; delete those first")
            return True

    def _window_name(self) -> str:
        """A name that no window ever had."""
        self._last_window += 1
        while f"window-{self._last_window}" in self._windows:
            self._last_window += 1
        return f"window-{self._last_window}"

    def _window(self, window: object) -> Window:
        """The window of this engine that is given by its name or as a `Window`."""
        if not isinstance(window, (str, Window)):
            raise TypeError(f"window must be a Window or the name of one, got {type(window).__name__}")
        name = plain(window) if isinstance(window, str) else window.name
        found: Window | None = self._windows.get(name)
        if found is None or (isinstance(window, Window) and found is not window):
            raise WindowNotFound(f"no window {name!r} in this engine")
        return found
