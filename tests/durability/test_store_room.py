"""Stores that are full, or nearly: what is in them goes on to its end, whatever its way, and makes room again."""

import errno
import shutil
import threading

import pyarrow
import pytest

from tests.durability.unhurried import unhurried
from tests.patience import PATIENCE
from xump import (
    INFINITE, Engine, OutcomeFlag, StoreFailed, StoreFull, always, copy_to, deliver, discard, move_to, overflow, where,
)
from xump.store_types import register_store
from xump.stores.ring import RingStore
from xump_ext.records import describe

SEGMENT = 1 << 16
RING = {"segment_bytes": SEGMENT, "min_bytes": 4 * SEGMENT}


def engine_on(path, kind, **options):
    engine = Engine()
    engine.create_store("s", kind, path=str(path), durability="process", **options)
    return engine


def filled(engine, queue, size):
    """How many were published until the store was full."""
    count = 0
    with pytest.raises(StoreFull, match="take messages out"):
        while True:
            engine.publish(queue, "x", bytes(size))
            count += 1
    return count


def drained(engine):
    count = 0
    while deliveries := engine.take(10):
        for delivery in deliveries:
            delivery.ack()
            count += 1
    return count


@pytest.mark.parametrize("kind", ["ring", "lmdb"])
def test_an_outcome_says_that_a_store_is_full(tmp_path, kind):
    options = RING | {"max_bytes": 8 * SEGMENT} if kind == "ring" else {"max_bytes": 1 << 20}
    with engine_on(tmp_path / "s", kind, **options) as engine:
        engine.create_queue("jobs", store="s")
        engine.create_queue("x", transit=True)
        engine.create_selector("x", when=always, do=copy_to("jobs"))
        told = engine.publish_many("jobs", [("x", bytes(4000))] * 1000, outcomes=True)
        taken = engine.queues["jobs"].last_id
        assert told == [(id, 1, 0, 0) for id in range(1, taken + 1)] + [(0, 0, 0, OutcomeFlag.STORE_FULL)] * (1000 - taken)
        assert 0 < taken < 1000
        assert engine.publish_many("x", [("x", bytes(4000))] * 100, outcomes=True)[-1] == (0, 0, 1, OutcomeFlag.DROPPED)
        engine.check()


@pytest.mark.parametrize("credit", [1, 100, INFINITE])
@pytest.mark.parametrize(("kind", "options", "size"), [
    ("ring", RING | {"max_bytes": 8 * SEGMENT}, 300), ("ring", RING | {"max_bytes": 10 * SEGMENT}, 1000),
    ("ring", RING | {"max_bytes": 20 * SEGMENT}, 4000), ("lmdb", {"max_bytes": 1 << 20}, 4000)])
def test_what_a_full_store_holds_goes_on_to_its_end(tmp_path, kind, options, size, credit):
    """By two moves within the store: those that begin leave room for those that are about to end."""
    with engine_on(tmp_path / "s", kind, **options) as engine:
        with engine.building():
            for name in ("jobs", "work", "ship"):
                engine.create_queue(name, store="s")
            engine.create_selector("jobs", when=always, do=move_to("work"), credit=credit)
            engine.create_selector("work", when=always, do=move_to("ship"), credit=credit)
            engine.create_selector("ship", when=always, do=deliver("d"), credit=credit)
        for _ in range(2):
            count = filled(engine, "jobs", size)
            assert drained(engine) == count > 0
        engine.check()


@pytest.mark.parametrize(("durability", "size", "options"), [
    ("process", 20_000, {"segment_bytes": SEGMENT, "min_bytes": 0, "max_bytes": 16 * SEGMENT}),
    ("none", 1000, {"min_bytes": 0, "max_bytes": 16 << 20})])
def test_a_backlog_upstream_goes_through_a_small_ring(tmp_path, durability, size, options):
    """What dies while the log is cleaned, and takes the place of what that gained, is no reason to clean no more: all is dead
    then, nothing more is written, and the rest would wait for room for ever."""
    with Engine() as engine:
        engine.create_store("s", "ring", path=str(tmp_path / "s"), durability=durability, **options)
        with engine.building():
            engine.create_queue("in")
            engine.create_queue("work", store="s")
            engine.create_selector("in", when=always, do=move_to("work"), credit=INFINITE)
            engine.create_selector("work", when=always, do=deliver("d"), credit=1000)
        left = len(engine.publish_many("in", [("x", bytes(size))] * (48_000_000 // size if durability == "none" else 500)))
        while left:
            deliveries = engine.take(50, timeout=PATIENCE)
            assert deliveries, f"{left} messages wait for room in a store where nothing is live"
            engine.ack(deliveries)
            left -= len(deliveries)


def test_a_smaller_message_behind_one_that_found_no_room(tmp_path):
    """Another selector has taken the large one for which there was no room."""
    engine = engine_on(tmp_path / "s", "ring", **RING, max_bytes=8 * SEGMENT)
    with engine.building():
        for name, store in (("q", "s"), ("below", "s"), ("r", "ram")):
            engine.create_queue(name, store=store)
        engine.create_selector("q", when=always, do=move_to("below"), credit=INFINITE)
        engine.create_selector("q", when=always, do=move_to("r"), credit=1)
        engine.create_selector("r", when=always, do=deliver("r"), credit=1)
        engine.create_selector("below", when=always, do=deliver("below"), credit=1)
    for size in (30000, 5000, 1000, 5000, 10, 10, None, 30000, 30000, None, 5000, 20000, 20000, None, 100, None):
        if size is None:
            for delivery in engine.take(1, "r"):
                delivery.ack()
        else:
            try:
                engine.publish("q", body=bytes(size))
            except StoreFull:
                engine.check()
        engine.check()
    engine.close()


@pytest.mark.parametrize("publish", [
    lambda engine, rows: engine.publish_many("jobs", rows),
    lambda engine, rows: [outcome.id for outcome in engine.publish_many("jobs", rows, outcomes=True)],
    lambda engine, rows: engine.publish_batch("jobs", pyarrow.table({"body": [body for _, body in rows]})),
])
def test_a_call_of_many_messages_has_room_made_for_it(tmp_path, publish):
    """As one message has. What was purged is not written yet."""
    with Engine() as engine:
        unhurried(engine.create_store("s", "ring", path=str(tmp_path / "s"), segment_bytes=SEGMENT, min_bytes=0,
                                      max_bytes=8 * SEGMENT))
        engine.create_queue("jobs", store="s")
        count = filled(engine, "jobs", 20_000)
        engine.queues["jobs"].purge()
        assert list(publish(engine, [("x", bytes(20_000))] * 3)) == [count + 1, count + 2, count + 3]


@pytest.mark.parametrize("kind", ["ring", "lmdb"])
@pytest.mark.parametrize("limit", [None, 1])
def test_a_smaller_message_that_comes_before_one_that_found_no_room(tmp_path, kind, limit):
    """Its delay is over. The target may be at its limit, and overflow."""
    now = 10**18
    options = RING | {"max_bytes": 8 * SEGMENT} if kind == "ring" else {"max_bytes": 1 << 20}
    with Engine(clock=lambda: now) as engine:
        engine.create_store("s", kind, path=str(tmp_path / "s"), durability="process", **options)
        with engine.building():
            engine.create_queue("outside")
            engine.create_queue("target", store="s", limit=limit)
            engine.create_queue("kept", store="s")
            engine.create_selector("outside", when=always, do=move_to("target"), credit=INFINITE)
            engine.create_selector("target", when=overflow, do=discard)
        engine.publish("target", "x")
        engine.publish("outside", "small", delay=10)
        filled(engine, "kept", 20_000)
        engine.publish("outside", "large", bytes(20_000))
        engine.publish("kept", "x")                 # for a small one there is room
        assert engine.queues["outside"].ready == 1
        now += 10 * 10**9
        engine.tick()
        engine.check()
        assert [message.address for message in engine.queues["outside"].browse()] == ["large"]


@pytest.mark.parametrize("stop", [lambda queue, selector: queue.hold(), lambda queue, selector: selector.disable()])
def test_one_that_is_stopped_stands_in_no_line_for_room(tmp_path, stop):
    """Its large message lacked room in a store; the small one of another queue stood behind it."""
    with engine_on(tmp_path / "s", "ring", **RING, max_bytes=8 * SEGMENT) as engine:
        with engine.building():
            for name, store in (("first", "ram"), ("second", "ram"), ("target", "s"), ("kept", "s")):
                engine.create_queue(name, store=store)
            first, _ = [engine.create_selector(name, when=always, do=move_to("target"), credit=INFINITE)
                        for name in ("first", "second")]
        filled(engine, "kept", 20_000)
        engine.publish("first", "large", bytes(20_000))
        engine.publish("second", "small")
        assert [engine.queues[name].ready for name in ("first", "second")] == [1, 1]
        stop(engine.queues["first"], first)
        engine.check()
        assert [engine.queues[name].ready for name in ("first", "second")] == [1, 0]


class Forgetful(RingStore):
    """Never releases: as if the process had ended before."""

    def release(self, position):
        raise KeyboardInterrupt


register_store("forgetful ring", Forgetful)


def test_what_was_carried_before_a_crash_is_carried_once(tmp_path):
    """A crash after a part of the log was written once more, and before it was released, leaves both."""
    path = tmp_path / "s"
    options = RING | {"max_bytes": 8 * SEGMENT}
    with engine_on(path, "ring", **options) as engine:
        engine.create_queue("q", store="s").publish(body=b"live")
    for turn in range(6):
        engine = engine_on(path, "forgetful ring", **options)
        engine.create_queue("t", store="s")
        with pytest.raises(KeyboardInterrupt):
            while True:
                engine.publish("t", body=bytes(1000))
                engine.queues["t"].purge()
        crashed = tmp_path / f"crashed-{turn}"
        shutil.copy(path, crashed)
        path = crashed
    with engine_on(path, "ring", **options) as engine:
        for _ in range(1000):
            engine.publish("t", body=bytes(1000))
            engine.queues["t"].purge()
        segments = engine.stores["s"].backend._segments
        data, at, kinds = bytes(segments.read(segments.begin, engine.stores["s"].backend.end - segments.begin)), 0, []
        while at < len(data):
            record = describe(data, at)
            kinds.append((record["kind"], record["queue"]))
            at += record["length"]
    assert [kinds.count(("QUEUE", number)) for number in (1, 2)] == [1, 1]


def test_a_copy_leaves_what_moves_need(tmp_path):
    with engine_on(tmp_path / "s", "ring", **RING, max_bytes=8 * SEGMENT) as engine:
        engine.create_queue("jobs", store="s")
        engine.create_queue("work", store="s")
        engine.create_queue("copies", store="s")
        engine.create_queue("source")
        mover = engine.create_selector("jobs", when=always, do=move_to("work"), credit=INFINITE, enabled=False)
        copier = engine.create_selector("source", when=always, do=copy_to("copies"))
        engine.create_selector("source", when=always, do=discard)
        engine.publish("jobs", body=bytes(1000))
        for _ in range(1000):
            engine.publish("source", body=bytes(1000))
        assert 0 < engine.queues["copies"].ready < 1000
        assert engine.stats()["selectors"][copier.id]["dropped"] == 1000 - engine.queues["copies"].ready
        mover.enable()
        assert engine.queues["work"].ready == 1
        engine.check()


@pytest.mark.parametrize("sizes", [[100], [10, 100, 3000], [3000, 30_000], [100_000]])
@pytest.mark.parametrize("slots", [6, 8, 20, 40])
def test_selectors_that_come_to_a_full_ring_move_all_there_is(tmp_path, slots, sizes):
    """What they leave behind is cleaned away, however little room each of them finds."""
    if max(sizes) * 16 > slots * SEGMENT:
        sizes = [max(sizes) // 20]
    with engine_on(tmp_path / "s", "ring", **RING | {"max_bytes": slots * SEGMENT}) as engine:
        names = [f"q{number}" for number in range(20)]
        with engine.building():
            for name in ("target", *names):
                engine.create_queue(name, store="s")
        count = 0
        with pytest.raises(StoreFull):
            while True:
                engine.publish(names[count % 7 * 3 % 20], "x", bytes(sizes[count % len(sizes)]))
                count += 1
        for name in names:
            engine.create_selector(name, when=always, do=move_to("target"), credit=INFINITE)
        assert engine.queues["target"].ready == count > 0
        engine.check()


def test_a_thousand_queues_move_a_million_messages_within_a_full_ring(tmp_path):
    """One selector after another comes, and each finds room: what the others left behind is dead, and cleaned away in time."""
    with engine_on(tmp_path / "s", "ring", max_bytes=400_000_000) as engine:
        names = [f"q{number}" for number in range(1_000)]
        batch = pyarrow.table({"address": ["a"] * 1_000, "body": [b"x" * 100] * 1_000, "headers": [{"n": 1}] * 1_000})
        with engine.building():
            for name in ("t", *names):
                engine.create_queue(name, store="s")
        for name in names:
            engine.publish_batch(name, batch)
        engine.sync()
        for name in names:
            engine.create_selector(name, when=always, do=move_to("t"), credit=INFINITE)
        assert engine.queues["t"].ready == 1_000_000
        assert not any(selector.blocked for selector in engine.selectors.values())


def test_a_large_group_chokes_no_ring(tmp_path):
    """Its slots are given back one by one, and no room is kept for it as a whole."""
    with engine_on(tmp_path / "s", "ring", **RING | {"max_bytes": 40 * SEGMENT}) as engine:
        with engine.building():
            engine.create_queue("jobs", store="s")
            engine.create_queue("other", store="s")
            engine.create_selector("jobs", when=always, do=deliver("d"), credit=10_000)
        room = engine.stores["s"].backend.room()
        count = len(engine.publish_many("jobs", [("x", bytes(900))] * 1000))
        engine.publish_many("other", [("x", bytes(900))] * 100)
        assert engine.stores["s"].backend.room() > room - 1_200_000
        for delivery in engine.take(count // 2):
            delivery.ack()
        assert engine.stores["s"].backend.room() > room - 1_200_000
        assert filled(engine, "other", 900) > 500
        engine.check()


@pytest.mark.parametrize(("kind", "options"), [("ring", RING | {"max_bytes": 40 * SEGMENT}), ("lmdb", {"max_bytes": 4 << 20})])
def test_room_kept_for_a_large_message_ends_with_it(tmp_path, kind, options):
    with engine_on(tmp_path / "s", kind, **options) as engine:
        engine.create_queue("jobs", store="s")
        filled(engine, "jobs", 2000)
        usual = engine.queues["jobs"].purge()
        engine.publish("jobs", "x", bytes(300_000))
        least = filled(engine, "jobs", 2000)
        engine.queues["jobs"].purge()
        again = filled(engine, "jobs", 2000)
        assert least < usual - 300 and again > usual * 0.9


# ---- how much room there is

@pytest.mark.parametrize("kind", ["ring", "lmdb"])
def test_a_disk_that_does_not_say_its_room_fails_no_publish(tmp_path, monkeypatch, caplog, kind):
    """Much has come in, so the store is asked on behalf of a publish whose message is in: that says so, and the message stays."""
    here = threading.get_ident()
    with Engine() as engine:
        unhurried(engine.create_store("s", kind, path=str(tmp_path / "s")))
        engine.create_queue("q", store="s")
        engine.sync()
        backend = engine._stores["s"].backend
        room = backend.room

        def refused():
            if threading.get_ident() == here:
                raise OSError(errno.EIO, "the disk does not answer")
            return room()

        monkeypatch.setattr(backend, "room", refused)
        assert [engine.publish("q", "x", bytes(1000)) for _ in range(1500)] == list(range(1, 1501))
        monkeypatch.undo()
        engine.sync()
    assert "the disk does not answer" in caplog.text
    with Engine() as engine:
        engine.create_store("s", kind, path=str(tmp_path / "s"))
        assert engine.queues["q"].ready == 1500


@pytest.mark.parametrize("durability", ["sync", "group", "process", "none"])
@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("kind", ["ring", "lmdb"])
def test_a_store_that_gets_another_name_while_it_is_open(tmp_path, kind, taken, durability):
    """It goes on, grows and closes by its descriptors, and another store under the old name is left alone."""
    options = RING if kind == "ring" else {}
    path, moved = tmp_path / "s", tmp_path / "moved"
    with Engine() as engine, Engine() as other:
        engine.create_store("s", kind, path=str(path), durability=durability, **options)
        engine.create_queue("q", store="s")
        engine.publish("q", "first")
        engine.sync()
        path.rename(moved)
        if taken:
            other.create_store("s", kind, path=str(path), **options)
        before = size_of(kind, path) if taken else 0, size_of(kind, moved)
        for _ in range(15):
            engine.publish_many("q", [("x", bytes(10_000))] * 50)
        engine.sync()
        assert (size_of(kind, path) if taken else 0) == before[0] and size_of(kind, moved) > before[1]
    with Engine() as engine:
        engine.create_store("s", kind, path=str(moved))
        assert engine.queues["q"].ready == 751


def size_of(kind, path):
    return (path if kind == "ring" else path / "data.mdb").stat().st_size


# ---- conditions of the program run when there is room again

def full_ring_with_condition(tmp_path, durability):
    """An engine whose messages wait for room in a ring, and a list: if it is [True], the condition behind raises `SystemExit`."""
    raises = [False]

    def condition(message):
        if raises.pop():
            raises.append(False)
            raise SystemExit(3)
        raises.append(False)
        return True

    options = RING | {"max_bytes": 8 * SEGMENT}
    engine = Engine()
    unhurried(engine.create_store("s", "ring", path=str(tmp_path / "s"), durability=durability, **options))
    with engine.building():
        engine.create_queue("jobs", store="s")
        engine.create_queue("up")
        engine.create_selector("up", when=always, do=move_to("jobs"), credit=INFINITE)
        engine.create_selector("jobs", when=where(condition), do=deliver("worker"), credit=1000)
    for _ in range(300):
        engine.publish("up", "x", bytes(4000))
    engine.sync()
    assert engine.queues["up"].ready > 0
    return engine, raises


@pytest.mark.parametrize(("durability", "by_thread"), [("sync", False), ("group", False), ("group", True)])
def test_a_condition_that_ends_the_program_is_no_failure_of_the_store(tmp_path, caplog, durability, by_thread):
    """It ends the call that wrote, or is logged by the store's thread. What waited for room goes on with the next write."""
    engine, raises = full_ring_with_condition(tmp_path, durability)
    raises[:] = [True]
    taken = engine.take(1000)
    count = len(taken)
    if by_thread:
        engine.ack(taken)
        told = threading.Event()
        engine.when_durable(lambda error: told.set())
        assert told.wait(PATIENCE)
        assert "SystemExit" in caplog.text
    else:
        with pytest.raises(SystemExit):
            engine.ack(taken)
            engine.sync()
    engine.sync()
    while taken := engine.take(1000):
        count += len(taken)
        engine.ack(taken)
        engine.sync()
    assert count == 300
    engine.close()


@pytest.mark.parametrize("durability", ["sync", "group"])
def test_a_condition_ends_the_program_though_the_store_fails_just_then(tmp_path, monkeypatch, durability):
    """Its error comes first. Closing tells of the failure."""
    engine, raises = full_ring_with_condition(tmp_path, durability)
    raises[:] = [True]
    taken = engine.take(1000)

    oldest = RingStore.oldest

    def fails_then(*arguments):
        if not raises[0]:
            raise OSError(errno.EIO, "no disk")
        return oldest(*arguments)
    monkeypatch.setattr(RingStore, "oldest", fails_then)
    with pytest.raises(SystemExit):
        engine.ack(taken)
        engine.sync()
    with pytest.raises(StoreFailed, match="no disk"):
        engine.close()


@pytest.mark.parametrize(("messages", "remembered"), [(700, 0), (0, 2_000)])
@pytest.mark.parametrize("kind", ["ring", "lmdb"])
def test_a_store_that_is_opened_again_and_again_does_not_fill_up(tmp_path, kind, messages, remembered):
    """Cleaning copies records forward. Just before the end, the log has both copies, and each opening must drop the older one:
    of messages, of a map, and of the message ids that a queue remembers."""
    options = RING | {"max_bytes": 7 * SEGMENT} if kind == "ring" else {"max_bytes": 2 << 20}
    for turn in range(16):
        with Engine() as engine:
            store = engine.create_store("s", kind, path=tmp_path / "s", durability="none", **options)
            with engine.building():
                kept, flow = engine.create_queue("kept", store="s"), engine.create_queue("flow", store="s")
                once = engine.create_queue("once", store="s", dedup=3_600)
            if not turn:
                for number in range(messages):
                    kept.publish("x", b"%0100d" % number)
                kept.meta["map"] = bytes(3_000)
                for number in range(remembered):
                    once.publish("x", message_id=str(number))
                    once.purge()
                    engine.sync()
            for _ in range(60):
                for _ in range(20):
                    flow.publish("x", bytes(100))
                engine.sync()
                flow.purge()
            engine.check()
            assert [message.body for message in kept.browse()] == [b"%0100d" % number for number in range(messages)]
            assert kept.meta["map"] == bytes(3_000)
            if remembered:
                once.publish("x", message_id=str(turn))
                assert once.ready == 0
            assert kind == "lmdb" or store.committer._backend.end - store.committer._backend._segments.begin < 7 * SEGMENT
