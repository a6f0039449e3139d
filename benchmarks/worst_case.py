"""The dearest message that a search finds, and its rate beside a usual one's. `python -m benchmarks.worst_case`.

The search draws workloads (graphs, messages, orders of calls) and drives them toward the dearest message, by counted basic blocks
of a core that is compiled for it (`tests/builds/workload_costs.py`), so what else the machine does is no matter. Then the
dearest, made small, and the one of median cost are played with as many messages by the core as it is, in turns: what is timed is
publishing, routing, taking and acking. Figures are nanoseconds a message that was published. Ratios are of rates.

The bar is on the search: what costs more than 20 times the median is to be explained, in docs/benchmarks.md.

    python -m benchmarks.worst_case --examples 5000     # a longer search
"""

from __future__ import annotations

from functools import partial
from time import perf_counter_ns

from benchmarks.harness import Contestant, Table, compare, describe, parser_of, speed_table, take_turns, verdict
from tests.builds.workload_costs import described, found_among
from xump import Engine
from xump.workloads import Workload, play

EXAMPLES, QUICK = 1_500, 60
TIMES_MAX = 20


def timed(workload: Workload, messages: int) -> float:
    """Nanoseconds a message."""
    with Engine() as engine:
        engine.apply(workload.topology)
        started = perf_counter_ns()
        played = play(engine, workload, messages, has_topology=True)
        return (perf_counter_ns() - started) / max(played.published, 1)


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--examples", type=int, help=f"workloads that are drawn; default: {EXAMPLES:,}")
    options = parser.parse_args()
    found = found_among(options.examples or (QUICK if options.quick else EXAMPLES))
    describe("hypothesis")
    print(described(found))
    table = Table(46, "blocks", "times", "bar", "", is_exact=True)
    times = found["dearest cost"] / found["median cost"]
    table.print("median cost of a message", f"{found['median cost']:,.0f}", "1.0")
    table.print("dearest", f"{found['dearest cost']:,.0f}", f"{times:.1f}", str(TIMES_MAX), verdict(times <= TIMES_MAX))
    messages = 1_000 if options.quick else 10_000
    contestants: dict[str, Contestant] = {
        "a workload of median cost": partial(timed, found["median"], messages),
        "the dearest": partial(timed, found["small"], messages)}
    took = take_turns(contestants, options.rounds)
    compare(speed_table(), took, "a workload of median cost", ["the dearest"], None)


if __name__ == "__main__":
    main()
