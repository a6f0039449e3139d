"""Rules about selectors that compete for messages: rank, offers ahead, and selectors that end without a recall."""

import pytest

from tests.rules.seen import addresses, stats, taken, worker
from xump import INFINITE, always, copy_to, deliver, discard, field, match, move_to, overflow
from xump.errors import QueueFull, StaleDelivery


def selectors(engine):
    return engine.stats()["selectors"]


def fill(engine, name, *given):
    for address in given:
        engine.publish(name, address)


# ---- rank

def test_180_a_higher_rank_goes_before_one_served_longer_ago(engine):
    engine.create_queue("q")
    for name, rank in (("low", -1), ("one", 0), ("first", 7), ("other", 0)):
        engine.create_selector("q", when=always, do=deliver(name), credit=2, rank=rank)
    fill(engine, "q", *"abcdefgh")
    assert [d.destination for d in engine.take(9)] == ["first", "first", "one", "other", "one", "other", "low", "low"]


def test_180_what_comes_back_goes_to_the_highest_rank_with_credit(engine):
    engine.create_queue("q")
    worker(engine, "q", 1)
    first = engine.create_selector("q", when=match("prefix", ""), do=deliver("first"), credit=1, rank=1)
    fill(engine, "q", "a", "b")
    of_first, of_q = engine.take(2)
    of_q.nack()
    assert engine.take(1)[0].destination == "q" and first.available == 0
    of_first.nack()
    assert [d.destination for d in engine.take(2)] == ["first"]


def test_180_a_higher_rank_stands_before_others_that_wait_for_room(engine):
    engine.create_queue("target", limit=1)
    engine.publish("target", "full")
    for name, rank in (("a", 0), ("b", 0), ("c", 5), ("d", 5), ("e", -5)):
        engine.create_queue(name)
        engine.create_selector(name, when=always, do=move_to("target"), credit=9, rank=rank)
        fill(engine, name, name, name)
    order = []
    while engine.queues["target"].ready:
        order += addresses(engine, "target")
        engine.queues["target"].purge()
    assert order == ["full", "c", "d", "c", "d", "a", "b", "a", "b", "e", "e"]


def test_180_ranks_have_16_bits(engine):
    engine.create_queue("q")
    for rank in (-32_769, 32_768):
        with pytest.raises(ValueError, match=r"rank|32.?76"):
            worker(engine, "q", rank=rank)
    with pytest.raises(ValueError, match="rank"):
        engine.create_selector("q", when=always, do=copy_to("q"), rank=1)
    for rank in (-32_768, 32_767):
        engine.create_selector("q", when=always, do=deliver(str(rank)), rank=rank)
    fill(engine, "q", "a", "b", "c")
    assert [d.destination for d in engine.take(3)] == ["32767", "-32768"] and selectors(engine).keys() == {1, 2}
    engine.create_selector("q", when=always, do=discard, rank=-32_768)
    assert stats(engine, "q")["ready"] == 0


# ---- offers ahead

def test_181_no_more_is_offered_than_the_program_takes(engine):
    engine.create_queue("q")
    worker(engine, "q", 4, ahead=2)
    fill(engine, "q", *"abcdef")
    assert stats(engine, "q")["outstanding"] == 2 and selectors(engine)[1]["available"] == 2
    first, = engine.take(1)
    assert stats(engine, "q")["outstanding"] == 3          # one is taken, two are offered
    assert taken(engine, 1) == ["b"] and stats(engine, "q")["outstanding"] == 4
    assert taken(engine) == ["c", "d"] and stats(engine, "q")["ready"] == 2        # credit is the window all the same
    first.ack()
    assert taken(engine) == ["e"]


def test_181_one_take_takes_all_that_the_credit_allows(engine):
    engine.create_queue("q")
    worker(engine, "q", 4, ahead=1)
    fill(engine, "q", *"abcdef")
    assert taken(engine) == ["a", "b", "c", "d"]


def test_181_others_take_what_one_may_not_offer(engine):
    engine.create_queue("q")
    worker(engine, "q", 9, ahead=1)
    engine.create_selector("q", when=always, do=deliver("other"), credit=2)
    fill(engine, "q", *"abcd")
    assert taken(engine, 9, "other") == ["b", "c"] and addresses(engine, "q", "ready") == ["d"]
    assert taken(engine) == ["a", "d"]


def test_181_ahead_of_infinite_credit(engine):
    engine.create_queue("q", limit=4)
    worker(engine, "q", INFINITE, ahead=1)
    other = engine.create_selector("q", when=match("eq", "c"), do=deliver("other"), credit=1, enabled=False)
    fill(engine, "q", *"abc")
    other.enable()
    assert taken(engine, 9, "other") == ["c"] and taken(engine) == ["a", "b"]
    fill(engine, "q", *"de")
    assert engine.queues["q"].purge() == 2
    fill(engine, "q", "f")
    assert taken(engine) == ["f"]


def test_181_what_is_deleted_or_expires_makes_room_ahead(engine, clock):
    engine.create_queue("q")
    worker(engine, "q", 9, ahead=1)
    fill(engine, "q", "a", "b")
    engine.queues["q"].delete(1)
    assert stats(engine, "q")["outstanding"] == 1 and stats(engine, "q")["ready"] == 0
    engine.publish("q", "c")
    assert taken(engine) == ["b", "c"]
    engine.publish("q", "d", ttl=1)
    fill(engine, "q", "e")
    clock.tick(2)
    assert taken(engine) == ["e"]


def test_181_ahead_is_for_deliveries(engine):
    engine.create_queue("q")
    engine.create_queue("r")
    for do, when, ahead in ((move_to("r"), always, 1), (deliver("d", "r"), always, 1), (discard, always, 1),
                            (deliver("d"), overflow, 1), (deliver("d"), always, 0)):
        with pytest.raises(ValueError, match="ahead"):
            engine.create_selector("q", when=when, do=do, ahead=ahead)
    assert not selectors(engine)


# ---- what is marked redelivered, and selectors that end without a recall

def test_182_only_what_was_taken_is_marked_redelivered(engine):
    engine.create_queue("q")
    first = worker(engine, "q")
    fill(engine, "q", "a", "b", "c")
    engine.take(1)
    first.delete()
    worker(engine, "q")
    assert [(d.redelivered, d.delivery_count) for d in engine.take(3)] == [(True, 2), (False, 1), (False, 1)]


def test_182_what_was_moved_and_not_taken_is_not_marked(engine):
    for name in ("q", "left", "right"):
        engine.create_queue(name)
    engine.create_selector("q", when=always, do=move_to("left"), credit=9)
    worker(engine, "left")
    fill(engine, "q", "a", "b")
    engine.take(1)
    engine.delete_queue("left")
    engine.create_selector("q", when=always, do=move_to("right"), credit=9)
    worker(engine, "right")
    assert [d.redelivered for d in engine.take(2)] == [True, False]


def test_182_disabling_keeps_what_was_offered(engine):
    engine.create_queue("q")
    first = worker(engine, "q")
    fill(engine, "q", "a", "b")
    first.disable()
    fill(engine, "q", "c")
    deliveries = engine.take(9)
    assert [d.message.address for d in deliveries] == ["a", "b"] and not any(d.redelivered for d in deliveries)


def test_183_what_was_taken_stays_valid(engine):
    engine.create_queue("q", dead_letter="dead")
    engine.create_queue("dead")
    first = worker(engine, "q", 5)
    fill(engine, "q", *"abcdef")
    acked, nacked, rejected = engine.take(3)
    assert first.delete(recall=False) and not selectors(engine)
    assert addresses(engine, "q", "ready") == ["d", "e", "f"] and addresses(engine, "q", "outstanding") == ["a", "b", "c"]
    acked.ack()
    nacked.nack()
    rejected.reject()
    with pytest.raises(StaleDelivery):
        nacked.ack()
    assert addresses(engine, "q") == ["b", "d", "e", "f"] and addresses(engine, "dead") == ["c"]
    other = worker(engine, "q", 5)
    assert [(d.message.address, d.redelivered) for d in engine.take(9)] == [
        ("b", True), ("d", False), ("e", False), ("f", False)]
    assert other.available == 1     # nobody was paid for what the first one had taken


def test_183_a_message_from_upstream_is_paid_there(engine):
    engine.create_queue("q")
    engine.create_queue("r")
    mover = engine.create_selector("q", when=always, do=move_to("r"), credit=1)
    last = worker(engine, "r")
    fill(engine, "q", "a", "b")
    delivery, = engine.take(1)
    last.delete(recall=False)
    delivery.ack()
    assert mover.available == 0 and addresses(engine, "r") == ["b"] and stats(engine, "q")["settled"] == 1


def test_183_the_deadline_stays(engine, clock):
    engine.create_queue("q")
    first = worker(engine, "q", ack_timeout=10)
    fill(engine, "q", "a", "b")
    late, extended = engine.take(2)
    first.delete(recall=False)
    extended.extend(60)
    clock.tick(11)
    engine.tick()
    assert addresses(engine, "q", "ready") == ["a"]
    with pytest.raises(StaleDelivery):
        late.ack()
    extended.ack()
    assert addresses(engine, "q") == ["a"]


def test_183_a_queue_that_deletes_itself_goes_at_once(engine):
    engine.create_queue("q", auto_delete=True)
    first = worker(engine, "q")
    fill(engine, "q", "a")
    delivery, = engine.take(1)
    assert engine.delete_selector(first, recall=False) and "q" not in engine.queues
    with pytest.raises(StaleDelivery):
        delivery.ack()


def test_183_the_order_per_key_holds(engine):
    engine.create_queue("q", group=field("address"))
    first = worker(engine, "q")
    fill(engine, "q", "a", "a", "b")
    delivery, other = engine.take(9)
    first.delete(recall=False)
    worker(engine, "q")
    assert taken(engine) == []
    delivery.ack()
    assert taken(engine) == ["a"]
    other.ack()


def test_183_it_is_for_deliveries(engine):
    engine.create_queue("q")
    engine.create_queue("r")
    mover = engine.create_selector("q", when=always, do=move_to("r"), credit=1)
    with pytest.raises(ValueError, match=r"recall"):
        mover.delete(recall=False)
    assert 1 in engine.selectors
    copier = engine.create_selector("q", when=always, do=copy_to("r"))
    assert copier.delete(recall=False)


def test_a_disabled_selector_leaves_the_line_in_a_building_block_too(engine):
    """It has nothing to take, and there is room: enabled again, it is not blocked."""
    engine.create_queue("q")
    engine.create_queue("target", limit=1)
    mover = engine.create_selector("q", when=always, do=move_to("target"), credit=9)
    engine.publish_many("q", [("x",), ("y",)])
    assert mover.blocked
    with engine.building():
        engine.queues["target"].delete(1)
        mover.disable()
        mover.enable()
        assert not mover.blocked
    assert addresses(engine, "target") == ["y"]


def let_credit_go(engine, selector):
    selector.grant(-selector.available)
    selector.grant(5)


def hold(engine, selector):
    engine.queues["q"].hold()
    engine.queues["q"].release()


def take_by_hand(engine, selector):
    engine.get("q").nack()


@pytest.mark.parametrize("what", [let_credit_go, hold, take_by_hand])
def test_a_selector_that_wants_nothing_for_a_while_leaves_its_line_in_a_building_block_too(engine, clock, what):
    """There was room for its message then; so the next one in line is the first."""
    for name, limit in ("q", None), ("r", None), ("target", 1):
        engine.create_queue(name, limit=limit)
    first, second = (engine.create_selector(name, when=always, do=move_to("target"), credit=9) for name in "qr")
    for name, address in ("q", "x"), ("q", "y"), ("r", "z"):
        engine.publish(name, address)
        clock.tick()
    assert first.blocked and second.blocked
    with engine.building():
        engine.queues["target"].delete(1)
        what(engine, first)
        assert (first.blocked, second.blocked) == (False, True)
    assert addresses(engine, "target") == ["z"]


# ---- creating a selector that is refused

def test_a_refused_replay_leaves_what_no_selector_matches_as_it_was(engine):
    """The selector that was to replay matched it for an instant."""
    engine.create_queue("q", unmatched="keep")
    engine.create_queue("full", limit=1)
    engine.publish("full", "first")
    engine.create_selector("q", when=match("eq", "one"), do=deliver("worker"), credit=1)
    fill(engine, "q", "one", "two", "three")
    before = stats(engine, "q")
    with pytest.raises(QueueFull, match="no room for"):
        engine.create_selector("q", when=always, do=copy_to("full"), start="head")
    engine.check()
    assert stats(engine, "q") == before and addresses(engine, "q") == ["one", "two", "three"]
