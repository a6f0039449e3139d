"""The cost of a method, or of an end, does not grow with what has nothing to do with it: steps are counted, not seconds."""

import sys

import pika
import pytest

from xump import _names
from xump.broker import exchanges
from xump.broker.connection import Connection
from xump.broker.exchange_graph import ExchangeGraph
from xump.broker.exchanges import Exchange
from xump.broker.tables import text


def test_names_that_are_not_there_are_compared_with_no_others(channel, monkeypatch):
    compared = []
    monkeypatch.setattr(_names, "get_close_matches", lambda *given: compared.append(given[0]) or [])
    channel.queue_declare("jobs")
    channel.basic_publish("", "a", b"", pika.BasicProperties(headers={"CC": ["b", "c"], "BCC": ["d"]}))
    channel.basic_publish("", "jobs", b"")
    channel.queue_delete("jobs")
    channel.queue_delete("jobs")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'jobs' in vhost '/'"):
        channel.queue_declare("jobs", passive=True)
    assert compared == []


@pytest.fixture
def compared(monkeypatch):
    """How often destinations were compared."""
    count = [0]
    same = exchanges.Destination.__eq__

    def counted(one, other):
        count[0] += 1
        return same(one, other)

    monkeypatch.setattr(exchanges.Destination, "__eq__", counted)
    return count


@pytest.mark.parametrize("end", [
    lambda channel: channel.queue_delete("jobs"),
    lambda channel: channel.exchange_delete("between"),
], ids=["queue", "exchange"])
def test_an_end_looks_at_its_own_bindings(channel, compared, end):
    steps = []
    for others in (0, 60):
        channel.queue_declare("jobs")
        channel.exchange_declare("between", "fanout")
        channel.queue_bind("jobs", "between")
        channel.exchange_bind("between", "amq.topic", "a.*")
        channel.queue_bind("jobs", "amq.topic", "a.b")
        for number in range(others):
            channel.queue_declare(f"other {number}")
            channel.queue_bind(f"other {number}", "amq.topic", f"c.{number}")
            channel.queue_bind(f"other {number}", "amq.direct", str(number))
        compared[0] = 0
        end(channel)
        steps.append(compared[0])
    assert max(steps) < 20                      # beside 120 bindings that stay


def test_an_exchange_forgets_only_with_its_own_bindings_where_keys_led(channel, broker, monkeypatch):
    looked = []
    direct = exchanges.KEY_MATCHES["direct"]
    monkeypatch.setitem(exchanges.KEY_MATCHES, "direct", lambda pattern, key: looked.append(key) or direct(pattern, key))
    headers = pika.BasicProperties(headers={"CC": ["b"]})           # so that the broker routes it
    channel.queue_declare("jobs")
    channel.queue_bind("jobs", "amq.direct", "a")
    channel.basic_publish("amq.direct", "a", b"", headers)
    seen = len(looked)
    channel.queue_declare("brief")
    channel.queue_bind("brief", "amq.topic", "a")
    channel.queue_delete("brief")
    channel.basic_publish("amq.direct", "a", b"", headers)
    assert len(looked) == seen
    channel.queue_declare("brief")
    channel.queue_bind("brief", "amq.direct", "a")
    channel.basic_publish("amq.direct", "a", b"", headers)
    seen = len(looked)
    channel.queue_delete("brief")
    channel.basic_publish("amq.direct", "a", b"", headers)
    assert len(looked) > seen
    assert broker.vhosts["/"].queues["jobs"].handle.ready == 4


def lines_of(code, call):
    """How many lines of a function, and of what it comprehends, a call runs; each as often as it is run."""
    count = [0]

    def line(frame, event, argument):
        count[0] += event == "line"
        return line

    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: line if frame.f_code.co_name in (code, "<listcomp>") else None)
    try:
        call()
    finally:
        sys.settrace(before)
    return count[0]


def test_an_exchange_comes_without_a_look_at_the_alternates_of_others(engine):
    graph = ExchangeGraph(engine)

    def declare(name, alternate):
        graph.declared(Exchange(name, "direct", arguments={"alternate-exchange": text(alternate)}))

    lines = []
    for others in (1, 60):
        for number in range(others):
            declare(f"{others} {number}", "amq.fanout")
        lines.append(lines_of("declared", lambda name=f"{others}": declare(name, "amq.topic")))
    assert lines[0] == lines[1] > 0


def test_a_connection_ends_without_a_look_at_the_queues_of_others(channel, broker):
    lines = []
    for others in (1, 60):
        for number in range(others):
            channel.queue_declare(f"{others} {number}")
        ended = Connection(broker)
        ended.vhost = broker.vhosts["/"]
        lines.append(lines_of("_end", ended._end))
    assert lines[0] == lines[1] > 0
