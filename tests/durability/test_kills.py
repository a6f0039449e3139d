"""A process with a durable store is killed, again and again; what it had confirmed is there, what it had acked is not.

The child is forked; it says in a pipe what it is about to do and what it has done. The same store lives through all
kills: 75, unless `XUMP_KILLS` says how many.
"""

import os
import random
import select
import signal
import time

import pytest

from xump import Engine, always, copy_to, deliver, match, move_to

KILLS = int(os.environ.get("XUMP_KILLS", "75"))
STORES = {
    "lmdb": {"durability": "sync"},
    "ring": {"durability": "sync", "segment_bytes": 1 << 16, "min_bytes": 1 << 18, "max_bytes": 1 << 20},
    "ring, process": {"durability": "process", "segment_bytes": 1 << 16, "min_bytes": 1 << 18, "max_bytes": 1 << 20},
}


def open_engine(kind, path, clock=time.time_ns):
    engine = Engine(clock=clock)
    engine.create_store("d", kind.partition(",")[0], path=path, **STORES[kind])
    return engine


def build(engine):
    """jobs ── MOVE ── work ── DELIVER, with a copy of some."""
    with engine.building():
        engine.create_queue("copies", store="d")
        engine.create_queue("work", store="d", history_limit=5)
        engine.create_queue("jobs", store="d")
        engine.create_selector("jobs", when=match("eq", "copy"), do=copy_to("copies"))
        engine.create_selector("jobs", when=always, do=move_to("work"), credit=7)
        engine.create_selector("work", when=always, do=deliver("d"), credit=5)


def child(kind, path, number, pipe, seed):
    """Publishes and acks for ever; "P5" before and "p5" after message 5 was published, "A5" and "a5" for its ack."""
    chance = random.Random(seed)
    engine = open_engine(kind, path)
    build(engine)
    os.write(pipe, b"ready\n")
    while True:
        if chance.random() < 0.55:
            number += 1
            os.write(pipe, b"P%d\n" % number)
            engine.publish("jobs", chance.choice(["copy", "plain"]), b"%d" % number, {"n": number})
            os.write(pipe, b"p%d\n" % number)
        else:
            for delivery in engine.take(chance.randint(1, 3)):
                body = delivery.message.body
                if chance.random() < 0.2:
                    delivery.nack()
                else:
                    os.write(pipe, b"A%s\n" % body)
                    delivery.ack()
                    os.write(pipe, b"a%s\n" % body)


def run_and_kill(kind, path, number, chance):
    """The lines of a child that was killed after some milliseconds of work."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            child(kind, path, number, writing, chance.random())
        finally:
            os._exit(1)
    os.close(writing)
    text = b""
    while b"ready" not in text:
        got = os.read(reading, 65536)
        assert got, "the child ended before it was ready"
        text += got
    wanted = chance.randrange(4)        # however slow the disk is, it comes to something
    while text.count(b"\np") < wanted and (got := os.read(reading, 65536)):
        text += got
    left = chance.random() * 0.012
    while select.select([reading], [], [], left)[0]:
        text += os.read(reading, 65536)
        left *= 0.5
        if left < 0.0002:
            break
    os.kill(pid, signal.SIGKILL)
    while got := os.read(reading, 65536):
        text += got
    os.close(reading)
    os.waitpid(pid, 0)
    return [line for line in text.split(b"\n")[:-1] if line != b"ready"]


@pytest.mark.parametrize("kind", STORES)
def test_killed_again_and_again(kind, tmp_path):
    chance = random.Random(kind)
    path = str(tmp_path / "store")
    published, acked, doubtful, number = set(), set(), set(), 0
    for kill in range(KILLS):
        lines = run_and_kill(kind, path, number, chance)
        for line in lines:
            {b"P": doubtful, b"p": published, b"A": doubtful, b"a": acked}[line[:1]].add(int(line[1:]))
            number = max(number, int(line[1:]))
        with open_engine(kind, path) as engine:
            engine.check()
            live = [int(message.body) for name in ("jobs", "work") for message in engine.queues[name].browse(state="ready")]
            assert len(live) == len(set(live)), f"kill {kill}: in two places"
            begun = {int(line[1:]) for line in lines if line[:1] == b"A"}
            lost = published - acked - begun - set(live)
            assert not lost, f"kill {kill}: confirmed, and not there: {sorted(lost)}"
            assert not acked & set(live), f"kill {kill}: acked, and there: {sorted(acked & set(live))}"
            assert set(live) <= published | doubtful, f"kill {kill}: never published: {sorted(set(live) - published - doubtful)}"
            published = set(live)           # what was in doubt is decided
            if kill % 10 == 9:
                engine.queues["copies"].purge()
    assert number > KILLS
