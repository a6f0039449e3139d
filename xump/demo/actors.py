"""The actors of the demo: workers that parse flights, listeners that count them, a clerk that answers a reporter."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from xump import Delivery, Engine, StaleDelivery
from xump.demo.flights import parse
from xump.topologies import Recipient

CREDIT = 64
"""Messages that a consumer may hold unacked."""

NACK_EVERY = 500
"""How often the clumsy worker gives a message back."""

Row = tuple[str, int]
"""Airline, and delay in minutes."""


class Actor(Protocol):
    """Works when there is work."""

    def work(self) -> int:
        """Takes up to a batch of deliveries; returns how many there were."""


@dataclass
class Delays:
    """How many flights of one airline arrived, and the sum of their delays in minutes."""

    flights: int = 0
    minutes: int = 0

    @property
    def mean(self) -> float:
        return self.minutes / self.flights if self.flights else 0.0


@dataclass
class Departed:
    """A recipient that left: the last counters of its queue and of its selectors, by name and by number."""

    recipient: Recipient
    queue: dict[str, Any]
    selectors: dict[int, dict[str, Any]]


def depart(recipient: Recipient) -> Departed:
    """Makes a recipient leave. The messages in its queue are deleted there, those outstanding at its selectors return; the other
    counts stay."""
    queue = recipient.queue.counters()
    selectors = {selector.id: selector.counters() for selector in (recipient.supply, recipient.outlet)}
    recipient.leave()
    queue |= {"deleted": queue["deleted"] + queue["ready"] + queue["outstanding"], "ready": 0, "outstanding": 0}
    for counts in selectors.values():
        counts |= {"returned": counts["returned"] + counts["outstanding"], "outstanding": 0}
    return Departed(recipient, queue, selectors)


class Worker:
    """One of the pack: takes as much as its credit allows, parses, acks all at once, and counts only acked messages."""

    def __init__(self, engine: Engine, pack: Any, name: str, *, clumsy: bool = False) -> None:
        self.engine, self.name, self.clumsy = engine, name, clumsy
        self.recipient = pack.join(name, credit=CREDIT)
        self.table: dict[str, Delays] = {}
        self.taken = self.acked = self.nacked = self.rejected = self.stale = 0
        self.departed: Departed | None = None
        self.hears: Callable[[list[Delivery]], None] | None = None
        """Called with deliveries before the worker touches them."""

    def work(self) -> int:
        done, rows = [], []
        deliveries = [] if self.departed else self.take()
        for delivery in deliveries:
            if self.clumsy and delivery.delivery_count == 1 and self.acked >= NACK_EVERY * (self.nacked + 1):
                self.nacked += 1
                delivery.nack()                 # it comes again, marked as redelivered
                continue
            carrier, delay = parse(delivery.message.body)
            if delay is None:
                self.rejected += 1
                delivery.reject("did not arrive at its destination")
            else:
                done.append(delivery)
                rows.append((carrier, delay))
        self.settle(done, rows)
        self.acked += len(done)
        for carrier, delay in rows:
            self.note(carrier, delay)
        return len(deliveries)

    def take(self) -> list[Delivery]:
        deliveries = self.engine.take(CREDIT, self.name)
        self.taken += len(deliveries)
        if deliveries and self.hears is not None:
            self.hears(deliveries)
        return deliveries

    def settle(self, done: list[Delivery], rows: list[Row]) -> None:
        """Acks the parsed deliveries; `rows` are their results."""
        self.engine.ack(done)

    def note(self, carrier: str, delay: int) -> None:
        delays = self.table.setdefault(carrier, Delays())
        delays.flights += 1
        delays.minutes += delay

    def leave_with_hands_full(self) -> None:
        """Leaves while it holds messages. They go back to the pack, and other workers parse them; the late acks change
        nothing."""
        held = self.take()
        self.departed = depart(self.recipient)
        for delivery in held:
            try:
                delivery.ack()
            except StaleDelivery:
                self.stale += 1


class Listener:
    """A subscriber: counts its deliveries by the last word of their address, the airport."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine, self.name = engine, name
        self.heard: dict[str, int] = {}

    def work(self) -> int:
        deliveries = self.engine.take(CREDIT, self.name)
        for delivery in deliveries:
            self.note(delivery.message.address.rpartition(".")[2])
        self.settle(deliveries)
        return len(deliveries)

    def settle(self, deliveries: list[Delivery]) -> None:
        self.engine.ack(deliveries)

    def note(self, airport: str) -> None:
        self.heard[airport] = self.heard.get(airport, 0) + 1


class Clerk:
    """Answers requests for an airline with the present results of the workers."""

    def __init__(self, engine: Engine, tables: Callable[[], dict[str, Delays]]) -> None:
        self.engine, self.tables = engine, tables

    def work(self) -> int:
        requests = self.engine.take(CREDIT, "clerk")
        for request in requests:
            with request as message:
                delays = self.tables().get(message.body.decode(), Delays())
                answer = json.dumps({"flights": delays.flights, "mean": delays.mean}).encode()
                if message.reply_to:
                    self.engine.publish("desk", message.reply_to, answer, message_id=message.message_id)
        return len(requests)


class Reporter:
    """Asks the clerk, and writes to a manager that does not exist."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.answers: dict[str, dict[str, Any]] = {}
        self.returned: list[str] = []

    def ask(self, carrier: str) -> None:
        self.engine.publish("desk", "clerk", carrier.encode(), reply_to="reporter", message_id=carrier)

    def complain(self) -> None:
        self.engine.publish("desk", "manager", b"Why are they always late?", reply_to="reporter")

    def work(self) -> int:
        letters = self.engine.take(CREDIT, "reporter")
        for letter in letters:
            with letter as message:
                if "xump_reason" in message.headers:
                    self.returned.append(str(message.headers["xump_original_address"]))
                else:
                    self.answers[str(message.message_id)] = json.loads(message.body)
        return len(letters)


def merge(workers: Sequence[Worker]) -> dict[str, Delays]:
    """The results of all workers, put together."""
    whole: dict[str, Delays] = {}
    for worker in workers:
        for carrier, delays in worker.table.items():
            sum_ = whole.setdefault(carrier, Delays())
            sum_.flights += delays.flights
            sum_.minutes += delays.minutes
    return dict(sorted(whole.items()))
