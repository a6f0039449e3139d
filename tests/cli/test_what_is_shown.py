"""What `xump browse` and `xump stats` print of time, order and bounds."""

import re

import pytest

import xump
from xump import Message, cli, field
from xump._queue_properties import QUEUE_DEFAULTS
from xump.cli import main, store_commands
from xump.cli.store_report import json_of_message, line_of_message, properties

assert cli


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


SHOWN = {
    "limit": (1000, "limit 1,000"), "history_limit": (None, "keeps all history"), "auto_delete": (True, "deletes itself"),
    "dead_letter": ("dead", "dead letters to 'dead'"), "delivery_limit": (3, "delivered at most 3 times"),
    "retry_delay": ([1, 0.5], "retries after 1, 0.5 s"), "ttl": (60, "ttl 60 s"), "priority": (9, "priority up to 9"),
    "group": (field("headers.k"), "one at a time by headers.k"),
    "dedup": (60, "no duplicates within 60 s and 100,000 messages"), "dedup_limit": (5, ""),
    "limit_bytes": (2048, "limit 2.0 KiB of bodies"), "when_full": ("drop_oldest", "drops the oldest when full"),
    "unmatched": ("keep", "keeps the unmatched"),
}


@pytest.mark.parametrize("name", sorted(set(QUEUE_DEFAULTS) - {"store"}))
def test_every_property_of_a_queue_is_shown(engine, name):
    value, said = SHOWN[name]
    assert properties(store_commands._numbers(engine.create_queue("q", **{name: value}), 0)) == said


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
