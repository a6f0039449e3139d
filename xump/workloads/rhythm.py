"""The order of calls: a workload is a topology, a profile of messages, and steps that come again until all is published.

The steps are shares of a round, and say nothing of how many messages there are. So one workload can be played with a hundred
messages and with a million, and what it costs at both can be compared.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from xump.actions import copy_to, deliver
from xump.conditions import always
from xump.errors import QueueFull, QueueNotFound
from xump.workloads.shapes import Chance, Topology, drawn_topology, entrances, in_folder
from xump.workloads.traffic import PROFILES, Content, Traffic, publishing_terms

if TYPE_CHECKING:
    from xump.engine import Engine

VERBS = (
    "publish", "publish many", "publish later", "ack", "nack", "reject", "grant", "switch", "join and leave", "take and hold")
BATCH = 100


class Step(NamedTuple):
    """One step of a round."""

    verb: str
    """One of `VERBS`."""
    share: float
    """How many messages, as a share of those of the round; of grants, how much wider the window is for a while."""


class Workload(NamedTuple):
    """The steps that `play` carries out."""

    topology: Topology
    """The graph, as a dict for `Engine.apply`."""
    profile: str
    """One of `PROFILES`."""
    steps: tuple[Step, ...]
    """The steps of a round."""
    rounds: int
    """How often the steps come; few rounds make deep queues."""
    seed: int
    """Of the messages, and of what is left to chance in the steps."""
    size: int | None = None
    """Bytes of each body; None: of many sizes."""


class Played(NamedTuple):
    """The result."""

    published: int
    """Messages that entered a queue by a call of `publish`."""
    refused: int
    """Publishes that found their queue full."""
    delivered: int
    """Messages that were taken, redeliveries among them."""


def drawn_steps(chance: Chance) -> tuple[Step, ...]:
    """A round: it begins with publishing; what else it has comes in any order."""
    first = Step(chance.choice(("publish", "publish", "publish many")), 1.0)
    rest = [Step(chance.choice(VERBS), chance.choice((0.1, 0.5, 1.0))) for _ in range(chance.randint(1, 5))]
    return (first, *rest)


def drawn_workload(
    chance: Chance, shape: str | None = None, profile: str | None = None, stores: Sequence[str] = (),
) -> Workload:
    """A workload over a topology of that shape, with messages of that profile; None: of any.

    Queues are in RAM, and in stores of these types; then tell `play` in which folder.
    """
    return Workload(
        drawn_topology(chance, shape, stores=stores), profile or chance.choice(PROFILES), drawn_steps(chance),
        chance.choice((1, 1, 2, 5)), chance.randint(0, 9_999))


def play(
    engine: Engine, workload: Workload, messages: int, *, has_topology: bool = False, folder: str | None = None,
) -> Played:
    """Build the graph, unless the engine has it, and go round until so many messages were published. Then take what is left.

    Stores of the graph are made in `folder`; None: in the current one.

    Afterwards the engine is quiet; what waits has no selector that may take it, or a delay.
    """
    if not has_topology:
        engine.apply(workload.topology if folder is None else in_folder(workload.topology, folder))
    player = _Player(engine, workload, messages)
    left = messages
    for number in range(workload.rounds, 0, -1):
        player.round(share := left // number)
        left -= share
    player.drain()
    return Played(player.published, player.refused, player.delivered)


class _Player:
    """Carries out steps. A step that changes the graph changes it back at its end."""

    def __init__(self, engine: Engine, workload: Workload, messages: int) -> None:
        self.engine = engine
        self.steps = workload.steps
        self.chance = random.Random(workload.seed)
        self.choices = random.Random(workload.seed + 1)     # of steps: the same, however many messages there are
        self.traffic = Traffic(workload.topology, self.chance, workload.profile, workload.size, messages)
        self.topology = workload.topology
        self.doors = [name for name in entrances(workload.topology) if name in engine.queues]
        self.published = self.refused = self.delivered = 0

    def round(self, messages: int) -> None:
        shares = sum(step.share for step in self.steps if step.verb.startswith("publish"))
        left = messages
        for step in self.steps:
            wanted = int(messages * step.share)
            if step.verb.startswith("publish"):
                wanted = min(left, int(messages * step.share / shares))
                left -= wanted
            getattr(self, "_" + step.verb.replace(" ", "_"))(wanted)
        self._publish(left)

    def drain(self) -> None:
        """Take and ack until nothing more comes, or until a cycle has brought each message often enough."""
        before = -1
        limit = self.delivered + 4 * self.published + BATCH
        while before < self.delivered < limit:
            before = self.delivered
            self._ack(BATCH)

    # ---- one method for each verb

    def _publish(self, count: int, delay: float | None = None) -> None:
        for address, body, headers in self._contents(count):
            door = self.chance.choice(self.doors)
            terms = publishing_terms(self.topology, door, self.chance)
            try:
                if delay is None:
                    self.engine.publish(door, address, body, headers, **terms)
                else:
                    self.engine.publish(door, address, body, headers, delay=delay, **terms)
                self.published += 1
            except QueueFull:
                self.refused += 1
                self._ack(1)

    def _publish_many(self, count: int) -> None:
        """In several batches, by all doors in turn: a door that refuses a batch is not all that there is."""
        size = max(1, min(BATCH, count // 16))
        for number, at in enumerate(range(0, count, size)):
            batch = self._contents(min(size, count - at))
            try:
                self.published += len(self.engine.publish_many(self.doors[number % len(self.doors)], batch))
            except QueueFull:
                self.refused += len(batch)
                self._ack(BATCH)

    def _publish_later(self, count: int) -> None:
        self._publish(count, delay=1e-9)       # due at the next moment

    def _contents(self, count: int) -> list[Content]:
        return [next(self.traffic) for _ in range(count if self.doors else 0)]

    def _ack(self, count: int) -> None:
        while count > 0 and (taken := self.engine.take(min(count, BATCH))):
            self.engine.ack(taken)
            self.delivered += len(taken)
            count -= len(taken)

    def _nack(self, count: int) -> None:
        """Each once: what comes back is taken again at once, so a batch is taken whole before it is given back."""
        while count > 0 and (taken := self.engine.take(min(count, BATCH))):
            for delivery in taken:
                delivery.nack()
            self.delivered += len(taken)
            count -= len(taken)

    def _reject(self, count: int) -> None:
        while count > 0 and (taken := self.engine.take(min(count, BATCH))):
            for delivery in taken:
                delivery.reject("drawn")
            self.delivered += len(taken)
            count -= len(taken)

    def _take_and_hold(self, count: int) -> None:
        """All that there is credit for, up to so many; then acked, the newest first."""
        taken = self.engine.take(count)
        self.delivered += len(taken)
        for delivery in reversed(taken):
            delivery.ack()

    def _grant(self, count: int) -> None:
        finite = [selector for selector in self.engine.selectors.values() if isinstance(selector.credit, int) and selector.credit]
        if finite and count:
            selector = self.choices.choice(finite)
            selector.grant(count)
            self._ack(count)
            if isinstance(selector.available, int):
                selector.grant(-min(count, selector.available))

    def _switch(self, count: int) -> None:
        """Disable a selector, publish past it, enable it."""
        if self.engine.selectors:
            selector = self.choices.choice(list(self.engine.selectors.values()))
            was_enabled = selector.enabled
            selector.disable()
            self._ack(count)
            if was_enabled:
                selector.enable()

    def _join_and_leave(self, count: int) -> None:
        """A recipient with a queue of its own, which replays what is there, and goes."""
        if not self.doors:
            return
        try:
            queue = self.engine.create_queue(limit=None, auto_delete=True)
            outlet = self.engine.create_selector(queue.name, when=always, do=deliver("joined"), credit=10)
            self.engine.create_selector(self.choices.choice(self.doors), when=always, do=copy_to(queue.name), start="head")
        except (QueueFull, QueueNotFound):
            return
        self._ack(count)
        outlet.delete()
