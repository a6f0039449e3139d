"""The demo with a store on disk: a process really dies, the results are those of the demo in RAM, and broken promises show."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from itertools import islice

import pandas  # type: ignore[import-untyped]
import pytest

from xump.demo import durable
from xump.demo.durable import Killed, numbered, open_and_build, recover, run_and_kill, wrong_at_the_end
from xump.demo.errors import ProcessEnded
from xump.demo.flights import data_folder, read_flights
from xump.demo.main import main
from xump.demo.replay import run as replay_flights

KINDS = ("ring", "lmdb")
MESSAGES = 3_000


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def flights():
    return pandas.read_csv(data_folder() / "flights.csv.zip", nrows=MESSAGES)


def test_killed_and_recovered(kind, tmp_path, capsys, flights):
    assert main(["--store", kind, "--messages", str(MESSAGES), "--output", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "A process was killed, another one went on" in out
    assert re.search(r"^lost +0 *$", out, re.MULTILINE)
    assert re.search(r"^in the store twice +0 *$", out, re.MULTILINE)
    confirmed = int(re.search(r"before the kill -9 +([\d,]+) *$", out, re.MULTILINE)[1].replace(",", ""))
    assert confirmed >= MESSAGES / 2
    assert f"{confirmed:,} confirmed before the kill among them" in out
    assert "not as promised" not in out
    assert "≠" not in out
    *_, verdict, last = out.splitlines()
    assert "the books balance" in verdict
    assert last.startswith(f"{tmp_path}/flights.{kind} is whole: ")

    numbers = json.loads((tmp_path / "numbers.json").read_text())
    arrived = flights[flights.arr_delay.notna()]
    expected = arrived.groupby("carrier").arr_delay.agg(["count", "sum"])
    assert numbers["airlines"] == {
        carrier: {"flights": int(row["count"]), "minutes": int(row["sum"])} for carrier, row in expected.iterrows()
    }
    left = flights[flights.dep_time.notna()]
    assert numbers["listeners"] == {name: chosen.dest.value_counts().to_dict() for name, chosen in {
        "jfk": left[left.origin == "JFK"], "sfo": left[left.dest == "SFO"],
        "late-UA": left[(left.carrier == "UA") & (left.arr_delay > 60)],
    }.items()}
    before = numbers["before_the_kill"]
    assert confirmed <= before["published"] <= MESSAGES
    assert before["acked"] + sum(worker["acked"] for worker in numbers["workers"].values()) == len(arrived)

    shown = (tmp_path / "graph.svg").read_text()
    gone = re.findall(r">([\d,]+) moved (?:before the kill|to wolf-4, which left)<", shown)
    moves = re.findall(r">move ([\d,]+)<", shown)[:3]
    assert sum(int(count.replace(",", "")) for count in gone + moves) == numbers["queues"]["parse"]["entered"]

    assert main(["--store", kind, "--messages", "20", "--output", str(tmp_path), "--quiet"]) == 0      # over the earlier one
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize("total", [1, 7, 100])
def test_few_flights(kind, total, tmp_path, capsys):
    assert main(["--store", kind, "--messages", str(total), "--output", str(tmp_path), "--quiet"]) == 0
    assert "the books balance" in capsys.readouterr().out


def test_it_is_killed_by_sigkill(kind, tmp_path, monkeypatch):
    sent, really = [], os.kill
    monkeypatch.setattr(os, "kill", lambda pid, number: (sent.append(number), really(pid, number)))
    told = []
    killed = run_and_kill(kind, str(tmp_path / "store"), 20_000, lambda done, news: told.append(done))
    assert set(sent) == {signal.SIGKILL}
    assert told == sorted(told)
    assert killed.confirmed >= 10_000
    assert killed.handed


def test_a_process_that_ends_by_itself(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ProcessEnded, match="ended by itself, with status 1"):
        run_and_kill(kind, str(tmp_path / "store"), 10, print)
    assert main(["--store", kind, "--messages", "10", "--output", str(tmp_path)]) == 2
    said = f"xump: the process with the store {tmp_path}/flights.{kind} ended by itself, with status 1\n"
    assert capsys.readouterr().err == said


def test_the_child_dies_when_the_parent_fails(kind, tmp_path):
    def fail(done, news):
        raise RuntimeError("the screen is broken")

    children, popen = [], subprocess.Popen

    class Child(popen):
        def __init__(self, *arguments, **options):
            children.append(self)
            super().__init__(*arguments, **options)

    subprocess.Popen = Child
    try:
        with pytest.raises(RuntimeError):
            run_and_kill(kind, str(tmp_path / "store"), 100, fail)
    finally:
        subprocess.Popen = popen
    assert [child.returncode for child in children] == [-signal.SIGKILL]


def test_a_file_of_the_user_stays(kind, tmp_path, capsys):
    path = tmp_path / f"flights.{kind}"
    path.write_text("mine")
    assert main(["--store", kind, "--messages", "10", "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"xump: {path} is there, and no store of an earlier demo; move it away\n"
    assert path.read_text() == "mine"


def test_a_store_that_does_not_exist(capsys):
    with pytest.raises(SystemExit) as error:
        main(["--store", "tape"])
    assert error.value.code == 2
    assert "invalid choice: 'tape'" in capsys.readouterr().err


# ---- broken promises

@pytest.fixture
def path(kind, tmp_path):
    """A store through which ten flights went; ten more are published, and wait."""
    path = str(tmp_path / "store")
    replay = open_and_build(kind, path)
    with replay.engine as engine:
        replay_flights(replay, numbered(read_flights(data_folder()), 1), 10, lambda done, news: None)
        for queue in engine.queues.values():
            queue.hold()
        engine.publish_many("flights", list(islice(numbered(read_flights(data_folder()), 11), 10)))
        for name in ("wolf-1", "wolf-2", "wolf-3", "jfk", "sfo", "late-UA"):
            assert engine.take(1, name) == []
    return path


def went_on(kind, path, killed, total=30):
    replay, recovery = recover(kind, path, killed)
    with replay.engine as engine:
        for worker in replay.workers:
            worker.hears = recovery.hears
        replay_flights(replay, numbered(read_flights(data_folder()), replay.published + 1), total, lambda done, news: None)
        engine.check()
        return recovery, wrong_at_the_end(replay, recovery)


def test_promises_that_were_kept(kind, path):
    recovery, wrong = went_on(kind, path, Killed(confirmed=20, confirmed_results=1))
    assert (recovery.published, recovery.lost, recovery.doubled, wrong) == (20, [], [], [])
    assert recovery.found.waiting == Counter(range(11, 21))


@pytest.mark.parametrize(("killed", "said"), [
    (Killed(confirmed=22), "2 confirmed flights were lost"), (Killed(confirmed_results=1000), "confirmed results were lost"),
    (Killed(handed={11, 12}), "2 deliveries came again and did not say so"),
])
def test_promises_that_were_broken(kind, path, killed, said):
    _, wrong = went_on(kind, path, killed)
    assert len(wrong) == 1
    assert said in wrong[0]


def test_a_flight_that_is_there_twice_and_one_that_is_nowhere(kind, path, monkeypatch):
    really = durable.results

    def results(engine):
        for number, (name, rows) in enumerate(really(engine)):
            if number == 0:
                yield name, rows[1:]
            else:
                yield name, rows
                if name.startswith("wolf-"):
                    yield name, rows[:1]

    replay, recovery = recover(kind, path, Killed())
    with replay.engine:
        replay_flights(replay, numbered(read_flights(data_folder()), 21), 30, lambda done, news: None)
        monkeypatch.setattr(durable, "results", results)
        wrong = wrong_at_the_end(replay, recovery)
    assert wrong[0] == "1 flights are nowhere"
    assert wrong[1].endswith("flights are there more than once")
