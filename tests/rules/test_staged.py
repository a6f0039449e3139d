"""Staged queues: messages wait as they came, until a queue adopts them, and they enter. Each test is one sentence of
docs/decisions.md, whose number it has; on the model, in RAM and in stores."""

import pytest

from tests.rules.seen import SECOND, addresses, reasons, stats, taken, worker
from tests.rules.test_reopened import ENDS, OPTIONS, OnModel, OnStore
from xump import INFINITE, always, bounce_to, copy_to, deliver, field, move_to, overflow
from xump.errors import Conflict, QueueFull, QueueNotFound, TransactionError


class House:
    """An engine, and the store in which queues are made."""

    def __init__(self, inner, store):
        self.inner, self.store = inner, store

    @property
    def engine(self):
        return self.inner.engine

    def queue(self, name, **properties):
        return self.engine.create_queue(name, store=self.store, **properties)

    def staged(self, name, *addresses, **terms):
        """A staged queue with such messages, as `adopt` wants it."""
        self.queue(name, staged=True)
        for address in addresses:
            self.engine.publish(name, address, **terms)
        return name, len(addresses)

    def adopted(self, *addresses, **properties):
        """Queue `t`, which has adopted such messages in queue `s`."""
        target = self.queue("t", **properties)
        self.engine.adopt("t", [self.staged("s", *addresses)])
        return target


KINDS = ["model, ram", "model, store", "ram", *OPTIONS]
IN_STORES = pytest.mark.parametrize("house", ["model, store", *OPTIONS], indirect=True)


@pytest.fixture(params=KINDS)
def house(request, clock, tmp_path):
    kind = request.param
    inner = OnModel(clock, None) if kind.startswith("model") else OnStore(clock, tmp_path, kind if kind in OPTIONS else "ring")
    yield House(inner, "ram" if kind.endswith("ram") else "d")
    inner.close()


@pytest.fixture
def engine(house):
    return house.engine


class Nothing:
    """An expectation that a call fails and changes nothing that can be seen."""

    def __init__(self, engine, *errors):
        self.engine, self.raises = engine, pytest.raises(errors)

    def look(self):
        return self.engine.stats(), {name: dict(queue.meta) for name, queue in self.engine.queues.items()}

    def __enter__(self):
        self.before = self.look()
        self.raises.__enter__()

    def __exit__(self, *error):
        assert self.raises.__exit__(*error)
        assert self.look() == self.before
        return True


# ---- 200: what a staged queue is

def test_200_it_keeps_what_comes_as_it_came_and_is_held_always(house, engine):
    house.staged("s", "a", "b")
    engine.publish_many("s", [("c", b"body", {"n": 1}), ("d",)])
    with engine.transaction() as tx:
        tx.publish("s", "e")
    with engine.building():
        engine.publish("s", "f")
    queue = engine.queues["s"]
    assert tx.ids == [5] and addresses(engine, "s") == list("abcdef") and queue.held and queue.ready == 6 and queue.entering == 0
    queue.hold()
    assert queue.held and queue.fetch(3).body == b"body" and stats(engine, "s")["entered"] == 6


def test_200_it_has_no_other_property(house, engine):
    for name, value in {"limit": 5, "history_limit": 1, "auto_delete": True, "dead_letter": "t", "delivery_limit": 1, "ttl": 5,
                        "retry_delay": 1, "priority": 3, "group": field("address"), "dedup": 5, "limit_bytes": 1,
                        "when_full": "drop_oldest", "unmatched": "keep", "transit": True}.items():
        with Nothing(engine, ValueError):
            house.queue("s", staged=True, **{name: value})
    house.queue("t")
    with Nothing(engine, Conflict):
        house.queue("t", staged=True)


def test_200_no_selector_takes_from_it_or_puts_into_it(house, engine):
    house.staged("s", "a")
    house.queue("t")
    for action in (copy_to, move_to, bounce_to):
        with Nothing(engine, ValueError):
            engine.create_selector("s", when=always, do=action("t"))
        with Nothing(engine, ValueError):
            engine.create_selector("t", when=always, do=action("s"))
    with Nothing(engine, ValueError):
        engine.create_selector("t", when=always, do=deliver("d", queue="s"))


def test_200_a_message_that_names_it_names_no_queue(house, engine):
    house.staged("s")
    house.queue("t", unmatched="keep")
    engine.create_selector("t", when=always, do=move_to(field("address")), credit=INFINITE)
    engine.publish("t", "s")
    assert addresses(engine, "t") == ["s"] and addresses(engine, "s") == []
    engine.delete_queue("s")
    house.queue("s")                        # a plain one, for which the message has waited
    assert addresses(engine, "t") == [] and addresses(engine, "s") == ["s"]


def test_200_it_is_no_dead_letter_queue(house, engine):
    house.staged("dead")
    house.queue("t", limit=1, dead_letter="dead")
    engine.publish("t")
    with Nothing(engine, QueueFull):
        engine.publish("t")


def test_200_nothing_is_taken_from_it_by_hand_and_nothing_released(house, engine):
    house.staged("s", "a")
    with Nothing(engine, ValueError):
        engine.get("s")
    with Nothing(engine, ValueError):
        engine.queues["s"].release()


def test_200_messages_in_it_can_be_deleted_and_so_can_the_queue(house, engine):
    house.staged("s", "a", "b", "c", "d")
    assert engine.queues["s"].delete(2) and engine.queues["s"].purge(upto=3) == 2 and addresses(engine, "s") == ["d"]
    assert engine.delete_queue("s") and not engine.delete_queue("s")


# ---- 201: time

def test_201_a_delay_is_refused(house, engine):
    house.staged("s")
    with Nothing(engine, ValueError):
        engine.publish("s", "a", delay=5)
    with Nothing(engine, ValueError):
        engine.publish_many("s", [("a",)], delay=0)
    with Nothing(engine, ValueError), engine.transaction() as tx:
        tx.publish("s", "a", delay=5)


def test_201_nothing_happens_there_when_its_time_comes(house, engine, clock):
    house.staged("s", "a", at=clock.now + SECOND)
    house.staged("s", "b", expires=clock.now + SECOND)
    assert engine.next_due is None
    clock.tick(10)
    engine.tick()
    assert addresses(engine, "s") == ["a", "b"] and stats(engine, "s")["delayed"] == 0


@pytest.mark.parametrize("waits", [False, True])
def test_201_what_it_says_of_time_counts_when_it_enters(house, engine, clock, waits):
    house.queue("t", dead_letter="dead")
    house.queue("dead")
    house.staged("s", "at", at=clock.now + 5 * SECOND)
    house.staged("s", "expires", expires=clock.now + 5 * SECOND)
    if waits:
        clock.tick(6)
    engine.adopt("t", [("s", 2)])
    assert engine.enter("t", 9) == 2
    assert addresses(engine, "t", "delayed") == ([] if waits else ["at"])
    assert addresses(engine, "t", "ready") == (["at"] if waits else ["expires"])
    assert reasons(engine, "dead") == (["expired"] if waits else [])
    clock.tick(60)
    engine.tick()
    assert addresses(engine, "t") == ["at"] and reasons(engine, "dead") == ["expired"]


def test_201_priority_counts_there(house, engine):
    house.queue("t", priority=9)
    house.staged("s", "low")
    house.staged("s", "high", priority=5)
    engine.adopt("t", [("s", 2)])
    engine.enter("t", 2)
    worker(engine, "t")
    assert taken(engine) == ["high", "low"]


@ENDS
@IN_STORES
def test_201_reopened_it_is_as_it_was(house, engine, clock, crashed):
    house.queue("t", dead_letter="dead", priority=9)
    house.queue("dead")
    house.staged("s", "at", at=clock.now + 5 * SECOND, priority=3)
    house.staged("s", "expires", expires=clock.now + 5 * SECOND, priority=4)
    engine = house.inner.opened_again(crashed)
    engine.adopt("t", [("s", 2)])
    engine = house.inner.opened_again(crashed)
    assert engine.queues["s"].held and engine.next_due is None
    with engine.building():
        pass
    assert engine.queues["s"].held and engine.enter("t", 9) == 2
    assert [(m.address, m.priority) for m in engine.queues["t"].browse()] == [("at", 3), ("expires", 4)]
    clock.tick(6)
    engine.tick()
    assert addresses(engine, "t", "ready") == ["at"] and reasons(engine, "dead") == ["expired"]


# ---- 202: adopting

def test_202_the_target_has_nothing_more_and_so_many_to_come(house, engine):
    target = house.adopted("a", "b")
    assert (target.ready, target.entering, stats(engine, "t")["entered"], stats(engine, "t")["entering"]) == (0, 2, 0, 2)
    assert addresses(engine, "s") == ["a", "b"]


def test_202_its_map_changes_in_the_same_step(house, engine):
    house.queue("t", meta={"kept": b"1", "gone": b"2"})
    engine.adopt("t", [house.staged("s", "a")], meta={"new": b"3", "gone": None})
    assert dict(engine.queues["t"].meta) == {"kept": b"1", "new": b"3"}
    engine.adopt("t", [], meta={"new": b"4"})
    assert dict(engine.queues["t"].meta) == {"kept": b"1", "new": b"4"} and engine.queues["t"].entering == 1
    one = house.staged("s2", "b")
    with Nothing(engine, ValueError):
        engine.adopt("t", [one], meta={"large": bytes(70_000)})


def test_202_it_must_be_told_how_many_there_are(house, engine):
    house.queue("t")
    house.staged("s1", "a")
    house.staged("s2", "a", "b")
    for rows in (0, 1, 3, -1):
        with Nothing(engine, ValueError):
            engine.adopt("t", [("s1", 1), ("s2", rows)], meta={"m": b"1"})


def test_202_each_queue_is_adopted_once(house, engine):
    house.adopted("a")
    house.queue("t2")
    for target in ("t", "t2"):
        with Nothing(engine, Conflict):
            engine.adopt(target, [("s", 1)])
    two = house.staged("s2", "b")
    with Nothing(engine, ValueError):
        engine.adopt("t", [two, two])


def test_202_only_staged_queues_are_adopted_and_only_by_others_that_keep_messages(house, engine):
    house.queue("t")
    house.queue("plain")
    engine.create_queue("x", transit=True)
    one = house.staged("s", "a")
    with Nothing(engine, ValueError):
        engine.adopt("t", [("plain", 0)])
    for target in ("x", "s"):
        with Nothing(engine, ValueError):
            engine.adopt(target, [one])
    with Nothing(engine, QueueNotFound):
        engine.adopt("nowhere", [one])
    with Nothing(engine, QueueNotFound):
        engine.adopt("t", [one, ("nowhere", 0)])


def test_202_all_of_it_is_in_one_store(house, engine):
    other = "d" if house.store == "ram" else "ram"
    house.queue("t")
    engine.create_queue("s", store=other, staged=True)
    with Nothing(engine, TransactionError):
        engine.adopt("t", [("s", 0)])


def test_202_an_empty_one_is_gone_at_once(house, engine):
    house.queue("t")
    engine.adopt("t", [house.staged("s1"), house.staged("s2", "a"), house.staged("s3")])
    assert sorted(engine.queues) == ["s2", "t"]
    engine.adopt("t", [house.staged("s1")])
    assert sorted(engine.queues) == ["s2", "t"] and engine.enter("t", 9) == 1 and list(engine.queues) == ["t"]


def test_202_what_was_adopted_takes_no_more_messages_and_is_neither_purged_nor_deleted(house, engine):
    house.adopted("a")
    for call in (lambda: engine.publish("s", "b"), lambda: engine.publish_many("s", []), lambda: engine.delete_queue("s"),
                 lambda: engine.publish_many("s", [("b",)], outcomes=True), engine.queues["s"].purge):
        with Nothing(engine, Conflict):
            call()
    house.queue("plain")
    with Nothing(engine, Conflict), engine.transaction() as tx:
        tx.publish("plain", "b")
        tx.publish("s", "b")


def test_202_a_message_may_be_deleted_by_its_id(house, engine):
    target = house.adopted("a", "b", "c")
    assert engine.queues["s"].delete(2) and target.entering == 2
    engine.enter("t", 1)
    assert engine.queues["s"].delete(3) and target.entering == 0 and list(engine.queues) == ["t"]
    assert addresses(engine, "t") == ["a"] and target.stable_id == 1


def test_202_they_are_deleted_with_their_target(house, engine):
    house.adopted("a", "b")
    engine.adopt("t", [house.staged("s2", "c")])
    engine.enter("t", 1)
    assert engine.delete_queue("t") and list(engine.queues) == []
    house.queue("t")
    assert engine.enter("t", 9) == 0


# ---- 203: entering

def test_203_in_the_order_of_the_list_then_of_the_ids_step_by_step(house, engine):
    target = house.queue("t")
    engine.adopt("t", [house.staged("s2", "c", "d"), house.staged("s1", "a", "b")])
    engine.adopt("t", [house.staged("s0", "e")])
    assert [engine.enter("t", 1), engine.enter("t", 2), target.entering] == [1, 2, 2] and "s2" not in engine.queues
    assert engine.enter("t", 100) == 2 and engine.enter("t", 100) == 0
    assert addresses(engine, "t") == ["c", "d", "a", "b", "e"] and list(engine.queues) == ["t"]


def test_203_as_if_published_now(house, engine, clock):
    house.queue("t")
    house.staged("s", "a", reply_to="r", message_id="m", correlation_id="c", priority=3)
    engine.adopt("t", [("s", 1)])
    clock.tick(5)
    engine.publish("t", "before")
    engine.enter("t", 1)
    message = engine.queues["t"].fetch(2)
    assert (message.id, message.timestamp, message.hops) == (2, clock.now, 0)
    assert (message.reply_to, message.message_id, message.correlation_id, message.priority) == ("r", "m", "c", 3)


def test_203_all_of_a_step_have_entered_before_the_first_is_routed(house, engine):
    house.queue("full", limit=1)
    house.adopted("a", "b")
    engine.create_selector("t", when=always, do=copy_to("full"))
    worker(engine, "t")
    assert engine.enter("t", 9) == 2 and taken(engine) == ["a", "b"] and addresses(engine, "full") == ["a"]
    with engine.building():
        engine.adopt("t", [house.staged("s2", "c")])
        assert engine.enter("t", 9) == 1 and taken(engine) == []
    assert taken(engine) == ["c"]


def test_203_without_room_they_wait(house, engine):
    target = house.adopted("a", "b", "c", "d", limit=2, dead_letter="dead")
    house.queue("dead")
    assert [engine.enter("t", 9), engine.enter("t", 9), target.entering] == [2, 0, 2]
    assert engine.queues["t"].delete(1) and engine.enter("t", 9) == 1
    assert addresses(engine, "t") == ["b", "c"] and addresses(engine, "dead") == []


def test_203_the_overflow_selector_makes_room(house, engine):
    house.queue("spill")
    house.adopted("a", "b", "c", limit=1)
    engine.create_selector("t", when=overflow, do=move_to("spill"), credit=INFINITE)
    assert engine.enter("t", 9) == 3
    assert (addresses(engine, "t"), addresses(engine, "spill")) == (["a"], ["b", "c"])


def test_203_a_queue_that_drops_its_oldest_is_full_for_them(house, engine):
    house.adopted("a", "b", limit=1, when_full="drop_oldest")
    assert [engine.enter("t", 9), engine.enter("t", 9)] == [1, 0] and addresses(engine, "t") == ["a"]


def test_203_selectors_that_wait_for_room_go_first(house, engine):
    house.queue("source")
    house.queue("t", limit=1)
    engine.create_selector("source", when=always, do=move_to("t"), credit=INFINITE)
    engine.publish_many("source", [("m1",), ("m2",)])
    engine.adopt("t", [house.staged("s", "a")])
    assert engine.enter("t", 9) == 0
    worker(engine, "t", credit=INFINITE)
    assert taken(engine) == ["m1", "m2"] and engine.enter("t", 9) == 1 and taken(engine) == ["a"]


def test_203_a_duplicate_enters_nothing_and_needs_no_room(house, engine):
    target = house.queue("t", dedup=60, limit=1)
    engine.publish("t", "first", message_id="m")
    house.staged("s", "again", message_id="m")
    house.staged("s", "other", message_id="n")
    engine.adopt("t", [("s", 2)])
    assert engine.enter("t", 9) == 1 and target.entering == 1 and stats(engine, "t")["duplicates"] == 1
    target.purge()
    assert engine.enter("t", 9) == 1 and addresses(engine, "t") == ["other"]


def test_203_what_is_late_needs_no_room(house, engine, clock):
    house.queue("t", limit=0, dead_letter="dead")
    house.queue("dead")
    house.staged("s", "late", expires=clock.now + 1)
    engine.adopt("t", [("s", 1)])
    clock.tick(1)
    assert engine.enter("t", 9) == 1 and reasons(engine, "dead") == ["expired"]


def test_203_a_held_queue_takes_them_as_it_takes_a_publish(house, engine):
    target = house.adopted("a")
    target.hold()
    worker(engine, "t")
    assert engine.enter("t", 9) == 1 and taken(engine) == []
    target.release()
    assert taken(engine) == ["a"]


def test_203_a_step_is_of_one_message_at_least(house, engine):
    house.adopted("a")
    for n in (0, -1):
        with Nothing(engine, ValueError):
            engine.enter("t", n)
    with Nothing(engine, QueueNotFound):
        engine.enter("nowhere", 1)
    assert engine.enter("t", 1) == 1 and engine.enter("t", 1) == 0


# ---- 204: reading by id

def test_204_up_to_the_stable_id_an_adoption_is_there_whole_or_not_at_all(house, engine):
    target = house.queue("t")
    engine.publish("t", "before")
    engine.adopt("t", [house.staged("s1", "a", "b")])
    engine.adopt("t", [house.staged("s2", "c", "d")])
    seen = [target.stable_id]
    for publish in (True, False, True, False, False):
        if publish:
            engine.publish("t", "between")
        engine.enter("t", 1)
        seen.append(target.stable_id)
    assert addresses(engine, "t") == ["before", "between", "a", "b", "between", "c", "d"]
    assert seen == [1, 2, 4, 5, 7, 7]


def test_204_an_adoption_that_found_no_room_does_not_stop_readers(house, engine):
    target = house.queue("t", limit=1)
    engine.publish("t", "before")
    engine.adopt("t", [house.staged("s", "a", "b")])
    assert engine.enter("t", 1) == 0
    target.purge()
    engine.publish("t", "between")
    assert (engine.enter("t", 1), target.stable_id) == (0, 2)
    target.purge()
    assert (engine.enter("t", 2), target.stable_id) == (1, 2)


@ENDS
@IN_STORES
def test_204_reopened_too(house, engine, crashed):
    house.adopted("a", "b", "c")
    engine.adopt("t", [house.staged("s2", "d")], meta={"m": b"1"})
    engine.enter("t", 2)
    engine = house.inner.opened_again(crashed)
    target = engine.queues["t"]
    assert (target.stable_id, target.entering, target.ready, dict(target.meta)) == (0, 2, 2, {"m": b"1"})
    assert [engine.enter("t", 1), target.stable_id] == [1, 3]
    engine = house.inner.opened_again(crashed)
    target = engine.queues["t"]
    assert (target.stable_id, target.entering) == (3, 1) and engine.enter("t", 1) == 1
    engine = house.inner.opened_again(crashed)
    assert list(engine.queues) == ["t"] and addresses(engine, "t") == list("abcd") and engine.queues["t"].entering == 0


# ---- 205: purge up to an id

def test_205_what_was_read_is_purged(house, engine):
    queue = house.queue("q")
    engine.publish_many("q", [("a",), ("taken",), ("b",), ("c",)])
    engine.publish("q", "delayed", delay=9)
    assert engine.get("q").message.address == "a"
    assert queue.purge(upto=0) == 0 and queue.purge(upto=3) == 2
    assert addresses(engine, "q", "ready") == ["c"] and queue.outstanding == 1 and queue.delayed == 1
    assert queue.purge(upto=5) == 2 and stats(engine, "q")["deleted"] == 4
