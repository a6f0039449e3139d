"""Filters and operators that raise: no match, counted, logged once."""

import itertools
import logging
import weakref

import pytest

from xump import (
    INFINITE, copy_to, default, deliver, discard, match, move_to, where,
)
from tests.engine.user_code.steps import Odd, errors_of, held_in, names, operator, raises_odd

pytestmark = pytest.mark.usefixtures("no_garbage")


def logged(caplog):
    return [(record.name, record.levelno, record.args, record.exc_info[1]) for record in caplog.records]


class NoTruth:
    """An answer that is neither true nor false."""

    def __bool__(self):
        raise Odd("no truth in it")


@pytest.mark.parametrize("filter", [raises_odd, lambda message: NoTruth(), lambda: True, lambda message: message.headers["n"]])
def test_a_filter_that_raises_is_no_match_counted_and_logged_once(engine, caplog, filter):
    names(engine, "q", "r")
    selectors = [engine.create_selector("q", when=where(filter), do=do) for do in (copy_to("r"), deliver("d"), copy_to("r"))]
    engine.create_selector("q", when=default, do=deliver("rest"), credit=INFINITE)
    for n in range(1, 4):
        assert engine.publish("q", "a") == n
    assert [delivery.destination for delivery in engine.take(9)] == ["rest"] * 3
    assert engine.queues["r"].ready == 0
    assert errors_of(engine, *selectors) == [3, 3, 3]
    told = logged(caplog)       # of two conditions: COPY, and DELIVER
    assert [(name, level) for name, level, _, _ in told] == [("xump", logging.ERROR)] * 2
    assert {args[0] for _, _, args, _ in told} <= {selector.id for selector in selectors}
    assert all(isinstance(error, Exception) for _, _, _, error in told)


def test_a_filter_that_raises_for_some_selects_the_others(engine, caplog):
    names(engine, "q")
    selector = engine.create_selector("q", when=where(lambda message: 1 / message.headers["n"] > 0), do=deliver("d"), credit=9)
    engine.create_selector("q", when=default, do=discard)
    engine.publish_many("q", [(str(n), b"", {"n": n}) for n in (-1, 0, 1, 0, 2)])
    assert [delivery.message.address for delivery in engine.take(9)] == ["1", "2"]
    assert errors_of(engine, selector) == [2]
    assert [type(error) for _, _, _, error in logged(caplog)] == [ZeroDivisionError]


def test_after_a_filter_that_raises_the_others_are_asked(engine):
    names(engine, "q", "r", "s")
    engine.create_selector("q", when=where(raises_odd), do=copy_to("r"))
    engine.create_selector("q", when=match("eq", "a") & where(raises_odd), do=copy_to("r"))
    engine.create_selector("q", when=where(lambda message: True), do=copy_to("s"))
    engine.publish("q", "a")
    assert (held_in(engine, "r"), held_in(engine, "s")) == ([], ["a"])


@pytest.mark.parametrize("what_raises", [raises_odd, lambda message: NoTruth()])
def test_a_filter_that_raises_while_selectors_come_go_and_replay(engine, what_raises):
    names(engine, "q", "r")
    engine.publish_many("q", [("a",), ("b",)])
    condition = where(lambda message: what_raises(message) if message.address == "b" else True)
    with engine.building():
        replay = engine.create_selector("q", when=condition, do=copy_to("r"), start="head")
        assert held_in(engine, "r") == ["a"]
        taker = engine.create_selector("q", when=condition, do=deliver("d"), credit=9)
        engine.create_selector("q", when=default, do=deliver("rest"), credit=9)
    assert [delivery.message.address for delivery in engine.take(9, "rest")] == ["b"]
    [delivery] = engine.take(9, "d")
    delivery.nack()
    assert [delivery.message.address for delivery in engine.take(9, "d")] == ["a"]
    replay.delete()
    taker.delete()
    engine.create_selector("q", when=condition, do=deliver("late"), credit=9)
    assert [delivery.message.address for delivery in engine.take(9)] == ["a"]
    assert engine.queues["q"].outstanding == 2


def test_an_operator_that_raises_is_no_match_counted_and_logged_once(engine, caplog):
    def some(pattern, value):
        if value == "bad":
            raise Odd(pattern)
        return value.startswith(pattern)

    names(engine, "q", "r")
    condition = match(operator("user_code_some", some), "b")
    selectors = [engine.create_selector("q", when=condition, do=copy_to("r")) for _ in range(2)]
    engine.create_selector("q", when=default, do=discard)
    engine.publish_many("q", [("bad",), ("better",), ("a",)])
    assert held_in(engine, "r") == ["better"]
    assert errors_of(engine, *selectors) == [1, 1]
    assert [(name, level, type(error)) for name, level, _, error in logged(caplog)] == [("xump", logging.ERROR, Odd)]


def test_an_operator_is_asked_once_per_pattern_and_address(engine):
    asked = []

    def spy(pattern, value):
        asked.append((pattern, value))
        return value.endswith(pattern)

    names(engine, "q", "r", "s")
    name = operator("user_code_spy", spy)
    engine.create_selector("q", when=match(name, "x"), do=copy_to("r"))
    engine.create_selector("q", when=match(name, "y"), do=copy_to("s"))
    for _ in range(3):
        engine.publish_many("q", [("ax",), ("by",), ("c",)])
    assert sorted(asked) == sorted(itertools.product("xy", ["ax", "by", "c"]))
    assert (held_in(engine, "r"), held_in(engine, "s")) == (["ax"] * 3, ["by"] * 3)
    del asked[:]
    engine.create_selector("q", when=match(name, "z"), do=discard)
    engine.publish("q", "ax")
    assert ("z", "ax") in asked and len(asked) == len(set(asked))


def test_an_operator_on_other_fields_is_asked_with_their_text(engine):
    asked = []

    def spy(pattern, value):
        asked.append(value)
        return True

    names(engine, "q", "r")
    name = operator("user_code_fields", spy)
    engine.create_selector("q", when=match(name, "p", "headers.region"), do=copy_to("r"))
    engine.create_selector("q", when=match(name, "p", "reply_to"), do=copy_to("r"))
    engine.publish("q", "a", b"", {"region": "ä"}, reply_to="b")
    engine.publish("q", "a", b"", {"region": 5})
    assert sorted(asked) == ["b", "ä"]
    assert engine.queues["r"].ready == 1


def test_what_a_filter_is_given_can_be_kept(engine):
    kept = []
    names(engine, "q", "r")
    engine.create_selector("q", when=where(lambda message: kept.append(message) or True), do=move_to("r"), credit=INFINITE)
    for n in range(2000):
        engine.publish("q", str(n), b"%d" % n, {"n": n})
    engine.queues["r"].purge()
    assert [(m.address, m.body, m.headers["n"], m.id) for m in kept] == [(str(n), b"%d" % n, n, n + 1) for n in range(2000)]


def test_a_filter_is_let_go_with_its_selector(engine):
    class Asked:
        def __call__(self, message):
            return True

    names(engine, "q", "r")
    asked = Asked()
    there = weakref.ref(asked)
    selector = engine.create_selector("q", when=where(asked), do=copy_to("r"))
    engine.publish("q")
    selector.delete()
    del asked, selector
    assert there() is None
