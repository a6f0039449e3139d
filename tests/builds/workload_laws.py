"""The laws of cost on drawn workloads, counted in basic blocks. Each law has n messages played beside n of something.

    python -m tests.builds.workload_laws                       # all, with 8 workloads each
    python -m tests.builds.workload_laws "waiting messages" --examples 200

If a call costs what it causes, and not what there is, then n messages beside n others cost a + b n; were a call's cost to grow
with what there is, n of them would cost n². So the cost at 100, 200, 400 and 800 is fitted by a straight line, and the cost at
1,600 may be 1.25 times what the line says. For n² it is 1.9 times that, for n to the power of 1.5 it is 1.36, for n log n 1.08. A
part of the cost that grows like n² is found when it makes two fifths of the cost at 1,600. Making the n things is judged in the
same way. The smallest workload that breaks a law is shown.
"""

import argparse
import gc
import json
import random
import sys
import tempfile
from itertools import count, islice

from hypothesis import HealthCheck, Phase, given, settings

import xump
from tests.builds.costs import counted, counter
from xump import INFINITE, always, copy_to, deliver, field, match, move_to, where
from xump.workloads import Traffic, in_folder, play
from xump.workloads.shapes import entrances
from xump.workloads.strategies import workloads

SIZES = (100, 200, 400, 800)
CHECKED = 1_600
MOST = 1.25
"""Times what the line says."""
EXAMPLES = 16
HOUR = 3_600.0


def line(costs):
    """What the line through the costs at `SIZES`, of least squares, says of `CHECKED`."""
    middle, mean = sum(SIZES) / len(SIZES), sum(costs) / len(costs)
    rise = sum((size - middle) * (cost - mean) for size, cost in zip(SIZES, costs, strict=True))
    return mean + rise / sum((size - middle) ** 2 for size in SIZES) * (CHECKED - middle)


def excess(costs):
    """The last cost, as a multiple of what the line through the others says."""
    *before, last = costs
    return last / max(line(before), *before)    # a cost that falls at first is no reason to expect less


# ---- what there is n of: each is given the engine with its graph, the names of its doors, and n

def nothing(engine, doors, traffic, n):
    pass


def waiting_messages(engine, doors, traffic, n):
    """Beyond the credit there is. They are taken with the others, in the end."""
    enter(engine, doors, traffic, n)


def outstanding_messages(engine, doors, traffic, n):
    enter(engine, doors, traffic, n)
    return engine.take(n)       # kept: a delivery that is thrown away returns


def delayed_messages(engine, doors, traffic, n):
    enter(engine, doors, traffic, n, delay=HOUR)


def history(engine, doors, traffic, n):
    """Every queue keeps all of it; `keeping` has seen to that."""
    enter(engine, doors, traffic, n)
    while taken := engine.take(100):
        engine.ack(taken)
        if sum(queue.history for queue in engine.queues.values()) >= n:
            break


def known_message_ids(engine, doors, traffic, n):
    for number, message in enumerate(islice(traffic, n)):
        publish(engine, doors[number % len(doors)], *message, message_id=f"id-{number}")


def keys(engine, doors, traffic, n):
    """A message of each waits for one of its key that the program has."""
    engine.create_queue("of keys", group=field("headers.key"))
    engine.create_selector("of keys", when=always, do=deliver("of keys"), credit=n)
    engine.publish_many("of keys", [("", b"", {"key": number % n}) for number in range(2 * n)])
    return engine.take(n, "of keys")


def selectors_that_do_not_match(engine, doors, traffic, n):
    engine.create_queue("elsewhere")
    with engine.building():
        for number in range(n):
            door, word = doors[number % len(doors)], f"none-{number}"
            when = (match("eq", word), match("topic", f"{word}.#"), match("topic", f"*.{word}"), match("prefix", f"{word}."),
                    match("eq", word) & where("n > 3"), match("eq", word, field="headers.to"))[number % 6]
            engine.create_selector(door, when=when, do=(copy_to, move_to)[number % 2]("elsewhere"))


def selectors_without_credit(engine, doors, traffic, n):
    """They match everything, and may take nothing."""
    with engine.building():
        for number in range(n):
            engine.create_selector(doors[number % len(doors)], when=always, do=deliver("idle"), credit=0)


def workers(engine, doors, traffic, n):
    with engine.building():
        for number in range(n):
            engine.create_selector(doors[number % len(doors)], when=always, do=deliver(f"worker-{number % 7}"), credit=1)


def sets_of_selectors_that_messages_wait_for(engine, doors, traffic, n):
    engine.create_queue("of sets")
    with engine.building():
        for number in range(n):
            engine.create_selector("of sets", when=match("eq", f"{number}"), do=deliver("idle"), credit=0)
    engine.publish_many("of sets", [(f"{number}",) for number in range(n)])


def queues(engine, doors, traffic, n):
    with engine.building():
        for number in range(n):
            engine.create_queue(f"other-{number}")
            engine.create_selector(f"other-{number}", when=always, do=deliver("idle"), credit=0)
    for number in range(n):
        engine.publish(f"other-{number}")


def queues_that_messages_name(engine, doors, traffic, n):
    """The messages of the workload go to others; they wait at their limit."""
    engine.create_queue("naming")
    with engine.building():
        for number in range(n):
            engine.create_queue(f"named-{number}", limit=1)
        engine.create_selector("naming", when=always, do=move_to(field("address")), credit=INFINITE)
    engine.publish_many("naming", [(f"named-{number % n}",) for number in range(2 * n)])


def members_of_a_window(engine, doors, traffic, n):
    """They stand in line when it has no credit, and leave when it has some and nothing waits, so it is not flat: decision 272."""
    window = engine.create_window(1, name="shared")
    with engine.building():
        for number in range(n):
            engine.create_selector(doors[number % len(doors)], when=always, do=deliver("member"), window=window.name)


def in_stores(engine, doors, traffic, n):
    """The queues of the graph lie in a ring and in LMDB; so many messages are there."""
    enter(engine, doors, traffic, n)


def enter(engine, doors, traffic, n, **terms):
    for number, message in enumerate(islice(traffic, n)):
        publish(engine, doors[number % len(doors)], *message, **terms)


def publish(engine, door, *message, **terms):
    try:
        engine.publish(door, *message, **terms)
    except xump.QueueFull:
        engine.ack(engine.take(100))


LAWS = {make.__name__.replace("_", " "): make for make in (
    nothing, waiting_messages, outstanding_messages, delayed_messages, history, known_message_ids, keys,
    selectors_that_do_not_match, selectors_without_credit, workers, sets_of_selectors_that_messages_wait_for, queues,
    queues_that_messages_name, in_stores)}
NO_LAW = {"members of a window": members_of_a_window}
"""Costs that are known to grow with the number of something: the counting must find them."""


# ---- counting

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


def changed_for(law, topology):
    """The graph as the law wants it. Stores write when they are called: a group that a thread writes after some time has as many
    messages as the machine's mood gives it."""
    terms = {"history": {"history_limit": "all"}, "known message ids": {"dedup": HOUR}}.get(law, {})
    stores = {name: table | {"durability": "process"} for name, table in topology.get("stores", {}).items()}
    queues_with_terms = {name: table | terms for name, table in topology["queues"].items()}
    return topology | {"queues": queues_with_terms, "stores": stores}


def blocks_of(law, workload, size, planted):
    """Of making so many things, and of playing so many messages beside them. The clock stands at the number of its readings."""
    moments, blocks = count(1), counter()
    topology = changed_for(law, workload.topology)
    with tempfile.TemporaryDirectory() as folder, xump.Engine(clock=lambda: next(moments)) as engine:
        engine.apply(in_folder(topology, folder))
        doors = entrances(topology)
        gc.collect()        # else it takes an earlier engine apart meanwhile, whose blocks would count
        gc.disable()
        before = blocks.value
        kept = (LAWS | NO_LAW)[law](engine, doors, Traffic(topology, random.Random(1), workload.profile, 100), size)
        made = blocks.value
        play(Planted(engine) if planted else engine, workload._replace(topology=topology), size, has_topology=True)
        played = blocks.value
        gc.enable()
        del kept
        return made - before, played - made


def hold(law, examples, planted=False):
    """How far above the line the dearest came, of making and of playing. Raises for the smallest workload that breaks the law;
    with the planted defect for the first, which takes less time."""
    found = []

    @settings(max_examples=examples, phases=[Phase.generate] + [Phase.shrink] * (not planted), derandomize=True, database=None,
              deadline=None, print_blob=False, report_multiple_bugs=False, suppress_health_check=list(HealthCheck))
    @given(workloads(stores=("ring", "lmdb") if law == "in stores" else ()))
    def holds(workload):
        costs = [blocks_of(law, workload, size, planted) for size in (*SIZES, CHECKED)]
        for what, each in zip(("making", "playing"), zip(*costs, strict=True), strict=True):
            if each[-1] > 20 * CHECKED:      # else nothing is made, or all is refused
                found.append(excess(each))
                said = ", ".join(f"{cost / size:,.0f} at {size:,}" for cost, size in zip(each, (*SIZES, CHECKED), strict=True))
                assert found[-1] <= MOST, (
                    f"{law}: {what} costs {found[-1]:.2f} times what the line says; blocks a message: {said}; {workload}")

    holds()
    return max(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("laws", nargs="*", metavar="LAW", help=", ".join(LAWS))
    parser.add_argument("--examples", type=int, default=EXAMPLES, help=f"workloads of each; default: {EXAMPLES}")
    parser.add_argument("--planted", action="store_true", help="with a defect in the engine, which must be found")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.laws) - set(LAWS | NO_LAW):
        parser.error(f"no law {', '.join(sorted(unknown))}; there are {', '.join(LAWS | NO_LAW)}")
    if options.counted:
        print(json.dumps(outcomes(options.laws or LAWS, options.examples, options.planted)))
        return 0
    found = kept_laws(*sys.argv[1:])
    for law, outcome in found.items():
        print(f"{law:45} {outcome if isinstance(outcome, str) else f'at most {outcome:.2f} times the line'}")
    return int(any(isinstance(outcome, str) for outcome in found.values()))


def outcomes(laws, examples, planted):
    """{law: how far above the line, or the text of what broke it}"""
    found = {}
    for law in laws:
        try:
            found[law] = hold(law, examples, planted)
        except AssertionError as error:
            found[law] = str(error)
    return found


def kept_laws(*arguments):
    """The same, over the core that counts."""
    run = counted("tests.builds.workload_laws", "--counted", *arguments)
    assert run.returncode == 0, run.stderr[-4_000:]
    return json.loads(run.stdout.splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
