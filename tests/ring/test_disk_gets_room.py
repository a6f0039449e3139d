"""A disk that was full has room again: the store sees it, although a full store writes nothing meanwhile."""

import errno
import os

import pytest

from xump import Engine, StoreFull
from xump.stores.ring_segments import Segments

SEGMENT = 1 << 16


@pytest.fixture
def disk(monkeypatch):
    """disk(bytes) says how much the disk has free."""
    real = os.statvfs

    def says(free):
        def statvfs(path):
            values = list(real(path))
            values[4] = free // values[1]
            return os.statvfs_result(values)
        monkeypatch.setattr(os, "statvfs", statvfs)
    return says


def filled(engine):
    """Fills the store a message at a time. A disk that lies about its free space fails a store which has taken more messages than
    its file can be made for, before the file has tried to grow."""
    while True:
        try:
            engine.publish("q", "", bytes(5_000))
            engine.sync()
        except StoreFull:
            return


@pytest.fixture
def engine(tmp_path, disk):
    disk(1 << 20)
    with Engine() as engine:
        engine.create_store("disk", "ring", path=str(tmp_path / "ring"), min_bytes=0, segment_bytes=SEGMENT)
        engine.create_queue("q", store="disk", unmatched="keep")
        yield engine


def test_a_call_that_lacks_room_asks_the_disk_again(engine, disk):
    disk(0)
    filled(engine)
    with pytest.raises(StoreFull):
        engine.publish("q", "", bytes(5_000))
    disk(1 << 24)
    assert engine.publish("q", "", bytes(5_000))


def test_a_file_that_could_not_grow_grows_when_the_disk_has_a_segment_more(engine, disk, monkeypatch):
    grow = Segments.grow

    def fails(segments, count):
        raise OSError(errno.ENOSPC, "no space left on device")

    disk(1 << 20)
    monkeypatch.setattr(Segments, "grow", fails)
    filled(engine)
    monkeypatch.setattr(Segments, "grow", grow)
    with pytest.raises(StoreFull):
        engine.publish("q", "", bytes(5_000))           # the disk says the same as when it refused
    disk((1 << 20) + 20 * SEGMENT)
    assert engine.publish("q", "", bytes(5_000))
