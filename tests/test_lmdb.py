"""The store `lmdb`: the suite for stores; and what is its own: the map, failures, kills, damage."""

import json
import os
import random
import struct
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import lmdb
import pytest

import xump.stores.lmdb as lmdb_store
import xump.stores.lmdb_files as lmdb_files
import xump.stores.lmdb_repair as lmdb_repair
from xump import testing_records as hand
from xump.errors import StoreCorrupt, StoreFailed, StoreFull
from xump.stores.lmdb import LmdbStore
from xump.stores.lmdb_content import META_KEY
from xump.stores.lmdb_pages import Pages
from xump.testing import StoreConformance
from xump.testing_driver import Driver, content, position_of
from xump_ext.records import entry_key


class TestLmdb(StoreConformance):
    def make(self, path):
        return LmdbStore("mine", path=path)

    def make_small(self, path):
        return LmdbStore("mine", path=path, max_bytes=1 << 20)


def a_store(path, groups=20, durability="process", **options):
    """A closed one with messages of some sizes in two queues, and its model."""
    store = LmdbStore("mine", path=path, durability=durability, **options)
    driver, choose = Driver(store), random.Random(7)
    driver.write(hand.queue(1, "jobs"), hand.state(1, 1), hand.queue(2, "größer"), hand.state(2, 1))
    for group in range(groups):
        driver.write(*(hand.enter(queue, 20 * group + id, "a.b", choose.randbytes(choose.choice((10, 100, 700, 9000))))
                       for queue in (1, 2) for id in range(1, 21)),
                     hand.mark(1, 20 * group + 3, 2, hand.REDELIVERED), hand.state(1, 20 * group + 21),
                     *([hand.settle(1, 20 * group - 15, 2)] if group else []))
    close_and_cut(store)
    return driver.model


def close_and_cut(store):
    """Leaves a file that ends with the last page: without what is kept ahead, which nobody looks into."""
    size = (store._environment.info()["last_pgno"] + 1) * store._page_bytes
    store.close()
    os.truncate(data_of(store.path), size)


def data_of(path):
    return Path(path) / "data.mdb"


def run_child(program, *arguments):
    """A new interpreter; what it prints is the answer."""
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)], capture_output=True, text=True,
                         cwd=Path(__file__).parent.parent, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


# ---- options and places

@pytest.mark.parametrize("options, error, text", [
    ({"durability": "always"}, ValueError, "'always'; allowed are 'sync', 'group', 'process', 'none'"),
    ({"group_ms": -1}, ValueError, "-1; allowed are 0 to 60000"), ({"group_ms": "2"}, TypeError, "'2'"),
    ({"max_bytes": 1000}, ValueError, "1000; allowed is 1048576 to"), ({"max_bytes": 1e9}, TypeError, "an int"),
    ({"max_readers": 0}, ValueError, "0; allowed is 1 to 10000"), ({"max_readers": True}, TypeError, "True"),
])
def test_options_that_cannot_be(tmp_path, options, error, text):
    with pytest.raises(error, match=text):
        LmdbStore("mine", path=tmp_path / "store", **options)
    assert not os.listdir(tmp_path)


def test_the_library_and_the_store_have_the_same_name():
    assert run_child("""
        import sys, lmdb, xump.stores.lmdb as ours, importlib.metadata as metadata
        (entry,) = metadata.entry_points(group="xump.stores", name="lmdb")
        assert ours.lmdb is lmdb and lmdb.Environment and entry.load() is ours.LmdbStore
        print("fine")
    """) == "fine\n"
    run = subprocess.run([sys.executable, "-m", "xump.stores.lmdb"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def test_places_that_are_something_else(tmp_path):
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    lmdb.open(str(tmp_path / "foreign"), map_size=1 << 20).close()
    with lmdb.open(str(tmp_path / "other"), map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"key", b"value")
    for name, text in (("empty", b""), ("short", b"\0" * 100), ("text", b"x" * 10_000)):
        (tmp_path / name).mkdir()
        data_of(tmp_path / name).write_bytes(text)
    before = everything(tmp_path)
    for name, text in (
        ("file", "is a file; an lmdb store is a directory"), ("full", r"other things in it \(letter.txt\)"),
        ("foreign", "without entries"), ("other", "of another program"), ("empty", "is empty"), ("short", "no LMDB file.*cut"),
        ("text", "no LMDB file"),
    ):
        with pytest.raises(StoreCorrupt, match=text):
            LmdbStore("mine", path=tmp_path / name)
    with pytest.raises(FileNotFoundError):
        LmdbStore("mine", path=tmp_path / "no" / "where")
    assert everything(tmp_path) == before
    (tmp_path / "bare").mkdir()
    LmdbStore("mine", path=tmp_path / "bare").close()
    data_of(tmp_path / "bare").unlink()
    for tool in (LmdbStore.check, LmdbStore.repair, lambda path: LmdbStore("mine", path=path)):
        with pytest.raises(StoreCorrupt, match="no data.mdb any more"):
            tool(str(tmp_path / "bare"))


def everything(path):
    return {str(file): file.read_bytes() if file.is_file() else None for file in sorted(path.rglob("*"))}


def test_another_version_is_left_alone(tmp_path):
    a_store(tmp_path / "store", 1)
    with lmdb.open(str(tmp_path / "store")) as environment, environment.begin(write=True) as transaction:
        meta = transaction.get(META_KEY)
        transaction.put(META_KEY, meta[:8] + b"\2\0\0\0" + meta[12:])
    with pytest.raises(StoreCorrupt, match="version 2.*reads version 1"):
        LmdbStore("mine", path=tmp_path / "store")


def test_what_cannot_be_written_to(tmp_path, monkeypatch):
    a_store(tmp_path / "store", 1)
    before = everything(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="must be writable"):
        LmdbStore("mine", path=tmp_path / "store")
    assert everything(tmp_path).keys() == before.keys()


def test_an_unfinished_one_is_made_anew(tmp_path):
    """What a crash in the middle of the making leaves."""
    (tmp_path / "store").mkdir()
    for name in ("owner", "data.new"):
        (tmp_path / "store" / name).write_bytes(b"half")
    a_store(tmp_path / "store", 1)
    assert sorted(os.listdir(tmp_path / "store")) == ["data.mdb", "lock.mdb", "owner"]


def test_when_opening_fails_after_making(tmp_path, monkeypatch):
    monkeypatch.setattr(LmdbStore, "_open", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        LmdbStore("mine", path=tmp_path / "store")
    assert not os.listdir(tmp_path)


# ---- the map

@pytest.fixture
def barely_ahead(monkeypatch):
    """The file has little more than what is in it."""
    monkeypatch.setattr(lmdb_store, "AHEAD_ROOM_BYTES", (64 << 10, 64 << 10))
    monkeypatch.setattr(lmdb_store, "GROWTH_BYTES", (1 << 10, 1 << 10))
    monkeypatch.setattr(lmdb_store, "KEPT_BYTES_MAX", 64 << 10)


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


def test_the_directories_are_made_durable(tmp_path, monkeypatch):
    """The new file's entry, and the new directory's."""
    steps, replace, fsync = [], os.replace, os.fsync
    monkeypatch.setattr(os, "replace", lambda *names: (replace(*names), steps.append("replace")))
    monkeypatch.setattr(os, "fsync", lambda fd: (fsync(fd), steps.append(os.fstat(fd).st_ino)))
    LmdbStore("mine", path=tmp_path / "store").close()
    behind = steps[steps.index("replace") :]
    assert os.stat(tmp_path).st_ino in behind and behind.count(os.stat(tmp_path / "store").st_ino) >= 2


def test_the_map_has_an_end(tmp_path, monkeypatch):
    """That is a failure: `room` was not asked."""
    monkeypatch.setattr(lmdb_store, "SLACK_BYTES", 0)
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


def test_room_is_kept_free_on_the_disk(tmp_path, monkeypatch):
    store = LmdbStore("mine", path=tmp_path / "store", max_bytes=1 << 30)
    assert 0.45 * 2**30 < store.room() <= 2**29
    ahead = -store._lacking(0) // 2
    assert 3 << 20 < ahead < 8 << 20
    for left in (20 << 20, 0):
        the_disk_has(monkeypatch, left)
        assert store.room() == ahead + left // 4, "half for others, and half of that for pages that are not full"
    store.close()


def the_disk_has(monkeypatch, left, statvfs=os.statvfs):
    """So many bytes are free; others have the rest."""
    def told(path):
        disk = statvfs(path)
        return os.statvfs_result([*disk[:4], left // disk.f_frsize, *disk[5:10]])
    monkeypatch.setattr(os, "statvfs", told)


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
    """Whoever filled it, also when the store is opened on it again."""
    full = int(run_child(FULL_DISK, tmp_path / "store", durability, size, others))
    assert full * (size + 300) > 3 << 20


def test_no_room_on_the_disk_for_a_new_one(tmp_path, monkeypatch):
    the_disk_has(monkeypatch, 1 << 20)
    with pytest.raises(StoreFull, match=f"no room on the disk of {tmp_path}/store: a new store takes [0-9]+ bytes"):
        LmdbStore("mine", path=tmp_path / "store")
    assert not os.listdir(tmp_path)


def test_a_group_that_finds_no_room_after_all(tmp_path, monkeypatch):
    """Others took the disk since `room` was asked: nothing of it is written, and what was is there."""
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


def test_what_is_kept_ahead_is_not_looked_at(tmp_path):
    """Nor in the way: free space at the end of the file is as good as none, and `compact` gives it back."""
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


# ---- failures

@pytest.mark.parametrize("call", ["write", "sync"])
@pytest.mark.parametrize("nth", [1, 2, 5])
def test_the_nth_fails(tmp_path, monkeypatch, call, nth):
    store = LmdbStore("mine", path=tmp_path / "store")
    driver, calls = Driver(store), []
    driver.write(hand.queue(1, "q"), hand.state(1, 1))

    def fails(*arguments):
        calls.append(1)
        if len(calls) == nth:
            raise lmdb.DiskError("fdatasync: Input/output error")
        return real(*arguments)

    if call == "write":
        real = store._commit
        monkeypatch.setattr(store, "_commit", fails)
    else:
        real = store._sync
        monkeypatch.setattr(store, "_sync", fails)
    for id in range(1, nth):
        driver.write(hand.enter(1, id))
        driver.sync()
    with pytest.raises(StoreFailed, match="Input/output error"):
        driver.write(hand.enter(1, nth))
        driver.sync()
    assert store.stats()["failed"]
    for poisoned in (store.sync, lambda: store.write(driver.batch(hand.settle(1, 1)))):
        with pytest.raises(StoreFailed, match="open it anew"):
            poisoned()
    assert len(calls) == nth, "it was tried again"
    driver.check_fetches()
    store.close()
    again = LmdbStore("mine", path=tmp_path / "store")
    assert Driver(again).model.says() == driver.model.says()
    again.close()


def test_killed_while_writing(tmp_path):
    """A process that is killed leaves whole groups, all of those that it had said were synced, and of the next ones, in order."""
    choose = random.Random(4)
    writer = textwrap.dedent("""
        import sys
        from xump import testing_records as hand
        from xump.stores.lmdb import LmdbStore
        from xump.testing_driver import Driver
        store = LmdbStore("mine", path=sys.argv[1], durability=sys.argv[2])
        driver = Driver(store)
        if not driver.model.queues:
            driver.write(hand.queue(1, "q"), hand.state(1, 1))
        id = max((id for _, id in driver.model.entries), default=0)
        print("open", flush=True)
        while True:
            # Each group: ten messages, and of those before the odd ones go.
            driver.write(*(hand.enter(1, id + at, body=bytes(at * 300)) for at in range(1, 11)),
                         *(hand.settle(1, id - at) for at in range(1, 10, 2) if id))
            driver.sync()
            id += 10
            print(id, flush=True)
    """)
    path, last = tmp_path / "store", 0
    for round in range(30):
        process = subprocess.Popen([sys.executable, "-c", writer, path, choose.choice(("group", "process"))], text=True,
                                   stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent)
        with process:
            assert process.stdout.readline() == "open\n"
            for _ in range(choose.randrange(12)):
                process.stdout.readline()
            time.sleep(choose.random() * 0.003)
            process.kill()
            said = process.stdout.read().split()
        store = LmdbStore("mine", path=path)
        driver = Driver(store)
        store.close()
        ids = sorted(id for _, id in driver.model.entries)
        end = max(ids, default=0)
        assert end % 10 == 0 and end >= max([last, *map(int, said)])
        assert ids == [id for id in range(1, end + 1) if id % 2 == 0 or id > end - 10], f"round {round}"
        last = end
    assert last > 300


def test_a_process_that_has_ended_leaves_no_lock(tmp_path):
    a_store(tmp_path / "store", 1)
    run_child("""
        import os, sys
        from xump.stores.lmdb import LmdbStore
        LmdbStore("mine", path=sys.argv[1])
        os._exit(0)
    """, tmp_path / "store")
    LmdbStore("mine", path=tmp_path / "store").close()


def test_a_child_that_ends_in_order_takes_nothing_along(tmp_path):
    """Its interpreter lets go of all objects."""
    run_child("""
        import os, sys
        from xump import testing_records as hand
        from xump.stores.lmdb import LmdbStore
        from xump.testing_driver import Driver
        store = LmdbStore("mine", path=sys.argv[1])
        driver = Driver(store)
        driver.write(hand.queue(1, "q"), hand.state(1, 1), hand.enter(1, 1))
        pid = os.fork()
        if pid == 0:
            store.close()
            del store, driver
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        driver.write(hand.enter(1, 2))
        driver.sync()
        driver.check_fetches()
        store.close()
    """, tmp_path / "store")
    store = LmdbStore("mine", path=tmp_path / "store")
    assert sorted(Driver(store).model.entries) == [(1, 1), (1, 2)]
    store.close()


# ---- damage

FLIPS = """
import json, random, sys
from pathlib import Path
from xump.errors import StoreCorrupt, XumpError
from xump.stores.lmdb import LmdbStore
from xump.testing_driver import Driver, content

path, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
says = {}
data, choose, found = bytearray((path / "data.mdb").read_bytes()), random.Random(seed), {}
store = LmdbStore("mine", path=path)
model = Driver(store).model
store.close()

def wrong(driver, old=False, doubtful=()):
    '''What is there and was not, or not so; `old`: it may be what was settled or replaced. `doubtful`: how many messages of each
    queue may have been marked as redelivered.'''
    expected, got = model.says(), driver.model.says()
    for queue, number in dict(doubtful).items():
        made = [("mark", (of, id)) for what, of, id in (
            (what, *key) for what, key in got.keys() - expected.keys() if what == "mark") if of == queue]
        assert len(made) <= number and all(got[key][3] == 1 for key in made)
        for key in made:
            del got[key]
    return [str((what, key)) for (what, key), said in got.items() if said != expected.get((what, key)) and not (
        old and (what == "state" or (what == "entry" and (what, key) not in expected and key[1] % 20 in (5, 6))))]

for number in range(count):
    # The first pages decide on all, and so do the heads of the others.
    at = choose.choice((choose.randrange(len(data)), choose.randrange(2 * 4096) % 160 + choose.choice((0, 4096)),
                        choose.randrange(len(data) // 4096) * 4096 + choose.randrange(64)))
    bit = 1 << choose.randrange(8)
    data[at] ^= bit
    (path / "data.mdb").write_bytes(data)
    try:
        store = LmdbStore("mine", path=path)
        try:
            driver = Driver(store)
            assert not wrong(driver) and driver.model.says() == model.says(), f"byte {at} bit {bit}: {wrong(driver)[:3]} unseen"
            driver.check_fetches()
            opened = True
        finally:
            store.close()
    except XumpError as error:
        assert type(error) in (StoreCorrupt,) or "another program" in str(error) or "format" in str(error), repr(error)
        opened = False
    try:
        report = LmdbStore.check(str(path))
        assert bool(report.damage) != opened, f"byte {at} bit {bit}: opened {opened}, check said {report.damage}"
    except StoreCorrupt:
        assert not opened
    if not opened:
        report = LmdbStore.repair(str(path))
        assert report.damage, f"byte {at}"
        store = LmdbStore("mine", path=path)
        driver = Driver(store, lenient=True)
        doubtful = {queue: left.doubtful for queue, left in report.remains.items()}
        bad = wrong(driver, any("may have been settled" in note for note in report.notes), doubtful)
        assert not bad, f"byte {at} bit {bit}: {bad[:5]}"
        lost = [key for key in model.says() if key not in driver.model.says()]
        assert not lost or report.quarantine, f"byte {at} bit {bit}: {lost[:5]} vanished"
        assert len(lost) <= 40, f"byte {at} bit {bit}: {len(lost)} lost: {report}"
        driver.check_fetches()
        store.close()
        found[len(lost)] = found.get(len(lost), 0) + 1
    data[at] ^= bit
    for file in path.parent.glob(path.name + ".*"):
        file.unlink()
(path / "data.mdb").write_bytes(data)
print(json.dumps(found))
"""


@pytest.mark.parametrize("seed", range(3))
def test_any_flipped_bit(tmp_path, seed):
    """Never a wrong payload, never a silent gap, never the end of the process; what is repaired says what it lost."""
    a_store(tmp_path / "store", 6)
    found = json.loads(run_child(FLIPS, tmp_path / "store", seed, 40))
    assert sum(found.values()) > 10, "nothing was ever damaged"
    assert "0" in found or "1" in found


@pytest.mark.parametrize("what", ["root", "metas", "free list", "end of the file"])
def test_great_damage(tmp_path, what):
    """What is found in pages that nothing leads to any more comes back; what cannot be known is said."""
    path = tmp_path / "store"
    model = a_store(path, 40)
    data = bytearray(data_of(path).read_bytes())
    with Pages(str(data_of(path))) as pages:
        root, free = pages.meta.main.root, pages.meta.free.root
    if what == "end of the file":
        del data[len(data) * 3 // 4 :]
    else:
        for page in {"root": [root], "metas": [0, 1], "free list": [free]}[what]:
            data[4096 * page : 4096 * (page + 1)] = random.Random(1).randbytes(4096)
    data_of(path).write_bytes(data)
    with pytest.raises(StoreCorrupt, match=f"run: xump repair {path}"):
        store = LmdbStore("mine", path=path)
        try:
            Driver(store)
        finally:
            store.close()
    assert data_of(path).read_bytes() == data
    report = LmdbStore.repair(str(path))
    assert f"kept as {path}.damaged-1" in report.notes[-1] and (tmp_path / "store.damaged-1").read_bytes() == data
    store = LmdbStore("mine", path=path)
    driver = Driver(store, lenient=True)
    store.close()
    lost = [key for key in model.entries if key not in driver.model.entries]
    assert all(content(driver.model.entries[key]) == content(model.entries[key]) for key in model.entries if key not in lost)
    assert len(driver.model.says()) == report.records and store.end >= model_end(model)
    if what == "end of the file":
        assert 0 < len(lost) < len(model.entries) / 2
    else:
        assert not lost
    if what != "end of the file":       # where the list of free pages may have been
        assert any("may have been settled" in note for note in report.notes) == (what == "metas")
        assert all(left.doubtful == (left.messages if what == "metas" else 0) for left in report.remains.values())
    assert LmdbStore.check(str(path)).damage == []


def model_end(model):
    return max(position_of(record) for record in model.entries.values())


def nodes_of(data, number):
    """Where the nodes of a page begin in the file, by key."""
    at = 4096 * number
    lower = struct.unpack_from("<H", data, at + 12)[0]
    return [at + offset for offset in struct.unpack_from(f"<{(lower - 16) // 2}H", data, at + 16)]


def separator(data, meta, leaves):
    data[nodes_of(data, meta.main.root)[2] + 8 + 12] += 1


def child_twice(data, meta, leaves):
    one, other = nodes_of(data, meta.main.root)[1:3]
    data[other : other + 6] = data[one : one + 6]


def other_key(data, meta, leaves):
    """An id that does not follow the one before at once, as 7 follows 4: it may become one less, and all keys are in order."""
    keys = {entry_key(1, id): entry_key(1, id - 1) for id in range(7, 400, 20)}
    for number in leaves:
        for at in nodes_of(data, number)[1:]:
            if bytes(data[at + 8 : at + 21]) in keys:
                data[at + 8 : at + 21] = keys[bytes(data[at + 8 : at + 21])]
                return


def used_and_free(data, meta, leaves):
    at = nodes_of(data, meta.free.root)[0]
    data[at + 24 : at + 32] = struct.pack("<Q", leaves[1])


def own_entry(data, meta, leaves):
    (at,) = (at for number in leaves for at in nodes_of(data, number) if data[at + 8 : at + 9] == META_KEY and data[at + 6] == 1)
    data[at + 9 + 16] ^= 1


def in_both_metas(offset, value):
    def change(data, meta, leaves):
        for start in (0, 4096):
            data[start + offset : start + offset + len(value)] = value
    return change


DAMAGES = {
    "not in order": separator, "is named twice": child_twice, "a key that is not its own": other_key,
    "in use and listed as free": used_and_free,
    "trees with flags 0x4": in_both_metas(92, b"\4"), "values of 9 bytes": in_both_metas(88, b"\t"),
    "need not be in the file": in_both_metas(136, struct.pack("<Q", 1500)),
    "do not follow each other": in_both_metas(144, struct.pack("<Q", 8)), "has depth 77": in_both_metas(94, b"M"),
    "own entry, with its salt and position, is damaged": own_entry, "and says": in_both_metas(120, b"\1"),
}


@pytest.mark.parametrize("text", DAMAGES)
def test_damage_that_is_no_records(tmp_path, text):
    """Each is seen when the store is opened, and by check; repair loses nothing."""
    path = tmp_path / "store"
    model = a_store(path, 20)
    data = bytearray(data_of(path).read_bytes())
    with Pages(str(data_of(path))) as pages:
        meta, walk = pages.meta, pages.walk()
        while walk.next_records(model.salt, META_KEY):
            pass
        leaves = [page for page, mark in enumerate(pages.reached)
                  if mark and struct.unpack_from("<Q2xH", data, 4096 * page) == (page, 2)]
    DAMAGES[text](data, meta, leaves)
    data_of(path).write_bytes(data)
    with pytest.raises(StoreCorrupt, match=f"{text}.*run: xump repair"):
        store = LmdbStore("mine", path=path)
        try:
            Driver(store)
        finally:
            store.close()
    assert any(text in found.what for found in LmdbStore.check(str(path)).damage)
    LmdbStore.repair(str(path))
    store = LmdbStore("mine", path=path)
    again = Driver(store).model
    store.close()
    lost = set(model.says()) - set(again.says())        # at most the one of which it is not known whose key it has
    assert len(lost) <= 1 and lost <= {("entry", (1, id)) for id in range(7, 400, 20)}
    made = {key for key in again.marks if key not in model.marks}
    assert set(again.says()) - {("mark", key) for key in made} <= set(model.says())
    assert not made or text == "and says"       # what it says of the whole cannot be wrong alone


def test_the_newest_group_of_which_the_meta_page_is_lost(tmp_path):
    """What it wrote is found by its positions; what it settled is back, and that is said; what was settled before is not."""
    path = tmp_path / "store"
    model = a_store(path, 20)
    data = bytearray(data_of(path).read_bytes())
    newest = max((0, 4096), key=lambda start: struct.unpack_from("<Q", data, start + 144)[0])
    data[newest + 16 : newest + 152] = bytes(136)
    data_of(path).write_bytes(data)
    assert "may have been settled" in LmdbStore.repair(str(path)).notes[0]
    store = LmdbStore("mine", path=path)
    again = Driver(store).model
    store.close()
    assert set(again.entries) - set(model.entries) == {(1, 365), (1, 366)} and set(model.entries) <= set(again.entries)
    made = [key for key in again.marks if key not in model.marks]       # all but those that say so already
    assert set(made) == set(again.entries) - set(model.marks)
    assert again.says()["state", 1] == model.says()["state", 1] and store.end == model_end_of_all(model) + 40 * len(made)


def model_end_of_all(model):
    records = [*model.queues.values(), *model.states.values(), *model.entries.values(), *model.marks.values()]
    return max(position_of(record) + len(record) for record in records)


def test_what_was_never_committed_is_not_taken(tmp_path):
    """A record in a page beyond the last one, of a transaction that did not get to its end."""
    path = tmp_path / "store"
    model = a_store(path, 20)
    data = bytearray(data_of(path).read_bytes())
    with Pages(str(data_of(path))) as pages:
        data[4096 * pages.meta.main.root] ^= 1
    log = hand.Log(model.salt, 1 << 30)
    page = log.group(hand.enter(1, 5000, body=b"never"))[56:]
    data_of(path).write_bytes(data + bytes(16) + page + bytes(4096 - 16 - len(page)))
    LmdbStore.repair(str(path))
    store = LmdbStore("mine", path=path)
    assert Driver(store).model.says() == model.says() and store.end < 1 << 30
    store.close()


def test_cut_anywhere(tmp_path):
    """What was cut off is missed at once, or was not in use."""
    path = tmp_path / "store"
    model = a_store(path, 4)
    data, refused = data_of(path).read_bytes(), 0
    sizes = [*range(0, 9000, 331), *range(9000, len(data), len(data) // 60), *range(len(data) - 64, len(data), 9)]
    for size in sizes:
        data_of(path).write_bytes(data[:size])
        try:
            store = LmdbStore("mine", path=path)
            try:
                assert Driver(store).model.says() == model.says()
            finally:
                store.close()
        except StoreCorrupt as error:
            assert f"xump repair {path}" in str(error)
            refused += 1
    assert refused > len(sizes) * 0.9


def test_what_is_damaged_is_put_aside(tmp_path):
    """The record byte for byte, and all else as it was."""
    path = tmp_path / "store"
    model = a_store(path, 5)
    data = data_of(path).read_bytes()
    (_, id), record = next(entry for entry in model.entries.items() if entry[0][0] == 1 and len(entry[1]) > 5000)
    at = data.index(record) + 100
    data_of(path).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    damaged = record[:100] + bytes([record[100] ^ 1]) + record[101:]
    for number in (1, 2):
        (found,) = LmdbStore.check(str(path)).damage
        assert (found.queue, found.id, found.position, found.bytes) == (1, id, position_of(record), len(record))
        assert f"message of queue 1, id {id}" in found.what and "content does not fit its CRC" in found.what
        report = LmdbStore.repair(f"{path}/")
        assert report.damage == [found] and report.quarantine == f"{path}.quarantine-{number}"
        kept = Path(report.quarantine).read_bytes()
        assert kept.startswith(b"XumpQuar" + struct.pack("<II", 1, model.salt)) and kept.endswith(damaged)
        assert sorted(os.listdir(tmp_path)) == ["store", *(f"store.quarantine-{n}" for n in range(1, number + 1))]
        store = LmdbStore("mine", path=path)
        driver = Driver(store)
        store.close()
        assert driver.model.says() == {key: said for key, said in model.says().items() if key != ("entry", (1, id))}
        assert LmdbStore.repair(str(path)).damage == []
        data_of(path).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_a_message_that_was_damaged_after_opening(tmp_path):
    """`fetch` gives no wrong payload, and none behind it."""
    path = tmp_path / "store"
    store = LmdbStore("mine", path=path)
    driver = Driver(store)
    driver.write(hand.queue(1, "q"), hand.state(1, 1), *(hand.enter(1, id, body=b"%d" % id * 50) for id in range(1, 10)))
    at = data_of(path).read_bytes().rindex(b"5" * 50)
    with open(data_of(path), "r+b") as file:
        file.seek(at)
        file.write(b"6")
    assert [id for _, id, _ in driver.fetch(1, 3)] == [3, 4]
    with pytest.raises(StoreCorrupt, match="message of queue 1, id 5 .*content does not fit"):
        driver.fetch(1, 5)
    driver.check_fetches([(1, 6)])
    store.close()


def test_repair_that_fails_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "store"
    a_store(path, 5)
    data = bytearray(data_of(path).read_bytes())
    with Pages(str(data_of(path))) as pages:
        data[pages.page_bytes * pages.meta.main.root] ^= 1
    data_of(path).write_bytes(data)
    for step in ("build", "_quarantine", "_keep_old", "take_place"):
        before = data_of(path).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(lmdb_repair if step[0] == "_" else lmdb_files, step, lambda *_: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                LmdbStore.repair(str(path))
        assert data_of(path).read_bytes() == before
    assert LmdbStore.repair(str(path)).damage
    LmdbStore("mine", path=path).close()
    assert sorted(os.listdir(path)) == ["data.mdb", "lock.mdb", "owner"]


def test_no_room_to_make_one(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise lmdb.DiskError("mdb_env_open: No space left on device")

    monkeypatch.setattr(lmdb, "open", full)
    with pytest.raises(StoreFull, match="no room on the disk"):
        LmdbStore("mine", path=tmp_path / "store")
    assert not os.listdir(tmp_path)


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
