"""Messages that their store cannot read: they stay where they are, and nothing is half done; then the disk is well again."""

import pytest

from tests.durability.failing_shelf import FailingShelf, emptied, opened
from xump import Engine, always, deliver, field, match, move_to, where
from xump.durability import opening

BODY = b"%d" + bytes(3800)      # the stores read 4096 bytes at once: the whole of one message, not of the next one


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 0)
    yield from emptied()


def stored(clock, count=20, **properties):
    """An engine that has opened queue `q`: its messages are on the disk only. More than the slots of what was read last hold."""
    with opened(clock=clock) as engine:
        engine.create_queue("q", store="l", dead_letter="dead", **properties)
        for number in range(1, count + 1):
            engine.publish("q", "x", BODY % number, {"key": "k"})
    engine = opened(clock=clock)
    with engine.building():
        engine.create_queue("dead", store="l")
        engine.create_selector("q", when=always, do=deliver("d"), credit=100)
    return engine


@pytest.mark.parametrize("answer", ["reject", "nack", "expired"])
def test_a_transaction_whose_answers_cannot_be_read_changes_nothing(clock, answer):
    with stored(clock, ttl=60, delivery_limit=1 if answer == "nack" else None) as engine:
        queue, dead = engine.queues["q"], engine.queues["dead"]
        deliveries = engine.take(20)
        if answer == "expired":
            clock.tick(61)

        def refuse():
            with engine.transaction() as transaction:
                transaction.publish("dead", "first")
                for delivery in deliveries:
                    transaction.reject(delivery) if answer == "reject" else transaction.nack(delivery)

        FailingShelf.unreadable.add(("l", 15))
        with pytest.raises(OSError, match="the disk says no"):
            refuse()
        engine.check()
        assert (queue.outstanding, dead.ready) == (20, 0)
        FailingShelf.unreadable.clear()
        refuse()
        engine.check()
        assert (queue.outstanding, dead.ready) == (0, 21)
        assert [message.body for message in dead.browse()] == [b"", *(BODY % number for number in range(1, 21))]


def test_a_batch_that_expired_in_the_hands_and_cannot_be_read_stays_there(clock):
    with stored(clock, ttl=60) as engine:
        batch = engine.take_batch(20, "d")
        clock.tick(61)
        FailingShelf.unreadable.add(("l", 15))
        with pytest.raises(OSError, match="the disk says no"):
            batch.nack()
        engine.check()
        assert (engine.queues["q"].outstanding, engine.queues["dead"].ready) == (20, 0)
        FailingShelf.unreadable.clear()
        batch.nack([15])
        batch.nack()
        engine.check()
        assert (engine.queues["q"].outstanding, engine.queues["dead"].ready) == (0, 20)


def test_a_batch_has_the_messages_before_one_that_cannot_be_read(clock):
    with stored(clock) as engine:
        FailingShelf.unreadable.add(("l", 15))
        first = engine.take_batch(20, "d")
        assert len(first) == 14
        with pytest.raises(OSError, match="the disk says no"):
            engine.take_batch(20, "d")
        engine.check()
        FailingShelf.unreadable.clear()
        assert len(engine.take_batch(20, "d")) == 6
        first.ack()
        engine.check()


def test_the_oldest_message_is_not_dropped_unread(clock, caplog):
    """It has to become a dead letter. Its queue is held, and beyond its limit, until the disk is well."""
    with stored(clock, limit=20, when_full="drop_oldest") as engine:
        queue, dead = engine.queues["q"], engine.queues["dead"]
        for selector in list(engine.selectors.values()):
            selector.delete()
        FailingShelf.unreadable.add(("l", 1))
        assert engine.publish("q", "new") == 21
        engine.check()
        assert queue.held and "queue 'q' is held from now on" in caplog.text
        assert (queue.ready, dead.ready) == (21, 0)
        FailingShelf.unreadable.clear()
        queue.release()
        engine.check()
        assert (queue.ready, dead.ready, dead.fetch(1).body) == (20, 1, BODY % 1)


@pytest.mark.parametrize("timer", ["ttl", "delay", "ack_timeout"])
def test_what_fell_due_unread_falls_due_when_its_queue_is_released(clock, caplog, timer):
    properties = {"ttl": {"ttl": 60}, "delay": {"group": field("headers.key")}, "ack_timeout": {"delivery_limit": 1}}[timer]
    with opened(clock=clock) as engine:
        engine.create_queue("q", store="l", dead_letter="dead", **properties)
        for number in range(1, 13):
            engine.publish("q", "x", BODY % number, {"key": "k"}, delay=60 if timer == "delay" else None)
    with opened(clock=clock) as engine:
        queue = engine.queues["q"]
        with engine.building():
            engine.create_queue("dead", store="l")
            if timer == "ack_timeout":
                engine.create_selector("q", when=always, do=deliver("d"), credit=100, ack_timeout=60)
        kept = engine.take(12)             # what was read last are the last eight
        clock.tick(61)
        FailingShelf.unreadable.update({("l", 1), ("l", 3)})
        engine.tick()
        engine.check()
        assert queue.held and caplog.text.count("queue 'q' is held from now on") == 1
        FailingShelf.unreadable.discard(("l", 1))
        queue.release()
        engine.check()
        assert queue.held and caplog.text.count("queue 'q' is held from now on") == 2
        FailingShelf.unreadable.clear()
        queue.release()
        engine.check()
        assert not queue.held and queue.outstanding == queue.delayed == 0
        assert (queue.ready, engine.queues["dead"].ready) == ((12, 0) if timer == "delay" else (0, 12))
        assert engine.next_due is None
        del kept


@pytest.mark.parametrize("what", ["selector", "queue", "target"])
def test_what_is_deleted_gives_back_what_cannot_be_read(clock, caplog, what):
    """Their time was over meanwhile, so they become dead letters. One that cannot be read waits for that in its queue."""
    with stored(clock, ttl=60) as engine:
        queue, dead = engine.queues["q"], engine.queues["dead"]
        selector, = engine.selectors.values()
        if what != "selector":
            selector.delete()
            engine.create_queue("low")
            engine.create_selector("low", when=always, do=deliver("d"), credit=100)
            engine.create_selector("q", when=always, do=move_to("low"), credit=100)
        assert len(engine.take(20)) == 20
        clock.tick(61)
        FailingShelf.unreadable.update({("l", 5), ("l", 15)})
        if what == "selector":
            selector.delete()
        elif what == "target":
            engine.delete_queue("low")
        else:
            engine.delete_queue("q")
        engine.check()
        if what == "queue":
            assert "q" not in engine.queues
            return
        assert queue.held and caplog.text.count("queue 'q' is held from now on") == 1
        assert (queue.ready, queue.delayed, queue.outstanding, dead.ready) == (0, 2, 0, 18)
        FailingShelf.unreadable.clear()
        queue.release()
        engine.check()
        assert (queue.ready, dead.ready) == (0, 20)


def test_a_message_that_cannot_be_matched_anew_holds_its_queue(caplog):
    with opened("a l") as engine:
        engine.create_selector("a", when=match("eq", "x"), do=deliver("d"), credit=0)
        engine.publish("a", "x")
    engine = opened("ram")
    FailingShelf.unreadable.add("l")
    with engine.building():
        engine.create_selector("a", when=match("eq", "x"), do=deliver("d"), credit=1)
        engine.create_selector("ram", when=always, do=deliver("ram"), credit=10)
        engine.create_queue("other")
        engine.create_selector("other", when=always, do=deliver("other"), credit=0)
    assert engine.queues["a"].held and "queue 'a' is held from now on" in caplog.text
    assert engine.publish("ram") == 1 and len(engine.take(5, "ram")) == 1
    engine.check()
    FailingShelf.unreadable.clear()
    engine.queues["a"].release()
    assert len(engine.take(5, "d")) == 1
    engine.close()


@pytest.mark.parametrize("end", ["nack", "retry"])
def test_a_message_that_expired_in_the_hands_and_cannot_be_read_stays_there(clock, end):
    """It is dead-lettered when it comes back, and that reads it: before anything has changed."""
    with opened("dead", clock=clock) as engine:
        engine.create_queue("q", store="l", ttl=60, dead_letter="dead")
        for number in range(30):
            engine.publish("q", "x", b"%d" % number * 1000)
    engine = opened(clock=clock)
    with engine.building():
        engine.create_queue("dead")
        engine.create_selector("q", when=always, do=deliver("d"), credit=100)
    deliveries = engine.take(30)
    engine.queues["q"].fetch(30)
    clock.tick(61)
    FailingShelf.unreadable.add("l")
    calls = {"nack": deliveries[0].nack, "retry": lambda: deliveries[0].nack(delay=1)}
    with pytest.raises(OSError, match="the disk says no"):
        calls[end]()
    engine.check()
    FailingShelf.unreadable.clear()
    assert engine.queues["q"].outstanding == 30 and engine.queues["dead"].ready == 0
    deliveries[0].nack()
    assert engine.queues["dead"].ready == 1
    engine.check()
    engine.close()


def test_a_message_that_cannot_be_bounced_stays_in_the_hands():
    with opened("dead") as engine:
        engine.create_queue("q", store="l", dead_letter="dead", delivery_limit=1)
        engine.create_selector("q", when=always, do=deliver("d"), credit=100)
        for number in range(30):
            engine.publish("q", "x", b"%d" % number * 1000)
        engine.sync()
        deliveries = engine.take(30)
        engine.queues["q"].fetch(30)        # what was read last is far from the first
        FailingShelf.unreadable.add("l")
        with pytest.raises(OSError, match="the disk says no"):
            deliveries[0].reject()
        with pytest.raises(OSError, match="the disk says no"):
            deliveries[1].nack()
        FailingShelf.unreadable.clear()
        engine.check()
        deliveries[0].reject()
        deliveries[1].nack()
        assert engine.queues["dead"].ready == 2 and engine.queues["q"].outstanding == 28
        engine.check()


def test_a_batch_that_cannot_be_bounced_stays_in_the_hands():
    with opened("dead") as engine:
        for name, limit in (("free", None), ("q", 1)):
            engine.create_queue(name, store="l", dead_letter="dead", delivery_limit=limit)
            engine.create_selector(name, when=always, do=deliver(name), credit=100)
            for number in range(30):
                engine.publish(name, "x", b"%d" % number * 1000)
        engine.sync()
        free, batch = engine.take_batch(30, "free"), engine.take_batch(30, "q")
        engine.queues["q"].fetch(30)
        FailingShelf.unreadable.add("l")
        with pytest.raises(OSError, match="the disk says no"):
            batch.nack([("q", 30), ("q", 1)])
        free.nack([("free", 1)])            # nobody looks at it
        FailingShelf.unreadable.clear()
        assert engine.queues["q"].outstanding == 30 and engine.queues["dead"].ready == 0
        engine.check()
        batch.nack()
        assert engine.queues["dead"].ready == 30
        engine.check()


def test_a_delay_that_ended_while_its_message_could_not_be_read_ends_at_the_release(clock):
    def opened_with_keys():
        engine = opened(clock=clock)
        with engine.building():
            engine.create_queue("q", store="l", group=field("headers.k"))
            engine.create_selector("q", when=always, do=deliver("d"), credit=10)
        return engine

    with opened_with_keys() as engine:
        engine.publish("q", "m", b"", {"k": "1"}, delay=10)
        engine.publish("q", "n", b"", {"k": "2"}, delay=10)
    clock.tick(20)
    FailingShelf.unreadable.add(("l", 1))
    with opened_with_keys() as engine:
        queue = engine.queues["q"]
        assert queue.held and queue.delayed == 1
        engine.check()
        FailingShelf.unreadable.clear()
        queue.release()
        engine.check()
        assert not queue.held and [delivery.message.address for delivery in engine.take(10)] == ["m", "n"]


def expiring(clock, do, credit):
    """An engine that has opened queue `a` with a message that expires in 10 seconds, and is on the disk only."""
    with opened("other l", clock=clock) as engine:
        engine.create_queue("a", store="l", dead_letter="dead")
        engine.publish("a", "m", BODY % 1, ttl=10)
        for number in range(20):
            engine.publish("other", "o", BODY % number)
    engine = opened(clock=clock)
    with engine.building():
        engine.create_queue("dead")
        engine.create_queue("r")
        engine.create_selector("a", when=always, do=do, credit=credit)
    return engine


def lose(engine, clock):
    """The message's time is over, and it cannot be read."""
    for number in range(1, 21):
        engine.queues["other"].fetch(number)        # what was read last are others
    clock.tick(20)
    FailingShelf.unreadable.add("l")


def find(engine, queue):
    """It can be read again: nobody is handed it, before the release or after it."""
    engine.check()
    assert queue.held and queue.delayed == 1 and engine.queues["dead"].ready == 0
    FailingShelf.unreadable.clear()
    assert engine.take(5) == []
    queue.release()
    engine.check()
    assert engine.take(5) == [] and engine.queues["r"].ready == 0 and engine.queues["dead"].ready == 1


def test_what_expired_unread_while_it_was_offered_is_not_handed_out(clock):
    with expiring(clock, deliver("d"), 5) as engine:
        lose(engine, clock)
        engine.tick()
        find(engine, engine.queues["a"])


def test_what_expired_unread_downstream_is_not_handed_out(clock):
    with expiring(clock, move_to("r"), 1) as engine:
        assert engine.get("r").message.address == "m"
        engine.create_selector("a", when=always, do=deliver("d"), credit=5)
        lose(engine, clock)
        queue = engine.queues["a"]
        engine.delete_queue("r")
        engine.create_queue("r")
        find(engine, queue)


def test_what_expired_unread_does_not_move_on_at_the_release(clock):
    with expiring(clock, move_to("r"), 0) as engine:
        lose(engine, clock)
        engine.tick()
        engine.selectors[1].grant(5)
        find(engine, engine.queues["a"])


def test_a_message_that_cannot_be_read_holds_up_nobody_else(tmp_path, caplog):
    path = tmp_path / "ring"
    with Engine() as engine:
        engine.create_store("d", "ring", path=str(path))
        engine.create_queue("q", store="d")
        engine.publish_many("q", [("x", b"BODY%d" % n * 10, {"n": n}) for n in range(5)])
    with Engine() as engine:
        engine.create_store("d", "ring", path=str(path))
        at = path.read_bytes().index(b"BODY2" * 10)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"X")
        engine.create_queue("ram")
        with engine.building():
            engine.create_selector("q", when=where("n >= 0"), do=deliver("d"), credit=10)
        assert engine.publish("ram") == 1
        assert engine.queues["q"].held and "damaged" in caplog.text
        engine.check()
