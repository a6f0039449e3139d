"""Other threads wait while a filter, operator or clock works."""

import threading

import pytest

from xump import (
    INFINITE, Engine, copy_to, field, match, move_to, where,
)
from tests.engine.user_code.steps import held_in, names, operator


class Gate:
    """User code that stops in the middle, until the test lets it go on."""

    def __init__(self):
        self.inside, self.go_on, self.calls = threading.Event(), threading.Event(), 0

    def __call__(self, *_):
        self.calls += 1
        self.inside.set()
        self.go_on.wait()
        return True


def in_thread(call, results):
    def run():
        try:
            results.append(call())
        except BaseException as error:
            results.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", ["filter", "operator", "clock"])
def test_others_wait_while_user_code_works_and_then_go_on(kind):
    gate = Gate()
    with Engine(clock=lambda: int(armed and threading.current_thread() is first and gate() or 1)) as engine:
        armed, first = [], None
        names(engine, "q", "r")
        if kind == "filter":
            engine.create_selector("q", when=where(gate), do=copy_to("r"))
        elif kind == "operator":
            engine.create_selector("q", when=match(operator("user_code_gate", gate), "p"), do=copy_to("r"))
        else:
            armed.append(True)
        results, started = [], []
        first = threading.Thread(target=lambda: results.append(engine.publish("q", "first")))
        first.start()
        gate.inside.wait()

        def counted(call):
            def run():
                started.append(True)
                return call()
            return run

        others = [
            in_thread(counted(call), results) for call in (
                lambda: engine.publish("r", "x"), lambda: engine.take(1), lambda: engine.queues["q"].fetch(99),
                lambda: engine.create_queue("s").name, lambda: bool(engine.stats()), engine.check)
            for _ in range(3)]
        while len(started) < len(others):
            pass
        assert results == []
        armed.clear()
        gate.go_on.set()
        for thread in (first, *others):
            thread.join()
        assert [type(result) for result in results if isinstance(result, BaseException)] == []
        assert len(results) == 19 and gate.calls == 1
        assert engine.queues["r"].ready == 3 + (kind != "clock")
        engine.check()


def test_a_filter_in_the_middle_of_a_long_run_lets_threads_switch_but_nobody_in(engine):
    """Two publishers whose filters give way at every message: each call's messages stay together."""
    names(engine, "q", "r")
    turn = threading.Barrier(2)
    engine.create_selector("q", when=where(lambda message: threading.Event().wait(0) or True), do=move_to(field("reply_to")),
                           credit=INFINITE)

    def publish(name):
        turn.wait()
        for n in range(20):
            engine.publish_many("q", [(f"{name}{n}", b"", None, "r")] * 10)

    threads = [threading.Thread(target=publish, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    addresses = held_in(engine, "r")
    assert len(addresses) == 400 and [len(set(addresses[at:at + 10])) for at in range(0, 400, 10)] == [1] * 40
