"""The space of an `lmdb` store: the map, room kept ahead, full disks, compacting."""

import os
import threading
import time

import lmdb
import pytest

import xump.stores.lmdb_files as lmdb_files
import xump.stores.lmdb_space as lmdb_space
from xump.testing import records_by_hand as hand
from tests.lmdb.small_store import a_store, data_of, run_child
from xump.errors import StoreFailed, StoreFull
from xump.stores.lmdb import LmdbStore
from xump.testing.driver import Driver


@pytest.fixture
def barely_ahead(monkeypatch):
    """Keeps the file hardly longer than its pages."""
    monkeypatch.setattr(lmdb_space, "AHEAD_ROOM_BYTES", (64 << 10, 64 << 10))
    monkeypatch.setattr(lmdb_space, "GROWTH_BYTES", (1 << 10, 1 << 10))
    monkeypatch.setattr(lmdb_space, "KEPT_BYTES_MAX", 64 << 10)


def the_disk_has(monkeypatch, left, statvfs=os.statvfs):
    """So many bytes are free; others have the rest."""
    def told(path):
        disk = statvfs(path)
        return os.statvfs_result([*disk[:4], left // disk.f_frsize, *disk[5:10]])
    monkeypatch.setattr(os, "statvfs", told)


# ---- the map

def test_the_map_grows_and_readers_wait(tmp_path, barely_ahead):
    store = LmdbStore("mine", path=tmp_path / "store", durability="none")
    driver, sizes = Driver(store), set()
    driver.write(hand.queue(1, "q"), hand.state(1, 1), hand.enter(1, 1, body=b"first"))
    stop, wrong = threading.Event(), []

    def read():
        try:
            while not stop.wait(0.0005):
                driver.fetch(1, 1)
        except BaseException as error:
            wrong.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for id in range(2, 40):
        driver.write(hand.enter(1, id, body=bytes(1 << 20)))
        sizes.add(store._environment.info()["map_size"])
    stop.set()
    reader.join()
    driver.check_fetches()
    store.close()
    assert not wrong and len(sizes) > 20 and max(sizes) == data_of(tmp_path / "store").stat().st_size


def test_no_map_is_replaced_under_a_reader(tmp_path, barely_ahead):
    store = LmdbStore("mine", path=tmp_path / "store", durability="none")
    driver = Driver(store)
    driver.write(hand.queue(1, "q"), hand.state(1, 1))
    batch, size = driver.batch(hand.enter(1, 1, body=bytes(4 << 20))), store._environment.info()["map_size"]
    with store._gate.shared():
        writer = threading.Thread(target=store.write, args=(batch,))
        writer.start()
        while writer.is_alive() and not store._gate._replacing:
            time.sleep(0.001)
        assert writer.is_alive() and store._environment.info()["map_size"] == size < 4 << 20
    writer.join()
    assert store.fetch(1, 1, 0) and store._environment.info()["map_size"] > 4 << 20
    store.close()


def test_the_map_has_an_end(tmp_path, monkeypatch):
    """That is a failure: `room` was not asked."""
    monkeypatch.setattr(lmdb_space, "SLACK_BYTES", 0)
    store = LmdbStore("mine", path=tmp_path / "store", max_bytes=1 << 20)
    driver = Driver(store)
    driver.write(hand.queue(1, "q"), hand.state(1, 1))
    with pytest.raises(StoreFailed, match="max_bytes=1048576.*compact"):
        store.write(driver.batch(hand.enter(1, 1, body=bytes(4 << 20))))
    with pytest.raises(StoreFailed, match="failed before.*open it anew"):
        store.write(driver.batch(hand.settle(1, 1)))
    store.close()
    store = LmdbStore("mine", path=tmp_path / "store")
    assert Driver(store).model.says() == driver.model.says()
    store.close()


def test_growing_is_seldom(tmp_path, monkeypatch):
    """By an eighth: a group costs nothing for it, as a rule."""
    grown, extend = [], lmdb_files.extend
    monkeypatch.setattr(lmdb_files, "extend", lambda *place: grown.append(place) or extend(*place))
    store = LmdbStore("mine", path=tmp_path / "store", durability="none")
    driver = Driver(store)
    driver.write(hand.queue(1, "q"), hand.state(1, 1))
    for group in range(400):
        driver.write(*(hand.enter(1, 100 * group + id, body=bytes(1000)) for id in range(100)))
    assert 2 < len(grown) < 24
    store.close()


def test_reading_pins_no_pages(tmp_path):
    """Each fetch ends its transaction: the file does not grow while messages come, are read, and go."""
    store = LmdbStore("mine", path=tmp_path / "store", durability="none")
    driver = Driver(store)
    driver.write(hand.queue(1, "q"), hand.state(1, 1))
    for id in range(1, 200):
        driver.write(hand.enter(1, id, body=bytes(50_000)))
        driver.check_fetches()
        driver.write(hand.settle(1, id))
        if id == 20:
            grown = store.stats()["bytes_file"]
    assert store.stats()["bytes_file"] <= grown
    store.close()


def test_space_kept_ahead_is_not_looked_at(tmp_path):
    """Nor is it in the way: free space at the end of the file does no harm, and `compact` gives it back."""
    path, model = tmp_path / "store", a_store(tmp_path / "store")
    used = data_of(path).stat().st_size
    LmdbStore("mine", path=path).close()
    assert data_of(path).stat().st_size == used, "not before it was found to be whole"
    store = LmdbStore("mine", path=path)
    assert Driver(store).model.says() == model.says()
    store.close()
    assert data_of(path).stat().st_size > used + (8 << 20)
    assert data_of(path).stat().st_blocks * 512 >= data_of(path).stat().st_size
    for tool in (LmdbStore.check, LmdbStore.repair, LmdbStore.compact):
        assert not tool(str(path)).damage
    assert data_of(path).stat().st_size <= used
    store = LmdbStore("mine", path=path)
    assert Driver(store).model.says() == model.says()
    store.close()


def test_compacting_gives_back(tmp_path):
    path = tmp_path / "store"
    model = a_store(path, 60)
    store = LmdbStore("mine", path=path)
    driver = Driver(store)
    driver.write(*(hand.settle(queue, id) for queue, id in driver.model.entries if id < 1100))
    store.close()
    before = data_of(path).stat().st_size
    LmdbStore.compact(str(path))
    assert data_of(path).stat().st_size < before / 5
    store = LmdbStore("mine", path=path)
    again = Driver(store)
    store.close()
    assert again.model.says() == driver.model.says() and store.salt == model.salt and store.end == driver.log.end


# ---- the disk

def test_room_is_kept_free_on_the_disk(tmp_path, monkeypatch):
    store = LmdbStore("mine", path=tmp_path / "store", max_bytes=1 << 30)
    assert 0.45 * 2**30 < store.room() <= 2**29
    ahead = -store._lacking(0) // 2
    assert 3 << 20 < ahead < 8 << 20
    for left in (20 << 20, 0):
        the_disk_has(monkeypatch, left)
        assert store.room() == ahead + left // 4, "half for others, and half of that for pages that are not full"
    store.close()


FULL_DISK = """
import os, resource, sys
from xump import Engine, StoreFull, always, deliver

def fill_the_disk(path):    # for this process
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path + "/data.mdb"), -1))
    full = os.statvfs(path)
    full = os.statvfs_result([*full[:3], 0, 0, *full[5:10]])
    os.statvfs = lambda path: full

def opened(durability):
    engine = Engine()
    engine.create_store("s", "lmdb", path=path, durability=durability)
    with engine.building():
        engine.create_queue("q", store="s")
        engine.create_selector("q", when=always, do=deliver("d"), credit=100_000)
    return engine

def fill(engine, size):
    try:
        while True:
            said.extend(engine.publish_many("q", [("", bytes(size))] * 50))
    except StoreFull:
        engine.sync()

def settle(engine, choose):
    taken = engine.take(100_000)
    for delivery in taken:
        if choose(delivery.id):
            delivery.ack()
            said.remove(delivery.id)
        else:
            delivery.nack()
    engine.sync()
    assert [message.id for message in engine.queues["q"].browse()] == said
    engine.check()

path, durability, size, others, said = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "others", []
with opened(durability) as engine:
    for _ in range(50):
        said.append(engine.publish("q", body=bytes(size)))
    engine.sync()
    while not others and os.path.getsize(path + "/data.mdb") < 20 << 20:
        said += engine.publish_many("q", [("", bytes(size))] * 1000)
        engine.sync()
    fill_the_disk(path)
    fill(engine, size)
    full = len(said)
    settle(engine, lambda id: id % 7 == 0)
with opened(durability) as engine:
    settle(engine, lambda id: id % 5 == 0)
    settle(engine, lambda id: True)
    assert not said
    last = engine.publish("q", body=bytes(size))
    engine.sync()
with opened(durability) as engine:
    assert [message.id for message in engine.queues["q"].browse()] == [last]
print(full)
"""


@pytest.mark.parametrize("durability, size, others", [
    *((durability, size, others) for durability in ("group", "process", "none") for size in (100, 5000)
      for others in ("others", "itself")),
    ("sync", 20_000, "others"),     # an fsync for each
])
def test_a_full_disk_turns_away_and_settles(tmp_path, durability, size, others):
    """So it does whether others or the store filled the disk, also when the store is opened on it again."""
    full = int(run_child(FULL_DISK, tmp_path / "store", durability, size, others))
    assert full * (size + 300) > 3 << 20


def test_no_room_on_the_disk_for_a_new_one(tmp_path, monkeypatch):
    the_disk_has(monkeypatch, 1 << 20)
    with pytest.raises(StoreFull, match=f"no room on the disk of {tmp_path}/store: a new store takes [0-9]+ bytes"):
        LmdbStore("mine", path=tmp_path / "store")
    assert not os.listdir(tmp_path)


def test_a_group_that_finds_no_room_after_all(tmp_path, monkeypatch):
    """Others took the disk since `room` was asked: nothing of the group is written, and all groups before it are there."""
    store = LmdbStore("mine", path=tmp_path / "store")
    driver = Driver(store)
    driver.write(hand.queue(1, "q"), hand.state(1, 1))
    monkeypatch.setattr(lmdb_files, "extend", lambda *_: False)
    with pytest.raises(StoreFailed, match="no room on the disk for a group of .* bytes: others have filled it"):
        store.write(driver.batch(hand.enter(1, 1, body=bytes(32 << 20))))
    store.close()
    store = LmdbStore("mine", path=tmp_path / "store")
    again = Driver(store)
    assert again.model.says() == driver.model.says()
    again.write(hand.enter(1, 1))
    store.close()


def test_no_room_to_make_one(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise lmdb.DiskError("mdb_env_open: No space left on device")

    monkeypatch.setattr(lmdb, "open", full)
    with pytest.raises(StoreFull, match="no room on the disk"):
        LmdbStore("mine", path=tmp_path / "store")
    assert not os.listdir(tmp_path)
