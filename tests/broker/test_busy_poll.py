"""Busy polling: the loop of a broker stays awake for a while after a client has sent something."""

import asyncio

import pytest

from xump import Engine
from xump.broker import Broker
from xump.broker.busy_poll import BusyPoll


class Loop:
    """Runs what is due when it is told to; time is what the test says."""

    def __init__(self, monkeypatch):
        self.now, self.due = 7.0, []
        monkeypatch.setattr("xump.broker.busy_poll.monotonic", lambda: self.now)

    def call_soon(self, call):
        self.due.append(call)

    def turns(self, seconds):
        """How many turns it takes without sleeping, each a microsecond, in so long at most."""
        end, turns = self.now + seconds, 0
        while self.due and self.now < end:
            self.now += 1e-6
            turns += 1
            self.due.pop()()
        return turns


def test_a_loop_stays_awake_after_each_thing_that_came(monkeypatch):
    loop = Loop(monkeypatch)
    poll = BusyPoll(loop, 50)
    assert loop.turns(1) == 0
    poll.heard()
    assert loop.turns(1) == pytest.approx(50, abs=1)
    poll.heard()
    assert loop.turns(30e-6) == pytest.approx(30, abs=1)
    poll.heard()
    poll.heard()
    assert len(loop.due) == 1
    assert loop.turns(1) == pytest.approx(50, abs=1)


def test_or_not_at_all(monkeypatch):
    loop = Loop(monkeypatch)
    BusyPoll(loop, 0).heard()
    assert not loop.due


@pytest.mark.parametrize("microseconds", [0, 1, 1_000])
def test_a_broker_that_polls_answers_and_ends(microseconds):
    async def answered(broker):
        reader, writer = await asyncio.open_connection(*broker.address)
        for byte in b"AMQP\0\0\x09\x01":
            writer.write(bytes([byte]))
            await writer.drain()
        frame = await reader.readexactly(11)
        writer.close()
        return frame[7:]

    with Engine() as engine, Broker(engine, amqp="127.0.0.1:0", busy_poll=microseconds) as broker:
        assert asyncio.run(answered(broker)) == b"\0\x0a\0\x0a"          # connection.start


@pytest.mark.parametrize("wrong, error, what", [
    (-1, ValueError, "from 0 to 1000, got -1"), (1_001, ValueError, "got 1001"), (None, TypeError, "got NoneType"),
    (0.5, TypeError, "an int of microseconds, got float")])
def test_what_is_wrong_is_refused(wrong, error, what):
    with Engine() as engine, pytest.raises(error, match=f"busy_poll must be .*{what}"):
        Broker(engine, amqp="127.0.0.1:0", busy_poll=wrong)
