"""The demo with a broker over its first 3,000 flights: processes of RabbitMQ's libraries, one of which is killed."""

import re
from collections import Counter

import pandas  # type: ignore[import-untyped]
import pytest

from xump.demo.flights import data_folder
from xump.demo.main import main
from xump.demo.over_broker import Client, Outcome, matches

MESSAGES = 3_000


def test_a_worker_is_killed_and_each_flight_is_handled(tmp_path, capsys):
    assert main(["--broker", "--messages", str(MESSAGES), "--output", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    flights = pandas.read_csv(data_folder() / "flights.csv.zip", nrows=MESSAGES)
    left = flights[flights.dep_time.notna()]
    assert "Look at it while it runs: http://127.0.0.1:" in out
    assert re.search(r"^worker 1 .*killed -9 *$", out, re.MULTILINE)
    assert f"out of JFK: {(left.origin == 'JFK').sum():,} flights, all that match" in out
    assert f"to SFO: {(left.dest == 'SFO').sum():,} flights, all that match" in out
    assert "3,000 flights published and confirmed; each was handled by a worker" in out
    assert "the books balance; see " in out.splitlines()[-1]
    assert (tmp_path / "broker.svg").read_text().startswith("<svg")


def client(name, first, again=()):
    return Client(name, None, first=Counter(map(str, first)), again=Counter(map(str, again)))


@pytest.mark.parametrize(("workers", "heard", "said"), [
    ([client("a", [1, 2]), client("b", [3])], [1], []),
    ([client("a", [1, 2]), client("b", [3], [2])], [1], []),
    ([client("a", [1]), client("b", [3])], [1], ["1 flights were handled by no worker"]),
    ([client("a", [1, 2]), client("b", [3, 2])], [1], ["1 flights came twice and did not say so"]),
    ([client("a", [1, 2]), client("b", [3])], [], ["the subscriber s heard of 0 flights, not of 1"]),
])
def test_broken_promises_are_told(workers, heard, said):
    assert Outcome(3, {"s": 1}, workers, [client("s", heard)], 1.0, {}).wrong() == said


@pytest.mark.parametrize(("pattern", "address", "expected"), [
    ("flight.*.JFK.#", "flight.UA.JFK.LAX", True), ("flight.*.JFK.#", "flight.UA.EWR.LAX", False),
    ("flight.*.JFK.#", "flight.UA.JFK", True), ("flight.*.*.SFO", "flight.UA.JFK.SFO", True),
    ("flight.*.*.SFO", "flight.UA.SFO", False), ("flight.*.*.SFO", "cancelled.UA.JFK.SFO", False),
])
def test_patterns_as_the_broker_matches_them(pattern, address, expected):
    assert matches(pattern, address) is expected
