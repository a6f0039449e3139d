"""What AMQP clients publish, as the engine's conditions, filters and programs see it."""

import datetime
import decimal
import struct

import pytest
from hypothesis import given, strategies as st
from pamqp import commands

import xump
from xump import Message, always, copy_to, field, match, where
from xump.broker import message_of, properties_of
from xump.broker.envelope import annex, envelope_of, join
from xump.broker.tables import Typed, encode_table
from xump_ext.amqp.envelope import KIND

INTEGERS = {"I": 32, "l": 64, "L": 64, "s": 16, "b": 8}
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
integers = st.one_of(
    *[st.builds(Typed, st.just(kind), st.integers(-2**(bits - 1), 2**(bits - 1) - 1)) for kind, bits in INTEGERS.items()],
    *[st.builds(Typed, st.just(kind), st.integers(0, 2**bits - 1)) for kind, bits in (("i", 32), ("u", 16), ("B", 8))])
seen = st.one_of(
    integers, st.builds(Typed, st.just("t"), st.booleans()), st.builds(Typed, st.just("d"), st.floats(allow_nan=False)),
    st.builds(Typed, st.just("f"), st.floats(width=32, allow_nan=False)), st.builds(Typed, st.just("x"), st.binary(max_size=9)),
    st.builds(Typed, st.just("T"), st.integers(0, 2**63 - 1)),
    st.builds(Typed, st.just("S"), names.map(str.encode)), st.builds(Typed, st.just("S"), st.binary(max_size=9)))
unseen = st.sampled_from([
    Typed("V", None), Typed("T", 1 << 63), Typed("D", (2, 314)), Typed("A", [Typed("I", 1)]), Typed("F", {"a": Typed("I", 1)})])
tables = st.dictionaries(names.filter(lambda name: len(name.encode()) < 256), seen | unseen, max_size=9)


def with_headers(table, **others):
    return Message("a", b"body", annex=annex(b"news", join({"headers": encode_table(table), **others})))


def visible(typed):
    """What Xump's headers have of a value."""
    if typed.kind != "S":
        return typed.value
    try:
        return typed.value.decode()
    except UnicodeDecodeError:
        return typed.value


def is_seen(typed):
    return typed.kind not in "VDAF" and (typed.kind != "T" or typed.value < 1 << 63)


@given(table=tables)
def test_the_values_that_headers_can_hold_are_headers(table):
    expected = {name: visible(value) for name, value in table.items() if is_seen(value)}
    got = dict(with_headers(table).headers)
    assert got == expected and [type(value) for value in got.values()] == [type(value) for value in expected.values()]
    assert list(got) == list(expected)


@given(pairs=st.lists(st.tuples(st.sampled_from(["a", "b", "cc"]), seen | unseen), max_size=12))
def test_of_a_name_that_is_there_twice_the_last_value_counts(pairs):
    fields = b"".join(encode_table({name: value})[4:] for name, value in pairs)
    message = Message(annex=annex(b"", join({"headers": struct.pack(">I", len(fields)) + fields})))
    expected = {name: visible(value) for name, value in dict(pairs).items() if is_seen(value)}
    assert dict(message.headers) == expected and list(message.headers) == list(expected)


def test_many_names_are_read():
    table = {f"n{number % 20_000}": Typed("I", number) for number in range(20_000)}
    assert len(with_headers(table).headers) == 20_000


def test_names_that_headers_cannot_have_are_passed_over():
    table = {"": Typed("I", 1), "\udcff": Typed("I", 2), "ok": Typed("I", 3)}
    assert dict(with_headers(table).headers) == {"ok": 3}


@pytest.mark.parametrize("others", [{}, {"content_type": b"\x04text", "priority": b"\x03", "expiration": b"\x0260"}])
def test_without_a_table_there_are_no_headers(others):
    assert len(Message(annex=annex(b"x", join(others))).headers) == 0
    assert dict(with_headers({"a": Typed("I", 7)}, **others).headers) == {"a": 7}


def test_an_annex_that_is_none_has_no_headers(monkeypatch):
    said = []
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: said.append(str(unraisable.exc_value)))
    whole = with_headers({"a": Typed("S", b"text"), "b": Typed("A", [Typed("V", None)])}).annex[1]
    for size in range(len(whole)):
        assert dict(Message(annex=(KIND, whole[:size])).headers) == {}
    assert said == ["an annex of the kind 'amqp' cannot be read"] * len(whole)


def test_conditions_filters_and_browse_read_what_clients_sent():
    with xump.Engine() as engine:
        engine.create_queue("news", unmatched="keep")
        conditions = {"where": where("size > 6 AND colour LIKE 'r%'"), "equal": match("eq", "red", field="headers.colour"),
                      "dict": where({"size": 7}), "function": where(lambda message: message.headers.get("urgent") is True)}
        for name, when in conditions.items():
            engine.create_queue(name)
            engine.create_selector("news", when=when, do=copy_to(name))
        engine.create_selector("news", when=always, do=copy_to(field("headers.colour")))
        engine.create_queue("red")
        table = {"size": Typed("b", 7), "colour": Typed("S", b"red"), "urgent": Typed("t", True), "tags": Typed("A", [])}
        engine.publish("news", with_headers(table))
        engine.publish("news", with_headers({"size": Typed("I", 5), "colour": Typed("S", b"blue")}))
        assert [engine.queues[name].ready for name in (*conditions, "red")] == [1] * 5
        assert [message.headers["size"] for message in engine.queues["red"].browse(where="colour = 'red'")] == [7]
        engine.check()


def test_a_program_publishes_and_reads_properties():
    when = datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)
    properties = {
        "content_type": "text/plain", "content_encoding": "utf-8", "delivery_mode": 2, "priority": 5, "correlation_id": "c",
        "reply_to": "r", "expiration": "60000", "message_id": "m", "timestamp": when, "type": "t", "user_id": "u", "app_id": "a",
        "headers": {"n": 1, "none": None, "list": [1, [2.5], {"a": b"x"}], "when": when, "yes": True, "text": "ü"}}
    message = message_of("jobs", b"body", properties, exchange="news")
    assert properties_of(message) == properties
    assert (message.address, message.body, message.priority) == ("jobs", b"body", 5)
    assert dict(message.headers) == {"n": 1, "when": int(when.timestamp()), "yes": True, "text": "ü"}
    envelope = envelope_of(message)
    assert (envelope.exchange, envelope.key) == (b"news", b"jobs")
    decoded = commands.Basic.Properties()
    decoded.unmarshal(int.from_bytes(envelope.properties[:2], "big"), envelope.properties[2:])
    assert (decoded.message_type, decoded.timestamp, decoded.headers["list"][1]) == ("t", when, [2.5])
    assert properties_of(with_headers({"d": Typed("D", (2, 314)), "t": Typed("T", 2**63)})) == {
        "headers": {"d": decimal.Decimal("3.14"), "t": 2**63}}
    for wrong in ({"headers": {"a": {1}}}, {"colour": "red"}):
        with pytest.raises(TypeError):
            message_of("a", b"", wrong)


def test_what_a_program_published_has_properties_too():
    message = Message("jobs", b"", {"n": 1, "half": 0.5, "raw": b"x", "no": False}, reply_to="r", message_id="m", priority=3)
    assert properties_of(message) == {
        "headers": {"n": 1, "half": 0.5, "raw": b"x", "no": False}, "reply_to": "r", "message_id": "m", "priority": 3}
