"""Durability: waiting for it, and call-backs that tell of it. `Durable` is a part of the class `xump.Engine`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from xump._arguments import check_timeout
from xump._requests import Requesting
from xump.durability.call_backs import when_durable, when_relieved
from xump.durability.closing import sync_stores


class Durable(Requesting):
    """The part of `xump.Engine` that waits for disks, or is told by them."""

    def sync(self, *, timeout: float | None = None) -> None:
        """Wait until everything that was published or acked before this call is durable (on disk).

        Args:
            timeout: How many seconds to wait; None: for ever.

        Raises:
            SyncTimeout: Not everything is durable after `timeout`. Nothing is lost: call it again to go on waiting.
            StoreFailed: A write or an fsync failed.
            Closed: The engine is closed.
            TypeError, ValueError: `timeout` is wrong.

        Cost: an fsync of each durable store that has changes; nothing for RAM. Other threads can go on with the engine meanwhile.

        >>> import tempfile
        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     store = engine.create_store("orders", "ring", path=tempfile.mkdtemp() + "/orders.xump", min_bytes=0)
        ...     jobs = engine.create_queue("jobs", store="orders")
        ...     number = jobs.publish("resize")
        ...     engine.sync()
        ...     jobs.durable_id
        1
        """
        check_timeout(timeout)
        self._check_open()
        sync_stores(self._committers(), timeout)

    def when_durable(self, callable: Callable[[BaseException | None], object]) -> None:
        """Call a function, one time, as soon as everything that was done before is durable. This call does not wait.

        Args:
            callable: Called once, as `callable(None)`, or `callable(error)` with the `StoreFailed` for which the changes may be
                lost.

        Raises:
            Closed: The engine is closed.
            TypeError: `callable` is not callable.

        Durable means here: as durable as the `durability` of each store promises. `sync()` asks the disk in any case. The changes
        are written as soon as the disk is idle, and not after `group_ms`.

        A store's own thread calls the function, without any lock: it may call the engine, but should not take long, since the
        store writes nothing meanwhile. If everything is durable already, as in an engine without durable stores, it is called
        in this thread before this call returns; what still waits when the engine is closed, or a store deleted, is called in
        the thread that does so. Exceptions of the function are logged.

        Cost: O(1); for each call-back O(1) a group. One call-back for many publishes is better than one for each.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     number = engine.create_queue("jobs").publish("resize")
        ...     engine.when_durable(lambda error: print("durable" if error is None else error))
        durable
        """
        check_callable(callable)
        self._check_open()
        when_durable(self._committers(), callable)

    @contextmanager
    def not_waiting(self) -> Iterator[None]:
        """A context manager in which the calls of this thread never write, sync or clean a store, as an event loop needs it.

        The threads of the stores do that work, also where `durability` is `"sync"` or `"process"`: a call returns before its
        changes are written. Use `when_durable` to hear of them, and pause while the engine is `pressed`; else the memory for
        what is not written grows without a bound. Where a store has to make room first, a call raises `StoreFull`, and the
        engine is `pressed` until that was done: then try again. If it is not `pressed` after `StoreFull`, the store is full.

        Other calls still wait: `sync`, `close`, a `timeout`, opening and deleting stores, and creating a queue in a durable store
        when another one has just lost a queue of that name. Messages that are not in memory are still read from the disk. It
        holds for this thread and engine; blocks nest. Everything that an event loop runs in the thread is in the block, too.

        >>> from xump import Engine
        >>> with Engine() as engine, engine.not_waiting():
        ...     number = engine.create_queue("jobs").publish("resize")
        ...     engine.pressed
        False
        """
        self._check_open()
        before = self._patience.waits
        self._patience.waits = False
        try:
            yield
        finally:
            self._patience.waits = before

    @property
    def pressed(self) -> bool:
        """Whether a store has to catch up, or makes room, after calls that did not wait (`not_waiting`). Cost: O(stores)."""
        return any(committer.pressed for committer in self._committers())

    def when_relieved(self, callable: Callable[[BaseException | None], object]) -> None:
        """Call a function, one time, as soon as the engine is not `pressed` any more.

        Args:
            callable: Called once, as `callable(None)`, or `callable(error)` with the `StoreFailed` of a store that will not
                catch up.

        Raises:
            Closed: The engine is closed.
            TypeError: `callable` is not callable.

        It is called as `when_durable` says: in a store's thread, or in this one, at once, if the engine is not pressed.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     engine.when_relieved(lambda error: print("go on"))
        go on
        """
        check_callable(callable)
        self._check_open()
        when_relieved(self._committers(), callable)


def check_callable(value: object) -> None:
    """Raises TypeError unless the value can be a call-back."""
    if not callable(value):
        raise TypeError(f"a call-back is called with None or an error, got {type(value).__name__}, which is not callable")
