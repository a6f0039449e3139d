"""What a filter adds to the routing of a message. `python -m benchmarks.filters_in_routing`.

The same graph twice: a queue with a selector that discards, and a default that discards the rest. In one the selector's
condition is `region IN ('EU','US') AND amount > 50 AND type = 'order'`, in the other it is `always`. All messages have these
headers. In `mixed` the filter selects one in six, in `selected` all, which takes the most steps. What the filter adds is the
median over the rounds of the difference between both graphs; its bar is 100 ns.
"""

from __future__ import annotations

import statistics
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


def one_by_one(when: Condition, rows: list[dict[str, Any]]) -> float:
    with discarding(when) as engine:
        publish, body = engine.publish, BODY
        started = perf_counter_ns()
        for headers in rows:
            publish("orders", "orders.eu.new", body, headers)
        took = perf_counter_ns() - started
        assert engine.stats()["queues"]["orders"]["settled"] == len(rows)
    return took / len(rows)


def many(when: Condition, rows: list[dict[str, Any]]) -> float:
    messages = [("orders.eu.new", BODY, headers) for headers in rows]
    with discarding(when) as engine:
        started = perf_counter_ns()
        for start in range(0, len(messages), MANY):
            engine.publish_many("orders", messages[start : start + MANY])
        took = perf_counter_ns() - started
        assert engine.stats()["queues"]["orders"]["settled"] == len(rows)
    return took / len(rows)


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
            contestants[f"{what}, {name}, always"] = lambda how=how, rows=rows: how(always, rows)
            contestants[f"{what}, {name}, filter"] = lambda how=how, rows=rows: how(where(FILTER), rows)
    describe()
    print(FILTER)
    times = take_turns(contestants, options.rounds)
    table = Table(30, "always", "filter", "added", "bar", "")
    for name in contestants:
        if name.endswith("always"):
            plain, filtered = times[name], times[name.replace("always", "filter")]
            added = statistics.median(more - less for less, more in zip(plain, filtered, strict=True))
            medians = f"{statistics.median(plain):.0f}", f"{statistics.median(filtered):.0f}"
            table.print(name.removesuffix(", always"), *medians, f"{added:.0f}", str(BAR_NS), verdict(added < BAR_NS))


if __name__ == "__main__":
    main()
