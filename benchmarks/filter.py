"""What a filter costs: ns for each evaluation of one filter over messages with four headers.

    python benchmarks/filter.py

Compared: the compiled filter in a compiled loop, the same called message by message from Python, Python over a dict
(the best that Python can do: no look-up of attributes or headers) and over the message, and SQLite over a table in memory.
They take turns, so that they share what else the machine does; each figure is the median of five rounds.

2026-11, AMD EPYC, 2 cores, Python 3.11.7, gcc 12 -O3:

    compiled loop                35.0 ns      1.0 x
    called from Python           73.0 ns      2.1 x
    Python over a dict           78.6 ns      2.2 x
    Python over the message     133.9 ns      3.8 x
    SQLite 3.40.1                49.7 ns      1.4 x
"""

import platform
import sqlite3
import statistics
import time

from xump.filters import compile
from xump_ext.filter import Filter
from xump_ext.message import Message

TEXT = "region IN ('EU', 'US') AND amount > 50 AND type = 'order'"
MESSAGES = 10_000
ROUNDS = 5


def headers_of(number):
    """Few messages are selected, and each part of the filter has something to do."""
    region = ("EU", "US", "APAC")[number % 3]
    return {"region": region, "amount": number * 7919 % 100, "type": ("order", "bill")[number // 3 % 2], "customer": number}


def wanted(headers):
    """The filter as a Python programmer would write it."""
    return headers["region"] in ("EU", "US") and headers["amount"] > 50 and headers["type"] == "order"


def contestants():
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


def main():
    functions = contestants()
    times = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            started = time.perf_counter_ns()
            selected = function()
            times[name].append((time.perf_counter_ns() - started) / MESSAGES)
            assert selected == functions["compiled loop"](), name
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"{TEXT}\n{MESSAGES} messages, median of {ROUNDS} rounds, Python {platform.python_version()}\n")
    for name, median in medians.items():
        print(f"{name:24} {median:8.1f} ns {median / medians['compiled loop']:8.1f} x")


if __name__ == "__main__":
    main()
