"""A store has one owner, a process that is no fork; and what is no store stays as it is."""

import os

import pytest

from tests.durability.one_store import KINDS, bodies
from xump import Engine, StoreLocked, XumpError
from xump.testing.conformance import in_child


def test_a_second_engine_is_told_who_owns_the_store(opened):
    with opened() as engine:
        engine.create_queue("q", store="d").publish(body=b"1")
        with Engine() as other:
            with pytest.raises(StoreLocked, match=str(os.getpid())):
                other.create_store("d", opened.kind, path=str(opened.path), **KINDS[opened.kind])
            assert list(other.stores) == ["ram"] and not other.queues
        told = in_child(lambda: str(opened()))
        assert told.startswith("StoreLocked") and str(os.getpid()) in told
        assert engine.publish("q", body=b"2") == 2


def test_the_child_of_a_fork_has_no_part_in_durable_queues(opened):
    with opened() as engine:
        queue = engine.create_queue("q", store="d")
        for call in (queue.publish, engine.sync, lambda: list(queue.browse()), lambda: engine.delete_store("d")):
            assert in_child(call).startswith("ForkedError")
        assert in_child(engine.close) is None
        assert queue.publish(body=b"1") == 1
        engine.check()
    with opened() as engine:
        assert bodies(engine) == {"q": [b"1"]}


@pytest.mark.parametrize("what", ["empty file", "text", "empty directory with a file", "file above"])
def test_what_is_no_store_stays_as_it_is(opened, what):
    path = opened.path
    if what == "empty directory with a file":
        path.mkdir()
        (path / "file").write_bytes(b"something")
    elif what == "file above":
        path.write_bytes(b"something")
        path = path / "store"
    else:
        path.write_bytes(b"" if what == "empty file" else b"something else" * 1000)
    before = {str(one): one.is_file() and one.read_bytes() for one in opened.path.parent.rglob("*")}
    with Engine() as engine:
        with pytest.raises((XumpError, OSError), match="store"):
            engine.create_store("d", opened.kind, path=str(path), **KINDS[opened.kind])
        assert list(engine.stores) == ["ram"]
        engine.check()
    assert {str(one): one.is_file() and one.read_bytes() for one in opened.path.parent.rglob("*")} == before
