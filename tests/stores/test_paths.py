"""Paths at which no store is or can be: the errors say why, and nothing is left behind."""

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from xump import Conflict, Engine
from xump.stores.lmdb import LmdbStore
from xump.stores.ring import RingStore

TYPES = {"ring": RingStore, "lmdb": LmdbStore}


@pytest.fixture(params=TYPES)
def kind(request):
    return request.param


def everything(path):
    return sorted((str(file), os.lstat(file).st_mtime_ns) for file in path.rglob("*"))


def dangling(path):
    path.symlink_to(path.parent / "gone")
    return path


def circle(path):
    path.symlink_to(path)
    return path


def under_a_file(path):
    path.parent.joinpath("file").write_bytes(b"text")
    return path.parent / "file" / "s"


@pytest.mark.parametrize("place, error, text", [
    (dangling, FileNotFoundError, r"is a symbolic link to '.*/gone', which is not there; make that, or choose .* place: '.*/s'"),
    (circle, OSError, "is a symbolic link that leads back to itself; choose another place"),
    (lambda path: path.parent / "no" / "s", FileNotFoundError, r"there is no directory '.*/no'; make it first"),
    (lambda path: path.parent / "no" / "where" / "s", FileNotFoundError, r"there is no directory '.*/no/where'; make it first"),
    (under_a_file, NotADirectoryError, "/file' is no directory; choose another place"),
    (lambda path: "", ValueError, "path='': a path is not empty"),
    (lambda path: "a\0b", ValueError, r"path='a\\x00b': a path has no character 0"),
    (lambda path: "a\ud800b", ValueError, r"path='a\\ud800b': the file system cannot have the character '\\ud800' at 1; choose"),
    (lambda path: 7, TypeError, "path must be a str or PathLike, got 7"),
])
def test_no_place_for_a_store(tmp_path, monkeypatch, kind, place, error, text):
    given = place(tmp_path / "s")
    monkeypatch.chdir(tmp_path)
    before = everything(tmp_path)
    with Engine() as engine:
        with pytest.raises(error, match=text) as raised:
            engine.create_store("s", kind, path=given)
        assert raised.type is error and "s" not in engine.stores
    assert everything(tmp_path) == before


def test_a_name_that_is_no_text(tmp_path, kind):
    """A file's name is bytes. Python stands for those that UTF-8 cannot have with lone surrogates."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    with Engine() as engine:
        engine.create_store("s", kind, path=path)
        engine.create_queue("q", store="s")
        engine.publish("q", "a")
    store = TYPES[kind]
    assert not store.check(path).damage and not store.repair(path).damage
    store.compact(path)
    with Engine() as engine:
        engine.create_store("s", kind, path=path)
        assert engine.queues["q"].ready == 1
    assert os.listdir(os.fsencode(tmp_path)) == [b"\xff\xfe"]


def test_a_link_to_a_place_for_a_store(tmp_path, kind):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "there").symlink_to(tmp_path / "elsewhere")
    TYPES[kind]("s", path=tmp_path / "there" / "s").close()
    (tmp_path / "s").symlink_to(tmp_path / "elsewhere" / "s")
    TYPES[kind]("s", path=tmp_path / "s").close()
    assert os.listdir(tmp_path / "elsewhere") == ["s"]


DENIED = """
import os, sys
from xump import Engine
from xump.store_types import factory_of
factory_of(sys.argv[1])         # imported while everything can be read
if os.geteuid() == 0:           # root may do everything
    os.setgid(65534)
    os.setuid(65534)
engine = Engine()
for path in sys.argv[2:]:
    try:
        engine.create_store("s", sys.argv[1], path=path)
    except PermissionError as error:
        print(error)
"""


def test_a_process_without_permissions(kind):
    places = ["new", "s", "closed/s", "closed/new"]
    with tempfile.TemporaryDirectory() as name:         # open to everybody
        path = Path(name)
        (path / "closed").mkdir()
        for store in ("s", "closed/s"):
            TYPES[kind]("s", path=path / store).close()
        before = everything(path)
        modes = {file: file.stat().st_mode for file in (path, path / "closed", path / "s", *(path / "s").glob("*"))}
        try:
            for file, mode in modes.items():
                file.chmod(0 if file.name == "closed" else mode & 0o555 | 0o055)
            run = subprocess.run([sys.executable, "-c", DENIED, kind, *(str(path / place) for place in places)], text=True,
                                 capture_output=True, check=False, cwd=Path(__file__).parents[2])
        finally:
            for file, mode in modes.items():
                file.chmod(mode)
        assert everything(path) == before
        said = run.stdout.splitlines()
        assert not run.stderr and len(said) == 4
        for place, text in zip(places, said, strict=True):
            assert "Permission denied: " in text and "must be able to" in text and text.endswith(f": '{path / place}'"), text


def test_a_file_system_that_is_read_only(tmp_path, monkeypatch, kind):
    def refused(path, *_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr(os, "mkdir", refused)
    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(PermissionError, match=f"Read-only file system: .* the directory '{tmp_path}', and .*: '{tmp_path}/s'"):
        TYPES[kind]("s", path=tmp_path / "s")
    assert not os.listdir(tmp_path)


# ---- where a relative path leads

def test_a_relative_path_is_where_it_was(tmp_path, monkeypatch, kind):
    """The process may go to another directory: the same words are another place then, and other words the same."""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with Engine() as engine:
        store = engine.create_store("s", kind, path="s")
        assert engine.create_store("s", kind, path="./s") is store
        described = engine.topology()
        assert described["stores"]["s"]["path"] == "s", "as it was written"
        engine.apply(described)
        monkeypatch.chdir(tmp_path / "other")
        assert engine.create_store("s", kind, path="../s") is store
        assert engine.create_store("s", kind, path=tmp_path / "s") is store
        with pytest.raises(Conflict, match=rf"'path': '{tmp_path}/s'.*; you asked for type '{kind}' and .*'{tmp_path}/other/s'"):
            engine.create_store("s", kind, path="s")
        with pytest.raises(Conflict, match="store 's' exists with type"):
            engine.apply(described)
    assert not os.listdir(tmp_path / "other")
