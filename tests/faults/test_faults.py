"""The quick share of the battery: a few chains, canaries and failing calls, always the same. `make faults` does the whole."""

import importlib.util
import itertools
import os
import re
import signal
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from tests.faults import kills_part, shrinking, worker
from tests.faults.__main__ import PARTS, parsed
from tests.faults.damage import Damage, Specimen, Trial, Tried
from tests.faults.errors_part import DURABILITIES
from tests.faults.fuzz import HARNESSES, Harness, mutations
from tests.faults.fuzz_part import by_atheris
from tests.faults.machine_part import GENERATORS, STEPS_PER_PROGRAM, program
from tests.faults.oracle import Violation
from tests.faults.power import Judge
from tests.faults.report import Section
from tests.faults.soak import BEGUN, BODY, ENDED, OPTIONS, PLACES, THERE, Soak, opened
from tests.model import queues

SEED = 20261122
CHAINS = [("ring", 1), ("ring", 2), ("ring", 11), ("lmdb", 1), ("lmdb", 8), ("ring and lmdb", 4), ("ring and ring", 6),
          ("repair of ring", 0), ("repair of lmdb", 0)]
CANARIES = [("ring", "half of the fsyncs"), ("lmdb", "half of the fsyncs"), ("ring", "fsyncs of directories"),
            ("lmdb", "fsyncs of directories")]


def said_by(part, job):
    """What one process says of its job, in order."""
    heard = []
    with worker.folder() as folder:
        worker.run_all(PARTS[part], [job | {"folder": str(folder / "work")}], lambda _, said: heard.append(said), 1)
    assert not any("died" in said for said in heard), heard
    return heard


def test_power_loss():
    """Every state is one moment of the model."""
    heard = said_by("power", {"seed": SEED, "states": 0, "chains": [(mix, number, None) for mix, number in CHAINS]})
    assert [said["violations"] for said in heard] == [[]] * len(CHAINS)
    assert sum(said["states"] for said in heard) > 800


def test_a_chain_is_the_same_each_time():
    """A violation can be looked at again, as long as the stores' threads do not write whenever they come to it."""
    job = {"seed": SEED, "states": 0, "chains": [("ring", 3, None), ("ring and ring", 9, None), ("lmdb", 8, None)]}
    heard, again = said_by("power", job), said_by("power", job)
    assert heard == again and all(said["digest"] for said in heard)


def test_canaries_of_power_loss():
    """A disk that forgets is found out, over each store."""
    chains = [(mix, number, forgets) for mix, forgets in CANARIES for number in (8, 9)]
    heard = said_by("power", {"seed": SEED, "states": 0, "chains": chains})
    found = {(said["mix"], said["forgets"]) for said in heard if said["violations"]}
    assert found == set(CANARIES)


@pytest.mark.parametrize("mix", ["ring", "lmdb", "ring and lmdb"])
def test_kills(mix):
    """What a killed process leaves is one moment of the model."""
    heard = said_by("kills", {"mix": mix, "seed": SEED, "first": 0, "stride": 1, "kills": 12})
    assert [said["violations"] for said in heard] == [[]] * len(heard) and sum(said["killed"] for said in heard) >= 12


@pytest.mark.parametrize(("stores", "durability", "share"), [
    ("ring", "sync", (2, 9, 3)), ("lmdb", "sync", (2, 9, 3)), ("repair of ring", "sync", (2, 9, 3)),
    ("repair of lmdb", "sync", (2, 9, 3)), ("ring and lmdb", "group, by its thread", (2, 21, 5))])
def test_failing_calls(stores, durability, share):
    """Every ninth fault, at every third call. Of two stores, whose threads write at any moment, some faults of writing."""
    first, stride, step = share
    job = {"mix": stores, "durability": DURABILITIES[durability], "first": first, "stride": stride, "step": step}
    heard = said_by("errors", job)
    assert [said["found"] for said in heard] == [{}] * len(heard)
    assert sum(said["sums"]["failed"] for said in heard) > 5


@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("store", ["ring", "lmdb"])
def test_damage(store, end):
    """A few bits, runs of zeros and lengths."""
    heard = said_by("damage", {"store": store, "end": end, "seed": SEED, "every": 3_000, "first": 0, "stride": 1})
    assert [said["violations"] for said in heard] == [[]] * len(heard)
    kinds = {kind for said in heard for kind, _, _ in said["came"]}
    assert len(kinds) >= 5 and sum(said["done"] for said in heard) > 25


def test_damage_that_is_not_seen_is_found(tmp_path):
    """The judge of damage, with a specimen whose messages were others, and one that was ended by a signal."""
    specimen = Specimen("ring", True, SEED, tmp_path / "specimen")
    specimen.truth = {key: ("?", *said[1:]) for key, said in specimen.truth.items()}
    tried = Tried(specimen, tmp_path / "tried")
    tried.all([Damage("bits between", 300, 0)])
    assert any("browse jobs shows a wrong message" in violation for violation in tried.violations)
    with patch.object(Trial, "look", lambda trial: None):
        tried.all([Damage("bits between", 300, 0)])
    assert any("wrong payload" in violation for violation in tried.violations)
    specimen.moments = specimen.moments * 0 + [{}]
    tried.violations.clear()
    with patch.object(Trial, "look", lambda trial: os.kill(os.getpid(), signal.SIGKILL)):
        tried.all([Damage("bits between", 300, 0), Damage("bits between", 400, 0)])
    assert [violation[-7:] for violation in tried.violations] == ["SIGKILL"] * 2


@pytest.mark.parametrize("harness", HARNESSES)
def test_bytes_that_are_wrong(harness):
    """A few hundred for each reader."""
    heard = said_by("fuzz", {"harness": harness, "seed": SEED, "first": 0, "stride": 1, "executions": 400})
    assert [(said["done"], said["found"]) for said in heard] == [(400, None)]


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has no wheel for this platform")
def test_bytes_that_atheris_makes():
    """It comes to its end, and tells what it finds."""
    assert by_atheris("filters", 300, SEED) == []
    with patch.dict("os.environ", {"XUMP_FUZZ_CANARY": "1"}):
        found, = by_atheris("filters", 300, SEED)
    assert "a canary" in found


def test_programs_beside_the_model():
    """Each generator, over ring and lmdb at once."""
    heard = said_by("machine", {"mix": "lmdb and ring", "seed": SEED, "first": 0, "stride": 1, "steps": 6 * STEPS_PER_PROGRAM})
    assert [said["violations"] for said in heard] == [[]] * 6
    assert {said["generator"] for said in heard} == set(GENERATORS)


def test_a_program_that_fails_is_repeated_and_shrunk():
    """With a defect in the model: the same seed fails again, and few calls are left."""
    with patch.object(queues.Queue, "purge", lambda queue, upto=None: 0):
        found = [(seed, program(f"{SEED} {seed}", "small worlds", "ram")) for seed in range(60)]
        seed, said = next((seed, said) for seed, said in found if said)
        assert program(f"{SEED} {seed}", "small worlds", "ram") == said
    assert "purge" in said and said.count("world.") < 12


@pytest.mark.parametrize("store", OPTIONS)
def test_soak(store):
    """Each of some thousand numbers has its account, whatever was killed."""
    *_, sums = said_by("soak", {"store": store, "seed": SEED, "messages": 8_000, "session": [200, 1_500]})
    assert sums["violations"] == [] and sums["numbers"] == 8_000 and sums["kills"] >= 5


@pytest.mark.parametrize(("spoilt", "said"), [
    (lambda soak: soak.board.mark(0, soak.open[0], ENDED), "was acked, and is there"),
    (lambda soak: soak.open[1].add(1) or soak.board.mark(1, [1], THERE), "number 1 in 'copies' was confirmed, and is not there"),
    (lambda soak: soak.open[0].clear(), "which had gone before the session"),
])
def test_the_soak_tells_what_is_lost_or_comes_back(spoilt, said):
    """After a session, with accounts that say otherwise."""
    with worker.folder() as folder:
        soak = Soak("ring", 3_000, "5", folder)
        number = soak.session(0, 1_000, killed=True)
        assert not soak.sums.violations
        soak.board.mark(1, [1], ENDED)
        soak.open[1].discard(1)
        with opened(soak.path, "ring", "sync") as engine:
            for name in PLACES:
                while deliveries := engine.take(100, name):
                    engine.ack(deliveries)
            more = [n.to_bytes(8, "little") + BODY for n in range(number, number + 5)]
            engine.publish_many("jobs", [("x", body) for body in more])
        for place, numbers in enumerate(soak.open):
            soak.board.mark(place, numbers, ENDED)
            numbers.clear()
        soak.board.mark_range(number, number + 5, BEGUN)
        soak.judge(number, number + 5)
        assert not soak.sums.violations and len(soak.open[0]) == 5
        spoilt(soak)
        soak.judge(number + 5, number + 5)
        soak.close()
        assert any(said in violation for violation in soak.sums.violations), soak.sums.violations


def test_a_chain_of_power_loss_that_fails_is_shrunk():
    """To the calls without which it does not fail; on a disk that forgets half of its fsyncs."""
    *_, said = said_by("power", {"seed": SEED, "mix": "ring", "forgets": "half of the fsyncs", "first": 4, "stride": 1,
                                 "states": 1, "sessions": 1, "seconds": 8})
    small, whole = sizes(said["violations"][0])
    assert small < whole


def test_a_killed_chain_that_fails_is_shrunk(tmp_path):
    """With a judge that takes every map for a violation, to a few calls."""
    def judged(judge, state, first, last, killed):
        if any(queue.items for model in judge.world.moments[first : last + 1] for queue in model.queues.values()):
            raise Violation("a map")
        return verdict(judge, state, first, last, killed)

    verdict = Judge.verdict
    tries = SimpleNamespace(monotonic=itertools.count().__next__)       # so that a busy machine does not try less
    with patch.object(Judge, "verdict", judged), patch("tests.faults.shim.mark", lambda value: None), patch(
            "tests.faults.shrinking.time", tries):
        job, work = {"seed": SEED, "mix": "ring"}, tmp_path / "work"
        tried = (shrinking.told(partial(kills_part.chain_without, job, number), work, 2, 12) for number in range(20))
        said = next(said for said in tried if "smallest" in said)
    small, whole = sizes(said)
    assert small < whole / 2 and said.endswith("a map")


def sizes(said):
    """How many steps are left of a chain, of how many."""
    return map(int, re.search("fails, of ([0-9]+) of ([0-9]+) steps:\nsession 0:", said).groups())


def test_a_harness_that_fails_is_told():
    """With the bytes, and the same ones each time."""
    def one(data):
        assert len(data) != 7, "seven"
    harness = Harness("made up", one, [b"abcdef"])
    first, again = (mutations(harness, 1_000, 5) for _ in range(2))
    assert first == again and "AssertionError: seven" in first


def test_a_section_of_the_report(tmp_path, monkeypatch):
    """It takes the place of the one before."""
    from tests.faults import report
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    columns = ["stores", "states", "violations"]
    for found in ([], ["bad"]):
        one = Section("one", "One", "What.", columns, [["ring", 1000, len(found)]], found)
        report.write(one, "python -m tests.faults one", 5)
    report.write(Section("two", "Two", "Other."), "python -m tests.faults two", 6)
    page = (tmp_path / "page.md").read_text()
    assert page.count("## One") == page.count("## Two") == 1 and "| ring | 1,000 | 1 | 5 | 20" in page
    assert "**1 violation.**" in page and "No violation." in page


def test_a_part_may_be_run_over_some_stores_at_a_time(tmp_path, monkeypatch):
    """The section keeps the rows over the others."""
    from tests.faults import report
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    columns = ["stores", "by", "violations"]

    def write(seed, *rows, keys=1):
        found = ["bad"] * sum(row[-1] for row in rows)
        section = Section("one", "One", "What.", columns, [*rows], found, keys=keys)
        report.write(section, "python -m tests.faults one", seed, only=True)
        lines = (tmp_path / "page.md").read_text().splitlines()
        return [line.split(" | 20")[0] for line in lines if line.startswith("| ") and "stores" not in line], lines[-2]

    assert write(1, ["ring", "a", 0], ["ring", "", 2])[0] == ["| ring | a | 0 | 1", "| ring |  | 2 | 1"]
    rows, said = write(2, ["lmdb", "a", 1])
    assert rows == ["| ring | a | 0 | 1", "| ring |  | 2 | 1", "| lmdb | a | 1 | 2"] and said.startswith("**3 violations.**")
    rows, said = write(3, ["ring", "b", 0])
    assert rows == ["| lmdb | a | 1 | 2", "| ring | b | 0 | 3"] and said.startswith("**1 violation.**")
    rows, said = write(4, ["ring", "a", 0], ["lmdb", "a", 0], keys=2)
    assert rows == ["| ring | b | 0 | 3", "| ring | a | 0 | 4", "| lmdb | a | 0 | 4"] and said.startswith("No violation.")


def test_stores_that_a_part_does_not_have(monkeypatch):
    from tests.faults import __main__ as battery
    monkeypatch.setattr("sys.argv", ["faults", "soak", "--stores", "lmbd"])
    with pytest.raises(SystemExit, match="soak: nothing is called 'lmbd'"):
        battery.main()


def test_the_command_says_what_it_knows(capsys):
    with pytest.raises(SystemExit):
        parsed(["nothing"])
    assert "no part nothing; there are power, kills, canaries, errors, damage, fuzz, machine, soak" in capsys.readouterr().err
