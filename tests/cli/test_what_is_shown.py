"""What `xump browse` and `xump stats` print of time, order and bounds."""

import io
import json
import re

import pytest

import tests.model.vocabulary       # noqa: F401  it registers a rewriter
import xump
from xump import Message, field
from xump._queue_properties import QUEUE_DEFAULTS
from xump.cli import main, store_commands
from xump.cli.store_report import json_of_message, line_of_message, print_json, properties
from xump.store_types import file_bytes


@pytest.fixture
def run(capsys):
    def run(*arguments):
        assert main.main([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out
    return run


@pytest.fixture
def engine(clock):
    with xump.Engine(clock=clock) as engine:
        yield engine


def lines(queue, **options):
    given = {"start": "head", "state": None, "where": None, "limit": None, "reverse": False} | options
    return [line_of_message(*found) for found in queue._browse_detailed(*given.values())]


def test_a_line_says_all_that_a_message_says(engine, clock):
    queue = engine.create_queue("q", history_limit=9)
    queue.publish("plain", b"x")
    queue.publish("full", b"x", {"n": 1}, reply_to="back", message_id="m 1", correlation_id="c", ttl=60, priority=7)
    queue.publish("late", delay=30)
    queue.publish("again")
    engine.get("q").ack()
    taken = [engine.get("q"), engine.get("q")]
    taken[1].nack(delay=5)
    assert lines(queue) == [
        "       1  history  1970-01-01T00:16:40.000Z  plain  1 B  x",
        "       2  outstanding  1970-01-01T00:16:40.000Z  full  1 B  expires=1970-01-01T00:17:40.000Z  priority=7  "
        "correlation_id=c  reply_to=back  message_id='m 1'  n=1  x",
        "       3  delayed  1970-01-01T00:16:40.000Z  late  0 B  until=1970-01-01T00:17:10.000Z",
        "       4  delayed  1970-01-01T00:16:40.000Z  again  0 B  until=1970-01-01T00:16:45.000Z"]
    assert lines(queue, state="delayed", limit=1, reverse=True) == lines(queue)[3:]
    assert lines(queue, where="n = 1") == lines(queue)[1:2]


def test_long_texts_are_cut():
    line = line_of_message(Message("a", correlation_id="c" * 1000, message_id="m" * 1000), "ready", None)
    assert f"correlation_id={'c' * 39}…  message_id={'m' * 39}…" in line


def test_the_same_for_programs(engine, clock):
    queue = engine.create_queue("q")
    queue.publish("late", delay=30, correlation_id="c", expires=clock.now + 60_000_000_000, priority=255)
    [found] = queue._browse_detailed("head", None, None, None, False)
    assert {name: json_of_message(*found)[name] for name in ("state", "until", "correlation_id", "expires", "priority")} == {
        "state": "delayed", "until": clock.now + 30_000_000_000, "correlation_id": "c", "expires": clock.now + 60_000_000_000,
        "priority": 255}


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_json_is_json_in_every_encoding(monkeypatch, encoding):
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding, "backslashreplace", write_through=True))
    print_json({"name": "é😀"})
    assert json.loads(out.getvalue()) == {"name": "é😀"}


SHOWN = {
    "limit": (1000, "limit 1,000"), "history_limit": (None, "keeps all history"), "auto_delete": (True, "deletes itself"),
    "dead_letter": ("dead", "dead letters to 'dead'"), "delivery_limit": (3, "delivered at most 3 times"),
    "rewriter": (["test stamp", "x"], "rewritten by test stamp"),
    "retry_delay": ([1, 0.5], "retries after 1, 0.5 s"), "ttl": (60, "ttl 60 s"), "priority": (9, "priority up to 9"),
    "group": (field("headers.k"), "one at a time by headers.k"),
    "dedup": (60, "no duplicates within 60 s and 100,000 messages"), "dedup_limit": (5, ""),
    "limit_bytes": (2048, "limit 2.0 KiB of bodies"), "when_full": ("drop_oldest", "drops the oldest when full"),
    "unmatched": ("keep", "keeps the unmatched"),
    "transit": (True, ""),      # no store has such a queue
    "staged": (True, "staged"),
}


@pytest.mark.parametrize("name", sorted(set(QUEUE_DEFAULTS) - {"store"}))
def test_every_property_of_a_queue_is_shown(engine, name):
    value, said = SHOWN[name]
    assert properties(store_commands._numbers(engine.create_queue("q", **{name: value}), 0)) == said


def test_a_queue_that_drops_to_fit_says_so(engine):
    queue = engine.create_queue("q", limit=0, when_full="drop_to_fit")
    assert properties(store_commands._numbers(queue, 0)) == "limit 0, drops to fit"
    assert "limit 0, drops to fit" in engine.to_mermaid().replace("<br/>", ", ")


def test_numbers_of_a_queue(engine):
    queue = engine.create_queue("q")
    queue.publish()
    queue.publish(delay=5)
    numbers = store_commands._numbers(queue, 77)
    assert (numbers["ready"], numbers["delayed"], numbers["last_id"], numbers["bytes"]) == (1, 1, 2, 77)


@pytest.mark.parametrize(("command", "words"), [
    ("browse", ["ready", "delayed", "until", "history", "expires=TIME", "priority=N", "correlation_id", "--state delayed",
                "browse_batch"]),
    ("stats", ["delayed", "duplicates", "xump compact"]), ("compact", ["live", "xump stats"])])
def test_help_teaches_them(capsys, command, words):
    with pytest.raises(SystemExit):
        main.main([command, "--help"])
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert [word for word in words if word not in said] == []


# ---- of stores on disk

OPTIONS = {"ring": {"min_bytes": 0, "segment_bytes": 1 << 16}, "lmdb": {}}


@pytest.fixture(params=["ring", "lmdb"])
def kind(request):
    return request.param


def test_a_store_is_shown_as_it_is(run, kind, tmp_path, clock):
    with xump.Engine(clock=clock) as engine:
        engine.create_store("s", kind, path=tmp_path / "s", **OPTIONS[kind])
        engine.create_queue("q", store="s", history_limit=5, retry_delay=[5, 60], priority=9, dedup=60)
        engine.publish("q", "done", b"x")
        engine.get("q").ack()
        engine.publish("q", "late", b"x", delay=30, ttl=60, priority=7, correlation_id="c")
        engine.publish("q", "taken", b"x", expires=clock.now + 90_000_000_000)
        engine.publish("q", "again", b"x")
        deliveries = engine.get("q"), engine.get("q")
        deliveries[1].nack()
    history, late, taken, again = run("browse", tmp_path / "s", "q").splitlines()
    assert history == "       1  history  1970-01-01T00:16:40.000Z  done  1 B  x"
    assert late == ("       2  delayed  1970-01-01T00:16:40.000Z  late  1 B  until=1970-01-01T00:17:10.000Z  "
                    "expires=1970-01-01T00:18:10.000Z  priority=7  correlation_id=c  x")
    assert taken == "       3  ready    1970-01-01T00:16:40.000Z  taken  1 B  expires=1970-01-01T00:18:10.000Z  x"
    assert again == "       4  delayed  1970-01-01T00:16:40.000Z  again  1 B  until=1970-01-01T00:16:45.000Z  x"
    assert [line.split()[0] for line in run("browse", tmp_path / "s", "q", "--state", "delayed").splitlines()] == ["2", "4"]
    head, jobs, _ = run("stats", tmp_path / "s").splitlines()[2:]
    assert head.split()[:4] == ["queue", "ready", "delayed", "history"] and jobs.split()[:4] == ["q", "1", "2", "1"]
    assert jobs.endswith("keeps 5, retries after 5, 60 s, priority up to 9, no duplicates within 60 s and 100,000 messages")


def test_a_store_of_which_little_is_live_gives_its_space_back(run, kind, tmp_path):
    """2 % of 20 MB are live. A ring shrinks by itself, an lmdb store when it is compacted."""
    with xump.Engine() as engine:
        store = engine.create_store("s", kind, path=tmp_path / "s", **OPTIONS[kind])
        queue = engine.create_queue("q", store="s")
        for _ in range(20):
            engine.publish_many("q", [("a", bytes(10_000))] * 100)
        engine.sync()
        for id in range(1, 1961):
            queue.delete(id)
        engine.sync()
        assert queue.ready == 40 and store.live_bytes < 500_000
        full = store.size_bytes
    before = file_bytes(str(tmp_path / "s"))
    assert before <= full
    run("compact", tmp_path / "s")
    after = file_bytes(str(tmp_path / "s"))
    if kind == "lmdb":
        assert before > 20_000_000
    assert after < 1_500_000
    assert len(run("browse", tmp_path / "s", "q").splitlines()) == 40
