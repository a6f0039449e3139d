"""Measures a topology under load: throughput, latency, memory, where messages wait, and which selector costs most.

All is measured in one engine of this process. The stores of the topology are created anew in a folder for the purpose, so no
store of yours is touched. The cost of a selector is how much less the same messages cost if the graph does not have it.
"""

from __future__ import annotations

import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from xump.engine import Engine
from xump.errors import QueueFull
from xump.workloads.shapes import Topology, entrances, in_folder
from xump.workloads.traffic import Traffic, publishing_terms

BATCH = 100
SAMPLED = 53
"""Every so many messages one is timed; no divisor of the batch, so that it has any place in it."""
LOOKS = 100
"""How often the queues are looked at during a run."""
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
SELECTORS_MEASURED = 32
SELECTOR_MESSAGES, SELECTOR_ROUNDS = 5_000, 5
MARK = "xump bench "

Progress = Callable[[int, int], None]


@dataclass
class Waiting:
    """How full a queue was."""

    queue: str
    """Its name."""
    mean: float = 0.0
    """Of all looks."""
    most: int = 0
    """Of all looks."""
    left: int = 0
    """At the end of the run."""


@dataclass
class Cost:
    """How much less the messages cost without the selector: as a share of the whole, and in nanoseconds a message."""

    selector: str
    """Its name, or its number, source and action."""
    share: float
    """Of the time of a message."""
    nanoseconds: float
    """A message that was published."""
    served: int
    """How many messages it took or copied."""


@dataclass
class Report:
    """The results of `bench`. `dataclasses.asdict` makes plain data of it."""

    topology: str
    """The name that it was given."""
    profile: str
    """One of `PROFILES`."""
    messages: int
    """How many were to be published."""
    size: int | None
    """Bytes of each body; None: of many sizes."""
    seed: int
    """The same seed gives the same messages."""
    machine: dict[str, Any] = field(default_factory=dict)
    """Processor, versions and command line."""
    seconds: float = 0.0
    """The time of the run, without the looks at the queues."""
    messages_per_second: float = 0.0
    """Messages that were published, by that time."""
    published: int = 0
    """Messages that entered."""
    refused: int = 0
    """Messages whose queue was full."""
    delivered: int = 0
    """Deliveries that were taken and acked."""
    latency_microseconds: dict[str, float] = field(default_factory=dict)
    """The time from the call of publish until the program has the delivery: percentiles, and the longest."""
    memory_bytes: int | None = None
    """How much larger the process was at its largest than before; None where the system does not tell."""
    waiting: list[Waiting] = field(default_factory=list)
    """The queues, the fullest first."""
    costs: list[Cost] = field(default_factory=list)
    """The selectors, the dearest first."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Messages that were dropped or dead-lettered, by reason."""


def bench(
    topology: Topology, messages: int, *, profile: str = "zipf", size: int | None = 100, seed: int = 0, name: str = "topology",
    folder: str | None = None, progress: Progress | None = None,
) -> Report:
    """Publish so many messages into the graph, take and ack all that it delivers, and say how it went.

    Messages go in by the queues that no selector leads to. The stores are created in `folder`, None: in a temporary one.
    """
    if messages < 1:
        raise ValueError(f"messages is {messages}, and must be at least 1")
    if not entrances(topology):
        raise ValueError("the topology has no queue: messages would have no place to go to")
    report = Report(name, profile, messages, size, seed, machine_description())
    with tempfile.TemporaryDirectory(prefix="xump-bench-", dir=folder) as place, Engine() as engine:
        engine.apply(in_folder(topology, place))
        _Run(engine, topology, report, progress).run()
    report.costs = _selector_costs(topology, report)
    return report


def machine_description() -> dict[str, Any]:
    """The circumstances, without which a figure says little."""
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), model)
    from importlib.metadata import version

    return {"cpu": model, "cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
            "xump": version("xump"), "command": sys.argv[:]}


def _in_ram(topology: Topology) -> Topology:
    """The same with all queues in RAM."""
    queues = {name: {key: value for key, value in table.items() if key != "store"}
              for name, table in topology.get("queues", {}).items()}
    return {**{key: value for key, value in topology.items() if key != "stores"}, "queues": queues}


class _Run:
    """One measured run."""

    def __init__(self, engine: Engine, topology: Topology, report: Report, progress: Progress | None) -> None:
        self.engine, self.report, self.progress = engine, report, progress
        self.topology = topology
        self.chance = random.Random(report.seed)
        self.traffic = Traffic(topology, self.chance, report.profile, report.size)
        self.doors = entrances(topology)
        self.by_priority = any("priority" in topology.get("queues", {}).get(door, {}) for door in self.doors)
        self.started: dict[str, int] = {}
        self.latencies: list[int] = []
        self.waiting = {name: Waiting(name) for name in engine.queues}
        self.looks = 0
        self.busy_seconds = 0.0     # of this thread on a processor

    def run(self) -> None:
        report, memory = self.report, _memory()
        every = max(1, report.messages // BATCH // LOOKS)
        begun, looking = time.perf_counter_ns(), 0
        busy, busy_looking = time.thread_time_ns(), 0
        for number, done in enumerate(range(0, report.messages, BATCH)):
            self._publish(min(BATCH, report.messages - done), done)
            if number % every == 0:
                before, busy_before = time.perf_counter_ns(), time.thread_time_ns()
                self._look(done)
                looking += time.perf_counter_ns() - before
                busy_looking += time.thread_time_ns() - busy_before
            self._take(2 * BATCH)
        self._take(None)
        self.engine.sync()
        report.seconds = (time.perf_counter_ns() - begun - looking) / 1e9
        self.busy_seconds = (time.thread_time_ns() - busy - busy_looking) / 1e9
        report.messages_per_second = report.published / report.seconds if report.seconds else 0.0
        after = _memory()
        report.memory_bytes = None if memory is None or after is None else after - memory
        self._conclude()

    def _publish(self, count: int, done: int) -> None:
        publish, several = self.engine.publish, len(self.doors) > 1
        terms: dict[str, Any] = {}
        for number in range(done, done + count):
            address, body, headers = next(self.traffic)
            door = self.chance.choice(self.doors) if several else self.doors[0]
            if self.by_priority:
                terms = publishing_terms(self.topology, door, self.chance)
            mark = None
            if number % SAMPLED == 0:
                mark = f"{MARK}{number}"
                self.started[mark] = time.perf_counter_ns()
            try:
                publish(door, address, body, headers, message_id=mark, **terms)
                self.report.published += 1
            except QueueFull:
                self.report.refused += 1
                self._take(BATCH)

    def _take(self, limit: int | None) -> None:
        """Up to so many. None: all; a graph that goes round for ever is left after four deliveries for each message."""
        left = 4 * self.report.published + BATCH if limit is None else limit
        while left > 0 and (taken := self.engine.take(min(BATCH, left))):
            now = time.perf_counter_ns()
            for delivery in taken:
                mark = delivery.message.message_id
                if mark is not None and mark in self.started:
                    self.latencies.append(now - self.started.pop(mark))
            self.engine.ack(taken)
            self.report.delivered += len(taken)
            left -= len(taken)

    def _look(self, done: int) -> None:
        self.looks += 1
        for name, queue in self.engine.stats()["queues"].items():
            if name in self.waiting:
                found, waiting = self.waiting[name], queue["ready"] + queue["delayed"] + queue["outstanding"]
                found.mean += waiting
                found.most = max(found.most, waiting)
        if self.progress is not None:
            self.progress(done, self.report.messages)

    def _conclude(self) -> None:
        report = self.report
        for name, queue in self.engine.stats()["queues"].items():
            if name in self.waiting:
                self.waiting[name].mean /= max(self.looks, 1)
                self.waiting[name].left = queue["ready"] + queue["delayed"] + queue["outstanding"]
            for reason, count in (*queue["dropped"].items(), *queue["dead_lettered"].items()):
                report.dropped[reason] = report.dropped.get(reason, 0) + count
        report.waiting = sorted(self.waiting.values(), key=lambda one: (-one.mean, one.queue))
        if self.latencies:
            ordered = sorted(self.latencies)
            at = {f"p{share:g}": ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))] for share in PERCENTILES}
            report.latency_microseconds = {name: value / 1_000 for name, value in {**at, "max": ordered[-1]}.items()}


def _selector_costs(topology: Topology, report: Report) -> list[Cost]:
    """The dearest first. The graphs take turns, in RAM; of each the round counts that the processor was through with first, which
    is the least disturbed one."""
    plain, count = _in_ram(topology), min(SELECTOR_MESSAGES, report.messages)
    selectors = plain.get("selectors", [])
    served = _served(plain, report, count)
    measured = sorted(range(len(selectors)), key=lambda number: -served[number])[:SELECTORS_MEASURED]
    graphs = {None: plain} | {
        number: {**plain, "selectors": selectors[:number] + selectors[number + 1:]} for number in measured}
    took = dict.fromkeys(graphs, float("inf"))
    for _ in range(SELECTOR_ROUNDS):
        for number, graph in graphs.items():
            took[number] = min(took[number], _seconds(graph, plain, report, count))
    whole = took[None]
    costs = [Cost(selector_name(selectors[number], number), (whole - took[number]) / whole, (whole - took[number]) / count * 1e9,
                  served[number]) for number in measured]
    return sorted(costs, key=lambda cost: -cost.share)


def _served(topology: Topology, report: Report, count: int) -> list[int]:
    small = Report(report.topology, report.profile, count, report.size, report.seed)
    with Engine() as engine:
        engine.apply(topology)
        _Run(engine, topology, small, None).run()
        found = [selector["served"] + selector["copied"] for selector in engine.stats()["selectors"].values()]
    return found[:len(topology.get("selectors", []))]


def _seconds(graph: Topology, whole: Topology, report: Report, count: int) -> float:
    """The processor's time for the same messages at the same doors: what else the machine does is not in it."""
    small = Report(report.topology, report.profile, count, report.size, report.seed)
    with Engine() as engine:
        engine.apply(graph)
        run = _Run(engine, whole, small, None)
        run.run()
    return run.busy_seconds


def selector_name(selector: Mapping[str, Any], number: int) -> str:
    """Its name, or its number and what it does."""
    if selector.get("name"):
        return str(selector["name"])
    do = selector["do"]
    said = do if isinstance(do, str) else " ".join(f"{verb} {_target(target)}" for verb, target in do.items())
    return f"{number + 1}: {selector['source']}, {said}"


def _target(target: Any) -> str:
    return f"field {target['field']}" if isinstance(target, Mapping) else str(target)


def _memory() -> int | None:
    """The most memory that the process has had."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1_024)
