"""What a method was refused, or could not do, is not in the store: the broker starts again, and has what it had."""

from contextlib import contextmanager

import pytest

import xump
from tests.broker.raw_client import Link, value_of
from tests.broker.steps import Connect
from xump.broker import Broker, keeping
from xump.broker.tables import LEVELS_MAX, Typed, decode_table, encode_table, text


@pytest.fixture
def begun(tmp_path):
    """A broker over a store, with a client; whoever begins it again finds what was kept."""
    @contextmanager
    def begin():
        with xump.Engine(hop_limit=1024) as engine:
            engine.create_store("broker", "ring", path=str(tmp_path / "broker.xump"))
            with Broker(engine, amqp="127.0.0.1:0", store="broker") as broker:
                link = Link("a", broker.address, [])
                with link.socket:
                    link.connect(Connect())
                    yield broker, link
            engine.check()
    return begin


def ask(link, method, **fields):
    link.send(1, method, **fields)
    assert link.read_until({f"{method}ok"}, channel=1), link.said[-1]


def nested(levels):
    """A table with so many tables within each other."""
    table = {}
    for _level in range(levels - 1):
        table = {"t": Typed("F", table)}
    return table


def test_an_alternate_exchange_whose_name_is_not_utf_8_is_none(begun):
    with begun() as (broker, link):
        ask(link, "exchange.declare", exchange="news", exchange_type="direct", durable=True,
            arguments={"alternate-exchange": Typed("S", b"\xff")})
    with begun() as (broker, link):
        assert broker.vhosts["/"].exchanges["news"].alternate == "\udcff"
        ask(link, "queue.declare", queue="jobs", durable=True)
        ask(link, "queue.bind", queue="jobs", exchange="news", routing_key="a")


def test_arguments_that_nest_as_deep_as_they_may(begun):
    deep = nested(LEVELS_MAX)
    with begun() as (broker, link):
        ask(link, "exchange.declare", exchange="news", exchange_type="direct", durable=True, arguments=deep)
        ask(link, "queue.declare", queue="jobs", durable=True, arguments=deep)
        ask(link, "queue.bind", queue="jobs", exchange="news", arguments=deep)
    with begun() as (broker, link):
        [binding] = broker.vhosts["/"].exchanges["news"].bindings.values()
        assert binding.arguments == broker.vhosts["/"].exchanges["news"].arguments == deep
        ask(link, "exchange.delete", exchange="news")


def test_a_binding_that_the_engine_refuses_is_not_kept(begun, monkeypatch):
    with begun() as (broker, link):
        vhost = broker.vhosts["/"]
        ask(link, "queue.declare", queue="jobs", durable=True)
        ask(link, "exchange.declare", exchange="news", exchange_type="fanout", durable=True)
        with monkeypatch.context() as patched:
            patched.setattr(vhost.graph, "_conditions", lambda _source, _binding: ["no condition"])
            link.send(1, "queue.bind", queue="jobs", exchange="news")
            assert link.read_until({"connection.close"}) or not link.open
        assert not vhost.exchanges["news"].bindings and not vhost.engine.selectors
        assert not list(keeping.read_bindings(vhost.engine.queues["jobs"].meta))
    with begun() as (broker, link):
        assert not broker.vhosts["/"].exchanges["news"].bindings


def test_an_exchange_that_the_engine_refuses_is_not_kept(begun, monkeypatch):
    with begun() as (broker, link):
        vhost = broker.vhosts["/"]
        with monkeypatch.context() as patched:
            patched.setattr(vhost.graph, "_made", lambda _name: 1 / 0)
            link.send(1, "exchange.declare", exchange="news", exchange_type="fanout", durable=True,
                      arguments={"alternate-exchange": value_of("amq.fanout")})
            assert link.read_until({"connection.close"}) or not link.open
        assert "news" not in vhost.exchanges and not list(keeping.read_exchanges(vhost.engine.stores["broker"].meta))


def test_a_binding_that_has_no_room_in_its_map_is_not_there(begun):
    """Nor does one that was there go if it comes again."""
    with begun() as (broker, link):
        vhost = broker.vhosts["/"]
        ask(link, "queue.declare", queue="jobs", durable=True)
        ask(link, "queue.bind", queue="jobs", exchange="amq.headers", arguments={"a": value_of("u" * 40_000)})
        ask(link, "queue.bind", queue="jobs", exchange="amq.headers", arguments={"a": value_of("u" * 40_000)})
        link.send(1, "queue.bind", queue="jobs", exchange="amq.headers", arguments={"a": value_of("v" * 70_000)})
        assert not link.read_until({"queue.bindok"}, channel=1) and link.last["reply_code"] == 406
        link.send(2, "queue.bind", queue="jobs", exchange="amq.headers", arguments={"a": value_of("v" * 40_000)})
        assert not link.read_until({"queue.bindok"}, channel=2) and link.last["reply_code"] == 406
        assert "no room for one more" in link.last["reply_text"] and link.open
        assert (len(vhost.exchanges["amq.headers"].bindings), len(vhost.engine.selectors)) == (1, 2)    # texts and bytes


def test_what_an_older_broker_kept_for_a_staged_queue_counts_for_nothing(begun):
    with begun() as (broker, link):
        ask(link, "queue.declare", queue="jobs", durable=True)      # the client's methods have begun
        engine, source = broker.vhosts["/"].engine, broker.vhosts["/"].exchanges["amq.fanout"]
        engine.create_queue("staging", staged=True, store="broker", meta=dict([keeping.binding(source, "", {}, None)]))
    with begun() as (broker, link):
        assert not broker.vhosts["/"].exchanges["amq.fanout"].bindings


def test_a_table_of_a_client_in_another_one_may_be_read():
    inner = nested(LEVELS_MAX)
    assert decode_table(encode_table({"a": Typed("F", inner), "b": text("x")})[4:], -1)["a"].value == inner
