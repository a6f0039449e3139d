"""The store `lmdb` in the conformance suite; its options, its paths, failures and kills."""

import os
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import lmdb
import pytest

from xump.testing import records_by_hand as hand
from tests.lmdb.small_store import a_store, data_of, everything, run_child
from xump.errors import StoreCorrupt, StoreFailed
from xump.stores import lmdb_files as files
from xump.stores.lmdb import LmdbStore
from xump.stores.lmdb_reader import Gate
from xump.stores.lmdb_content import META_KEY
from xump.testing import StoreConformance
from xump.testing.driver import Driver


class TestLmdb(StoreConformance):
    def make(self, path):
        return LmdbStore("mine", path=path)

    def make_small(self, path):
        return LmdbStore("mine", path=path, max_bytes=1 << 20)


# ---- options and paths

@pytest.mark.parametrize("options, error, text", [
    ({"durability": 3}, TypeError, "durability=3; allowed is a str: 'sync', 'group', 'process', 'none'"),
    ({"durability": []}, TypeError, "a str"),
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


def test_paths_of_other_things(tmp_path):
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


def test_another_version_is_left_alone(tmp_path):
    a_store(tmp_path / "store", 1)
    with lmdb.open(str(tmp_path / "store")) as environment, environment.begin(write=True) as transaction:
        meta = transaction.get(META_KEY)
        transaction.put(META_KEY, meta[:8] + b"\4\0\0\0" + meta[12:])
    with pytest.raises(StoreCorrupt, match="version 4.*reads version 3"):
        LmdbStore("mine", path=tmp_path / "store")


def test_a_file_without_write_permission(tmp_path, monkeypatch):
    a_store(tmp_path / "store", 1)
    before = everything(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="must be writable"):
        LmdbStore("mine", path=tmp_path / "store")
    assert everything(tmp_path).keys() == before.keys()


def test_an_unfinished_one_is_made_anew(tmp_path):
    """A crash in the middle of the making leaves half files."""
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


# ---- failures, kills, forks

def test_the_directories_are_made_durable(tmp_path, monkeypatch):
    """The new file's entry, and the new directory's; and once more at each opening, whoever made them."""
    steps, replace, fsync, reserve_lock = [], os.replace, os.fsync, files.reserve_lock
    monkeypatch.setattr(os, "replace", lambda *names: (replace(*names), steps.append("replace")))
    monkeypatch.setattr(os, "fsync", lambda fd: (fsync(fd), steps.append(os.fstat(fd).st_ino)))
    LmdbStore("mine", path=tmp_path / "store").close()
    behind = steps[steps.index("replace") :]
    assert os.stat(tmp_path).st_ino in behind and behind.count(os.stat(tmp_path / "store").st_ino) >= 2
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link").symlink_to(tmp_path / "store")
    steps.clear()
    (tmp_path / "store" / "lock.mdb").unlink()
    monkeypatch.setattr(files, "reserve_lock", lambda *arguments: (steps.append("lock"), reserve_lock(*arguments)))
    LmdbStore("mine", path=tmp_path / "elsewhere" / "link").close()
    assert os.stat(tmp_path).st_ino in steps
    # A power loss that left the lock's name alone would look as if the environment had been taken away.
    assert os.stat(tmp_path / "store").st_ino in steps[: steps.index("lock")]


def test_a_directory_that_cannot_be_read(tmp_path, monkeypatch):
    """Its entries become durable with everything else that the system holds."""
    a_store(tmp_path / "store", 1)
    real, synced = os.open, []

    def refused(name, flags, *mode, **options):
        if os.fspath(name) == str(tmp_path):
            raise PermissionError(13, "Permission denied", name)
        return real(name, flags, *mode, **options)

    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(os, "sync", lambda: synced.append("all"))
    LmdbStore("mine", path=tmp_path / "store").close()
    assert synced == ["all"]


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
        from xump.testing import records_by_hand as hand
        from xump.stores.lmdb import LmdbStore
        from xump.testing.driver import Driver
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
                                   stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
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
        from xump.testing import records_by_hand as hand
        from xump.stores.lmdb import LmdbStore
        from xump.testing.driver import Driver
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


# ---- the map is replaced

def test_a_wait_for_readers_that_a_signal_ends(monkeypatch):
    """Readers and writers go on afterwards: nobody replaces the map."""
    gate = Gate(2)

    def interrupted(condition):
        if gate._replacing:
            raise KeyboardInterrupt
        assert condition()

    with gate.shared():
        with monkeypatch.context() as patched:
            patched.setattr(gate._changed, "wait_for", interrupted)
            with pytest.raises(KeyboardInterrupt), gate.exclusive():
                pass
        assert not gate._replacing
    with gate.exclusive():
        pass
