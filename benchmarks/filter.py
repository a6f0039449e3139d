"""What a filter costs alone: one filter over messages with four headers. `python -m benchmarks.filter`.

Compared: the compiled filter in a compiled loop, the same called message by message from Python, Python over a dict
(the best that Python can do: no look-up of attributes or headers) and over the message, and SQLite over a table in memory.
What a filter adds to routing is in `benchmarks.filters_in_routing`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from benchmarks.harness import compare, describe, parser_of, speed_table, take_turns
from xump.filters import compile
from xump_ext.match.filter import Filter
from xump_ext.message.message import Message

TEXT = "region IN ('EU', 'US') AND amount > 50 AND type = 'order'"
MESSAGES = 10_000


def headers_of(number: int) -> dict[str, Any]:
    """Few messages are selected, and each part of the filter has something to do."""
    region = ("EU", "US", "APAC")[number % 3]
    return {"region": region, "amount": number * 7919 % 100, "type": ("order", "bill")[number // 3 % 2], "customer": number}


def wanted(headers: Any) -> bool:
    """The filter as a Python programmer would write it."""
    return headers["region"] in ("EU", "US") and headers["amount"] > 50 and headers["type"] == "order"


def contestants() -> dict[str, Callable[[], int]]:
    """Functions that evaluate the filter over all messages and return how many it selects."""
    rows = [headers_of(number) for number in range(MESSAGES)]
    messages = [Message("sales", b"", row) for row in rows]
    compiled = Filter(compile(TEXT)[1])
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE messages (region, amount, type, customer)")
    database.executemany("INSERT INTO messages VALUES (:region, :amount, :type, :customer)", rows)
    query = f"SELECT count(*) FROM messages WHERE {TEXT}"
    return {
        "compiled loop": lambda: compiled.count(messages),
        "called from Python": lambda: sum(compiled.evaluate_message(message) is True for message in messages),
        "Python over a dict": lambda: sum(map(wanted, rows)),
        "Python over the message": lambda: sum(wanted(message.headers) for message in messages),
        f"SQLite {sqlite3.sqlite_version}": lambda: database.execute(query).fetchone()[0],
    }


def main() -> None:
    """Parse the command line and run."""
    options = parser_of(__doc__).parse_args()
    functions = contestants()
    selected = sum(map(wanted, map(headers_of, range(MESSAGES))))

    def contestant(function: Callable[[], int]) -> Callable[[], float]:
        def timed() -> float:
            started = perf_counter_ns()
            found = function()
            took = perf_counter_ns() - started
            assert found == selected
            return took / MESSAGES

        return timed

    describe()
    print(TEXT)
    times = take_turns({name: contestant(function) for name, function in functions.items()}, options.rounds)
    peer, *others = times
    compare(speed_table(), times, peer, others, None)


if __name__ == "__main__":
    main()
