"""What drawn workloads cost, counted in basic blocks: a law over the number of messages, and the search for the dearest.

    python -m tests.builds.workload_costs law              play workloads at several sizes; the first that breaks the law is shown
    python -m tests.builds.workload_costs law --planted    the same with an engine that looks at its backlog at each publish
    python -m tests.builds.workload_costs worst 500        look for the dearest message among so many workloads

The law: twice as many messages cost about twice as much, whatever the graph, the messages and the order of calls. The order of
growth is that of the largest size beside the others: 1 is linear, 2 quadratic; a logarithm adds little.
"""

import math
import statistics
import sys
import time

from hypothesis import HealthCheck, Phase, given, settings, target

import xump
from tests.builds.costs import counted, counter
from xump.workloads import play
from xump.workloads.strategies import workloads

SIZES = (100, 400, 1_600)
ORDER_MAX = 1.3
EXAMPLES = 80
MESSAGES = 200
"""In the search for the worst."""


class Planted:
    """An engine with a defect: a publish looks at all that waits in the queue."""

    def __init__(self, engine):
        self.engine = engine

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def publish(self, queue, *arguments, **terms):
        for _ in self.engine.queues[queue].browse():
            pass
        return self.engine.publish(queue, *arguments, **terms)


def unchanged(engine):
    return engine


def blocks_of(workload, messages, wrapped=unchanged):
    """What so many messages cost in all; the clock stands at the number of calls that read it."""
    moments = iter(range(1, sys.maxsize))
    blocks = counter()
    with xump.Engine(clock=lambda: next(moments)) as engine:
        engine.apply(workload.topology)
        before = blocks.value
        play(wrapped(engine), workload, messages, has_topology=True)
        return blocks.value - before


def order(costs):
    """The power by which the cost grows at the end, beside the dearest message before: 1 where that is not exceeded."""
    *before, last = (cost / size for cost, size in zip(costs, SIZES, strict=True))
    return 1 + math.log(last / max(before)) / math.log(SIZES[-1] / SIZES[-2])


def options(examples, *phases):
    return settings(max_examples=examples, phases=phases, derandomize=True, database=None, deadline=None, print_blob=False,
                    suppress_health_check=list(HealthCheck))


def law(wrapped=None):
    """Raises for the smallest workload that breaks it; of the planted defect for the first, which takes less time."""
    orders = []
    phases = [Phase.generate, Phase.shrink] if wrapped is None else [Phase.generate]

    @options(EXAMPLES, *phases)
    @given(workloads())
    def holds(workload):
        costs = [blocks_of(workload, size, wrapped or unchanged) for size in SIZES]
        orders.append(order(costs))
        each = ", ".join(f"{cost / size:,.0f} at {size:,}" for cost, size in zip(costs, SIZES, strict=True))
        assert orders[-1] <= ORDER_MAX, f"order {orders[-1]:.2f}; blocks a message: {each}; {workload}"

    holds()
    print(f"{len(orders)} workloads, of order {min(orders):.2f} to {max(orders):.2f}")


def worst(examples):
    """The dearest message that Hypothesis drives to, made small, beside the median of the workloads that it drew."""
    found = []

    def cost(workload):
        return blocks_of(workload, MESSAGES) / MESSAGES

    @options(examples, Phase.generate, Phase.target)
    @given(workloads())
    def drawn(workload):
        found.append((cost(workload), workload))
        target(found[-1][0])

    drawn()
    median, (dearest, workload) = statistics.median(cost for cost, _ in found), max(found, key=lambda one: one[0])
    small = shrunk(workload, lambda other: cost(other) >= 0.8 * dearest)
    print(f"{len(found)} workloads; blocks a message: median {median:,.0f}, dearest {dearest:,.0f}, "
          f"that is {dearest / median:.1f} times the median; made small: {cost(small):,.0f}")
    print(f"{small.profile} messages, {small.rounds} rounds of " + ", ".join(f"{step.verb} {step.share}" for step in small.steps))
    with xump.Engine() as engine:
        engine.apply(small.topology)
        print(engine.to_mermaid())
    print(f"rate of the worst, in this build, which counts: {rate(small):,.0f} messages/s; of the median: "
          f"{rate(sorted(found, key=lambda one: one[0])[len(found) // 2][1]):,.0f}")


def rate(workload, messages=5_000):
    with xump.Engine() as engine:
        engine.apply(workload.topology)
        begun = time.perf_counter()
        played = play(engine, workload, messages, has_topology=True)
        return played.published / (time.perf_counter() - begun)


def shrunk(workload, is_dear):
    """Without each selector and step, and each property of a queue, that it is as dear without."""
    changed = True
    while changed:
        changed = False
        for smaller in smaller_ones(workload):
            if is_dear(smaller):
                workload, changed = smaller, True
                break
    return workload


def smaller_ones(workload):
    topology, steps = workload.topology, workload.steps
    for at in range(len(topology["selectors"])):
        selectors = topology["selectors"][:at] + topology["selectors"][at + 1:]
        if selectors:
            yield workload._replace(topology={**topology, "selectors": selectors})
    for at in range(len(steps)):
        if len(steps) > 1:
            yield workload._replace(steps=steps[:at] + steps[at + 1:])
    for name, terms in topology["queues"].items():
        if terms:
            yield workload._replace(topology={**topology, "queues": {**topology["queues"], name: {}}})


if __name__ == "__main__":
    if sys.argv[1:3] == ["--counted", "worst"]:
        worst(int(sys.argv[3]))
    elif sys.argv[1:3] == ["--counted", "law"]:
        law(Planted if sys.argv[3:] == ["--planted"] else None)
    else:
        run = counted("tests.builds.workload_costs", "--counted", *sys.argv[1:])
        print(run.stdout, end="")
        sys.exit(run.stderr[-4_000:] if run.returncode else 0)
