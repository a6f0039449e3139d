"""Outlets: messages offered to a set of destinations, for a program that has no thread waiting for each of them."""

from collections.abc import Callable
from typing import Any, NoReturn, Self

from xump_ext.engine.delivery import Delivery

class Outlet:
    """The messages that are offered to a set of destinations, with one call-back for all. Created by `Engine.outlet`.

    >>> from xump import Engine, always, deliver
    >>> with Engine() as engine:
    ...     outlet = engine.outlet(lambda: print("there is something"), ["mail", "news"])
    ...     for name in ("mail", "news"):
    ...         queue = engine.create_queue(name)
    ...         reader = engine.create_selector(name, when=always, do=deliver(name), credit=10)
    ...         ids = engine.publish_many(name, [(f"{name} 1",), (f"{name} 2",)])
    ...     [delivery.address for delivery in outlet.take(10)]
    there is something
    ['mail 1', 'mail 2', 'news 1', 'news 2']
    """

    def __new__(cls, engine: Any, call: Callable[[], object]) -> Self: ...
    @property
    def engine(self) -> Any:
        """The Engine that it belongs to."""
    @property
    def call(self) -> Callable[[], object]:
        """The function that is called when there is something to take."""
    @property
    def destinations(self) -> tuple[str, ...]:
        """Its destinations, in the order in which they came, as a tuple."""
    def add(self, destination: str) -> bool:
        """Let a destination belong to this outlet. Messages that are offered there now are in it.

        Args:
            destination: A destination (consumer name).

        Returns:
            Whether it is new here.

        Raises:
            ValueError: It belongs to another outlet.
            TypeError: It is not a str.
            Closed: The engine is closed.

        Cost: O(messages that are offered there).
        """
    def _add_all(self, destinations: list[str]) -> int:
        """`add` several, or none: how many are new here."""
    def discard(self, destination: str) -> bool:
        """A destination does not belong to this outlet any more. Messages that are offered there stay so, and may expire again.

        Args:
            destination: A destination.

        Returns:
            Whether it belonged to this outlet.

        Raises:
            TypeError: It is not a str.
            Closed: The engine is closed.

        Cost: O(messages that are offered there).
        """
    def close(self) -> None:
        """No destination belongs to this outlet any more, and nobody is called back. Does nothing in a closed engine."""
    def take(self, n: int) -> list[Delivery]:
        """Take up to `n` deliveries: the destinations in turn, at most 16 of each; within each in the order of the offers.

        Args:
            n: The largest number of deliveries to take.

        Returns:
            A list of deliveries. If it is empty, and `n` is not 0, the outlet is quiet: the next offer calls back. Call this
            until then, or again later of your own accord.

        Raises:
            TypeError, ValueError: `n` is not an int from 0 to 2**62.
            Closed: The engine is closed.

        Cost: O(n).
        """
    def __call__(self) -> None:
        """x"""
    def __reduce__(self) -> NoReturn: ...
