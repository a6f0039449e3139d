"""A store that is opened or made on a system that refuses a call, or in a process that is killed at any call.

The error names the store, says what to do, and is never called damage. The next opening finds everything, removes the remains,
and makes the store's name durable.
"""

import errno
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.durability.failing_calls import Calls, run
from xump.stores.lmdb import LmdbStore
from xump.stores.ring import RingStore
from xump.testing import records_by_hand as hand
from xump.testing.driver import Driver

SMALL = {"lmdb": {"max_bytes": 1 << 20}, "ring": {"segment_bytes": 1 << 16, "min_bytes": 1 << 18}}
TYPES = {"lmdb": LmdbStore, "ring": RingStore}


def opened(kind, path):
    """Opens a store and reads it, as an engine does."""
    store = TYPES[kind]("mine", path=path, **SMALL[kind])
    try:
        return store, Driver(store)
    except BaseException:
        store.close()
        raise


def fill(kind, path):
    store, driver = opened(kind, path)
    driver.write(hand.queue(1, "jobs"), hand.state(1, 9), *(hand.enter(1, id, body=bytes([id]) * 900) for id in range(1, 9)))
    driver.sync()
    store.close()
    return driver.model.says()


def files_at(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))


# ---- a call fails

def fail_each(folder, kind, code, forever):
    """In a process of its own: for each call, what came of it."""
    calls, told = Calls(), []
    for full in (False, True):
        nth, failed = 0, True
        while failed:
            path = folder / f"{nth}-{full}"
            said = fill(kind, path) if full else {}
            calls.watch(folder, nth, code, forever)
            error = None
            try:
                store, _ = opened(kind, path)
            except BaseException as raised:
                error = raised
            failed = calls.watched() > nth
            if error is None:
                store.close()
            again, driver = opened(kind, path)
            assert driver.model.says() == said, f"call {nth} failed: {calls.last_call()}; other messages"
            again.close()
            told.append((calls.last_call(), type(error).__name__, str(error)))
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            assert not files_at(folder), f"call {nth} failed: {calls.last_call()}; files are left"
            nth += 1
    print(json.dumps(told))


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("kind", TYPES)
def test_the_nth_call_fails(tmp_path, kind, code, forever):
    told = json.loads(run("tests.durability.test_opening", "fail", tmp_path, kind, code, int(forever)))
    refused = {call for call, name, _ in told if name != "NoneType"}
    for call, name, text in told:
        if name == "NoneType":
            continue
        assert name in ("StoreFailed", "StoreFull"), f"{call}: {name} {text}"
        assert str(tmp_path) in text and "xump check" not in text, f"{call}: {text}"
        assert " again" in text or " anew" in text, f"{call}: {text}, and does not say what to do"
    assert len(told) > 10
    if not forever:
        assert {"open64", "fsync", "pread64", "link" if kind == "ring" else "rename"} <= refused


TOOLS = ("check", "repair", "compact", "close")


def fail_each_of_the_tools(folder, kind, code, forever):
    """In a process of its own: for each call that a tool makes, and for each of closing, what came of it."""
    calls, told = Calls(), []
    whole = folder / "whole"
    said = fill(kind, whole)
    for tool in TOOLS:
        nth, failed = 0, True
        while failed:
            path = folder / f"{tool}-{nth}"
            (shutil.copytree if whole.is_dir() else shutil.copy)(whole, path)
            if tool == "repair":
                damage(path)
            store = opened(kind, path)[0] if tool == "close" else None
            calls.watch(folder, nth, code, forever)
            error = None
            try:
                store.close() if store is not None else getattr(TYPES[kind], tool)(str(path))
            except BaseException as raised:
                error = raised
            failed = calls.watched() > nth
            told.append((calls.last_call(), type(error).__name__, str(error)))
            if tool == "repair":
                TYPES[kind].repair(str(path))
            again, driver = opened(kind, path)
            assert set(said) - set(driver.model.says()) == ({("entry", (1, 4))} if tool == "repair" else set())
            again.close()
            nth += 1
    print(json.dumps(told))


def damage(path):
    """Flips a bit of one message."""
    file = path / "data.mdb" if path.is_dir() else path
    data = bytearray(file.read_bytes())
    data[data.index(b"\4" * 900) + 500] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("kind", TYPES)
def test_the_nth_call_of_a_tool_fails(tmp_path, kind, forever):
    """Check, repair and compact, and closing: the error is ours, names the store, and the store is as it was, or done."""
    told = json.loads(run("tests.durability.test_opening", "tools", tmp_path, kind, errno.EIO, int(forever)))
    refused = [(call, name, text) for call, name, text in told if name != "NoneType"]
    for call, name, text in refused:
        assert name in ("StoreFailed", "StoreFull"), f"{call}: {name} {text}"
        assert str(tmp_path) in text and "xump check" not in text, f"{call}: {text}"
    assert len(refused) > 20
    if not forever:
        assert {"open64", "pread64", "close", "fsync"} <= {call for call, _, _ in refused}


# ---- the process is killed

def kill_each(folder, kind):
    """In a process of its own: forks one for each call, kills it there, and opens what it left."""
    calls, nth, left, synced, fsync = Calls(), 0, [], [], os.fsync
    os.fsync = lambda fd: (fsync(fd), synced.append(os.fstat(fd).st_ino))
    while True:
        path = folder / "killed" / "store"
        path.parent.mkdir()
        pid = os.fork()
        if pid == 0:
            calls.watch(folder, nth, 0)
            opened(kind, path)[0].close()
            os._exit(0 if calls.watched() <= nth else 1)
        status = os.waitpid(pid, 0)[1]
        left.append(files_at(path.parent))
        synced.clear()
        store = TYPES[kind]("mine", path=path, **SMALL[kind])
        assert os.stat(path.parent).st_ino in synced, f"killed at call {nth}: its name is not durable"
        assert Driver(store).model.says() == {}
        store.close()
        found = files_at(path.parent)
        assert found == (["store"] if kind == "ring" else ["store", "store/data.mdb", "store/lock.mdb", "store/owner"]), found
        shutil.rmtree(path.parent)
        if status == 0:
            break
        assert os.WIFSIGNALED(status), status
        nth += 1
    print(json.dumps(left))


@pytest.mark.parametrize("kind", TYPES)
def test_killed_at_any_call(tmp_path, kind):
    """The next opening makes the store's name durable, and leaves nothing beside it. The ring's two names were one file once."""
    left = json.loads(run("tests.durability.test_opening", "kill", tmp_path, kind))
    assert len(left) > 10
    if kind == "ring":
        assert any(len(files) == 2 for files in left) and any(len(files) == 1 and ".new-" in files[0] for files in left)


if __name__ == "__main__":
    what, folder, kind, *more = sys.argv[1:]
    if what == "fail":
        fail_each(Path(folder), kind, int(more[0]), more[1] == "1")
    elif what == "tools":
        fail_each_of_the_tools(Path(folder), kind, int(more[0]), more[1] == "1")
    else:
        kill_each(Path(folder), kind)
