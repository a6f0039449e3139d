"""The cost of a method does not grow with things that have nothing to do with it: steps are counted, not seconds."""

import pika
import pytest

from xump import _names


@pytest.fixture
def channel(broker):
    with pika.BlockingConnection(pika.ConnectionParameters(*broker.address)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


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
