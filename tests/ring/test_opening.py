"""A ring opened: made, options, files that are no ring, one owner, forks."""

import errno
import importlib.metadata
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

import xump
from xump.testing import records_by_hand as hand
from tests.ring.ring_engine import SEGMENT, Engine, content_of, filled
from tests.ring.ring_faults import Quick
from xump.errors import Closed, Conflict, ForkedError, StoreCorrupt, StoreFailed, StoreFull, StoreLocked
from xump.stores import ring_disk
from xump.stores.ring import RingStore
from xump.stores.ring_file import COPY_AT, HEAD_BYTES, SLOTS_AT, SUPERBLOCK, Head
from xump_ext.store import Demand


# ---- made and opened again

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
    ({"durability": 3}, TypeError, "durability=3; allowed is a str: 'sync', 'group', 'process', 'none'"),
    ({"durability": "often"}, ValueError, "'often'; allowed are 'sync', 'group', 'process', 'none'"),
    ({"group_ms": "2"}, TypeError, "group_ms"),
    ({"group_ms": -1}, ValueError, "group_ms=-1"),
    ({"group_ms": float("nan")}, ValueError, "group_ms=nan"),
    ({"group_ms": 60_001}, ValueError, "group_ms=60001; allowed are 0 to 60000"),
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


def test_segment_bytes_are_for_good(path):
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


def test_misuse(path):
    store = RingStore("r", path=path, min_bytes=0, segment_bytes=SEGMENT)
    for use in (store.sync, lambda: store.oldest(Demand(0, 0, 0, 0)), lambda: store.release(0)):
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


def test_what_a_crash_left_is_removed(path):
    """Files with other names stay, and so does the store, also where one name too many leads to it."""
    engine = Engine(path)
    filled(engine, 1, 3)
    content = engine.state.content()
    engine.close()
    others = [path.with_name(name) for name in (
        "a.ring.new-report", "a.ring.new-0123abcde", "xa.ring.new-0123abcd", "a.ring.quarantine-1", "a-ring.new-0123abcd",
        "a.ring.repair", "a.ring.repair-20261122")]
    for other in others:
        other.write_bytes(b"mine")
    path.with_name("a.ring.new-0123abcd").hardlink_to(path)
    path.with_name("a.ring.new-ffffffff").write_bytes(bytes(10_000))      # half made
    path.with_name("a.ring.repair-0123456789abcdef").write_bytes(b"half")
    assert content_of(path) == (content, 0)
    assert sorted(path.parent.iterdir()) == sorted([path, *others]) and path.stat().st_nlink == 1


def test_its_name_is_durable(path, monkeypatch):
    """At each opening: a process may have been killed before it got to that. A directory that cannot be read needs more."""
    synced, real = [], os.open

    class Noted(Quick):
        def fsync(self, fd):
            synced.append(os.fstat(fd).st_ino)

        def open(self, name, flags, *mode):
            if flags & os.O_RDWR == 0 and "refused" in synced:
                raise PermissionError(13, "Permission denied", name)
            return real(name, flags, *mode)

        def sync(self):
            synced.append("all")

    monkeypatch.setattr(ring_disk, "os", Noted())
    (path.parent / "link").mkdir()
    for place in (path, path, path.parent / "link" / "to"):
        if place != path:
            place.symlink_to(path)
        Engine(place).close()
        assert os.stat(path.parent).st_ino in synced
        synced.clear()
    synced.append("refused")
    Engine(path).close()
    assert "all" in synced


# ---- the path and the disk

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
    (another_version, "is a ring store of version 7; this Xump reads version 2"),
])
def test_a_file_that_is_no_ring(path, change, message):
    Engine(path).close()
    data = change(path.read_bytes())
    path.write_bytes(data)
    for use in (lambda: RingStore("r", path=path), lambda: RingStore.check(path), lambda: RingStore.repair(path),
                lambda: RingStore.compact(path)):
        with pytest.raises(StoreCorrupt, match=message):
            use()
    assert path.read_bytes() == data and len(list(path.parent.iterdir())) == 1


def test_a_path_where_no_file_can_be(tmp_path, monkeypatch):
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


def test_another_process_makes_it_at_the_same_time(path, monkeypatch):
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


# ---- one owner

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
    assert RingStore.recognises(path) and RingStore.recognises(link)        # nor does a look into the file
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
        for use in (store.room, store.sync, lambda: store.oldest(Demand(0, 0, 0, 0)), lambda: store.fetch(1, 1, 0),
                    lambda: store.release(0), lambda: store.write(hand.batch(engine.log, hand.state(1, 1))),
                    lambda: list(store.scan())):
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


def test_a_child_keeps_the_store_that_it_opened_itself(path):
    """When it closes what it has from its parent."""
    parents = RingStore("ring", path=path, min_bytes=0)
    (closed, says_closed), (ready, says_ready), (go_on, says_go_on) = os.pipe(), os.pipe(), os.pipe()
    if not (child := os.fork()):
        os.close(says_go_on)
        os.read(closed, 1)
        own = RingStore("ring", path=path, min_bytes=0)
        parents.close()
        os.write(says_ready, b"x")
        os.read(go_on, 1)
        own.close()
        os._exit(0)
    parents.close()
    os.write(says_closed, b"x")
    assert os.read(ready, 1) == b"x"
    with pytest.raises(StoreLocked, match=f"process {child}"):
        RingStore("ring", path=path, min_bytes=0)
    os.close(says_go_on)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    RingStore("ring", path=path, min_bytes=0).close()
    for fd in (closed, says_closed, ready, says_ready, go_on):
        os.close(fd)


@pytest.mark.parametrize("left", ["half made", "blank", "second name", "an unfinished copy"])
def test_what_a_killed_process_left_is_removed(tmp_path, left):
    path = tmp_path / "store"
    name = tmp_path / ("store.repair-0123456789abcdef" if left == "an unfinished copy" else "store.new-0123abcd")
    blank = RingStore("ring", path=path, min_bytes=0)
    if left == "half made":
        name.write_bytes(bytes(5000))
    elif left == "second name":
        name.hardlink_to(path)
    else:
        shutil.copy(path, name)
    blank._claim.release()      # as if it had been killed
    RingStore("ring", path=path, min_bytes=0).close()
    assert [file.name for file in tmp_path.iterdir()] == ["store"]


def test_a_copy_under_such_a_name_stays(tmp_path):
    """A date has eight digits, too."""
    engine = Engine(tmp_path / "store")
    filled(engine, 1, 3)
    engine.close()
    shutil.copy(tmp_path / "store", tmp_path / "store.new-20261122")
    Engine(tmp_path / "store").close()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["store.new-0123abcd", "store.repair-0123456789abcdef", "store.repair"])
def test_a_store_that_is_open_stays_under_any_name(tmp_path, name):
    """Blank or not: somebody writes to it, as its lock says."""
    engine = Engine(tmp_path / name)
    for use in (lambda: RingStore("ring", path=tmp_path / "store", min_bytes=0).close(),
                lambda: RingStore.compact(tmp_path / "store"), lambda: filled(engine, 1, 3)):
        use()
        assert {file.name for file in tmp_path.iterdir()} == {"store", name}
    content = engine.state.content()
    engine.close()
    assert content_of(tmp_path / name) == (content, 0)


def test_what_cannot_be_removed_does_not_keep_the_rest(tmp_path):
    RingStore("ring", path=tmp_path / "store", min_bytes=0).close()
    for digit in "0123456789abcdef":
        (tmp_path / f"store.new-{digit}1234567").write_bytes(bytes(5000))
    stays = tmp_path / "store.new-00000000"
    stays.mkdir()
    RingStore("ring", path=tmp_path / "store", min_bytes=0).close()
    assert sorted(tmp_path.iterdir()) == [tmp_path / "store", stays]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_is_named(tmp_path, monkeypatch, code):
    class Failing(Quick):
        def fsync(self, fd):
            raise OSError(code, os.strerror(code))
    RingStore("ring", path=tmp_path / "store", min_bytes=0).close()
    monkeypatch.setattr(ring_disk, "os", Failing())
    path = str(tmp_path / "store")
    for act in (lambda: RingStore("ring", path=path, min_bytes=0), lambda: RingStore.compact(path)):
        with pytest.raises(StoreFull if code == errno.ENOSPC else StoreFailed, match=str(tmp_path)):
            act()
