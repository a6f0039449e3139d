"""Rewriters of dead letters: their registration, those that fail, and stores that know them by name."""

import itertools
import signal

import pytest

import xump
from xump import Conflict, Death, Message, Reentrant, RewriterNotFound, register_rewriter
from xump.cli import main
from xump_ext.memory.slab import memory_bytes
from xump_ext.message.rewriter import rewriter_names

NAMES = (f"rewriter {number}" for number in itertools.count(1))


@pytest.fixture
def engine():
    with xump.Engine() as engine:
        engine.create_queue("dead")
        yield engine
        engine.check()


def registered(function):
    name = next(NAMES)
    register_rewriter(name, function)
    return name


def rejected(engine, rewriter):
    """The dead letter of a message that is rejected."""
    engine.create_queue("jobs", dead_letter="dead", rewriter=rewriter)
    engine.publish("jobs", "a", b"body", {"n": 1}, reply_to="r")
    engine.get("jobs").reject("why")
    [letter] = engine.queues["dead"].browse()
    return letter


def test_what_it_is_given(engine):
    calls = []

    def rewrite(message, death):
        calls.append((message, death))
        return message
    letter = rejected(engine, registered(rewrite))
    [(message, death)] = calls
    assert (message.address, message.body, message.id, message.reply_to) == ("a", b"body", 1, "r")
    assert death == Death("rejected", "jobs", "dead", "", "why", death.time) and death.time >= message.timestamp > 0
    assert (letter.address, dict(letter.headers), letter.reply_to) == ("a", {"n": 1}, "r")


@pytest.mark.parametrize(("rewrite", "said"), [
    (lambda message, death: 1 / 0, "division by zero"), (lambda message, death: None, "got NoneType"),
    (lambda message, death: (message, [1]), "bars queues by name, got int"), (lambda message, death: (None, []), "got NoneType"),
    (lambda message, death: (message, "dead"), "return ['dead'] for this one"),
    (lambda message, death: (message, 5), "not iterable"), (lambda: None, "positional argument")])
def test_one_that_fails_leaves_the_letter_as_the_engine_makes_it(engine, monkeypatch, rewrite, said):
    seen = []
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: seen.append(str(unraisable.exc_value)))
    letter = rejected(engine, registered(rewrite))
    assert (letter.address, letter.headers["xump_reason"], letter.headers["xump_detail"]) == ("r", "rejected", "why")
    assert len(seen) == 1 and said in seen[0]


def test_one_that_calls_the_engine_is_refused(engine, monkeypatch):
    seen = []
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: seen.append(type(unraisable.exc_value)))
    rejected(engine, registered(lambda message, death: engine.publish("dead")))
    assert seen == [Reentrant]


def test_an_interrupt_comes_after_the_call(engine):
    def rewrite(message, death):
        raise KeyboardInterrupt
    before = signal.signal(signal.SIGINT, signal.default_int_handler)   # a shell starts programs in the background without it
    try:
        with pytest.raises(KeyboardInterrupt):
            rejected(engine, registered(rewrite))
    finally:
        signal.signal(signal.SIGINT, before)
    assert engine.queues["dead"].ready == 1


def test_a_rewriter_may_change_everything_but_the_expiry(engine):
    other = Message("b", b"other", {"m": 2}, correlation_id="c", expires=7, priority=5, annex=(300, b"x"))
    letter = rejected(engine, registered(lambda message, death: other))
    assert letter.expires is None and letter.replace(expires=7) == other


def test_what_is_no_rewriter():
    name = registered(lambda message, death: message)
    for given, error, said in (
            ((5, print), TypeError, "must be a str"), (("", print), ValueError, "must not be empty"),
            (("a\0b", print), ValueError, "zero byte"), (("fine", 5), TypeError, "callable as function"),
            ((name, print), Conflict, "exists already"), (("amqp", print), Conflict, "exists already")):
        with pytest.raises(error, match=said):
            register_rewriter(*given)
    assert "fine" not in rewriter_names()


@pytest.mark.parametrize(("given", "error", "said"), [
    (5, TypeError, "rewriter must be the name"), (["a"], TypeError, "rewriter must be the name"),
    (["a", 5], TypeError, "rewriter must be the name"), ("", ValueError, "must not be empty"),
    ("nobody", RewriterNotFound, "no rewriter 'nobody' is registered"),
    (["nobody", "x" * 70_000], ValueError, "allowed are 65000")])
def test_what_no_queue_can_have(engine, given, error, said):
    with pytest.raises(error, match=said):
        engine.create_queue("jobs", rewriter=given)
    assert "jobs" not in engine.queues


@pytest.mark.parametrize("kind", ["lmdb", "ring"])
@pytest.mark.parametrize("argument", ["", "x\0größe" + "y" * 60_000])
def test_a_store_knows_it_by_its_name(tmp_path, kind, argument, monkeypatch, capsys):
    path = str(tmp_path / "store")
    name = registered(lambda message, death: message.replace(body=death.argument.encode()))
    rewriter = [name, argument] if argument else name
    with xump.Engine() as engine:
        engine.create_store("d", kind, path=path)
        engine.create_queue("dead", store="d")
        engine.create_queue("jobs", store="d", dead_letter="dead", rewriter=rewriter)
        engine.publish("jobs", "a")
    for command in ("check", "compact", "stats"):
        assert main.main([command, path]) == 0
    assert "rewritten by" in capsys.readouterr().out
    with xump.Engine() as engine:
        engine.create_store("d", kind, path=path)
        assert engine.queues["jobs"].rewriter == rewriter
        assert engine.create_queue("jobs", store="d", dead_letter="dead", rewriter=rewriter) is engine.queues["jobs"]
        engine.get("jobs").reject()
        assert [message.body for message in engine.queues["dead"].browse()] == [argument.encode()]
        engine.check()


@pytest.mark.parametrize("kind", ["lmdb", "ring"])
def test_a_store_says_which_is_missing(tmp_path, kind, monkeypatch):
    path = str(tmp_path / "store")
    name = registered(lambda message, death: message)
    with xump.Engine() as engine:
        engine.create_store("d", kind, path=path)
        engine.create_queue("jobs", store="d", rewriter=name)
    monkeypatch.setattr("xump.durability.opening.rewriter_names", list)
    with xump.Engine() as engine:
        with pytest.raises(RewriterNotFound, match=f"store 'd': queue 'jobs' has its dead letters rewritten by {name!r}"):
            engine.create_store("d", kind, path=path)
        assert list(engine.queues) == [] and list(engine.stores) == ["ram"]
    assert main.main(["stats", path]) == 0, "whoever only looks needs no rewriter"


def test_the_content_that_a_rewriter_saw_is_freed(engine):
    engine.create_queue("jobs", dead_letter="dead", rewriter=registered(lambda message, death: message))
    before = memory_bytes()
    for _ in range(50):
        engine.publish("jobs", "a", bytes(100_000))
        engine.get("jobs").reject()
        engine.get("dead").ack()
    assert memory_bytes() - before < 1_000_000
