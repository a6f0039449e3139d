"""`xump bench` measures a topology, leaves its stores alone, and says what is wrong. The figures themselves are not looked at."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from xump.cli.main import main
from xump.workloads import bench

TOPOLOGY = """
version = 1

[stores.disk]
type = "ring"
path = "{path}"

[queues.jobs]
store = "disk"

[queues.audit]

[[selectors]]
source = "jobs"
when = "always"
do = {{copy_to = "audit"}}

[[selectors]]
name = "workers"
source = "jobs"
when = {{match = "topic", pattern = "order.#"}}
do = {{deliver = "w"}}
credit = 10
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "network.toml"
    path.write_text(TOPOLOGY.format(path=tmp_path / "own-store"))
    return path


def test_a_topology_is_measured(file, tmp_path, capsys):
    result, picture = tmp_path / "result.json", tmp_path / "result.svg"
    assert main(["bench", str(file), "--messages", "1e3", "--json", str(result), "--picture", str(picture)]) == 0
    said = capsys.readouterr().out
    assert "1,000 published" in said
    assert "where messages wait" in said
    report = json.loads(result.read_text())
    assert report["published"] == 1_000
    assert report["messages_per_second"] > 0
    assert set(report["latency_microseconds"]) == {"p50", "p90", "p99", "p99.9", "max"}
    assert {one["queue"]: one["left"] for one in report["waiting"]}["audit"] == 1_000
    assert report["waiting"][0]["queue"] == "audit"
    assert {one["selector"] for one in report["costs"]} == {"1: jobs, copy_to audit", "workers"}
    assert report["machine"]["xump"]
    assert ElementTree.fromstring(picture.read_text()).tag.endswith("svg")


def test_the_stores_of_the_topology_are_not_touched(file, tmp_path):
    before = sorted(tmp_path.iterdir())
    assert main(["bench", str(file), "--messages", "100", "--data", str(tmp_path)]) == 0
    assert sorted(tmp_path.iterdir()) == before


def test_the_same_seed_gives_the_same_messages():
    topology = {"version": 1, "queues": {"q": {"limit": 5}}, "selectors": [
        {"source": "q", "when": {"match": "prefix", "pattern": "a"}, "do": {"deliver": "d"}}]}
    first, second = (bench(topology, 2_000, profile="uniform", seed=3) for _ in range(2))
    assert (first.published, first.refused, first.delivered) == (second.published, second.refused, second.delivered)
    assert first.dropped == second.dropped != {}


def test_progress_is_told():
    told = []
    bench({"version": 1, "queues": {"q": {}}}, 2_000, progress=lambda done, all: told.append((done, all)))
    assert told[0] == (0, 2_000)
    assert told[-1] == (1_900, 2_000)


def test_a_graph_that_goes_round_for_ever_ends():
    topology = {"version": 1, "queues": {"q": {}, "r": {}}, "selectors": [
        {"source": "q", "when": "always", "do": {"move_to": "r"}, "credit": "INFINITE"},
        {"source": "r", "when": "always", "do": {"move_to": "q"}, "credit": "INFINITE"}]}
    assert bench(topology, 100).published == 100


@pytest.mark.parametrize(("arguments", "said"), [
    (["--messages", "many"], "'many' is not a number of messages; give a whole one from 1 to 1e10"),
    (["--size", "large"], "'large' is not the size of a body"),
    (["--profile", "normal"], "invalid choice: 'normal'"),
])
def test_a_wrong_option_says_what_is_allowed(file, capsys, arguments, said):
    with pytest.raises(SystemExit):
        main(["bench", str(file), *arguments])
    assert said in capsys.readouterr().err


def test_what_cannot_be_measured_says_why(file, tmp_path, capsys):
    assert main(["bench", str(file), "--data", str(tmp_path / "nowhere")]) == 2
    assert "is not a folder; create it" in capsys.readouterr().err
    file.write_text('version = 1\n[[selectors]]\nsource = "q"\nwhen = "always"\ndo = "discard"\n')
    assert main(["bench", str(file)]) == 1
    assert "is wrong" in capsys.readouterr().err
    file.write_text("version = 1\n")
    assert main(["bench", str(file)]) == 1
    assert "has no queue" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [False, True])
def test_names_are_no_markup(file, capsys, monkeypatch, terminal):
    if terminal:
        pytest.importorskip("rich")
        monkeypatch.setenv("FORCE_COLOR", "1")
    name = "[/a]\x1b"
    path = file.with_name("odd.toml")
    path.write_text('version = 1\n[queues]\n"[/a]\\u001b" = {}\n[[selectors]]\nname = "[bold]"\nsource = "[/a]\\u001b"\n'
                    'when = "always"\ndo = "discard"\n')
    assert main(["bench", str(path), "--messages", "50"]) == 0
    out = capsys.readouterr().out
    assert name not in out
    assert "[/a]\\x1b" in out and "[bold]" in out


@pytest.mark.parametrize("messages", [0, -5])
def test_no_messages_are_refused(messages):
    with pytest.raises(ValueError, match=f"messages is {messages}, and must be at least 1"):
        bench({"version": 1, "queues": {"q": {}}}, messages)
