"""After a fork the engine belongs to the parent: the child is told so by every call, and can make its own."""

import json
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading

import pytest

from tests.engine.errors.life import live, live_on, nothing_changed, seen
from tests.engine.errors.test_after_close import EVERY_CALL
from xump import Engine, always, deliver, where
from xump.errors import Closed, ForkedError


# Newer Pythons warn of what one of the tests does.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def in_child(call):
    """What `call()` returns in a forked child, or the text of what it raised there."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            answer = call()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        text = answer.read()
    assert os.waitpid(pid, 0)[1] == 0
    return json.loads(text)


@pytest.fixture
def w():
    w = live()
    yield w
    w.engine.close()
    w.other.close()


def test_every_call_in_the_child_says_so(w):
    w.iterator, w.waiting_iterator = w.engine.deliveries(), w.engine.deliveries(timeout=None)

    def child():
        told = {}
        for name, call in EVERY_CALL.items():
            try:
                told[name] = f"no error: {call(w)!r}"
            except Exception as error:
                told[name] = f"{type(error).__name__}: {error}"
        return told

    told = in_child(child)
    assert {name: text for name, text in told.items() if not text.startswith("ForkedError: ")} == {}
    assert told["Engine.publish"] == (
        "ForkedError: the engine belongs to the parent process; create another one in this process")
    nothing_changed(w)


def test_close_in_the_child_is_harmless(w):
    def child():
        w.engine.close()
        w.engine.close()
        w.other.__exit__(None, None, None)
        w.engine.publish("jobs")

    assert in_child(child) == "ForkedError: the engine belongs to the parent process; create another one in this process"
    nothing_changed(w)


def test_dropping_everything_in_the_child_is_harmless(w):
    def child():
        import gc
        vars(w).clear()
        gc.collect()
        with Engine() as engine:
            return engine.create_queue("q").publish()

    assert in_child(child) == 1
    nothing_changed(w)


def test_a_closed_engine_is_closed_in_the_child_too():
    engine = Engine()
    engine.create_queue("q")
    engine.close()

    def child():
        try:
            engine.publish("q")
        except Closed:
            return "closed"

    assert in_child(child) == "closed"


def round_trip():
    """A delivery through a new engine."""
    with Engine() as engine:
        queue = engine.create_queue("q")
        engine.create_selector("q", when=where(lambda message: True), do=deliver("d"), credit=2)
        for n in range(10):
            queue.publish(str(n))
        addresses = []
        for delivery in engine.deliveries("d"):
            with delivery as message:
                addresses.append(message.address)
        engine.check()
        return addresses


def test_an_engine_made_in_the_child_works_and_forks_in_its_turn(w):
    def child():
        return [round_trip(), in_child(lambda: [round_trip(), in_child(round_trip)])]

    expected = [str(n) for n in range(10)]
    assert in_child(child) == [expected, [expected, expected]]
    nothing_changed(w)


def test_what_was_read_before_can_be_read_in_the_child(w):
    def child():
        message = w.kept.message
        return [message.address, message.body.decode(), dict(message.headers), message.id, message.replace(address="new").address]

    assert in_child(child) == ["out.a", "1", {"n": 4}, 5, "new"]
    nothing_changed(w)


def test_a_fork_inside_a_building_block_a_transaction_and_a_delivery(w):
    def leave(block):
        try:
            block.__exit__(None, None, None)
        except ForkedError:
            return "forked"
        return "left"

    building, transaction = w.engine.building(), w.engine.transaction()
    building.__enter__()
    transaction.__enter__()
    transaction.publish("jobs", "out.x")
    w.kept.__enter__()
    assert in_child(lambda: [leave(w.kept), leave(transaction), leave(building)]) == ["forked"] * 3
    transaction.__exit__(LookupError, LookupError(), None)
    building.__exit__(None, None, None)
    nothing_changed(w)


def test_a_fork_while_others_wait_and_work():
    """Threads of the parent are at the door, in a filter and waiting for deliveries; the child has none of them."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(message):
        inside.set()
        go_on.wait()
        return True

    with Engine() as engine:
        queue = engine.create_queue("q")
        engine.create_selector("q", when=where(slow), do=deliver("d"))
        engine.create_queue("p")
        taken, made = [], []
        threads = [
            threading.Thread(target=lambda: taken.extend(engine.take(1, timeout=None))),
            threading.Thread(target=lambda: queue.publish("a")),
            threading.Thread(target=lambda: made.append(engine.create_queue("new"))),
        ]
        threads[0].start()
        while not engine._waiting_destinations:
            pass
        threads[1].start()
        inside.wait()
        threads[2].start()

        def child():
            told = []
            for call in (queue.publish, lambda: engine.create_queue("x"), lambda: engine.take(1, timeout=None), engine.check):
                try:
                    call()
                except ForkedError:
                    told.append("forked")
            engine.close()
            return told

        assert in_child(child) == ["forked"] * 4
        go_on.set()
        for thread in threads:
            thread.join()
        assert [delivery.message.address for delivery in taken] == ["a"] and [queue.name for queue in made] == ["new"]
        engine.check()


def use(engine, answers):
    """What a worker of multiprocessing finds."""
    try:
        engine.publish("q")
    except ForkedError as error:
        answers.put(type(error).__name__)
    answers.put(round_trip())


def test_multiprocessing_by_fork_with_an_engine_alive():
    context = multiprocessing.get_context("fork")
    with Engine() as engine:
        engine.create_queue("q")
        engine.create_selector("q", when=always, do=deliver("d"), credit=9)
        answers = context.Queue()
        workers = [context.Process(target=use, args=(engine, answers)) for _ in range(3)]
        for worker in workers:
            worker.start()
        found = [answers.get() for _ in range(6)]
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0] * 3
        assert found.count("ForkedError") == 3 and found.count([str(n) for n in range(10)]) == 3
        assert engine.publish("q") == 1 and len(engine.take(9)) == 1
        engine.check()


def test_a_child_that_ends_as_processes_do():
    """It runs its exit handlers and takes its objects apart; nothing is said, and the parent goes on."""
    program = """
        import os, sys, xump
        engine = xump.Engine()
        queue = engine.create_queue("q")
        engine.create_selector("q", when=xump.always, do=xump.deliver("d"), credit=5)
        for n in range(100):
            queue.publish(str(n))
        held = engine.take(3)
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            engine.ack(held)
            engine.check()
            print(queue.ready, queue.outstanding, len(engine.take(9)))
        else:
            try:
                held[0].ack()
            except xump.ForkedError:
                sys.exit(0)
            sys.exit(1)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "92 5 5\n", "")


def test_the_world_lives_on_after_all_that(w):
    before = seen(w)
    for _ in range(20):
        assert in_child(lambda: None) is None
    assert seen(w) == before and live_on(w)
