"""A process is killed while messages are delayed, may expire, wait behind their key, and are known by their `message_id`.

The child is forked. It says in a pipe what it did, each time when that was durable. The clock is a counter: it moves on by the
child's own steps, so the kill is the only thing that is not drawn. A store lives through five kills. There is one of each kind,
unless `XUMP_KILLS` says how many kills there are.
"""

import json
import os
import random
import signal

import pytest

from tests.durability.test_kills import STORES, open_engine
from xump import StaleDelivery, always, deliver, field

KILLS_EACH = 5
STORES_EACH = max(int(os.environ.get("XUMP_KILLS", "5")) // KILLS_EACH, 1)
SECOND = 1_000_000_000
LONG = 10_000           # seconds: none of these delays ends


class Clock:
    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now


def engine_with_queues(kind, path, clock):
    """Held, as its store was opened."""
    engine = open_engine(kind, path, clock)
    engine.create_queue("late", store="d")
    engine.create_queue("jobs", store="d", group=field("headers.key"), dedup=100_000, dedup_limit=100_000, priority=3,
                        retry_delay=[2, 4], dead_letter="late", ttl=2 * LONG)
    return engine


def release(engine):
    with engine.building():
        engine.create_selector("jobs", when=always, do=deliver("worker"), credit=3)


def child(kind, path, clock, number, tell, chance):
    """Publishes, takes and answers for ever."""
    engine = engine_with_queues(kind, path, clock)
    release(engine)
    taken = []
    while True:
        clock.now += chance.randrange(SECOND)
        if chance.random() < 0.6:
            number += 1
            terms = {"delay": chance.choice([None, None, 1, LONG]), "ttl": chance.choice([None, None, 3]),
                     "priority": chance.randrange(5)}
            key = chance.choice("abc")
            id = engine.publish("jobs", str(number), b"body", {"key": key}, message_id=f"m{number}", **terms)
            tell(clock.now, "published", number, id, key, terms)
        elif not taken:
            taken = engine.take(2, "worker")
            tell(clock.now, "took")
        else:
            delivery = taken.pop()
            number_taken, verb = int(delivery.message.address), chance.choice(["ack", "nack", "reject"])
            tell(clock.now, "answers", number_taken)
            try:
                getattr(delivery, verb)()
            except StaleDelivery:
                continue
            tell(clock.now, "answered", number_taken, verb)


def run_and_kill(kind, path, now, number, chance):
    """What a child told that was killed after it had told something a few times."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            child(kind, path, Clock(now), number, lambda *what: os.write(writing, json.dumps(what).encode() + b"\n"), chance)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = [json.loads(pipe.readline()) for _ in range(chance.randrange(10, 60))]
        os.kill(pid, signal.SIGKILL)
        told += [json.loads(line) for line in pipe.read().splitlines()]     # a line is written in one piece
    os.waitpid(pid, 0)
    return told


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("part", range(STORES_EACH))
def test_killed_while_time_goes_on(kind, part, tmp_path):
    chance = random.Random(f"{kind} {part}")
    path, number, now = str(tmp_path / "store"), 0, 1_000 * SECOND
    published, ended, doubtful = {}, set(), set()
    for _ in range(KILLS_EACH):
        for moment, what, *told in run_and_kill(kind, path, now, number, chance):
            now = moment
            if what == "published":
                number, id, key, terms = told
                published[number] = id, key, terms, now
            elif what == "answers":
                doubtful.add(told[0])
            elif what == "answered" and told[1] != "nack":
                ended.add(told[0])
        now, number = now + SECOND, number + 1      # its last step may not have been told
        with engine_with_queues(kind, path, Clock(now)) as engine:
            engine.check()
            jobs = engine.queues["jobs"]
            there = {int(message.address): message for message in jobs.browse()}
            delayed = {int(message.address) for message in jobs.browse(state="delayed")}
            expired = {int(message.headers["xump_original_address"]) for message in engine.queues["late"].browse()
                       if message.headers["xump_reason"] == "expired"}
            for n, (id, key, terms, at) in published.items():
                if n not in there:
                    assert n in ended | doubtful | expired, f"message {n} is lost: {terms}"
                    continue
                message, due = there[n], at + (terms["delay"] or 0) * SECOND
                assert (message.id, message.message_id, message.headers["key"]) == (id, f"m{n}", key)
                assert message.priority == terms["priority"]
                assert message.expires == (None if terms["ttl"] is None else due + terms["ttl"] * SECOND)
                assert n not in ended, f"message {n} was settled, and is there"
                assert (n in delayed) or due <= now, f"message {n} has lost its delay"
            for n in published:
                assert engine.publish("jobs", message_id=f"m{n}") == published[n][0], f"message {n} would be there twice"
            release(engine)
            keys = [delivery.group for delivery in engine.take(100, "worker")]
            assert len(keys) == len(set(keys)), "two of a key at once"
            engine.check()
    assert delayed and expired and ended
