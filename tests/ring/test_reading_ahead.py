"""A thread reads the log ahead of its records: what comes is what the log has, however it is cut, up to any damage."""

import os
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ring.ring_engine import SEGMENT, Engine
from xump.stores import ring_segments
from xump.testing import records_by_hand as hand
from xump_ext.records import kinds, read_groups, whole_groups

SIZES = st.lists(st.one_of(st.sampled_from([0, 100, 5000]), st.sampled_from([30_000, 70_000, 200_000])), min_size=1, max_size=30)


def written(path, sizes, seed):
    """A log with a group for each size."""
    rnd, engine = random.Random(seed), Engine(path)
    engine._write([hand.queue(1, "jobs")], True)
    for id, size in enumerate(sizes, 1):
        engine._write([hand.enter(1, id, body=rnd.randbytes(size))], True)
    engine.kill()


def read_whole(segments):
    """The log in one piece: its whole groups, and what `groups` says at its end."""
    begin, stop = segments.begin, segments.reach(segments.begin)
    data = segments.read(begin, stop - begin)
    used, _, state, failed = whole_groups(data, begin, segments.salt)
    state = state if used < len(data) else "cut"
    return bytes(data[:used]), (begin + used, state, begin + used if failed is None else failed)


def read_in_pieces(segments):
    data, reader, position = bytearray(), segments.groups(segments.begin), segments.begin
    while True:
        try:
            at, view = next(reader)
        except StopIteration as stop:
            return bytes(data), stop.value
        assert at == position + len(data)
        data += view


@settings(max_examples=30)
@given(SIZES, st.integers(0, 2**32), st.sampled_from([1 << 12, 1 << 14, 1 << 16, 1 << 30]), st.booleans())
def test_the_log_comes_as_it_is(tmp_path_factory, sizes, seed, ahead, damaged):
    path = tmp_path_factory.mktemp("ring") / "a.ring"
    written(path, sizes, seed)
    if damaged:
        with path.open("r+b") as file:
            at = random.Random(seed).randrange(ring_segments.SLOTS_AT + SEGMENT // 8, path.stat().st_size)
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1]))
    fd = os.open(path, os.O_RDONLY)
    try:
        segments = ring_segments.Segments.load(fd, str(path))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ring_segments, "AHEAD_BYTES", ahead)
            assert read_in_pieces(segments) == read_whole(segments)
    finally:
        os.close(fd)


def test_who_stops_in_the_middle_leaves_no_thread(path, monkeypatch):
    written(path, [5000] * 100, 1)
    monkeypatch.setattr(ring_segments, "AHEAD_BYTES", 1 << 12)
    fd = os.open(path, os.O_RDONLY)
    try:
        segments = ring_segments.Segments.load(fd, str(path))
        reader = segments.groups(segments.begin)
        before = set(threading.enumerate())
        next(reader)
        assert [thread.name.rpartition("_")[0] for thread in set(threading.enumerate()) - before] == ["xump-read-ahead"]
        reader.close()
        assert set(threading.enumerate()) <= before
    finally:
        os.close(fd)


def test_without_a_thread_it_reads_all_the_same(path, monkeypatch):
    written(path, [5000] * 100, 1)

    def none_more(*_):
        raise RuntimeError("can't start new thread")

    fd = os.open(path, os.O_RDONLY)
    try:
        segments = ring_segments.Segments.load(fd, str(path))
        monkeypatch.setattr(ring_segments, "AHEAD_BYTES", 1 << 12)
        monkeypatch.setattr(threading.Thread, "start", none_more)
        assert read_in_pieces(segments) == read_whole(segments)
    finally:
        os.close(fd)


def test_what_cannot_be_read(path):
    path.write_bytes(bytes(100))
    fd = os.open(path, os.O_RDONLY)
    buffer = bytearray(b"\1" * kinds.HEAD.size)
    try:
        assert read_groups(fd, 96, buffer, 8, 0, 1) == (0, 0, "head", 0)
        assert buffer == b"\1" * 8 + bytes(kinds.HEAD.size - 8)        # zeros behind the end of the file
        assert read_groups(fd, 0, memoryview(buffer)[:0], 0, 8, 1) == (0, 0, "whole", None)
        with pytest.raises(ValueError, match=f"kept=99; the buffer has {kinds.HEAD.size} bytes"):
            read_groups(fd, 0, buffer, 99, 0, 1)
    finally:
        os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        read_groups(fd, 0, buffer, 0, 0, 1)
