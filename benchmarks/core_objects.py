"""What a message costs in the core alone: make it, queue it, delete it, in compiled code. `python -m benchmarks.core_objects`.

1,000,000 messages of an address and a body of 100 bytes, which they share, and no headers; nanoseconds a message:

    dropped     each is deleted as soon as it is queued: all memory is warm
    called      the same, but entering and deleting are a call of the engine each, from compiled code
    held        all are queued, then all are deleted, in order; the page faults of fresh memory are in it
    tuple       the peer: `(address, body, None)` made by Python, dropped at once, or held in a list and then freed

Bars: 50 ns dropped, 150 ns held.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from benchmarks.harness import BODY, Contestant, Table, describe, parser_of, take_turns, verdict
from benchmarks.peers import build
from xump import Engine

ADDRESS = "orders.eu.new"
DROPPED_BAR_NS = 50
HELD_BAR_NS = 150


def tuples_dropped(count: int) -> float:
    address, body = ADDRESS, BODY
    started = perf_counter_ns()
    for _ in range(count):
        message = (address, body, None)
    del message
    return (perf_counter_ns() - started) / count


def tuples_held(count: int) -> float:
    address, body, held = ADDRESS, BODY, [None] * count
    started = perf_counter_ns()
    for number in range(count):
        held[number] = (address, body, None)  # type: ignore[call-overload]
    del held
    return (perf_counter_ns() - started) / count


def in_core(function: Callable[..., Any], headers: dict[str, Any] | None, count: int) -> float:
    """Of a function of `peers/core_loop.pyx`, in a new engine."""
    with Engine() as engine:
        queue = engine.create_queue("jobs")
        took = function(engine, queue, ADDRESS, BODY, headers, count)
        assert queue.ready == 0 and engine.stats()["queues"]["jobs"]["entered"] == count
        engine.check()
    return (sum(took) if isinstance(took, tuple) else took) / count


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args()
    count = 100_000 if options.quick else options.messages
    loop = build("core_loop")
    contestants: dict[str, Contestant] = {
        "tuple, dropped": lambda: tuples_dropped(count),
        "tuple, held": lambda: tuples_held(count),
        "dropped": lambda: in_core(loop.dropped, None, count),
        "dropped, a header": lambda: in_core(loop.dropped, {"k": "v"}, count),
        "called": lambda: in_core(loop.called, None, count),
        "held": lambda: in_core(loop.held, None, count),
        "held, a header": lambda: in_core(loop.held, {"k": "v"}, count),
    }
    bars = {"dropped": DROPPED_BAR_NS, "held": HELD_BAR_NS}
    times = take_turns(contestants, options.rounds)
    describe()
    table = Table(30, "min", "max", "ns", "bar", "")
    for name, took in times.items():
        median = statistics.median(took)
        cells = [f"{min(took):.0f}", f"{max(took):.0f}", f"{median:.0f}"]
        if name in bars:
            cells += [str(bars[name]), verdict(median <= bars[name])]
        table.print(name, *cells)


if __name__ == "__main__":
    main()
