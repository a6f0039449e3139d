"""Selectors: a condition and an action on a queue. `SelectorHandle` in the core has their properties, this file their calls."""

from __future__ import annotations

from xump._arguments import check_int
from xump_ext.engine.handles import SelectorHandle
from xump_ext.infinite import INFINITE
from xump_ext.memory.own_methods import own_methods


class Selector(SelectorHandle):
    """A selector (a binding or subscription) of a queue: a condition and an action. Created by `Engine.create_selector`.

    A selector is equal to its id, so either can stand for the other, as a key of `Engine.selectors` too. Properties and counts
    cost O(1). Once the selector is deleted, its calls and counts raise `SelectorNotFound`.

    >>> from xump import Engine, always, deliver
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     worker = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=10)
    ...     number = jobs.publish("resize")
    ...     worker.credit, worker.available, worker.outstanding
    (10, 9, 1)
    """

    def grant(self, n: int) -> None:
        """Widen the credit (prefetch window) by `n` messages, or narrow it if `n` is negative. Acks nothing.

        Args:
            n: The number of credits to add. A negative number must leave at least as many as there are messages outstanding.

        Raises:
            ValueError: The window would be smaller than the number of outstanding messages, or larger than 2**62; or the credit
                is `INFINITE`.
            SelectorNotFound: The selector was deleted.
            TypeError: `n` is not an int.

        If it raises, nothing has changed.

        Cost: O(1), and the run that follows.

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     worker = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=0)
        ...     number = jobs.publish("resize")
        ...     worker.grant(1)
        ...     worker.credit, len(engine.take(10, "worker"))
        (1, 1)
        """
        if type(n) is not int:
            check_int("n", n, "a number of credits")
        self.engine._grant(self, n)

    def pay(self, n: int = 1) -> None:
        """Ack the `n` messages that your program took first from this selector and has not answered.

        Args:
            n: The number of messages.

        Raises:
            ValueError: Your program has fewer messages of this selector in its hands, the selector does not deliver to your
                program, or its credit is `INFINITE`; or `n` is negative.
            SelectorNotFound: The selector was deleted.
            TypeError: `n` is not an int.

        If it raises, nothing has changed. Each ack makes one credit available again. The credits of a selector with `move_to` or
        `bounce_to` come back when the messages are settled downstream.

        Cost: O(n), and the run that follows.

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     worker = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=10)
        ...     ids = engine.publish_many("jobs", [("resize",), ("rotate",)])
        ...     taken = engine.take(2, "worker")
        ...     worker.pay(2)
        ...     jobs.outstanding
        0
        """
        if type(n) is not int:
            check_int("n", n, "a number of messages")
        if n < 0:
            raise ValueError(f"n must not be negative, got {n}")
        if n and (self.do.verb != "deliver" or self.do.queue is not None):
            raise ValueError(f"selector {self.id} has do={self.do!r}; pay() is for selectors that deliver to your program")
        if n and self.credit is INFINITE:
            raise ValueError(f"selector {self.id} has INFINITE credit; its deliveries are settled when they are taken")
        self.engine._pay(self, n)

    def enable(self) -> None:
        """Let the selector copy and take messages. Enabling an enabled selector does nothing.

        Raises:
            Conflict: The condition is `default` or `overflow`, and the queue has another enabled selector with it.
            QueueFull: The selector replays when it is first enabled, and its target has no room for that.
            SelectorNotFound: The selector was deleted.

        If it raises, nothing has changed. Cost: that of the run which follows.
        """
        self.engine._enable(self, True)

    def disable(self) -> None:
        """Stop the selector: it copies and takes nothing more. Disabling a disabled selector does nothing.

        Raises:
            SelectorNotFound: The selector was deleted.

        Messages that the selector has taken stay outstanding. New messages that match it wait, unless another selector takes
        them. Cost: O(1).

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     worker = engine.create_selector("jobs", when=always, do=deliver("worker"))
        ...     worker.disable()
        ...     number = jobs.publish("resize")
        ...     taken = len(engine.take(1))
        ...     worker.enable()
        ...     taken, len(engine.take(1))
        (0, 1)
        """
        self.engine._enable(self, False)

    def delete(self, *, recall: bool = True) -> bool:
        """Delete this selector, as `Engine.delete_selector` does: the messages that it has taken return to their queue.

        Args:
            recall: False: only what it has offered returns; what your program has taken stays valid.

        Returns:
            Whether it existed still.

        Cost: O(messages that return), and the run that follows.
        """
        return self.engine.delete_selector(self, recall=recall)


own_methods(Selector)
