"""The calls of `xump.Engine`, one by one, over both engines.

`test_rule_04_...` shows rule 4 of docs/routing.md, `test_decision_30_...` item 30 of docs/decisions.md.
"""

import itertools
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.model import engine as model
from tests.route.steps import addresses, held_in, name_of, nothing_changes, publish, queue_stats, queues, selector_stats, take
from xump.actions import copy_to, deliver, discard, field, move_to
from xump.conditions import always, default, match, overflow, where
from xump.errors import Conflict, QueueFull, QueueNotFound, StaleDelivery, TransactionError

INFINITE = model.INFINITE


def test_call_create_queue_again(engine):
    queue = engine.create_queue("a", limit=5, dead_letter="dead")
    assert engine.create_queue("a", limit=5, dead_letter="dead") is queue
    for properties in ({}, {"limit": 6, "dead_letter": "dead"}, {"limit": 5}):
        with nothing_changes(engine), pytest.raises(Conflict):
            engine.create_queue("a", **properties)


def test_call_create_queue_names_queues(engine):
    queues(engine, "queue-2")
    assert [engine.create_queue().name for _ in range(2)] == ["queue-1", "queue-3"]
    engine.delete_queue("queue-1")
    assert engine.create_queue().name == "queue-4"


def test_call_create_selector_again(engine):
    queues(engine, "a", "b")
    arguments = {"when": match("eq", "x"), "do": move_to("b"), "credit": 5}
    selector = engine.create_selector("a", **arguments, name="s")
    selector.grant(3)
    selector.disable()
    assert engine.create_selector("a", **arguments, name="s") is selector       # decision 34
    with nothing_changes(engine), pytest.raises(Conflict):
        engine.create_selector("a", **(arguments | {"credit": 8}), name="s")
    assert engine.create_selector("a", **arguments).id != engine.create_selector("a", **arguments).id


def test_decision_101_equal_is_the_same(engine):
    queues(engine, "a", "b")
    at = datetime(2026, 3, 1, 9, tzinfo=UTC)
    number = type("Number", (int,), {"__repr__": lambda self: "many"})
    arguments = {"when": match("eq", "x") & where({"n": 1, "tier": ["gold", "silver"]}), "do": copy_to("b")}
    selector = engine.create_selector("a", **arguments, credit=3, start=at, name="s")
    arguments["when"] = match("eq", "x") & where({"tier": ["silver", "gold"], "n": 1})
    there = at.astimezone(timezone(timedelta(hours=2)))
    assert engine.create_selector("a", **arguments, credit=number(3), start=there, name="s") is selector
    arguments["when"] = match("eq", "x") & where({"tier": ["silver", "gold"], "n": True})
    with nothing_changes(engine), pytest.raises(Conflict):
        engine.create_selector("a", **arguments, credit=3, start=at, name="s")


def test_call_create_selector_refuses(engine):
    queues(engine, "a", "b")
    for source, action in (("missing", discard), ("a", move_to("missing")), ("a", copy_to("missing"))):
        with nothing_changes(engine), pytest.raises(QueueNotFound, match="missing"):
            engine.create_selector(source, when=always, do=action)
    engine.create_selector("a", when=default, do=discard)
    with nothing_changes(engine), pytest.raises(Conflict):
        engine.create_selector("a", when=default, do=move_to("b"))
    second = engine.create_selector("a", when=default, do=move_to("b"), enabled=False)
    with nothing_changes(engine), pytest.raises(Conflict):
        second.enable()
    with pytest.raises(ValueError):
        engine.create_selector("a", when=always, do=discard, credit=-1)
    assert [s.id for s in engine.selectors.values()] == [1, 2]


def test_call_mappings_are_read_only(engine):
    [queue] = queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=discard, name="s")
    assert (engine.queues["a"], engine.selectors[1]) == (queue, selector)
    assert (selector.name, name_of(selector.source), selector.when, selector.do) == ("s", "a", always, discard)
    for mapping in (engine.queues, engine.selectors):
        with pytest.raises(TypeError):
            mapping["x"] = None


def test_call_queue_attributes(engine):
    queue = engine.create_queue("a", limit=3, history_limit=4, auto_delete=True, dead_letter="d", delivery_limit=5)
    assert (queue.name, queue.limit, queue.history_limit, queue.auto_delete) == ("a", 3, 4, True)
    assert (queue.dead_letter, queue.delivery_limit, queue.held) == ("d", 5, False)
    assert queue.publish("x", b"body", {"n": 1}, reply_to="r", message_id="m") == 1
    assert (queue.ready, queue.outstanding, queue.history, queue.durable_id) == (1, 0, 0, 0)


def test_call_message_attributes(engine, clock):
    queues(engine, "a")
    headers = {"n": 1, "f": 0.5, "b": True, "s": "text", "y": b"bytes"}
    engine.publish("a", "x", b"body", headers, reply_to="r", message_id="m")
    message = engine.queues["a"].fetch(1)
    assert (message.address, message.body, message.reply_to, message.message_id) == ("x", b"body", "r", "m")
    assert (message.destination, message.id, message.timestamp, message.hops) == (None, 1, clock.now, 0)
    assert dict(message.headers) == headers


def test_call_timestamps_never_descend(engine, clock):
    queues(engine, "a")
    start = clock.now
    publish(engine, "a", "1")
    clock.tick(-5)
    publish(engine, "a", "2")
    clock.tick(6)
    publish(engine, "a", "3")
    assert [m.timestamp for m in engine.queues["a"].browse()] == [start, start, start + 1_000_000_000]


def test_call_building_routes_at_its_end_also_when_it_raises(engine):
    queues(engine, "a")
    with pytest.raises(ZeroDivisionError), engine.building():
        with engine.building():
            publish(engine, "a", "x")
            engine.create_selector("a", when=always, do=deliver("out"))
        assert take(engine) == []
        raise ZeroDivisionError
    assert take(engine) == ["x"]


def test_call_deliver_with_a_queue_stamps_the_destination(engine):
    queues(engine, "a", "b")
    engine.create_selector("a", when=always, do=deliver("alice", "b"), credit=9)
    engine.create_selector("b", when=always, do=deliver(field("destination")), credit=9)
    publish(engine, "a", "x")
    [delivery] = engine.take(9)
    assert (delivery.destination, delivery.message.destination, delivery.message.hops) == ("alice", "alice", 1)


def test_call_delivery_attributes(engine):
    queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=9)
    publish(engine, "a", "x", "y")
    delivery = engine.take(2)[1]
    assert (delivery.destination, delivery.id, delivery.delivery_count, delivery.redelivered) == ("out", 2, 1, False)
    assert (name_of(delivery.queue), getattr(delivery.selector, "id", delivery.selector)) == ("a", selector.id)


def test_call_take_by_destination_in_order_of_delivery(engine):
    queues(engine, "a")
    engine.create_selector("a", when=match("prefix", "x"), do=deliver("x"), credit=9)
    engine.create_selector("a", when=match("prefix", "y"), do=deliver("y"), credit=9)
    publish(engine, "a", "x1", "y1", "x2", "y2")
    assert take(engine, 1, "y") == ["y1"]
    assert take(engine, 9) == ["x1", "x2", "y2"]
    assert take(engine, 9, "nobody") == []


def test_call_delivery_is_a_context_manager(engine):
    queues(engine, "a")
    engine.create_selector("a", when=always, do=deliver("out"), credit=9)
    publish(engine, "a", "x", "y")
    first, second = engine.take(2)
    with first as message:
        assert message.address == "x"
    with pytest.raises(ZeroDivisionError), second:
        raise ZeroDivisionError
    assert held_in(engine, "a") == ["y"]
    [third] = engine.take(2)
    with third:
        third.ack()     # answered already
    assert queue_stats(engine, "a")["settled"] == 2


def test_call_ack_twice_is_stale_and_changes_nothing(engine):
    queues(engine, "a")
    engine.create_selector("a", when=always, do=deliver("out"), credit=9)
    publish(engine, "a", "x", "y")
    first, second = engine.take(2)
    first.ack()
    for act in (first.ack, first.nack, first.reject, lambda: engine.ack([second, first]), lambda: engine.ack([second, second])):
        with nothing_changes(engine), pytest.raises(StaleDelivery):
            act()
    engine.ack([second])
    assert queue_stats(engine, "a")["settled"] == 2


def test_call_publish_many_enters_all_then_runs(engine):
    queues(engine, "a", "b", limit=3)
    engine.create_selector("a", when=always, do=move_to("b"), credit=INFINITE)
    assert engine.publish_many("a", [("x", b"1", {"n": 1}), ("y",)]) == range(1, 3)
    entered = [(m.address, m.body, dict(m.headers)) for m in engine.queues["b"].browse()]
    assert entered == [("x", b"1", {"n": 1}), ("y", b"", {})]
    with nothing_changes(engine), pytest.raises(QueueFull):
        engine.publish_many("a", [("x",)] * 4)      # the run would have made room
    assert len(engine.publish_many("a", [])) == 0


def test_decision_100_nothing_goes_to_no_queue_no_more_than_something(make):
    engine = make(dead_letter="dead")
    with nothing_changes(engine), pytest.raises(QueueNotFound, match="nope"):
        engine.publish_many("nope", [])
    queues(engine, "dead")
    assert len(engine.publish_many("nope", iter([]))) == 0


def test_call_publish_many_counts_overflow_and_dead_letter_in(engine):
    queues(engine, "a", limit=1, dead_letter="dead")
    queues(engine, "dead", limit=1)
    engine.create_selector("a", when=overflow, do=deliver("out"), credit=1)
    with nothing_changes(engine), pytest.raises(QueueFull):
        engine.publish_many("a", [(address,) for address in "1234"])
    assert engine.publish_many("a", [(address,) for address in "123"]) == range(1, 3)
    assert (held_in(engine, "a", "ready"), take(engine), held_in(engine, "dead")) == (["1"], ["2"], ["3"])


def test_call_transaction(engine):
    queues(engine, "a", "b", limit=1)
    engine.create_selector("a", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x")
    [delivery] = engine.take(1)
    with engine.transaction() as tx:
        tx.publish("a", "y")
        tx.ack(delivery)
        tx.publish("b", "z")
        assert (held_in(engine, "a"), held_in(engine, "b")) == (["x"], [])
    assert tx.ids == [2, 1]
    assert (take(engine), held_in(engine, "b")) == (["y"], ["z"])
    with pytest.raises(TransactionError):
        tx.publish("a", "late")


@pytest.mark.parametrize("inside", [False, True])
def test_a_block_around_a_delivery_that_a_transaction_acked(engine, inside):
    """It acks twice, and is told so; within the transaction nothing is done then."""
    queues(engine, "a")
    engine.create_selector("a", when=always, do=deliver("out"), credit=1)
    publish(engine, "a", "x")
    [delivery] = engine.take(1)
    with pytest.raises(StaleDelivery):
        with engine.transaction() as tx:
            tx.ack(delivery)
            if inside:
                with delivery:
                    engine.queues["a"].purge()      # any work
        with delivery:
            pass
    assert engine.queues["a"].outstanding == 0


def test_call_transaction_does_all_or_nothing(engine):
    queues(engine, "a", "b", limit=1)
    engine.create_selector("a", when=always, do=deliver("out"), credit=2)
    publish(engine, "a", "x", "y")
    first, second = engine.take(2)

    def raises(error, *acked, publishes=()):
        with nothing_changes(engine), pytest.raises(error), engine.transaction() as tx:
            for address in publishes:
                tx.publish("b", address)
            for delivery in acked:
                tx.ack(delivery)
            if error is ZeroDivisionError:
                raise ZeroDivisionError

    raises(ZeroDivisionError, first, publishes=["z"])
    raises(QueueFull, first, publishes=["z", "z"])
    raises(StaleDelivery, first, first, publishes=["z"])
    second.ack()
    raises(StaleDelivery, first, second, publishes=["z"])
    with engine.transaction() as tx:
        tx.publish("b", "z")
        tx.ack([first])
    assert (engine.queues["a"].outstanding, held_in(engine, "b")) == (0, ["z"])


def test_call_browse(engine, clock):
    [queue] = queues(engine, "a", history_limit=None)
    engine.create_selector("a", when=always, do=deliver("out"), credit=2)
    for address in "12345":
        publish(engine, "a", address)
        clock.tick()
    engine.take(1)[0].ack()
    queue.hold()
    publish(engine, "a", "6")
    moment = datetime.fromtimestamp(queue.fetch(3).timestamp / 1e9, UTC)

    def browse(*arguments, **options):
        return "".join(addresses(queue.browse(*arguments, **options)))

    assert browse() == browse("head") == "123456"
    assert (browse("current"), browse(4), browse(moment)) == ("6", "456", "3456")
    assert (browse(state="history"), browse(state="outstanding"), browse(state="ready")) == ("1", "23", "456")
    assert (browse(limit=2), browse(limit=0)) == ("12", "")
    assert (browse(reverse=True), browse(3, reverse=True, limit=2)) == ("654321", "32")
    assert browse(where="sys.address IN ('2', '5')") == browse(where=where("sys.address IN ('2', '5')")) == "25"
    assert [message.id for message in queue.browse(4)] == [4, 5, 6]
    for arguments, options in ((("tail",), {}), ((datetime(2020, 1, 1),), {}), ((), {"state": "gone"})):
        with pytest.raises(ValueError):
            list(queue.browse(*arguments, **options))


def test_call_fetch_delete_purge(engine):
    [queue] = queues(engine, "a", history_limit=1)
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=2)
    publish(engine, "a", "1", "2", "3", "4")
    delivery, other = engine.take(2)
    delivery.ack()
    assert (queue.fetch(1).address, queue.fetch(9)) == ("1", None)
    assert (queue.delete(9), queue.delete(1), queue.fetch(1)) == (False, True, None)
    assert queue.delete(2) is True      # outstanding: recalled first
    with pytest.raises(StaleDelivery):
        other.ack()
    assert selector_stats(engine, selector)["returned"] == 1
    assert held_in(engine, "a", "outstanding") == ["3", "4"]
    publish(engine, "a", "5")
    assert queue.purge() == 1
    assert queue_stats(engine, "a")["deleted"] == 3


def test_call_delete_of_an_outstanding_message_recalls_and_pays_the_supplier(engine):
    queues(engine, "a", "b", "c")
    selectors = [engine.create_selector(source, when=always, do=move_to(target), credit=1) for source, target in ("ab", "bc")]
    publish(engine, "a", "x")
    assert engine.queues["b"].delete(1)
    assert [held_in(engine, name) for name in "abc"] == [[], [], []]
    assert [(s.available, selector_stats(engine, s)["paid"], selector_stats(engine, s)["returned"]) for s in selectors] == [
        (1, 1, 0), (1, 0, 1)]


def test_call_stats(engine):
    queues(engine, "a")
    selector = engine.create_selector("a", when=always, do=deliver("out"), credit=2)
    publish(engine, "a", "x", "y", "z")
    engine.take(1)[0].ack()
    of_queue = {"entered": 3, "ready": 0, "outstanding": 2, "history": 0, "settled": 1, "dropped": {}, "deleted": 0,
                "dead_lettered": {}}
    of_selector = {"credit": 2, "available": 0, "outstanding": 2, "served": 3, "copied": 0, "dropped": 0, "paid": 1,
                   "returned": 0, "errors": 0, "blocked": False}
    assert of_queue.items() <= queue_stats(engine, "a").items()      # there may be more of them
    assert of_selector.items() <= selector_stats(engine, selector).items()


def test_call_sequence_is_deterministic(make):
    def play():
        engine = make(hop_limit=5)
        queues(engine, "a", "b", limit=2)
        queues(engine, "c", limit=1, dead_letter="a")
        for (source, target), credit in zip(itertools.permutations("abc", 2), (1, 2, INFINITE, 3, 1, 2), strict=True):
            engine.create_selector(source, when=always, do=move_to(target), credit=credit)
        for i in range(9):
            try:
                engine.publish("abc"[i % 3], str(i))
            except QueueFull:
                pass
        return engine.stats(), [held_in(engine, name) for name in "abc"]

    assert play() == play()
