"""The quick share of the battery: a few chains, canaries and failing calls, always the same. `make faults` does the whole."""

import pytest

from tests.faults import worker
from tests.faults.__main__ import PARTS, parsed
from tests.faults.report import Section

SEED = 20261122
CHAINS = [("ring", 0), ("ring", 2), ("ring", 4), ("lmdb", 1), ("lmdb", 8), ("ring and lmdb", 5), ("ring and ring", 3),
          ("repair of ring", 0), ("repair of lmdb", 0)]     # without threads of their own, so that they never differ
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


def test_canaries_of_power_loss():
    """A disk that forgets is found out, over each store."""
    chains = [(mix, number, forgets) for mix, forgets in CANARIES for number in (2, 8)]
    heard = said_by("power", {"seed": SEED, "states": 0, "chains": chains})
    found = {(said["mix"], said["forgets"]) for said in heard if said["violations"]}
    assert found == set(CANARIES)


@pytest.mark.parametrize("mix", ["ring", "lmdb", "ring and lmdb"])
def test_kills(mix):
    """What a killed process leaves is one moment of the model."""
    heard = said_by("kills", {"mix": mix, "seed": SEED, "first": 0, "stride": 1, "kills": 12})
    assert [said["violations"] for said in heard] == [[]] * len(heard) and sum(said["killed"] for said in heard) >= 12


@pytest.mark.parametrize("stores", ["ring", "lmdb", "repair of ring", "repair of lmdb"])
def test_failing_calls(stores):
    """Every ninth fault, at every third call."""
    heard = said_by("errors", {"mix": stores, "durability": ("sync", 0), "first": 2, "stride": 9, "step": 3})
    assert [said["found"] for said in heard] == [{}] * len(heard)
    assert sum(said["sums"]["failed"] for said in heard) > 5


def test_a_section_of_the_report(tmp_path, monkeypatch):
    """It takes the place of the one before."""
    from tests.faults import report
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    for found in ([], ["bad"]):
        report.write(Section("one", "One", "What.", ["stores", "states"], [["ring", 1000]], found), "python -m tests.faults one")
    report.write(Section("two", "Two", "Other."), "python -m tests.faults two")
    page = (tmp_path / "page.md").read_text()
    assert page.count("## One") == page.count("## Two") == 1 and "| ring | 1,000 |" in page
    assert "**1 violation.**" in page and "No violation." in page


def test_the_command_says_what_it_knows(capsys):
    with pytest.raises(SystemExit):
        parsed(["nothing"])
    assert "no part nothing; there are power, kills, canaries, errors" in capsys.readouterr().err
