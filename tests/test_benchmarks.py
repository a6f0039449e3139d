"""The benchmarks run, and say of their figures what is so. What they measure is not looked at."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks import changes, peers_page, plots, record
from benchmarks.__main__ import main, run, summary, write
from benchmarks.beside import Beside
from benchmarks.cost_laws import judge
from benchmarks import feature_calls
from benchmarks.instructions import PROGRAMS
from benchmarks.harness import Table, compare, speed_table, take_turns
from benchmarks.peers_page import PARTS, Outcome, Part
from benchmarks.record import Benchmark, Row

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


@pytest.mark.parametrize("row", feature_calls.FEATURES, ids=lambda row: row.name)
def test_what_a_feature_is_counted_beside_is_a_program(row):
    for name in (row.program, row.beside, row.less or row.program):
        calls, weight = feature_calls.PROGRAMS[name]()
        assert weight >= 1
        for call in calls:
            call()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_whose_instructions_are_counted_runs(name):
    """Its first calls; what they count is not looked at."""
    calls, weight = PROGRAMS[name]()
    assert weight >= 1
    for _, call in zip(range(3), calls, strict=False):
        call()


def test_costs_are_judged_by_their_growth():
    assert judge((10, 100, 1000), [100, 100, 120]) == "flat"
    assert judge((10, 100, 1000), [100, 200, 300]) == "logarithmic"
    assert judge((10, 100, 1000), [100, 100, 1000]) == "grows, exponent 1.00"


# ---- results that programs read

def results(path, ratios, count=100):
    rows = [Row("peer", {}, [1.0] * len(ratios), [1.0] * len(ratios), "peer"),
            Row("ours", {}, [1.0] * len(ratios), ratios, "peer", 2.0),
            Row("publish", {"10": str(count), "1,000": f"{count + 10:,}"}, is_exact=True),
            Row("a time", {"ms": "17"})]
    record.write(path, {"one": Benchmark("a machine", rows)})
    return path


@pytest.mark.parametrize(("ratios", "count", "status", "said"), [
    ([2.0, 2.1, 2.2, 2.1, 2.0], 100, 0, ["0 figures of 2 rows changed more than noise explains"]),
    ([2.1, 2.3, 2.2, 2.4, 2.3], 100, 0, ["0 figures of 2 rows changed more than noise explains"]),
    ([3.0, 3.1, 3.2, 3.1, 3.0], 100, 0, [
        "one: ours: 2.1 -> 3.1 (+47.6%), better", "1 figures of 2 rows changed more than noise explains"]),
    ([1.0, 1.1, 1.2, 1.1, 1.0], 100, 1, [
        "one: ours: 2.1 -> 1.1 (-47.6%), worse", "1 figures of 2 rows changed more than noise explains"]),
    ([2.0, 2.1, 2.2, 2.1, 2.0], 102, 1, [
        "one: publish, 10: 100 -> 102 (+2.0%), worse", "one: publish, 1,000: 110 -> 112 (+1.8%), worse",
        "2 figures of 2 rows changed more than noise explains"]),
    ([1.0, 1.1], 100, 0, ["0 figures of 2 rows changed more than noise explains"]),
])
def test_what_changed_more_than_noise_explains(tmp_path, capsys, ratios, count, status, said):
    before = results(tmp_path / "before.json", [2.0, 2.1, 2.2, 2.1, 2.0])
    assert changes.main([str(before), str(results(tmp_path / "after.json", ratios, count))]) == status
    assert capsys.readouterr().out.splitlines() == said


@pytest.mark.parametrize(("text", "said"), [(None, "cannot be read"), ("{}", "has no results"), ("nonsense", "has no results")])
def test_a_file_without_results(tmp_path, capsys, text, said):
    path = tmp_path / "results.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit):
        changes.main([str(path), str(path)])
    assert said in capsys.readouterr().err


def test_a_picture_has_every_row(tmp_path):
    [one] = record.read(results(tmp_path / "results.json", [2.0, 1.5, 2.2])).values()
    assert plots.write(tmp_path / "plots", {"one": one, "none": Benchmark()}) == ["one"]
    drawn = ElementTree.parse(tmp_path / "plots" / "one.svg")
    texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert "ours" in texts
    assert "2.00" in texts


def test_a_benchmark_is_measured_anew_and_the_results_keep_the_others(tmp_path):
    ours = Row("ours", {}, [1.0], [2.0], "peer", 1.5)
    write({"topics": Benchmark("", [ours], ["    a   1"], "the first"), "batches": Benchmark("", [], ["    b   2"])}, tmp_path)
    write({"batches": Benchmark("", [], ["    b   3"], "the second")}, tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "    b   2" not in text
    assert text.index("Measured by `the first`.") < text.index("![topics") < text.index("    a   1") < text.index("`the second`")
    assert list(record.read(tmp_path / "results.json")) == ["topics", "batches"]
    assert (tmp_path / "pictures" / "topics.svg").exists()


def test_a_run_is_recorded():
    lines, found = run("filters_in_routing", ["--quick", "--rounds", "1"])
    assert found.machine in lines[0]
    assert found.rows[0].name in lines[3]
    assert run("nosuch", [])[1] is None


# ---- peers

@pytest.mark.parametrize("workload", ["W1", "W2", "W3b", "W4", "W5"])
def test_one_round_beside_the_peers_of_a_workload_runs(workload, tmp_path):
    """Every row has a promise; Xump's come first, and all others say how it compares with one of them."""
    data = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    command = [sys.executable, "-m", "benchmarks.beside", workload, "--quick", "--rounds", "1", "--data", str(data)]
    path = tmp_path / "record.json"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False,
                          env=os.environ | {record.VARIABLE: str(path)})
    assert done.returncode == 0, done.stderr
    rows = record.benchmark_of(json.loads(path.read_text())).rows
    assert rows[0].name.startswith("Xump")
    assert {row.cells["promise"] for row in rows} <= {"in memory", "written", "on the disk"}
    assert all(bool(row.cells["Xump / it"]) != row.name.startswith("Xump") for row in rows)
    assert len(rows) >= 5


def test_a_peer_that_is_not_installed_is_named():
    found = Beside()
    found.add("ours", lambda: 1.0, "in memory")
    found.add("theirs", lambda: 2.0, "in memory", "ours", "no_such_package")
    assert list(found.contestants) == ["ours"]
    assert found.left_out == ["theirs: the package no_such_package is not installed"]


def test_the_page_says_what_was_left_out_and_what_failed():
    outcomes = {
        "W1": Outcome(["    deque   12", "  left out: blinker: the package blinker is not installed"]),
        "sql": Outcome([], "`python -m benchmarks.sql` ended with 1"),
        "spark": Outcome(["  left out: pyspark not installed"])}
    page = peers_page.page(outcomes)
    assert page.startswith("# Xump beside its peers")
    said, _, measured = page.partition("## W1: a queue in the process\n")
    assert "- W1: a queue in the process: left out: blinker: the package blinker is not installed" in said
    assert "- SQL: tasks in PostgreSQL: failed, `python -m benchmarks.sql` ended with 1" in said
    assert "- Spark: left out: pyspark not installed" in said
    assert "```text\n    deque   12\n```" in measured
    assert measured.count("No figures; see [left out](#left-out).") == 2
    assert measured.count("Durability: ") == 3


def test_each_part_of_the_page_has_a_program_and_a_durability():
    for part in PARTS.values():
        assert (ROOT / "benchmarks" / f"{part.program[0]}.py").is_file()
        assert part.durability


def test_what_a_part_needs_is_looked_for():
    assert peers_page.missing(Part("a", "b", "c", ("d",), ("json", "no_such_package"), ("no-such-program",))) == (
        "left out: no_such_package, no-such-program not installed")
    assert peers_page.missing(Part("a", "b", "c", ("d",), ("json",))) == ""


def test_a_part_is_measured_anew_and_the_page_keeps_the_others(tmp_path):
    place = tmp_path / "PEERS.md"
    peers_page.write(place, {"W4": Outcome(["    deque   1"]), "W1": Outcome(["    deque   2"])}, "the first")
    peers_page.write(place, {"W1": Outcome(["    deque   3"])}, "the second")
    text = place.read_text()
    assert "deque   2" not in text
    assert text.index("Measured by `the second`:\n\n```text\n    deque   3") < text.index(
        "Measured by `the first`:\n\n```text\n    deque   1")


def test_one_command_writes_the_page(tmp_path, monkeypatch):
    place = tmp_path / "PEERS.md"
    command = ["benchmarks", "peers", "--quick", "--rounds", "1", "--page", str(place), "W4"]
    monkeypatch.setattr(sys, "argv", command)
    assert main() == 0
    text = place.read_text()
    assert "python -m benchmarks peers --quick --rounds 1 W4" in text
    assert "SimpleQueue, two threads" in text


def test_a_part_that_fails_is_a_failure_of_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(PARTS, "W1", Part("a", "b", "c", ("nosuch",)))
    place = tmp_path / "PEERS.md"
    assert peers_page.main(["--quick", "--page", str(place), "W1"]) == 1
    assert "`python -m benchmarks.nosuch` ended with 1" in place.read_text()
