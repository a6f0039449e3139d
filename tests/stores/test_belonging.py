"""The files that repair and compact write belong to the user and group of the store, whoever runs them."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.lmdb.small_store import a_store, data_of
from tests.ring.ring_engine import Engine, filled
from xump.stores import belonging, lmdb_repair
from xump.stores.lmdb import LmdbStore
from xump.stores.lmdb_pages import Pages
from xump.stores.ring import RingStore

STORES = {"ring": RingStore, "lmdb": LmdbStore}


def a_ring(path):
    engine = Engine(path)
    filled(engine, 1, 30)
    engine.close()


def file_of(kind, path):
    return path if kind == "ring" else data_of(path)


@pytest.fixture(params=["ring", "lmdb"])
def kind(request):
    return request.param


@pytest.fixture
def path(kind, tmp_path):
    path = tmp_path / "store"
    a_ring(path) if kind == "ring" else a_store(path, 20)
    os.chmod(file_of(kind, path), 0o600)
    return path


@pytest.fixture
def given(monkeypatch):
    """The files, by inode, that were given to the store's user, for a process of another one."""
    given = {}
    other = SimpleNamespace(st_uid=os.getuid() + 1, st_gid=os.getgid() + 1)

    def fchown(fd, user, group):
        given[os.fstat(fd).st_ino] = user, group

    monkeypatch.setattr(belonging, "os", SimpleNamespace(fstat=lambda fd: other, fchown=fchown, fchmod=os.fchmod))
    return given


def own(file):
    status = os.stat(file)
    assert status.st_mode & 0o7777 == 0o600
    return status.st_ino, (status.st_uid, status.st_gid)


def test_of_a_compacted_store(kind, path, given):
    STORES[kind].compact(str(path))
    inode, ours = own(file_of(kind, path))
    assert given[inode] == ours


def test_of_what_repair_leaves(kind, path, given, monkeypatch):
    """The store, the damaged bytes, and the damaged file as it was, also where it is a copy: durable, then."""
    file = file_of(kind, path)
    data = bytearray(file.read_bytes())
    if kind == "ring":
        data[data.index(bytes([7]) * 900)] ^= 1
    else:
        with Pages(str(file)) as pages:
            data[4096 * pages.meta.main.root] ^= 1

    def link(source, name):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(lmdb_repair.os, "link", link)
    synced = set()
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.add(os.fstat(fd).st_ino), fsync(fd))[1])
    file.write_bytes(data)
    report = STORES[kind].repair(str(path))
    assert report.damage
    left = [file, *(Path(name) for name in path.parent.glob("store.*"))]
    assert len(left) > 1
    for one in left:
        inode, ours = own(one)
        assert given[inode] == ours and inode in synced
    assert kind == "ring" or path.with_name("store.damaged-1").read_bytes() == data


def test_one_that_must_not_be_given_away(kind, path, given, monkeypatch):
    """The error says whose the files have to be, and nothing has changed."""
    def fchown(fd, user, group):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(belonging.os, "fchown", fchown)
    before = file_of(kind, path).read_bytes()
    with pytest.raises(PermissionError, match=f"belongs to user {os.getuid()} and group {os.getgid()}.*as root"):
        STORES[kind].compact(str(path))
    assert file_of(kind, path).read_bytes() == before and [one.name for one in path.parent.iterdir()] == ["store"]
