"""Ready-made topologies: three ways in which a message finds its recipients, a few lines each over the engine's API.

    Housecat    to the one it is addressed to     a COPY for each recipient of that address
    Parrot      to all who asked for its topic    a COPY for each recipient whose pattern matches
    Wolfpack    to one of many, in turn           a MOVE to the next recipient that has credit

Each is one queue for routing. Who joins gets a private queue, named after the recipient, which deletes itself with its last
selector, and two selectors: one supplies it, the other delivers from it, under the recipient's name. The queue for
routing is made if it is not there: make it beforehand for one that is durable or limited, or has a dead letter. What else
a recipient should get is one more selector into its queue.

>>> from xump import Engine, copy_to, match
>>> with Engine() as engine:
...     parrot = Parrot(engine, "news")
...     polly = parrot.join("polly", "sports.#", credit=10)
...     weather = engine.create_selector("news", when=match("eq", "weather"), do=copy_to(polly.queue))
...     numbers = [parrot.queue.publish(address) for address in ("sports.chess", "politics", "weather")]
...     for delivery in polly.deliveries():
...         with delivery as message:
...             print(message.address)
sports.chess
weather
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xump._names import name_of, text_of
from xump.actions import Action, copy_to, deliver, move_to
from xump.conditions import Condition, always, match
from xump.errors import Conflict
from xump_ext.infinite import INFINITE, Infinite

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.selector import Selector
    from xump_ext.engine.delivery import DeliveryIterator

CREDIT_MAX = 2**62
"""The widest window that an engine allows."""


class Recipient:
    """One that has joined: its private `queue`, the selectors `supply` and `outlet` at its ends. Made by `join`."""

    def __init__(self, name: str, supply: Selector, outlet: Selector) -> None:
        self.name = name
        self.queue: Queue = outlet.source
        self.supply = supply
        self.outlet = outlet

    @property
    def destination(self) -> str:
        """What its deliveries are named: the recipient's own name."""
        return self.name

    def deliveries(self, *, timeout: float | None = 0.0) -> DeliveryIterator:
        """`Engine.deliveries` of this recipient."""
        engine: Engine = self.queue.engine
        return engine.deliveries(self.name, timeout=timeout)

    def leave(self) -> None:
        """Delete the private queue, and every selector into it and out of it. Idempotent.

        Copies go with the queue. What a wolf has not settled returns to the pack, to its old place, marked redelivered.
        Deliveries that the application still holds become stale. Costs what
        goes and what returns, whoever else has joined.
        """
        self.queue.engine.delete_queue(self.queue)

    def __repr__(self) -> str:
        return f"<Recipient {self.name!r} of {self.supply.source.name!r}>"


class _Topology:
    """A queue for routing that recipients join."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.queue: Queue = engine.queues[name] if name in engine.queues else engine.create_queue(name)

    @property
    def name(self) -> str:
        """The name of the queue for routing: publish into that."""
        return self.queue.name

    def _join(self, recipient: str, when: Condition, do: Action, supply: int | Infinite, outlet: int | Infinite) -> Recipient:
        engine, recipient = self.engine, name_of(recipient, "recipient")
        with engine.building(), engine._build_lock:
            if recipient in engine.queues:
                raise Conflict(f"{recipient!r} cannot join {self.name!r}: there is a queue of that name already")
            queue = engine.create_queue(recipient, auto_delete=True)
            try:
                return Recipient(
                    recipient,
                    engine.create_selector(self.queue, when=when, do=do, credit=supply),
                    engine.create_selector(queue, when=always, do=deliver(recipient), credit=outlet),
                )
            except BaseException:
                engine.delete_queue(queue)
                raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Housecat(_Topology):
    """Messages go to the recipient that they are addressed to; several recipients may share an address, and each gets a copy."""

    def join(self, recipient: str, address: str | None = None, *, credit: int | Infinite = 1) -> Recipient:
        """A recipient of what is addressed to `address`: its own name if None.

        `credit` is how many deliveries it may hold unacked, or INFINITE. Raises `Conflict` if there is a queue of that name
        (perhaps it has joined already), ValueError and TypeError for arguments; then nothing changed.
        """
        when = match("eq", name_of(recipient, "recipient") if address is None else text_of(address, "address"))
        return self._join(recipient, when, copy_to(recipient), credit, credit)


class Parrot(_Topology):
    """Messages go to every recipient whose pattern matches their address."""

    def join(self, recipient: str, pattern: str, *, credit: int | Infinite = 1) -> Recipient:
        """A recipient of all topics that match `pattern`: words split by ".", "*" is one word, "#" any number of words.

        `credit` and errors as in `Housecat.join`; `InvalidPattern` for a pattern.
        """
        recipient = name_of(recipient, "recipient")
        return self._join(recipient, match("topic", pattern), copy_to(recipient), credit, credit)


class Wolfpack(_Topology):
    """Each message goes to one recipient, in turn among those that have credit; while none has, it waits in the pack's queue."""

    def join(self, recipient: str, *, credit: int | Infinite = 1) -> Recipient:
        """A recipient that shares the work. `credit`, how much of it it may have at a time, and errors as in `Housecat.join`.

        Both selectors get that credit. With INFINITE all goes to the recipients at once, in turn, and taking a delivery settles
        it: then `outlet.credit` is INFINITE, `supply.credit` the widest finite window, 2**62, so that what a recipient has not
        taken returns to the pack when it leaves.
        """
        # A finite window, however wide, leaves the message with the pack until a wolf has settled it: that is what comes back.
        recipient = name_of(recipient, "recipient")
        supply = CREDIT_MAX if credit is INFINITE else credit
        return self._join(recipient, always, move_to(recipient), supply, credit)
