"""Idempotent services: same identity, same answer; in time, after a crash, and while the first one is at work."""

import random
import subprocess
import sys
import threading

import pytest

from xump import Engine
from xump.zeromq import Client, MajordomoBroker, Replies, Worker, idempotent, stamp

SECOND = 1_000_000_000
HOST = "tcp://127.0.0.1:*"


@pytest.fixture
def engine():
    with Engine() as engine:
        yield engine


def counted(replies, done, **options):
    @idempotent(replies, **options)
    def work(body):
        done.append(body)
        return [b"%d" % len(done), *body]
    return work


def test_a_request_that_comes_again_gets_its_answer_again(engine):
    done, replies = [], Replies(engine, "replies")
    work = counted(replies, done)
    assert work([b"1", b"a", b""]) == [b"1", b"a", b""]
    assert work([b"2", b"a"]) == [b"2", b"a"]
    assert work([b"1", b"a", b""]) == [b"1", b"a", b""]
    assert done == [[b"a", b""], [b"a"]]
    replies.check()


def test_identities_are_any_bytes_and_found_as_the_service_says(engine):
    done = []
    work = counted(Replies(engine, "replies"), done, identify=lambda body: (body[-1], body[:-1]))
    for identity in (b"\xff\x00", b"", b"\xff", b"y" * 128, b"y" * 129, b"y" * 100_000, b"y" * 100_001):
        assert work([b"x", identity]) == work([b"x", identity])
    assert len(done) == 7


def test_the_stamps_of_requests_differ():
    assert len({stamp() for _ in range(1000)}) == 1000


def test_replies_end_with_their_time_and_their_number():
    now = [100]
    with Engine(clock=lambda: now[0] * SECOND) as engine:
        done, replies = [], Replies(engine, "replies", keep=10.0, limit=3)
        work = counted(replies, done)
        for number in (1, 2, 3, 4):
            work([b"%d" % number])
        assert work([b"4"]) == [b"4"] and work([b"2"]) == [b"2"]
        assert work([b"1"]) == [b"5"], "four are one too many"
        now[0] += 11
        assert work([b"4"]) == [b"6"]
        replies.check()
        assert len(replies._kept) == 1


def test_a_function_that_fails_keeps_nothing(engine):
    replies, answers = Replies(engine, "replies"), iter([LookupError("no"), b"yes"])

    @idempotent(replies)
    def work(body):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(LookupError):
        work([b"1"])
    assert work([b"1"]) == work([b"1"]) == [b"yes"]


def test_the_work_and_its_reply_happen_together(engine):
    engine.create_queue("ledger", unmatched="keep")
    replies, fails = Replies(engine, "replies"), [True]

    @idempotent(replies, with_transaction=True)
    def charge(body, tx):
        tx.publish("ledger", "charge", body[0])
        if fails.pop():
            raise LookupError("later")
        return b"ok"

    with pytest.raises(LookupError):
        charge([b"1", b"12.50"])
    assert engine.queues["ledger"].ready == 0
    fails.append(False)
    assert charge([b"1", b"12.50"]) == charge([b"1", b"12.50"]) == [b"ok"]
    assert engine.queues["ledger"].ready == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_request_that_comes_while_its_first_is_at_work_waits_for_it(engine, fails):
    replies, began, may_end, done, answers = Replies(engine, "replies"), threading.Event(), threading.Event(), [], []

    @idempotent(replies)
    def work(body):
        done.append(body)
        began.set()
        may_end.wait()
        if fails and len(done) == 1:
            raise LookupError("the first")
        return b"%d" % len(done)

    def ask():
        try:
            answers.append(work([b"1"]))
        except LookupError as error:
            answers.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(5)]
    threads[0].start()
    began.wait()
    for thread in threads[1:]:
        thread.start()
    may_end.set()
    for thread in threads:
        thread.join()
    assert len(done) == 1 + fails
    assert sorted(answers, key=str) == (sorted([[b"2"]] * 4 + ["the first"], key=str) if fails else [[b"1"]] * 5)


CRASHING = """
import os, sys
from xump import Engine
from xump.zeromq import Replies, idempotent
path, identity, die = sys.argv[1:]
engine = Engine()
engine.create_store("disk", "ring", path=path, min_bytes=0)
engine.create_queue("ledger", store="disk", unmatched="keep")
replies = Replies(engine, "replies", store="disk")
@idempotent(replies, with_transaction=True)
def charge(body, tx):
    tx.publish("ledger", "", body[0])
    if die == "at work":
        os._exit(9)
    return body[0] + b" charged by %d" % os.getpid()
print(charge([identity.encode(), b"12.50"])[0].decode(), flush=True)
if die == "answered":
    os._exit(9)
replies.check()
print(engine.queues["ledger"].ready)
engine.close()
"""


@pytest.mark.parametrize("dies", ["at work", "answered"])
def test_after_a_crash_it_is_done_once_and_answered_alike(tmp_path, dies):
    def run(die):
        done = subprocess.run(
            [sys.executable, "-c", CRASHING, str(tmp_path / "ring"), "request", die], capture_output=True, text=True, check=False)
        assert done.returncode == (9 if die != "no" else 0), done.stderr
        return done.stdout.split("\n")

    first = run(dies)[0]
    second, count, _ = run("no")
    assert count == "1"
    assert second == first or dies == "at work"


def test_a_client_that_asks_again_is_served_once(context, serve, work):
    broker, engine = serve(MajordomoBroker(HOST, context=context)), Engine()
    done, lost = [], threading.Event()
    answer = counted(Replies(engine, "replies"), done)

    def loses_its_first_reply(body):
        reply = answer(body)
        if not lost.is_set():
            lost.set()
            raise OSError("the network is away")
        return reply

    def run(worker):
        with pytest.raises(OSError, match="network"):
            worker.run(loses_its_first_reply)

    breaks = Worker(broker.endpoints[0], b"charge", context=context)
    thread = threading.Thread(target=run, args=(breaks,))
    thread.start()
    with Client(broker.endpoints[0], timeout=0.2, retries=1000, context=context) as client:
        while client.request(b"mmi.service", b"charge") == [b"404"]:
            pass
        asked = threading.Thread(target=lambda: done.append(client.request(b"charge", stamp(), b"12.50")))
        asked.start()
        thread.join()
        work(Worker(broker.endpoints[0], b"charge", context=context), loses_its_first_reply)
        asked.join()
    breaks.close()
    assert done == [[b"12.50"], [b"1", b"12.50"]]
    engine.close()


@pytest.mark.parametrize("seed", range(5))
def test_many_threads_and_few_identities_each_is_done_once(engine, seed):
    done, replies, wrong = [], Replies(engine, "replies"), []
    work = counted(replies, done)
    firsts = {}

    def ask(chance):
        for _ in range(100):
            identity = b"%d" % chance.randrange(20)
            answer = work([identity, identity])
            if firsts.setdefault(identity, answer) != answer:
                wrong.append((identity, answer))

    threads = [threading.Thread(target=ask, args=(random.Random(f"{seed} {number}"),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(done) == len(firsts)
    replies.check()


@pytest.mark.parametrize("options", [{"keep": 0}, {"keep": -1}, {"limit": 0}])
def test_replies_that_could_not_be_kept_are_refused(options):
    with Engine() as engine:
        with pytest.raises(ValueError, match="allowed are more than 0 seconds, and 1 or more replies"):
            Replies(engine, "replies", **options)
        assert "replies" not in engine.queues
