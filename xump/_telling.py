"""Call-backs at the end of a call: outlets, and watchers of the graph. `Telling` is a part of the class `xump.Engine`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from xump._durable import Durable
from xump._names import text_of
from xump.watch import Change, Watch
from xump_ext.engine.outlet import Outlet
from xump_ext.errors import iterator_of

if TYPE_CHECKING:
    from xump.engine import Engine


class Telling(Durable):
    """The part of `xump.Engine` that calls back when a call is over."""

    def outlet(self, call: Callable[[], object], destinations: Iterable[str] = ()) -> Outlet:
        """Be called back when something is offered to a set of destinations, instead of waiting for each of them in a thread.

        Args:
            call: Called as `call()`, once for the first offer to a quiet outlet. Then drain it with `Outlet.take`.
            destinations: Destinations (consumer names) that belong to it from the start. A destination belongs to one outlet.

        Returns:
            The outlet; add destinations with `add`.

        Raises:
            ValueError: A destination belongs to another outlet.
            Closed: The engine is closed.
            TypeError: `call` is not callable, `destinations` is one str, or a destination is no str.

        `call` is called by the thread whose call made the offer, when that call is over and has left the engine. It may call the
        engine. Its own changes are told after it has returned: no call-back is called inside another one. If several threads
        call the engine, one of them calls all back. It should only wake somebody. Its exceptions are logged.

        A message that is offered to an outlet counts as in your hands: it does not expire any more. So a message with `ttl=0`
        reaches a selector that has credit, or nobody. Limit how much is offered with `create_selector(ahead=...)`.

        Cost: O(messages that are offered to these destinations).

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     worker = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=10)
        ...     called = []
        ...     outlet = engine.outlet(lambda: called.append("there is work"), ["worker"])
        ...     ids = engine.publish_many("jobs", [("resize",), ("rotate",)])
        ...     called, [delivery.address for delivery in outlet.take(10)]
        (['there is work'], ['resize', 'rotate'])
        """
        if not callable(call):
            raise TypeError(f"call must be callable, got {type(call).__name__}")
        if isinstance(destinations, str):
            raise TypeError(f"destinations must be several texts, got one; write [{destinations!r}]")
        given = [text_of(name, "destination") for name in iterator_of(destinations, "destinations must be an iterable of texts")]
        self._check_open()
        made = Outlet(self, call)
        try:
            if given:
                made._add_all(given)
        except BaseException:
            made.close()
            raise
        return made

    def watch(self, call: Callable[[list[Change]], object]) -> Watch:
        """Be told of queues and selectors that come and go.

        Args:
            call: Called with a list of `Change(what, came, thing)`, in order: what calls have changed. A queue or
                selector that came and went at once is not mentioned.

        Returns:
            A `Watch`: call its `stop`, or use it as a context manager.

        Raises:
            Closed: The engine is closed.
            TypeError: `call` is not callable.

        It is called as the call-back of an `outlet` is: when the call is over, never inside another call-back, and what it raises
        is logged. A queue that is deleted takes its selectors along; they are told, too. The end of the engine is not told.

        >>> from xump import Engine, always, discard
        >>> with Engine() as engine:
        ...     with engine.watch(lambda changes: print([(one.what, one.came) for one in changes])):
        ...         jobs = engine.create_queue("jobs", auto_delete=True)
        ...         selector = engine.create_selector("jobs", when=always, do=discard)
        ...         gone = selector.delete()
        [('queue', True)]
        [('selector', True)]
        [('selector', False), ('queue', False)]
        """
        if not callable(call):
            raise TypeError(f"call must be callable, got {type(call).__name__}")
        self._check_open()
        made = Watch(cast("Engine", self), call)
        self._watch(made)
        return made
