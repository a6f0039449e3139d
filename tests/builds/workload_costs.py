"""The search for the dearest message among drawn workloads, counted in basic blocks. `workload_laws.py` counts how costs grow.

    python -m tests.builds.workload_costs 500       # among so many workloads

Hypothesis drives generation toward the dearest one. That is made small, and printed as Mermaid, with its cost beside the median
one, and the rate of both.
"""

import gc
import json
import statistics
import sys
from itertools import count
from operator import itemgetter

from hypothesis import HealthCheck, Phase, given, settings, target

import xump
from tests.builds.costs import counted, counter
from xump.workloads import Step, Workload, play
from xump.workloads.strategies import workloads

MESSAGES = 200
NEAR = 0.8
"""So much of the dearest cost is left to the workload that is made small."""


def cost(workload):
    """Blocks a message; the clock stands at the number of its readings."""
    moments, blocks = count(1), counter()
    gc.collect()        # else it takes an earlier engine apart meanwhile, whose blocks would count
    gc.disable()
    with xump.Engine(clock=lambda: next(moments)) as engine:
        engine.apply(workload.topology)
        before = blocks.value
        play(engine, workload, MESSAGES, has_topology=True)
        found = (blocks.value - before) / MESSAGES
    gc.enable()
    return found


def search(examples):
    """The dearest workload, made small, and one of median cost, with what a message costs."""
    found = []

    @settings(max_examples=examples, phases=[Phase.generate, Phase.target], derandomize=True, database=None, deadline=None,
              print_blob=False, suppress_health_check=list(HealthCheck))
    @given(workloads())
    def drawn(workload):
        found.append((cost(workload), workload))
        target(found[-1][0])

    drawn()
    found.sort(key=itemgetter(0))
    dearest, workload = found[-1]
    small = shrunk(workload, lambda other: cost(other) >= NEAR * dearest)
    return {"workloads": len(found), "median cost": statistics.median(each for each, _ in found), "dearest cost": dearest,
            "small cost": cost(small), "small": small._asdict(), "median": found[len(found) // 2][1]._asdict()}


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


def workload_of(found):
    """A workload, of its JSON."""
    return Workload(**found | {"steps": tuple(Step(*step) for step in found["steps"])})


def found_among(examples):
    """What `search` found, over the core that counts."""
    run = counted("tests.builds.workload_costs", "--counted", str(examples))
    if run.returncode:
        raise RuntimeError(run.stderr[-4_000:])
    found = json.loads(run.stdout)
    return found | {name: workload_of(found[name]) for name in ("small", "median")}


def described(found):
    """The dearest, as text: its figures, its steps, and its graph as Mermaid."""
    small, times = found["small"], found["dearest cost"] / found["median cost"]
    with xump.Engine() as engine:
        engine.apply(small.topology)
        graph = engine.to_mermaid()
    return "\n".join([
        f"{found['workloads']} workloads; blocks a message: median {found['median cost']:,.0f}, dearest "
        f"{found['dearest cost']:,.0f}, that is {times:.1f} times the median; made small: {found['small cost']:,.0f}",
        f"{small.profile} messages, {small.rounds} rounds of " + ", ".join(f"{step.verb} {step.share}" for step in small.steps),
        graph])


if __name__ == "__main__":
    if sys.argv[1] == "--counted":
        print(json.dumps(search(int(sys.argv[2]))))
    else:
        print(described(found_among(int(sys.argv[1]))))
