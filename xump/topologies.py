"""Ready-made topologies: three ways to route messages to recipients, a few lines each over the engine's API.

    Housecat    to the recipient it is addressed to          a COPY for each recipient with that address
    Parrot      to all recipients that asked for its topic   a COPY for each recipient whose pattern matches
    Wolfpack    to one of the recipients, in turn            a MOVE to the next recipient that has credit

Each has one queue that you publish into. A recipient that joins gets a private queue, named after it, and two selectors: one puts
messages into the private queue, the other delivers from it under the recipient's name. The private queue deletes itself with its
last selector. The queue that you publish into is created if it does not exist; create it yourself first if it should be durable,
limited, or have a dead letter queue. To give a recipient more messages, create another selector into its queue.

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

from xump._arguments import check_credit
from xump._names import name_of, text_of
from xump.actions import Action, copy_to, deliver, move_to
from xump.conditions import Condition, always, match
from xump.credit import CREDIT_MAX, INFINITE
from xump.errors import Conflict
from xump_ext.engine.building_block import GraphChange

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.selector import Selector
    from xump.types import Credit
    from xump_ext.engine.taking import DeliveryIterator


class Recipient:
    """A consumer that has joined a topology: it has a private queue and two selectors. Created by `join`.

    >>> from xump import Engine, Housecat
    >>> with Engine() as engine:
    ...     alice = Housecat(engine, "mail").join("alice")
    ...     number = engine.publish("mail", "alice", b"hello")
    ...     [delivery.message.body for delivery in alice.deliveries()]
    [b'hello']
    """

    def __init__(self, name: str, supply: Selector, outlet: Selector) -> None:
        self.name = name
        """The recipient's name, which is the name of its queue and of its destination too."""
        self.queue: Queue = outlet.source
        """The private queue, which `supply` fills and `outlet` delivers from."""
        self.supply = supply
        """The selector that puts messages into the private queue."""
        self.outlet = outlet
        """The selector that delivers from the private queue to your program."""

    @property
    def destination(self) -> str:
        """The destination (consumer name) of its deliveries: the recipient's own name."""
        return self.name

    def deliveries(self, *, timeout: float | None = 0.0) -> DeliveryIterator:
        """Iterate over the deliveries to this recipient, as `Engine.deliveries` does.

        Args:
            timeout: The iteration ends when there has been no delivery for this many seconds; None: never.

        Returns:
            An iterator of `Delivery` objects.

        Raises:
            Closed: The engine is closed.
            TypeError, ValueError: `timeout` is wrong.

        Cost: O(1) a delivery.
        """
        engine: Engine = self.queue.engine
        return engine.deliveries(self.name, timeout=timeout)

    def leave(self) -> None:
        """Delete the private queue, and every selector into it and out of it. Leaving twice does nothing more.

        Copies (Housecat, Parrot) are deleted with the queue. Work that a wolf (a recipient of a Wolfpack) has not acked returns
        to the pack, to its old place, marked as redelivered. Deliveries that your program still holds become stale.

        Cost: O(messages and selectors that go or return), however many others have joined.
        """
        self.queue.engine.delete_queue(self.queue)

    def __repr__(self) -> str:
        return f"<Recipient {self.name!r} of {self.supply.source.name!r}>"


class _Topology:
    """A queue to publish into, and recipients that join it."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        """The engine that the topology belongs to."""
        self.queue: Queue = (
            engine.create_queue(name) if isinstance(name, str) and name not in engine.queues else engine._queue(name, "queue"))
        """The queue that you publish into."""

    @property
    def name(self) -> str:
        """The name of the queue that you publish into."""
        return self.queue.name

    def _join(self, recipient: str, when: Condition, do: Action, supply: Credit, outlet: Credit) -> Recipient:
        engine, recipient = self.engine, name_of(recipient, "recipient")
        check_credit(supply)
        engine._check_open()
        engine._queue(self.queue, "queue")
        with GraphChange(engine) as change, engine._graph_lock:
            change.begin()
            if recipient in engine._queues:
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
    """Mailboxes: a message is copied to the recipients with its address. `Engine.request` asks one, and waits for its reply.

    Args:
        engine: The engine.
        name: The name of the queue that you publish into; it is created if it does not exist.

    A message to an address without a recipient goes to the queue's dead letter queue, else it is dropped and counted.

    >>> import threading
    >>> from xump import Engine, Housecat
    >>> with Engine() as engine:
    ...     mail = Housecat(engine, "mail")
    ...     bob = mail.join("bob")
    ...     def answer():
    ...         for delivery in bob.deliveries(timeout=10):
    ...             with delivery:
    ...                 delivery.reply(b"Yes")
    ...             return
    ...     thread = threading.Thread(target=answer)
    ...     thread.start()
    ...     engine.request("mail", "bob", b"Can you come?").body
    ...     thread.join()
    b'Yes'
    """

    def join(self, recipient: str, address: str | None = None, *, credit: Credit = 1) -> Recipient:
        """Add a recipient of the messages with an address. Several recipients may share one; each gets a copy.

        Args:
            recipient: The recipient's name, which its queue and its destination get.
            address: The address; None: the recipient's name.
            credit: The prefetch window: how many unacked deliveries it may hold, or `INFINITE`.

        Returns:
            The recipient.

        Raises:
            Conflict: There is a queue of that name; perhaps the recipient has joined already.
            TypeError, ValueError: An argument is wrong.

        If it raises, nothing has changed. Cost: O(1), and the run that follows.
        """
        when = match("eq", name_of(recipient, "recipient") if address is None else text_of(address, "address"))
        return self._join(recipient, when, copy_to(recipient), credit, credit)


class Parrot(_Topology):
    """Publish and subscribe: a message is copied to every recipient whose pattern matches its address.

    Args:
        engine: The engine.
        name: The name of the queue that you publish into; it is created if it does not exist.

    >>> from xump import Engine, Parrot
    >>> with Engine() as engine:
    ...     news = Parrot(engine, "news")
    ...     alice, bob = news.join("alice", "sport.#"), news.join("bob", "sport.chess")
    ...     number = engine.publish("news", "sport.chess")
    ...     [len(list(reader.deliveries())) for reader in (alice, bob)]
    [1, 1]
    """

    def join(self, recipient: str, pattern: str, *, credit: Credit = 1) -> Recipient:
        """Add a recipient of the messages whose address matches a topic pattern.

        Args:
            recipient: The recipient's name, which its queue and its destination get.
            pattern: Words separated by `.`: `*` is one word, `#` any number of words, also none.
            credit: The prefetch window: how many unacked deliveries it may hold, or `INFINITE`.

        Returns:
            The recipient.

        Raises:
            Conflict: There is a queue of that name; perhaps the recipient has joined already.
            InvalidPattern: The pattern is wrong; has the `position`.
            TypeError, ValueError: An argument is wrong.

        If it raises, nothing has changed. Cost: O(length of the pattern), and the run that follows.
        """
        recipient = name_of(recipient, "recipient")
        return self._join(recipient, match("topic", pattern), copy_to(recipient), credit, credit)


class Wolfpack(_Topology):
    """A work queue: a message is moved to one recipient, round robin among those that have credit.

    Args:
        engine: The engine.
        name: The name of the queue that you publish into; it is created if it does not exist.

    While no recipient has credit, messages wait in that queue.

    >>> from xump import Engine, Wolfpack
    >>> with Engine() as engine:
    ...     pack = Wolfpack(engine, "jobs")
    ...     grey, white = pack.join("grey", credit=5), pack.join("white", credit=5)
    ...     ids = engine.publish_many("jobs", [("job 0",), ("job 1",), ("job 2",)])
    ...     [[delivery.message.address for delivery in wolf.deliveries()] for wolf in (grey, white)]
    [['job 0', 'job 2'], ['job 1']]
    """

    def join(self, recipient: str, *, credit: Credit = 1) -> Recipient:
        """Add a recipient that shares the work.

        Args:
            recipient: The recipient's name, which its queue and its destination get.
            credit: The prefetch window: how much unacked work it may hold, or `INFINITE`. Both of its selectors get it.

        Returns:
            The recipient.

        Raises:
            Conflict: There is a queue of that name; perhaps the recipient has joined already.
            TypeError, ValueError: An argument is wrong.

        If it raises, nothing has changed. With `INFINITE` all work goes to the recipients at once, in turn, and is settled when
        your program takes the delivery. Then `outlet.credit` is INFINITE, and `supply.credit` is the widest finite window,
        2**62, so that work which was not taken returns to the pack when the recipient leaves.

        Cost: O(1), and the run that follows.
        """
        # A finite window, however wide, leaves the message outstanding in the pack until it is settled, so that it can return.
        recipient = name_of(recipient, "recipient")
        supply = CREDIT_MAX if credit is INFINITE else credit
        return self._join(recipient, always, move_to(recipient), supply, credit)
