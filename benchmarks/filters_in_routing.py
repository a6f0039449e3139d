"""What a filter adds to the routing of a message. `python -m benchmarks.filters_in_routing`.

The same graph twice: a queue with a selector that discards, and a default that discards the rest. In one the selector's
condition is `region IN ('EU','US') AND amount > 50 AND type = 'order'`, in the other it is `always`. All messages have these
headers. In `mixed` the filter selects one in six, in `selected` all, which takes the most steps. Both graphs get the same
1,000 messages in turn, so that they share what else the machine does. What the filter adds is the median over the rounds of the
difference; its bar is 100 ns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from benchmarks.harness import BODY, Contestant, Table, describe, parser_of, take_turns, verdict
from xump import Engine, always, default, discard, where
from xump.conditions import Condition

FILTER = "region IN ('EU','US') AND amount > 50 AND type = 'order'"
BAR_NS = 100
MANY = 1_000


def headers_of(number: int, mixed: bool) -> dict[str, Any]:
    if not mixed:
        return {"region": ("EU", "US")[number % 2], "amount": 51 + number % 40, "type": "order", "customer": number}
    kind = ("order", "bill")[number // 3 % 2]
    return {"region": ("EU", "US", "APAC")[number % 3], "amount": number * 7919 % 100, "type": kind, "customer": number}


def discarding(when: Condition) -> Engine:
    engine = Engine()
    with engine.building():
        engine.create_queue("orders")
        engine.create_selector("orders", when=when, do=discard)
        engine.create_selector("orders", when=default, do=discard)
    return engine


def one_by_one(engine: Engine, rows: list[dict[str, Any]]) -> int:
    publish, body = engine.publish, BODY
    started = perf_counter_ns()
    for headers in rows:
        publish("orders", "orders.eu.new", body, headers)
    return perf_counter_ns() - started


def many(engine: Engine, rows: list[dict[str, Any]]) -> int:
    messages = [("orders.eu.new", BODY, headers) for headers in rows]
    started = perf_counter_ns()
    engine.publish_many("orders", messages)
    return perf_counter_ns() - started


def both(publish: Callable[[Engine, list[dict[str, Any]]], int], rows: list[dict[str, Any]]) -> dict[str, float]:
    """Nanoseconds a message, of each graph, and what one has more than the other."""
    with discarding(always) as plain, discarding(where(FILTER)) as filtered:
        less = more = 0
        for start in range(0, len(rows), MANY):
            part = rows[start : start + MANY]
            less += publish(plain, part)
            more += publish(filtered, part)
        for engine in (plain, filtered):
            assert engine.stats()["queues"]["orders"]["settled"] == len(rows)
    return {"always": less / len(rows), "filter": more / len(rows), "added": (more - less) / len(rows)}


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    options = parser.parse_args()
    count = 20_000 if options.quick else options.messages
    contestants: dict[str, Contestant] = {}
    for what in ("mixed", "selected"):
        rows = [headers_of(number, what == "mixed") for number in range(count)]
        for name, how in (("publish", one_by_one), ("publish_many", many)):
            contestants[f"{what}, {name}"] = lambda how=how, rows=rows: both(how, rows)
    describe()
    print(FILTER)
    times = take_turns(contestants, options.rounds)
    table = Table(30, "always", "filter", "added", "bar", "")
    for name in contestants:
        plain, filtered, added = (statistics.median(times[f"{name}, {part}"]) for part in ("always", "filter", "added"))
        table.print(name, f"{plain:.0f}", f"{filtered:.0f}", f"{added:.0f}", str(BAR_NS), verdict(added < BAR_NS))


if __name__ == "__main__":
    main()
