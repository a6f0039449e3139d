"""The ring: opened, written round and round, cleaned, grown, shrunk; always what a dict says."""

import importlib.metadata
import os
import random
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xump
from xump import testing_records as hand
from tests.ring_engine import SEGMENT, Engine, content_of, records_of, reopened
from tests.ring_faults import Quick
from xump.errors import Closed, Conflict, ForkedError, StoreCorrupt, StoreFull, StoreLocked
from xump.stores import ring_disk
from xump.stores.ring import RingStore
from xump.stores.ring_segments import HEAD_BYTES, SLOTS_AT
from xump.testing import StoreConformance


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(ring_disk, "os", Quick())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.ring"


def filled(engine, first, count, size=1000):
    for n in range(first, first + count):
        engine.write(hand.enter(1, n, body=bytes([n & 255]) * size), sync=False)
    engine.sync()


# ---- opened

def test_it_loads_by_name():
    point, = importlib.metadata.entry_points(group="xump.stores", name="ring")
    assert point.load() is RingStore and RingStore.type == "ring" and RingStore.durable


def test_a_new_one(path):
    store = RingStore("r", path=path)
    assert list(store.scan()) == [] and (store.end, store.cut, store.durability, store.group_ms) == (0, 0, "group", 2.0)
    assert path.stat().st_size == SLOTS_AT + (16 << 20) and store.stats()["segment_bytes"] == 4 << 20
    assert path.stat().st_blocks * 512 >= 16 << 20
    store.close()
    store.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["a.ring"]
    with pytest.raises(Closed):
        store.room()


def test_records_come_back(path):
    engine = Engine(path)
    engine.write(hand.queue(1, "jobs"), hand.state(1, 1))
    engine.write(hand.enter(1, 1, "a", b"one", headers=b"h" * 8), hand.enter(1, 2, body=b"two"), hand.mark(1, 2, 1))
    engine.write(hand.settle(1, 1))
    content = engine.state.content()
    salt, end = engine.store.salt, engine.store.end
    for close in (True, False, True):
        if close:
            engine.close()
        else:
            engine.kill()
        engine = Engine(path)
        assert engine.state.content() == content and (engine.store.salt, engine.store.end, engine.store.cut) == (salt, end, 0)
        assert engine.fetch(1, 2)[-8:-5] == b"two"
        assert engine.state.groups == [1, 2, 3]
    engine.close()


@pytest.mark.parametrize("options, error, message", [
    ({"path": 7}, TypeError, "path must be a str or PathLike, got 7"),
    ({"path": b"x"}, TypeError, "path must be"),
    ({"durability": 1}, TypeError, "durability"),
    ({"durability": "often"}, ValueError, "'often'; allowed are 'sync', 'group', 'process', 'none'"),
    ({"group_ms": "2"}, TypeError, "group_ms"),
    ({"group_ms": -1}, ValueError, "group_ms=-1"),
    ({"group_ms": float("nan")}, ValueError, "group_ms=nan"),
    ({"min_bytes": 1.5}, TypeError, "min_bytes must be an int, got 1.5"),
    ({"min_bytes": None}, TypeError, "min_bytes must be an int, got None"),
    ({"min_bytes": -1}, ValueError, "min_bytes=-1: at least 0"),
    ({"max_bytes": True}, TypeError, "max_bytes must be an int or None, got True"),
    ({"max_bytes": 1 << 20}, ValueError, "max_bytes=1048576: less than min_bytes=16777216"),
    ({"max_bytes": 1 << 18, "min_bytes": 0}, ValueError, "at least 6 segments of 65536 bytes, which is 393216"),
    ({"min_bytes": 1 << 70}, ValueError, "min_bytes=1180591620717411303424: at most 17592186044416, which are preallocated"),
    ({"segment_bytes": 4096}, ValueError, "segment_bytes=4096: a power of two from 65536 to"),
    ({"segment_bytes": 100_000}, ValueError, "segment_bytes=100000: a power of two"),
    ({"segment_bytes": "4"}, TypeError, "segment_bytes must be an int or None"),
])
def test_wrong_options(path, options, error, message):
    with pytest.raises(error, match=message):
        RingStore("r", **{"path": path, **options})
    assert list(path.parent.iterdir()) == []


def test_what_it_was_made_with_stays(path):
    Engine(path).close()
    data = path.read_bytes()
    with pytest.raises(Conflict, match="segment_bytes=131072: .* was made with 65536"):
        Engine(path, segment_bytes=SEGMENT * 2)
    with pytest.raises(ValueError, match="at least 6 segments of 65536"):
        Engine(path, max_bytes=5 * SEGMENT)
    with pytest.raises(ValueError, match="min_bytes=1180591620717411303424"):
        Engine(path, min_bytes=1 << 70)
    assert path.read_bytes() == data
    engine = Engine(path, segment_bytes=None, min_bytes=9 * SEGMENT, max_bytes=10 * SEGMENT)
    assert engine.store.stats()["segments"] == 9 and path.stat().st_size == SLOTS_AT + 9 * SEGMENT
    engine.close()


def test_more_than_the_disk_has(path, monkeypatch):
    """That is seen before anything is written, of a new one and of one that is there."""
    disk = os.statvfs(path.parent)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result([*disk[:4], (20 << 20) // disk.f_frsize, *disk[5:10]]))
    text = r"would take {} bytes more \(min_bytes=\), and its disk has 20971520 free; nothing was changed"
    with pytest.raises(StoreFull, match=text.format(24 << 20)):
        RingStore("r", path=path, min_bytes=24 << 20)
    assert not os.listdir(path.parent)
    RingStore("r", path=path).close()
    data = path.read_bytes()
    with pytest.raises(StoreFull, match=text.format(24 << 20)):
        RingStore("r", path=path, min_bytes=40 << 20)
    assert path.read_bytes() == data
    store = RingStore("r", path=path, min_bytes=32 << 20)
    store.close()


def test_it_is_allowed_less_than_it_has(path):
    """It takes nothing before it has room within its new bound, and shrinks to that as soon as it can."""
    def opened(**options):
        engine = xump.Engine()
        engine.create_store("s", "ring", path=path, segment_bytes=SEGMENT, min_bytes=0, **options)
        with engine.building():
            queue = engine.create_queue("q", store="s")
            engine.create_selector("q", when=xump.always, do=xump.deliver("d"), credit=10_000)
        return engine, queue

    engine, queue = opened()
    with engine:
        queue_of_all = [queue.publish(body=bytes(1000)) for _ in range(3000)]
    assert path.stat().st_size > 40 * SEGMENT
    engine, queue = opened(max_bytes=8 * SEGMENT)
    with engine:
        with pytest.raises(StoreFull):
            queue.publish()
        for delivery in engine.take(3000)[:-10]:
            delivery.ack()
            engine.sync()
            if path.stat().st_size > SLOTS_AT + 8 * SEGMENT and queue.ready + queue.outstanding > 8 * 60:
                with pytest.raises(StoreFull):
                    queue.publish()
        assert [message.id for message in queue.browse()] == queue_of_all[-10:]
        for _ in range(8 * 60):     # round once
            queue.publish(body=bytes(1000))
            engine.take(1)[0].ack()
            engine.sync()
        assert path.stat().st_size <= SLOTS_AT + 8 * SEGMENT
        engine.check()


def another_version(data):
    from dataclasses import replace

    from xump.stores.ring_segments import COPY_AT, SUPERBLOCK, Head

    for at in (0, COPY_AT):
        head = replace(Head.read(data[at : at + HEAD_BYTES], SUPERBLOCK), version=7)
        data = data[:at] + head.packed() + data[at + HEAD_BYTES :]
    return data


@pytest.mark.parametrize("change, message", [
    (lambda data: b"", "is empty"),
    (lambda data: b"SQLite format 3\0" * 1000, "is no ring store: it begins with b'SQLite format 3"),
    (lambda data: b"x", "is no ring store"),
    (lambda data: data[:5000], "was cut off: it has 5000 bytes"),
    (lambda data: data[:40], "was cut off: it has 40 bytes"),
    (another_version, "is a ring store of version 7; this Xump reads version 1"),
])
def test_what_is_no_ring(path, change, message):
    Engine(path).close()
    data = change(path.read_bytes())
    path.write_bytes(data)
    for use in (lambda: RingStore("r", path=path), lambda: RingStore.check(path), lambda: RingStore.repair(path),
                lambda: RingStore.compact(path)):
        with pytest.raises(StoreCorrupt, match=message):
            use()
    assert path.read_bytes() == data and len(list(path.parent.iterdir())) == 1


def test_where_no_file_can_be(tmp_path, monkeypatch):
    with pytest.raises(StoreCorrupt, match="is a directory; a ring store is one file"):
        RingStore("r", path=tmp_path)
    with pytest.raises(FileNotFoundError):
        RingStore("r", path=tmp_path / "no" / "a.ring")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreCorrupt, match="no ordinary file"):
        RingStore("r", path=tmp_path / "pipe")
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


def test_a_file_that_must_not_be_written(path, monkeypatch):
    Engine(path).close()
    real = os.open

    def refused(name, flags, *arguments):
        if os.fspath(name) == str(path) and flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", name)
        return real(name, flags, *arguments)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(PermissionError, match="must be able to read a store's file, and to write it"):
        Engine(path)
    assert RingStore.check(path).damage == []       # that only reads


def test_a_file_system_without_links(path, monkeypatch):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    Engine(path).close()
    assert list(path.parent.iterdir()) == [path]


def test_somebody_else_makes_it_at_the_same_time(path, monkeypatch):
    real = os.link

    def late(*names):
        monkeypatch.setattr(os, "link", real)
        engine = Engine(path)
        filled(engine, 1, 3)
        engine.close()
        real(*names)

    monkeypatch.setattr(os, "link", late)
    engine = Engine(path)
    assert len(engine.state.messages()) == 3 and list(path.parent.iterdir()) == [path]
    engine.close()


def test_a_full_disk_leaves_no_half_store(path, monkeypatch):
    class Full(Quick):
        def pwrite(self, fd, data, at):
            if at + len(data) > 3 * SEGMENT:
                raise OSError(28, "No space left on device")
            return os.pwrite(fd, data, at)

    monkeypatch.setattr(ring_disk, "os", Full())
    with pytest.raises(StoreFull, match="it takes 270336 bytes"):
        Engine(path)
    assert list(path.parent.iterdir()) == []
    monkeypatch.setattr(ring_disk, "os", Quick())
    Engine(path).close()


def test_one_owner(path):
    engine = Engine(path)
    for use in (lambda: Engine(path), lambda: RingStore.check(path), lambda: RingStore.repair(path),
                lambda: RingStore.compact(path)):
        with pytest.raises(StoreLocked, match=f"open in this process already, pid {os.getpid()}"):
            use()
    link = path.with_suffix(".link")
    link.hardlink_to(path)
    with pytest.raises(StoreLocked):
        Engine(link)
    code = ("import sys; from xump.stores.ring import RingStore\n"
            "try: RingStore('r', path=sys.argv[1])\nexcept OSError as e: print(repr(e))")
    answer = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    assert answer.startswith("StoreLocked(") and f"is owned by process {os.getpid()}; one process owns a store" in answer
    engine.write(hand.state(1, 1))      # the others' closing did not lose the lock
    answer = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    assert answer.startswith("StoreLocked(")
    engine.close()
    Engine(path).close()


def test_a_child_owns_nothing(path):
    engine = Engine(path)
    filled(engine, 1, 3)
    pid = os.fork()
    if pid == 0:
        wrong = 0
        store = engine.store
        for use in (store.room, store.sync, store.oldest, lambda: store.fetch(1, 1, 0), lambda: store.release(0),
                    lambda: store.write(hand.batch(engine.log, hand.state(1, 1))), lambda: list(store.scan())):
            try:
                use()
                wrong += 1
            except ForkedError:
                pass
        try:
            RingStore("again", path=path)
            wrong += 1
        except StoreLocked:
            pass
        store.close()
        os._exit(wrong)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    filled(engine, 4, 3)
    content = engine.state.content()
    engine.close()
    assert content_of(path) == (content, 0)


def test_misuse(path):
    store = RingStore("r", path=path, min_bytes=0, segment_bytes=SEGMENT)
    for use in (store.sync, store.oldest, lambda: store.release(0)):
        with pytest.raises(RuntimeError, match="must be scanned"):
            use()
    list(store.scan())
    with pytest.raises(RuntimeError, match="was scanned before"):
        list(store.scan())
    batch = hand.batch(hand.Log(store.salt, 80), hand.state(1, 1))
    with pytest.raises(ValueError, match="a group for position 80; the log of .* goes on at 0"):
        store.write(batch)
    with pytest.raises(ValueError, match="release\\(8\\): the log of .* has positions 0 to 0"):
        store.release(8)
    store.close()


# ---- round and round

@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([None, 6, 9, 24]), st.sampled_from(["group", "sync", "process", "none"]))
def test_any_program_is_what_a_dict_says(tmp_path_factory, seed, slots, durability):
    rnd, path = random.Random(seed), tmp_path_factory.mktemp("ring") / "a.ring"
    options = {"max_bytes": slots and slots * SEGMENT, "durability": durability}
    engine, bodies, next_id = Engine(path, **options), {}, 1
    engine.write(hand.queue(1, "jobs"))
    for _ in range(rnd.randrange(20, 200)):
        what = rnd.random()
        if what < 0.5:
            sizes = [rnd.choice([0, 9, 100, 1000, 5000]) for _ in range(rnd.choice([1, 3, 20]))]
            if rnd.random() < 0.02:
                sizes = [rnd.choice([30_000, 100_000, 200_000])]
            if engine.has_room(sum(sizes) + 112 * len(sizes) + 56):
                new = {next_id + n: rnd.randbytes(size) for n, size in enumerate(sizes)}
                next_id += len(sizes)
                bodies |= new
                engine.write(*(hand.enter(1, id, body=body) for id, body in new.items()), sync=rnd.random() < 0.5)
        elif what < 0.85 and bodies:
            gone = rnd.sample(sorted(bodies), min(len(bodies), rnd.choice([1, 3, 40])))
            for id in gone:
                del bodies[id]
            engine.write(*(hand.settle(1, id) for id in gone), sync=rnd.random() < 0.5)
        elif what < 0.92 and bodies:
            id = rnd.choice(sorted(bodies))
            assert engine.fetch(1, id)[64 : 64 + len(bodies[id])] == bodies[id]
        elif what < 0.96:
            engine = reopened(engine, **options)
        elif what < 0.98:
            engine.kill()
            engine = Engine(path, **options)
        assert engine.state.messages() == [(1, id) for id in sorted(bodies)]
        stats = engine.store.stats()
        assert slots is None or stats["segments"] <= max(slots, 4)
        assert path.stat().st_size >= stats["file_bytes"]
    if rnd.random() < 0.5:
        engine.close()
        assert RingStore.check(path).damage == []
        RingStore.compact(path)
        engine = Engine(path, **options)
        assert engine.state.messages() == [(1, id) for id in sorted(bodies)] and (hand.QUEUE, 1, 0) in engine.state.live
    for id, body in bodies.items():
        assert engine.fetch(1, id)[64 : 64 + len(body)] == body
    engine.close()


@pytest.mark.parametrize("order", ["first", "last", "random"])
@pytest.mark.parametrize("slots, size", [(6, 10), (6, 700), (6, 9000), (20, 700), (20, 9000)])
def test_a_full_store_can_settle_all(path, slots, size, order):
    rnd = random.Random(size)
    engine, n = Engine(path, max_bytes=slots * SEGMENT), 0
    engine.write(hand.queue(1, "jobs"))
    for _ in range(3):
        while engine.has_room(size + 200):
            n += 1
            engine.write(hand.enter(1, n, body=rnd.randbytes(size)))
        messages = engine.state.messages()
        assert sum(length for _, length, _ in engine.state.live.values()) > slots * SEGMENT // (12 if slots == 6 else 3)
        if order == "last":
            messages.reverse()
        elif order == "random":
            rnd.shuffle(messages)
        for message in messages:    # one by one, each with a STATE: what settling writes is more than what it frees
            engine.write(hand.settle(*message), hand.state(1, n + 1))
        assert engine.store.stats()["segments"] <= slots
        assert engine.has_room(size + 200)
        engine = reopened(engine, max_bytes=slots * SEGMENT)
        assert engine.state.messages() == []
    engine.close()


def test_it_grows_and_shrinks(path):
    engine = Engine(path)
    engine.write(hand.queue(1, "jobs"))
    filled(engine, 1, 3000)
    large = path.stat().st_size
    assert large > 3000 * 1000
    for n in range(1, 3001):
        engine.write(hand.settle(1, n), hand.state(1, 3001), sync=n % 10 == 0)
    for n in range(3001, 3400):
        engine.write(hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
    assert path.stat().st_size < large // 3
    sizes = set()
    for n in range(3400, 4000):
        engine.write(hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
        sizes.add(path.stat().st_size)
    assert len(sizes) <= 2      # it does not grow and shrink all the time
    engine.close()


def test_what_is_kept_stays(path):
    engine = Engine(path, min_bytes=20 * SEGMENT)
    for n in range(1, 1500):
        engine.write(hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
        assert path.stat().st_size == SLOTS_AT + 20 * SEGMENT
    assert engine.carried == 0
    engine.close()


def test_one_old_message_holds_up_nothing(path):
    engine = Engine(path, max_bytes=6 * SEGMENT)
    engine.write(hand.queue(1, "jobs"), hand.enter(1, 1, body=b"old" * 100))
    for n in range(2, 2000):
        engine.write(hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
    assert engine.state.messages() == [(1, 1)] and engine.carried > 20
    assert engine.fetch(1, 1)[64:67] == b"old"
    engine.close()


def test_a_group_larger_than_the_file(path):
    engine = Engine(path)
    assert path.stat().st_size < 1_000_000 <= engine.store.room()
    body = random.Random(0).randbytes(900_000)
    engine.write(hand.enter(1, 1, body=body))
    for n in range(2, 900):
        engine.write(hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
    assert engine.fetch(1, 1)[64 : 64 + len(body)] == body
    engine = reopened(engine)
    assert engine.fetch(1, 1)[64 : 64 + len(body)] == body
    engine.close()


def test_a_bound_is_kept(path):
    engine = Engine(path, max_bytes=10 * SEGMENT)
    assert SEGMENT < engine.store.room() < 10 * SEGMENT
    assert engine.store.stats()["segments"] == 4        # it did not grow for nothing
    engine.write(hand.enter(1, 1, body=bytes(engine.store.room() - 200)))
    assert engine.store.stats()["segments"] <= 10
    engine.close()


def test_half_of_what_the_disk_has_is_left(path, monkeypatch):
    engine = Engine(path)
    disk = os.statvfs(path)
    for free, slots in ((100, 50), (5, 2), (1, 0)):
        left = tuple(free * SEGMENT // disk.f_frsize if n == 4 else value for n, value in enumerate(disk))
        monkeypatch.setattr(os, "statvfs", lambda _, left=left: os.statvfs_result(left))
        engine.store._look_at = 0       # it would ask again when it has written a part of a segment
        assert engine.store.room() == engine.store._room(slots)
    engine.close()


def test_wrong_live_bytes_do_not_make_it_clean_for_ever(path):
    """The engine says that nothing is live, and all is."""
    engine = Engine(path, max_bytes=12 * SEGMENT)
    store, n, most = engine.store, 0, 0
    while store.room() >= 3000:
        n += 1
        engine._write([hand.enter(1, n, body=bytes(2000))], True)
        given = 0
        while (part := store.oldest()) is not None:
            given += 1
            assert given < 12 * 8 * 2       # two laps
            engine.carry([raw for _, raw in records_of(part[2], part[0]) if raw[6] != hand.GROUP])
            store.release(part[1])
        most = max(most, given)
    assert most > 20
    engine.close()


def test_released_without_carrying(path):
    engine = Engine(path, max_bytes=6 * SEGMENT)
    for n in range(1, 600):
        batch = hand.batch(engine.log, hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
        engine.store.write(batch)
        engine.store.release(engine.store.end)
        engine.store.sync()
    assert engine.store.stats()["segments_free"] >= 3
    end = engine.store.end
    engine.close()
    engine = Engine(path)
    assert engine.store.end == end and engine.store.stats()["log_bytes"] == 0
    engine.close()


def test_a_message_is_found_while_it_is_carried(path):
    """Another thread fetches all the time: the body, or a KeyError when it has moved meanwhile."""
    engine = Engine(path, max_bytes=6 * SEGMENT)
    for n in range(1, 20):
        engine.write(hand.enter(1, n, body=bytes([n]) * 1500))
    stop, wrong, moved = threading.Event(), [], []

    def fetching():
        rnd = random.Random(1)
        while not stop.is_set():
            id = rnd.randrange(1, 20)
            position = engine.state.live[hand.ENTER, 1, id][0]
            try:
                _, view = engine.store.fetch(1, id, position)
                if bytes(view[64:1564]) != bytes([id]) * 1500:
                    wrong.append(id)
            except KeyError:
                moved.append(id)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=fetching) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(20, 1500):
        engine.write(hand.enter(1, n, body=bytes(3000)), hand.settle(1, n))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == [] and engine.carried > 100
    engine.close()


def test_a_window_goes_on_with_what_follows(path):
    engine = Engine(path)
    filled(engine, 1, 200)
    for id in (1, 30, 60, 200):
        position = engine.state.live[hand.ENTER, 1, id][0]
        _, view = engine.store.fetch(1, id, position)
        assert min(64 << 10, engine.store.end - position) - 1200 < len(view) <= 64 << 10
        ids = [int.from_bytes(raw[24:32], "little") for _, raw in records_of(view, position) if raw[6] == hand.ENTER]
        assert ids == list(range(id, id + len(ids)))        # whole ones only
    engine.close()


@pytest.mark.parametrize("durability, syncs", [("group", 30), ("process", 0), ("none", 0)])
def test_syncs(path, monkeypatch, durability, syncs):
    class Counting(Quick):
        count = 0

        def fdatasync(self, fd):
            Counting.count += 1

        fsync = fdatasync

    monkeypatch.setattr(ring_disk, "os", Counting())
    engine = Engine(path, durability=durability)
    before = Counting.count
    for n in range(1, 31):
        engine.write(hand.enter(1, n), sync=durability == "group")
    assert Counting.count - before == syncs
    before = Counting.count
    engine.close()
    assert (Counting.count == before) == (durability == "none")


def test_a_new_size_is_synced(path, monkeypatch):
    class Noting(Quick):
        calls = []

        def fdatasync(self, fd):
            self.calls.append("fdatasync")

        def fsync(self, fd):
            self.calls.append("fsync")

    engine = Engine(path)
    monkeypatch.setattr(ring_disk, "os", Noting())
    sizes = [engine.store.stats()["segments"]]
    for n in range(1, 60):
        engine.write(hand.enter(1, n, body=bytes(6000)))
        sizes.append(engine.store.stats()["segments"])
    assert sizes[-1] > sizes[0]
    # The file grows behind a group's sync, and the next one has to know.
    assert Noting.calls == ["fsync" if n and sizes[n] != sizes[n - 1] else "fdatasync" for n in range(59)]
    engine.close()


# ---- compacted

def test_compacted(path):
    engine = Engine(path)
    engine.write(hand.queue(1, "jobs"), hand.queue(2, "gone"), hand.state(1, 1))
    filled(engine, 1, 3000)
    engine.write(hand.enter(2, 1), hand.mark(1, 7, 2), hand.mark(1, 8, 2), hand.state(1, 3001, 7))
    engine.write(hand.settle(2, 1), hand.gone(2), hand.settle(1, 8, marked=True), *(hand.settle(1, n) for n in range(9, 3000)))
    content, salt, groups = engine.state.content(), engine.store.salt, max(engine.state.groups)
    engine.close()
    mode, large = path.stat().st_mode, path.stat().st_size
    path.chmod(0o640)
    report = RingStore.compact(path)
    assert report.damage == [] and path.stat().st_size == SLOTS_AT + 4 * SEGMENT < large
    assert path.stat().st_mode & 0o777 == 0o640 and mode
    engine = Engine(path)
    assert engine.state.content() == content and engine.store.salt == salt and min(engine.state.groups) > groups
    assert next(iter(engine.state.live))[0] == hand.QUEUE
    engine.close()
    assert list(path.parent.iterdir()) == [path]


def test_compacting_what_is_damaged(path):
    engine = Engine(path)
    filled(engine, 1, 30)
    engine.close()
    data = bytearray(path.read_bytes())
    data[SLOTS_AT + HEAD_BYTES + 2000] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreCorrupt, match="run: xump repair"):
        RingStore.compact(path)
    assert path.read_bytes() == data and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("durability", ["group", "none"])
def test_there_is_always_room_in_an_empty_store(path, durability):
    """Nothing is live: a group of a quarter of a segment is never refused, whatever was written before."""
    options = {"max_bytes": 6 * SEGMENT, "durability": durability}
    engine = Engine(path, **options)
    rnd = random.Random(3)
    for n in range(1, 400):
        if rnd.random() < 0.1:
            engine = reopened(engine, **options)
        assert engine.store.room() >= SEGMENT // 4 - 200
        size = rnd.choice([10, 3000, SEGMENT // 5, engine.store.room() - 300])
        engine.write(hand.enter(1, n, body=bytes(size)), hand.settle(1, n), sync=False)
    assert engine.store.end > 40 * SEGMENT
    engine.close()


def test_the_engine_says_what_is_live(path):
    with xump.Engine() as engine:
        with engine.building():
            engine.create_store("s", "ring", path=path, segment_bytes=SEGMENT, min_bytes=0)
            queue = engine.create_queue("jobs", store="s")
        sizes = set()
        for _ in range(60):
            engine.publish_many("jobs", [("", bytes(900))] * 20)
            engine.sync()
            assert 20 * 900 <= engine.stores["s"].backend.live_bytes < 40 * 1100
            queue.purge()
            sizes.add(path.stat().st_size)
        assert max(sizes) <= SLOTS_AT + 8 * SEGMENT     # it is cleaned, it does not grow


class TestConformance(StoreConformance):
    def make(self, path):
        return RingStore("mine", path=path)

    def make_small(self, path):
        return RingStore("mine", path=path, segment_bytes=SEGMENT, min_bytes=0, max_bytes=24 * SEGMENT)


class TestConformanceOfSmallSegments(StoreConformance):
    seeds = range(4)

    def make(self, path):
        return RingStore("mine", path=path, segment_bytes=SEGMENT, min_bytes=0)
