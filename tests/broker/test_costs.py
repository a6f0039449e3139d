"""The cost of a method does not grow with things that have nothing to do with it: steps are counted, not seconds."""

import pika
import pytest

from xump import _names
from xump.broker import exchanges


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
