"""What became of each message of a `publish_many`. Each test is one sentence of docs/decisions.md, whose number it has."""

import pytest

from tests.rules.seen import addresses, reasons, stats, worker
from xump import INFINITE, OutcomeFlag, always, copy_to, default, deliver, discard, match, move_to, overflow


DUPLICATE, UNROUTABLE, DEAD_LETTERED, DROPPED, NO_QUEUE = [
    OutcomeFlag[name] for name in ("DUPLICATE", "UNROUTABLE", "DEAD_LETTERED", "DROPPED", "NO_QUEUE")]


def outcomes(engine, queue, *messages, **terms):
    return engine.publish_many(queue, [message if isinstance(message, tuple) else (message,) for message in messages],
                               outcomes=True, **terms)


@pytest.fixture
def fan(engine):
    """`x` is a transit queue, which copies `a` to queue `a`, `ab` to both, and all else nowhere; `b` has room for one."""
    engine.create_queue("x", transit=True)
    engine.create_queue("a")
    engine.create_queue("b", limit=1)
    engine.create_selector("x", when=match("prefix", "a"), do=copy_to("a"))
    engine.create_selector("x", when=match("eq", "ab"), do=copy_to("b"))
    return engine


# ---- 186: copies

def test_186_each_queue_that_takes_it_counts_one(fan):
    assert outcomes(fan, "x", "a", "ab", "z") == [(0, 1, 0, 0), (0, 2, 0, 0), (0, 0, 0, UNROUTABLE | DROPPED)]


def test_186_so_does_the_queue_that_it_is_published_to(engine):
    engine.create_queue("q")
    engine.create_queue("log")
    engine.create_selector("q", when=always, do=copy_to("log"))
    worker(engine, "q")
    assert outcomes(engine, "q", "one", "two") == [(1, 2, 0, 0), (2, 2, 0, 0)]


def test_186_a_transit_queue_counts_only_while_it_keeps(fan):
    fan.queues["x"].hold()
    assert outcomes(fan, "x", "a") == [(0, 1, 0, 0)]
    fan.queues["x"].release()
    with fan.building():
        assert outcomes(fan, "x", "z") == [(0, 1, 0, 0)]
    assert addresses(fan, "a") == ["a"]


def test_186_what_moves_on_is_one(engine):
    for name in "qrs":
        engine.create_queue(name)
    engine.create_selector("q", when=always, do=move_to("r"), credit=5)
    engine.create_selector("r", when=always, do=move_to("s"), credit=INFINITE)
    assert outcomes(engine, "q", "m") == [(1, 1, 0, 0)] and addresses(engine, "s") == ["m"]


def test_186_what_was_discarded_or_settled_was_taken(engine):
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=discard)
    assert outcomes(engine, "q", "m") == [(1, 1, 0, 0)]


def test_186_what_is_unroutable_was_not(engine):
    engine.create_queue("q")
    engine.create_selector("q", when=match("eq", "x"), do=deliver("d"))
    assert outcomes(engine, "q", "m") == [(1, 0, 0, UNROUTABLE | DROPPED)]


def test_186_nor_do_dead_letters_count_and_what_becomes_of_them(engine):
    engine.create_queue("q", dead_letter="dead")
    engine.create_queue("dead")
    engine.create_queue("log")
    engine.create_selector("q", when=match("eq", "x"), do=deliver("d"))
    engine.create_selector("dead", when=always, do=copy_to("log"))
    assert outcomes(engine, "q", "m") == [(1, 0, 0, UNROUTABLE | DEAD_LETTERED)] and reasons(engine, "log") == ["unroutable"]


def test_186_a_held_transit_queue_does_not_keep_a_late_one(engine, clock):
    engine.create_queue("x", transit=True)
    engine.queues["x"].hold()
    [late] = engine.publish_many("x", [("a",)], expires=clock.now - 1, outcomes=True)
    [kept] = engine.publish_many("x", [("a",)], outcomes=True)
    assert (late.copies, kept.copies) == (0, 1) and OutcomeFlag.DROPPED in late.flags


def test_186_a_late_one_was_taken(engine, clock):
    engine.create_queue("q", dead_letter="dead")
    assert outcomes(engine, "q", "m", expires=clock() - 1) == [(1, 1, 0, DROPPED)]
    engine.create_queue("dead")
    assert outcomes(engine, "q", "m", expires=clock() - 1) == [(2, 1, 0, DEAD_LETTERED)]


# ---- 187: refusals

def test_187_a_full_queue_refuses_its_copy(fan):
    assert outcomes(fan, "x", "ab", "ab") == [(0, 2, 0, 0), (0, 1, 1, DROPPED)]


def test_187_also_when_the_dead_letter_takes_that(engine):
    engine.create_queue("x", transit=True)
    engine.create_queue("full", limit=0, dead_letter="dead")
    engine.create_queue("dead")
    engine.create_selector("x", when=always, do=copy_to("full"))
    assert outcomes(engine, "x", "m") == [(0, 0, 1, DEAD_LETTERED)] and reasons(engine, "dead") == ["overflow"]


def test_187_or_the_publish_for_which_nothing_is_raised(engine):
    engine.create_queue("q", limit=1)
    assert outcomes(engine, "q", "m", "n") == [(1, 1, 0, 0), (0, 0, 1, 0)]
    engine.create_queue("r", limit=0, dead_letter="dead")
    engine.create_queue("dead")
    assert outcomes(engine, "r", "m") == [(0, 0, 1, DEAD_LETTERED)]


def test_187_what_an_overflow_selector_takes_is_not_refused(engine):
    engine.create_queue("q", limit=0)
    engine.create_queue("spill")
    engine.create_selector("q", when=overflow, do=move_to("spill"), credit=INFINITE)
    assert outcomes(engine, "q", "m") == [(1, 1, 0, 0)]


def test_187_a_queue_that_drops_its_oldest_refuses_nothing(engine):
    engine.create_queue("q", limit=1, when_full="drop_oldest")
    assert outcomes(engine, "q", "m", "n") == [(1, 1, 0, DROPPED), (2, 1, 0, 0)]


# ---- 188: each for itself

def test_188_of_a_name_that_no_queue_has(engine_of):
    engine = engine_of(dead_letter="dead")
    assert outcomes(engine, "nowhere", "m") == [(0, 0, 0, NO_QUEUE)]
    engine.create_queue("dead")
    assert outcomes(engine, "nowhere", "m") == [(0, 0, 0, NO_QUEUE | DEAD_LETTERED)]


def test_188_a_duplicate_has_the_id_of_the_first(engine):
    engine.create_queue("q", dedup=60)
    rows = [("m", b"", None, None, "same"), ("m", b"", None, None, "same")]
    assert outcomes(engine, "q", *rows) == [(1, 1, 0, 0), (1, 0, 0, DUPLICATE)] and stats(engine, "q")["duplicates"] == 1


def test_188_what_cannot_be_in_any_queue_is_an_error_and_none_enters(fan):
    with pytest.raises(ValueError):
        outcomes(fan, "x", "a", delay=5)
    assert addresses(fan, "a") == []


def test_188_what_happens_later_is_not_told(engine):
    engine.create_queue("q", dead_letter="dead")
    engine.create_queue("dead")
    worker(engine, "q")
    told = outcomes(engine, "q", "m")
    engine.take(1)[0].reject()
    assert told == [(1, 1, 0, 0)] and engine.publish_many("q", [("n",)], outcomes=True) == [(2, 1, 0, 0)]


def test_188_an_alternate_way_is_a_way(fan):
    fan.create_queue("rest")
    fan.create_selector("x", when=default, do=copy_to("rest"))
    assert outcomes(fan, "x", "z", "a") == [(0, 1, 0, 0), (0, 1, 0, 0)]


def test_188_no_messages_have_no_outcomes(engine):
    engine.create_queue("q")
    assert outcomes(engine, "q") == outcomes(engine, "nowhere") == []
