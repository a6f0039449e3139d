"""Regressions, each as small as it could be made: failed calls leave nothing behind, odd moments change nothing."""

import datetime
import os

import pytest

import xump
from xump import always, copy_to, deliver, field, match, move_to, where


@pytest.fixture
def engine():
    with xump.Engine() as engine:
        for name in ("a", "b"):
            engine.create_queue(name)
        yield engine
        engine.check()


def test_a_selector_that_fails_is_linked_nowhere(engine):
    for name in ("headers.\ud800", "headers." + "x" * 70_000):
        with pytest.raises(ValueError):
            engine.create_selector("a", when=always, do=move_to(field(name)))
    assert engine.delete_queue("a") and not engine.selectors


def test_a_callable_need_not_be_hashable(engine):
    class Bigger:
        __hash__ = None

        def __call__(self, message):
            return len(message.body) > 3

    engine.create_selector("a", when=where(Bigger()), do=move_to("b"))
    engine.publish("a", body=b"large")
    assert engine.queues["b"].ready == 1


def test_a_transaction_that_fails_has_answered_nothing(engine):
    engine.create_queue("full", limit=0)
    engine.create_selector("a", when=always, do=deliver("d"))
    engine.publish("a")
    (delivery,) = engine.take(1)
    with delivery, pytest.raises(xump.QueueFull), engine.transaction() as tx:
        tx.ack(delivery)
        tx.publish("full")
    assert engine.queues["a"].outstanding == 0


def test_an_operator_that_failed_is_asked_again(engine):
    answers = [ValueError("away"), True]

    def operator(pattern, value):
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    xump.register_operator("asked-again", operator)
    engine.create_selector("a", when=match("asked-again", "x"), do=move_to("b"))
    engine.publish("a", "m")
    engine.publish("a", "m")
    assert engine.queues["b"].ready == 1


def test_browsing_down_from_a_time_begins_with_the_last_of_that_time():
    now = [10**18]
    with xump.Engine(clock=lambda: now[0]) as engine:
        queue = engine.create_queue("a")
        for step in (0, 0, 10**9):
            now[0] += step
            queue.publish()
        moment = datetime.datetime.fromtimestamp(10**9, datetime.UTC)
        assert [message.id for message in queue.browse(moment, reverse=True)] == [2, 1]
        assert [message.id for message in queue.browse(moment)] == [1, 2, 3]
        ends = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC), datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
        assert [len(list(queue.browse(end))) for end in ends] == [3, 0]
        assert list(queue.browse(where=lambda message: 1 / 0)) == []


def test_a_fork_inside_a_filter_leaves_the_child_outside():
    children = []

    def fork(message):
        children.append(os.fork())
        return True

    with xump.Engine() as engine:
        engine.create_queue("a")
        engine.create_selector("a", when=where(fork), do=copy_to("a"))
        try:
            engine.publish("a")
            status = 0
            if children == [0]:
                engine.publish("a")
        except xump.ForkedError:
            status = 7
        finally:
            if children == [0]:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7


def test_rows_that_are_nacked_too_often_are_dead_lettered(engine):
    engine.create_queue("c", dead_letter="b", delivery_limit=1)
    engine.create_selector("c", when=always, do=deliver("d"))
    engine.publish("c")
    engine.take_batch(1).nack()
    assert engine.queues["b"].ready == 1
