"""Dead letters of AMQP queues: what the compiled rewriter writes is what the tables of deaths.py say."""

import pytest
from hypothesis import given, settings, strategies as st

import xump
from tests.amqp.deaths import dead_letter
from xump import Death, Message, always, copy_to
from xump.broker import message_of, properties_of
from xump.broker.envelope import annex, envelope_of, join, split
from xump.broker.tables import Typed, decode_table, encode_table, text

NOW = 1_700_000_000_123_456_789
QUEUES = ["jobs", "other", "third"]

values = st.sampled_from([
    Typed("S", b"text"), Typed("I", 7), Typed("V", None), Typed("A", [Typed("S", b"k1"), Typed("I", 3), Typed("S", b"k2")]),
    Typed("F", {"a": Typed("t", True)}), Typed("T", 5), Typed("D", (2, 314))])
deaths = st.fixed_dictionaries({
    "queue": st.sampled_from(QUEUES).map(text), "reason": st.sampled_from(["rejected", "expired", "maxlen"]).map(text),
}, optional={"count": st.sampled_from([Typed("l", 3), Typed("I", 4), Typed("S", b"no number"), Typed("b", -1)]), "more": values})
histories = st.one_of(
    values, st.lists(st.one_of(deaths.map(lambda entry: Typed("F", entry)), values), max_size=5).map(lambda all: Typed("A", all)))
headers = st.fixed_dictionaries({}, optional={
    "x-death": histories, "CC": values, "BCC": values, "x-first-death-reason": values, "x-first-death-queue": values, "a": values,
    "x-last": values})
properties = st.fixed_dictionaries({}, optional={
    "headers": headers.map(encode_table), "content_type": st.just(b"\x04text"), "delivery_mode": st.just(b"\x02"),
    "priority": st.just(b"\x05"), "expiration": st.just(b"\x0560000"), "timestamp": st.just(bytes(8)),
    "app_id": st.just(b"\x01a"), "reply_to": st.just(b"\x05reply"), "cluster_id": st.just(b"\x00")})


class Clock:
    def __call__(self):
        return NOW


@pytest.fixture
def engine():
    with xump.Engine(clock=Clock(), hop_limit=1024) as engine:
        yield engine
        engine.check()


def letters_of(engine, message, reason, rewriter):
    """What becomes of a message that dies in the queue `jobs`: the letters in each of the queues."""
    engine.create_queue("amq.x/dlx", transit=True)
    for name in QUEUES:
        options = {"limit": 0} if name == "jobs" and reason == "overflow" else {}
        engine.create_queue(name, dead_letter="amq.x/dlx", rewriter=rewriter, delivery_limit=1, **options)
        if name != "jobs" or reason != "overflow":
            engine.create_selector("amq.x/dlx", when=always, do=copy_to(name))
    engine.publish("jobs", message)
    if reason == "rejected":
        engine.get("jobs").reject()
    elif reason == "delivery-limit":
        engine.get("jobs").nack()
    return {name: [*engine.queues[name].browse()] for name in QUEUES}


@settings(max_examples=300)
@given(listed=properties, reason=st.sampled_from(["rejected", "overflow", "delivery-limit"]),
       new_key=st.sampled_from([None, "", "k"]), exchange=st.sampled_from([b"", b"news"]))
def test_a_dead_letter_is_as_the_tables_say(listed, reason, new_key, exchange):
    message = Message("key", b"body", priority=5, annex=annex(exchange, join(listed)))
    death = Death(reason, "jobs", "amq.x/dlx", "", None, NOW)
    expected, key, barred = dead_letter(exchange, join(listed), "key", death, new_key)
    with xump.Engine(clock=Clock()) as engine:
        came = letters_of(engine, message, reason, ["amqp", f"={new_key}"] if new_key is not None else "amqp")
        entered = {name for name, letters in came.items() if letters}
        assert entered == set(QUEUES) - barred - ({"jobs"} if reason == "overflow" else set())
        for [letter] in (letters for letters in came.values() if letters):
            envelope = envelope_of(letter)
            assert (letter.address, letter.body, letter.priority, envelope.exchange) == (key, b"body", 5, b"dlx")
            assert tables(envelope.properties) == tables(expected)
        engine.check()


def tables(listed):
    """The properties, and the headers as a table: the order of fields has no meaning."""
    given = split(listed)
    return {**given, "headers": decode_table(given["headers"][4:])}


def test_what_a_program_published_dies_as_what_clients_sent(engine):
    message = Message("key", b"body", {"n": 1, "half": 0.5, "raw": b"x", "no": False, "text": "ü"}, reply_to="r", message_id="m",
                      correlation_id="c", priority=3)
    [letter] = letters_of(engine, message, "rejected", "amqp")["other"]
    found = properties_of(letter)
    [entry] = found["headers"].pop("x-death")
    assert entry.pop("time").timestamp() == NOW // 10**9
    assert entry == {"count": 1, "reason": "rejected", "queue": "jobs", "exchange": "", "routing-keys": ["key"]}
    assert found == {
        "headers": {"n": 1, "half": 0.5, "raw": b"x", "no": False, "text": "ü", "x-first-death-reason": "rejected",
                    "x-first-death-queue": "jobs", "x-first-death-exchange": ""},
        "reply_to": "r", "message_id": "m", "correlation_id": "c", "priority": 3}
    assert (letter.reply_to, letter.message_id, letter.correlation_id, letter.priority) == ("r", "m", "c", 3)
    assert letter.headers["x-first-death-reason"] == "rejected" and "xump_reason" not in letter.headers


def test_rejected_a_thousand_times(engine):
    """reject → exchange → copy → reject: as long as the client rejects."""
    engine.create_queue("amq.x/dlx", transit=True)
    engine.create_queue("jobs", dead_letter="amq.x/dlx", rewriter="amqp")
    engine.create_selector("amq.x/dlx", when=always, do=copy_to("jobs"))
    engine.publish("jobs", message_of("key", b"body", {"headers": {"n": 1}}))
    for _round in range(1000):
        engine.get("jobs").reject()
    [letter] = engine.queues["jobs"].browse()
    [entry] = properties_of(letter)["headers"]["x-death"]
    assert entry["count"] == 1000 and len(letter.annex[1]) < 300


def test_an_exchange_for_dead_letters_that_leads_to_the_queue_where_they_died(clock):
    """Rejected: it comes back. Expired: RabbitMQ's cycle rule drops it, unless it was rejected in between."""
    with xump.Engine(clock=clock) as engine:
        engine.create_queue("amq.x/dlx", transit=True)
        for name in ("jobs", "wait"):
            engine.create_queue(name, dead_letter="amq.x/dlx", rewriter="amqp", ttl=5e-9)
        own = engine.create_selector("amq.x/dlx", when=always, do=copy_to("jobs"))
        engine.publish("jobs", message_of("key", b"body", {}))
        engine.get("jobs").reject()
        assert engine.queues["jobs"].ready == 1
        clock.now += 10
        engine.tick()
        assert engine.queues["jobs"].ready == 0, "it died there by itself"
        own.delete()
        engine.create_selector("amq.x/dlx", when=always, do=copy_to("wait"), name="retry")
        engine.publish("jobs", message_of("key", b"body", {}))
        engine.get("jobs").reject()
        engine.selectors["retry"].delete()
        engine.create_selector("amq.x/dlx", when=always, do=copy_to("jobs"))
        clock.now += 6
        engine.tick()
        [letter] = engine.queues["jobs"].browse()
        assert [(entry["queue"], entry["reason"]) for entry in properties_of(letter)["headers"]["x-death"]] == [
            ("wait", "expired"), ("jobs", "rejected")]
        engine.check()
