"""The benchmarks run, and say of their figures what is so. What they measure is not looked at."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import summary
from benchmarks.cost_laws import judge
from benchmarks.harness import Table, compare, speed_table, take_turns

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["queue_in_process", "batches", "filters_in_routing", "filter"])
def test_one_round_of_a_benchmark_runs(name):
    """Of those that compile no peer."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ratio" in done.stdout or "bar" in done.stdout


@pytest.mark.parametrize("name", ["durable_groups", "durable_single", "mixed_stores", "recovery", "backlog", "fsyncs"])
def test_one_round_of_a_benchmark_of_durable_stores_runs(name, tmp_path):
    """Peers that are not installed are left out. Where there is a file system in memory, nothing waits for a disk."""
    data = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--rounds", "1", "--data", str(data)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ratio" in done.stdout or "bar" in done.stdout


def test_rounds_are_compared_with_themselves():
    slow, fast = iter([0, 100, 400, 100]), iter([0, 50, 100, 40])
    times = take_turns({"slow": lambda: next(slow), "fast": lambda: {"cold": next(fast)}}, rounds=3)
    assert times == {"slow": [100, 400, 100], "fast, cold": [50, 100, 40]}


def test_bars_and_laws_are_counted(capsys):
    times = {"peer": [100.0], "ours": [40.0], "theirs": [300.0]}
    compare(speed_table(), times, "peer", ["ours", "theirs"], 2.0)
    rates = capsys.readouterr().out.splitlines()
    print("\n  publish, backlog: messages that wait")
    table = Table(36, "10", "1,000", "growth", "", width=10)
    for name, row in {"to wait": [100.0, 119.0], "to go on": [100.0, 1000.0]}.items():
        table.print(name, *(f"{figure:,.0f}" for figure in row), f"{row[-1] / row[0]:.2f}", "  " + judge((10, 1000), row))
    laws = capsys.readouterr().out.splitlines()
    assert summary({"rates": rates, "laws": laws, "neither": ["    a  1  2"]})[2:] == [
        "| [rates](#rates) | 2 | 1 | theirs (0.33) |",
        "| [laws](#laws) | 2 | 1 | publish, backlog: to go on (10.00) |",
    ]


def test_costs_are_judged_by_their_growth():
    assert judge((10, 100, 1000), [100, 100, 120]) == "flat"
    assert judge((10, 100, 1000), [100, 200, 300]) == "logarithmic"
    assert judge((10, 100, 1000), [100, 100, 1000]) == "grows, exponent 1.00"
