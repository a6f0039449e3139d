"""The lock by which one process owns a store: its file, readers beside each other, and a file that changes under the claim."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.durability.unhurried import unhurried
from tests.stores.toy_store import ToyStore
from xump import Engine
from xump.errors import StoreFailed, StoreLocked
from xump.stores import owner
from xump.stores.lmdb import LmdbStore
from xump.stores.owner import claim, claim_made
from xump.stores.ring import RingStore
from xump.testing.conformance import in_child


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"store")
    return str(file)


def test_an_owner_keeps_all_others_away(file):
    ours = claim(file, purpose="as store 's'")
    again = rf"^{file} is open in this process already, pid {os.getpid()}, as store 's'; a store is open once: close it first$"
    for shared in (False, True):
        with pytest.raises(StoreLocked, match=again):
            claim(file, shared=shared)
        told = in_child(lambda shared=shared: claim(file, shared=shared))
        assert told == f"StoreLocked: {file} is owned by process {os.getpid()}; one process owns a store: close it there first"
    ours.release()
    claim(file).release()


def test_another_name_in_messages(file):
    ours = claim(file, store="the store")
    with pytest.raises(StoreLocked, match="^the store is open in this process already"):
        claim(file, store="the store")
    assert in_child(lambda: claim(file, store="the store")).startswith("StoreLocked: the store is owned by process ")
    ours.release()


def test_readers_beside_each_other(file):
    ours = claim(file, shared=True)
    assert in_child(lambda: claim(file, shared=True).made) is False
    assert f"process {os.getpid()}" in in_child(lambda: claim(file))
    ours.release()


def test_a_second_release_does_nothing(file):
    first = claim(file)
    first.release()
    second = claim(file)
    first.release()
    assert in_child(lambda: claim(file)).startswith("StoreLocked")
    second.release()


def test_a_child_owns_nothing(file):
    ours = claim(file)
    assert in_child(lambda: (ours.release(remove=True), os.fstat(ours.fd).st_size)[1]) == 5
    assert os.path.exists(file)
    assert in_child(lambda: claim(file)).startswith("StoreLocked")
    ours.release()


def test_a_missing_file(tmp_path):
    file = str(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        claim(file)
    with pytest.raises(FileNotFoundError):
        claim(str(tmp_path / "no" / "file"), create=True)
    reader = claim(file, shared=True, create=True)
    assert reader.made and os.path.exists(file)
    reader.release()
    assert not os.path.exists(file), "a reader leaves no file that it made"
    ours = claim(file, create=True)
    ours.release()
    assert ours.made and os.path.exists(file)
    ours = claim(file, create=True)
    assert not ours.made
    ours.release(remove=True)
    assert not os.path.exists(file)


def test_a_reader_that_made_the_file_leaves_it_to_another_one(tmp_path):
    """Without the file a writer would make another one, and keep no reader away."""
    file = str(tmp_path / "file")
    first = claim(file, shared=True, create=True)
    (ready, says_ready), (go_on, says_go_on) = os.pipe(), os.pipe()
    if not (child := os.fork()):
        os.close(says_go_on)
        second = claim(file, shared=True, create=True)
        os.write(says_ready, b"x")
        os.read(go_on, 1)
        second.release()
        os._exit(0)
    assert os.read(ready, 1) == b"x"
    first.release()
    with pytest.raises(StoreLocked, match=f"process {child}"):
        claim(file, create=True)
    os.close(says_go_on)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    claim(file, create=True).release()
    for fd in (ready, says_ready, go_on):
        os.close(fd)


@contextmanager
def elsewhere(call):
    """A child that has called it, and keeps what it got as long as the block lasts."""
    (ready, says_ready), (go_on, says_go_on) = os.pipe(), os.pipe()
    if not (child := os.fork()):
        try:
            os.close(says_go_on)
            kept = call()
            os.write(says_ready, b"y" if kept else b"n")
            os.read(go_on, 1)
        finally:
            os._exit(0)
    os.close(says_ready)
    try:
        assert os.read(ready, 1), "the child failed"
        yield
    finally:
        os.close(says_go_on)
        os.waitpid(child, 0)
        for fd in (ready, go_on):
            os.close(fd)


@pytest.mark.parametrize("durability", ["sync", "group"])
@pytest.mark.parametrize("kind", ["ring", "lmdb"])
@pytest.mark.parametrize("then", ["nothing", "taken", "compacted", "deleted"])
def test_a_program_that_copies_its_open_store(tmp_path, kind, durability, then):
    """It loses the lock by that. Nothing is called durable that another process has overtaken, and the next sync brings the lock
    back where none has."""
    path, store = str(tmp_path / "s"), {"ring": RingStore, "lmdb": LmdbStore}[kind]
    locked, data = (path, path) if kind == "ring" else (f"{path}/owner", f"{path}/data.mdb")
    engine = Engine()
    unhurried(engine.create_store("s", kind, path=path, durability=durability))
    engine.create_queue("q", store="s")
    engine.publish("q", "first")
    engine.sync()
    (shutil.copy if kind == "ring" else shutil.copytree)(path, tmp_path / "copy")

    def publish():
        engine.publish("q", "second")
        engine.sync()

    if then == "nothing":
        publish()
        assert in_child(lambda: claim(locked)).startswith("StoreLocked")
    elif then == "taken":
        before = Path(data).read_bytes()
        with elsewhere(lambda: claim(locked)), pytest.raises(StoreFailed, match=r"process \d+.*has lost its lock"):
            publish()
        assert Path(data).read_bytes() == before, "it is the other one's"
    else:
        assert in_child(lambda: os.unlink(data) if then == "deleted" else store.compact(path).records > 0) in (None, True)
        with pytest.raises(StoreFailed, match="was deleted or replaced while it was open"):
            publish()
    engine.close()
    if then != "deleted":
        with Engine() as engine:
            engine.create_store("s", kind, path=path)
            there = [message.address for message in engine.queues["q"].browse()]
            assert there == ["first", "second"] if then == "nothing" else there[0] == "first"


def test_a_file_that_is_replaced_meanwhile(file, tmp_path, monkeypatch):
    """The claim is on the file that has the name, not on one that a repair has just put away."""
    lock = owner._lock

    def late(*arguments):
        lock(*arguments)
        monkeypatch.setattr(owner, "_lock", lock)
        (tmp_path / "new").write_bytes(b"repaired")
        os.replace(tmp_path / "new", file)

    monkeypatch.setattr(owner, "_lock", late)
    ours = claim(file)
    assert os.pread(ours.fd, 100, 0) == b"repaired"
    ours.release()


def test_a_file_before_it_has_its_name(tmp_path):
    temporary, file = tmp_path / "temporary", tmp_path / "file"
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    ours = claim_made(fd, str(temporary))
    os.rename(temporary, file)
    with pytest.raises(StoreLocked):
        claim(str(file))
    assert in_child(lambda: claim(str(file))).startswith("StoreLocked")
    ours.release()
    claim(str(file)).release()


PRINTS = """
import os, sys
from xump import Engine
with Engine() as engine:
    engine.create_store("s", sys.argv[1], path=sys.argv[2])
    engine.create_queue("q", store="s").publish("a")
    for fd in (1, 2):
        os.write(fd, b"printed" * 20_000)
"""


@pytest.mark.parametrize("again", [False, True], ids=["made", "opened"])
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-", "2>&-"])
@pytest.mark.parametrize("kind", [RingStore, LmdbStore])
def test_a_store_is_not_what_the_process_prints_into(tmp_path, kind, closed, again):
    path, count = tmp_path / "s", 2 if again else 1
    if again:
        with Engine() as engine:
            engine.create_store("s", kind.type, path=path)
            engine.create_queue("q", store="s").publish("a")
    program = [sys.executable, "-c", PRINTS, kind.type, path]
    subprocess.run(["sh", "-c", f'exec "$@" {closed}', "-", *program], check=True, capture_output=True)
    assert not kind.check(path).damage
    with Engine() as engine:
        engine.create_store("s", kind.type, path=path)
        assert engine.queues["q"].ready == count


def test_stores_use_it(tmp_path):
    store = ToyStore("toy", tmp_path / "toy")
    with pytest.raises(StoreLocked, match="open in this process already"):
        claim(str(tmp_path / "toy"))
    store.close()
