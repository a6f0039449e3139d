"""Annexes: bytes of a registered kind that travel with a message, and the headers that readers, compiled or not, yield."""

import itertools
import pickle
from pathlib import Path

import pyarrow
import pytest

import xump
from tests.compiled import compiled
from xump import Message, always, copy_to, deliver, field, match, move_to, register_annex, where
from xump.cli import main
from xump.cli.store_report import json_of_message, line_of_message
from xump.durability import opening

KINDS = itertools.count(20_000)
NEVER_REGISTERED = 65_000


@pytest.fixture(scope="module")
def readers():
    return compiled(Path(__file__).with_name("annex_readers.pyx"))


@pytest.fixture
def kind(readers):
    """A new kind with the compiled reader of all types."""
    number = next(KINDS)
    readers.register(number, "all")
    return number


@pytest.fixture
def engine():
    with xump.Engine() as engine:
        yield engine
        engine.check()


def unread(kind):
    """A kind that only Python reads, and what it was called with."""
    calls = []

    def read(data):
        calls.append(data)
        return {"n": len(data)}
    register_annex(kind, "counted", read)
    return calls


def test_a_compiled_reader_yields_headers_of_all_types_once(readers, kind):
    before = readers.called()
    message = Message("a", b"body", annex=(kind, b"\x07t\xc3\xa4"))
    assert message.annex == (kind, b"\x07t\xc3\xa4") and readers.called() == before
    assert dict(message.headers) == {"n": 7, "yes": True, "no": False, "half": 3.5, "text": "tä", "bytes": b"t\xc3\xa4"}
    assert message.headers["n"] == 7 and "nothing" not in message.headers and len(message.headers) == 6
    assert list(message.headers) == ["n", "yes", "no", "half", "text", "bytes"]
    assert readers.called() == before + 1
    assert len(Message(annex=(kind, b"")).headers) == 0


def test_without_annex_there_is_none():
    assert Message("a", headers={"n": 1}).annex is None and Message(priority=3, expires=9).annex is None


def test_headers_that_are_given_stand_in_place_of_the_readers(readers, kind):
    before = readers.called()
    message = Message("a", headers={"m": 1}, annex=(kind, b"\x07"))
    assert dict(message.headers) == {"m": 1} and message.annex == (kind, b"\x07") and readers.called() == before


def test_whatever_asks_for_headers_asks_the_reader(engine, readers, kind):
    engine.create_queue("q")
    for name in ("where", "both", "dict", "equal", "topic", "prefix"):
        engine.create_queue(name)
    text = "headers.text"
    for name, when in (("where", where("n > 6 AND text LIKE 'a%'")), ("dict", where({"n": 7})),
                       ("equal", match("eq", "a.b", field=text)), ("topic", match("topic", "a.*", field=text)),
                       ("prefix", match("prefix", "a.", field=text)), ("both", match("eq", "x") & where("yes"))):
        engine.create_selector("q", when=when, do=copy_to(name))
    engine.create_selector("q", when=always, do=deliver(field("headers.text")), credit=9)
    before = readers.called()
    engine.publish("q", Message("x", annex=(kind, b"\x07a.b")))
    engine.publish("q", Message("x", annex=(kind, b"\x05b.b")))
    assert readers.called() == before + 2
    assert [engine.queues[name].ready for name in ("where", "dict", "equal", "topic", "prefix", "both")] == [1, 1, 1, 1, 1, 2]
    [delivery] = engine.take(9, "a.b")
    assert delivery.message.headers["n"] == 7 and delivery.message.annex == (kind, b"\x07a.b")
    assert [m.id for m in engine.queues["both"].browse(where="n = 5")] == [2]
    batch = engine.queues["both"].browse_batch()
    assert dict(pyarrow.record_batch(batch)["headers"].to_pylist()[0])["n"] == 7
    assert readers.called() == before + 2, "what was yielded stays with the content, which copies share"


def test_it_travels_with_what_is_made_of_a_message(engine, kind):
    engine.create_queue("dead")
    engine.create_queue("q", dead_letter="dead")
    engine.create_queue("next", dead_letter="dead")
    engine.create_selector("q", when=always, do=move_to("next"), credit=9)
    engine.create_selector("next", when=always, do=deliver("d"), credit=9)
    annex = (kind, b"\x07hello")
    engine.publish("q", Message("a", b"x", reply_to="r", annex=annex), ttl=60)
    [delivery] = engine.take(1)
    assert delivery.message.annex == annex and delivery.message.expires is not None
    delivery.reject()
    [dead] = engine.queues["dead"].browse()
    assert dead.annex == annex and dead.headers["n"] == 7 and dead.headers["xump_reason"] == "rejected"
    message = Message("a", b"x", annex=annex)
    assert message.replace(body=b"y").annex == annex and message.replace(body=b"y").headers["n"] == 7
    assert message.replace(annex=None).annex is None and dict(message.replace(annex=None).headers) == {}
    copied = pickle.loads(pickle.dumps(message))
    assert copied == message and copied.annex == annex and message != message.replace(annex=None)
    assert Message(headers=message.headers).headers == message.headers
    assert repr(message) == f"Message('a', b'x', annex=({kind}, b'\\x07hello'))"


def test_a_python_reader(engine):
    kind = next(KINDS)
    calls = unread(kind)
    engine.create_queue("q")
    engine.create_selector("q", when=where("n = 3"), do=deliver("d"), credit=9)
    engine.publish("q", Message(annex=(kind, b"abc")))
    assert [dict(d.message.headers) for d in engine.take(2)] == [{"n": 3}] and calls == [b"abc"]


def test_readers_that_fail(readers, engine, monkeypatch):
    """Messages have no headers then; the error goes where errors go that nothing can raise."""
    seen = []
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: seen.append(str(unraisable.exc_value)))
    nothing, much, wrong, raising = (next(KINDS) for _ in range(4))
    readers.register(nothing, "nothing")
    readers.register(much, "much")
    register_annex(wrong, "wrong", lambda data: {"n": [1]})
    register_annex(raising, "raising", lambda data: 1 / 0)
    engine.create_queue("q", unmatched="keep")
    engine.create_selector("q", when=where("n IS NOT NULL"), do=deliver("d"))
    for kind in (nothing, much, wrong, raising):
        message = Message(annex=(kind, bytes(200_000)))
        engine.publish("q", message)
        assert dict(message.headers) == {}
    assert len(seen) == 4 and engine.queues["q"].ready == 4
    told = ("'nothing' cannot be read", "yields 2000110 bytes", "header 'n' must be", "division")
    for said, expected in zip(seen, told, strict=True):
        assert expected in said


def test_a_reader_that_calls_the_engine_is_refused(engine, monkeypatch):
    seen = []
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: seen.append(type(unraisable.exc_value)))
    kind = next(KINDS)
    register_annex(kind, "calling", lambda data: engine.publish("q"))
    engine.create_queue("q")
    engine.create_selector("q", when=where("n = 1"), do=copy_to("q"))
    engine.publish("q", Message(annex=(kind, b"")))
    assert seen == [xump.Reentrant] and engine.queues["q"].last_id == 1


def test_a_kind_that_is_registered_later():
    kind = next(KINDS)
    message = Message(annex=(kind, b"abc"))
    assert dict(message.headers) == {}
    unread(kind)
    assert dict(message.headers) == {"n": 3}


@pytest.mark.parametrize(("annex", "error", "said"), [
    (b"x", TypeError, "annex must be a tuple"), ((1, "x"), TypeError, "an annex must be bytes, got str"),
    (("1", b""), TypeError, "kind of an annex must be an int, got str"), ((True, b""), TypeError, "got bool"),
    ((0, b""), ValueError, "must be from 1 to 65535, got 0"), ((65536, b""), ValueError, "got 65536"),
    ((300, bytes(1 << 21)), ValueError, "has 2097152 bytes, allowed are 1048576")])
def test_what_is_no_annex(annex, error, said):
    with pytest.raises(error, match=said):
        Message(annex=annex)
    with pytest.raises(error, match=said):
        Message().replace(annex=annex)


def test_what_is_no_kind(readers, kind):
    for given, error, said in (
            (("300", "x"), TypeError, "a kind of annexes is an int"), ((255, "x"), ValueError, "from 256 to 65535, got 255"),
            ((30_000, ""), TypeError, "non-empty str"), ((30_000, "x", 1), TypeError, "callable as reader"),
            ((kind, "x"), xump.Conflict, f"kind {kind} of annexes is registered as 'all'")):
        with pytest.raises(error, match=said):
            register_annex(*given)
    with pytest.raises(xump.Conflict):
        readers.register(kind, "all")
    register_annex(30_000, "x")


@pytest.mark.parametrize("kind_of_store", ["lmdb", "ring"])
@pytest.mark.parametrize("number", ["registered", "not registered"])
def test_stores_keep_it(tmp_path, kind_of_store, number, kind, monkeypatch):
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 0)
    number = kind if number == "registered" else NEVER_REGISTERED
    annexes = [(number, b""), (number, b"\x07hello"), (number, bytes(100_000))]
    path = str(tmp_path / "d")
    with xump.Engine() as engine:
        engine.create_store("d", kind_of_store, path=path)
        engine.create_queue("q", store="d")
        for annex in annexes:
            engine.publish("q", Message("a", b"body", annex=annex), delay=None)
        with engine.transaction() as tx:
            tx.publish("q", Message("a", b"body", {"m": 1}, correlation_id="c", annex=annexes[1]))
        engine.publish_many("q", [Message("plain", b"body")])
        engine.sync()
        assert [message.annex for message in engine.queues["q"].browse()] == [*annexes, annexes[1], None]
        engine.check()
    for turn in range(2):
        assert main.main(["compact" if turn else "check", path]) == 0
        with xump.Engine() as engine:
            engine.create_store("d", kind_of_store, path=path)
            messages = list(engine.queues["q"].browse())
            assert [message.annex for message in messages] == [*annexes, annexes[1], None]
            assert all(message.body == b"body" for message in messages)
            assert messages[1].headers.get("n") == (7 if number == kind else None) and dict(messages[3].headers) == {"m": 1}
            engine.check()


def test_what_is_shown(kind):
    named, unnamed = Message("a", annex=(kind, b"\x07x")), Message("a", annex=(NEVER_REGISTERED, b"\x00"))
    assert "annex=all 2 B" in line_of_message(named, "ready", None)
    assert f"annex={NEVER_REGISTERED} 1 B" in line_of_message(unnamed, "ready", None)
    assert json_of_message(named, "ready", None)["annex"] == {"kind": kind, "base64": "B3g="}
    assert json_of_message(Message("a"), "ready", None)["annex"] is None
