"""Titanic's broker is killed in the middle of work: nothing that it accepted is lost. XUMP_KILLS says how often, else few."""

import os
import random
import signal

import pytest
import zmq

from tests.zeromq.proxy import free_endpoint
from tests.zeromq.test_sockets import Command
from xump.zeromq import Client, Worker

KILLS = int(os.environ.get("XUMP_KILLS", "4"))
BEATS = ["--heartbeat", "0.2", "--liveness", "5"]


@pytest.fixture
def endpoint():
    return free_endpoint()


def accepted(endpoint, raw, count, numbers):
    """Send 20 requests at once, and return what was accepted of them when `count` were: {uuid: number}."""
    with raw(zmq.DEALER, endpoint) as client:
        for number in numbers:
            client.send_multipart([b"MDPC02", b"\1", b"titanic.request", b"double", b"%d" % number])
        found = {}
        for number in numbers[:count]:      # they are accepted in the order in which they came
            *_, status, uuid = client.recv_multipart()
            assert status == b"200"
            found[uuid] = number
        return found


def test_no_accepted_request_is_lost_however_often_the_broker_is_killed(context, endpoint, raw, work, tmp_path):
    chance, path, known = random.Random(7), str(tmp_path / "ring"), {}
    for _ in range(2):
        work(Worker(endpoint, b"double", heartbeat=0.2, liveness=5, back_off=(0.02, 0.1), context=context),
             lambda body: b"%d" % (2 * int(body[0])))
    for kill in range(KILLS + 1):
        broker = Command("majordomo", endpoint, "--titanic", path, *BEATS)
        assert broker.said
        known |= accepted(endpoint, raw, chance.randrange(1, 20), range(20 * kill, 20 * kill + 20))
        if kill < KILLS:
            assert broker.end(signal.SIGKILL) == -signal.SIGKILL
    with Client(endpoint, timeout=60.0, context=context) as client:
        for uuid, number in known.items():
            while (reply := client.request(b"titanic.reply", uuid)) == [b"300"]:
                pass
            assert reply == [b"200", b"%d" % (2 * number)]
            assert client.request(b"titanic.close", uuid) == [b"200"]
            assert client.request(b"titanic.reply", uuid) == [b"400"]
    assert broker.end() == 0
    broker = Command("majordomo", endpoint, "--titanic", path, *BEATS)
    with Client(endpoint, timeout=60.0, context=context) as client:
        for uuid in known:
            assert client.request(b"titanic.reply", uuid) == [b"400"], "closed is closed, also after a restart"
    assert broker.end() == 0
