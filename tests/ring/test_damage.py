"""Rings cut anywhere, or with any bit flipped. They open with the same content, or lose an unsynced tail, or raise StoreCorrupt;
then a repair loses the damaged record and no other."""

import itertools
import os
import random
from pathlib import Path

import pytest

from xump_ext.records import kinds
from xump.testing import records_by_hand as hand
from tests.ring.ring_engine import SEGMENT, Engine, State, content_of, records_of
from tests.ring.ring_faults import Quick
from xump.errors import StoreCorrupt, StoreFailed
from xump.stores import ring_disk
from xump.stores.ring import RingStore
from xump.stores.ring_file import COPY_AT, HEAD_BYTES, SLOTS_AT

LOG_AT = SLOTS_AT + HEAD_BYTES


def put(path, data):
    """Writes all bytes of a small ring; behind them are zeros."""
    with path.open("r+b") as file:
        file.write(data[:16384])


def small_ring(path, closed=True):
    """A few groups with all kinds of records in the first segment: their starts, and the file's bytes."""
    engine = Engine(path)
    starts = []
    for records in (
        [hand.queue(1, "jobs", dead_letter="dead"), hand.state(1, 1), hand.queue(2, "more")],
        [hand.enter(1, 1, "a.b", b"first", reply_to="r"), hand.enter(1, 2, body=b"second" * 10), hand.enter(2, 1)],
        [hand.settle(1, 1), hand.mark(1, 2, 3)],
        [hand.enter(1, 3, body=b"third"), hand.state(1, 4, 4)],
        [hand.settle(2, 1), hand.gone(2), hand.enter(1, 4, body=b"the last")],
    ):
        starts.append(engine.store.end)
        engine.write(*records)
    starts.append(engine.store.end)
    if closed:
        engine.close()
    else:
        engine.kill()
    return starts, path.read_bytes()


def content_of_groups(data, starts, count, without=None):
    """The content of the first groups, without the record at a position."""
    state = State()
    log = data[LOG_AT : LOG_AT + starts[count]]
    for start, end in itertools.pairwise(starts[: count + 1]):
        parts = [raw for at, raw in records_of(log[start:end], start) if at != without or raw[6] == kinds.GROUP]
        state.apply(b"".join(parts), 0)
    return state.content()


def test_every_cut_of_the_tail(tmp_path):
    path = tmp_path / "cut.ring"
    starts, data = small_ring(path, closed=False)
    synced = starts[-2]     # the last group says that all before it was
    for filling in (b"\0", b"\xa5"):
        for cut in range(starts[0], starts[-1] + 1):
            torn = data[: LOG_AT + cut] + filling * (16384 - LOG_AT - cut)
            put(path, torn)
            groups = max(n for n, start in enumerate(starts) if torn[: LOG_AT + start] == data[: LOG_AT + start])
            content, gone = content_of(path)
            assert content == content_of_groups(data, starts, groups)
            assert gone <= starts[-1] - starts[groups]
            whole_words = filling == b"\0" and cut % 8 == 0 and cut > starts[groups]      # a disk tears between sectors
            if whole_words or cut >= starts[groups] + kinds.HEAD.size:
                assert gone > 0
            engine = Engine(path)       # and it stays cut off
            assert engine.store.cut == 0 and engine.store.end == starts[groups]
            engine.write(hand.state(1, 9))
            content = engine.state.content()
            engine.close()
            assert content_of(path) == (content, 0)
    assert synced < starts[-1]


@pytest.mark.parametrize("closed", [True, False])
def test_every_cut_of_the_file(tmp_path, closed):
    """No crash leaves a ring shorter than it was made: also one that is cut between two groups is damaged, or behind the last."""
    path = tmp_path / "short.ring"
    starts, data = small_ring(path, closed)
    whole = content_of_groups(data, starts, len(starts) - 1)
    places = [LOG_AT + start for start in starts]
    for size in [*range(0, places[-1] + 8, 7), *places, *range(places[-1], len(data), 3001)]:
        path.write_bytes(data[:size])
        with pytest.raises(StoreCorrupt):
            content_of(path)
        assert path.read_bytes() == data[:size]
        if size >= places[-1] and size % 5 == 0:
            assert RingStore.check(path).damage and RingStore.repair(path).damage
            content, cut = content_of(path)
            assert (honest(content, whole), cut) == (whole, 0)
    path.write_bytes(data)
    assert content_of(path) == (whole, 0)


def expected(data, starts, at):
    """The record that a flipped bit in that byte of the file damages, by its position, or None; and the content after a
    repair."""
    position = at - LOG_AT
    count = len(starts) - 1
    if not 0 <= position < starts[-1]:
        return None, content_of_groups(data, starts, count)
    hit = max(start for start, _ in records_of(data[LOG_AT : LOG_AT + starts[-1]], 0) if start <= position)
    return hit, content_of_groups(data, starts, count, hit)


def flip(path, data, at, bit):
    damaged = bytearray(data)
    damaged[at] ^= 1 << bit
    put(path, damaged)
    return bytes(damaged)


def honest(content, left):
    """The content of a repaired ring, without the marks on messages that may have been handed out."""
    marks = {key: said for key, said in content.items() if key[0] == kinds.MARK and said != left.get(key)}
    for (_, queue, id), (flags, _, text) in marks.items():
        assert flags == kinds.REDELIVERED and int.from_bytes(text[:4], "little") >= 1
        assert (kinds.ENTER, queue, id) in content and not content[kinds.ENTER, queue, id][0] & kinds.HISTORIC
    return {key: said for key, said in content.items() if key not in marks or key in left} | {
        key: left[key] for key in marks if key in left}


def opened_or_repaired(path, damaged, hit, left, bounds):
    """Opens a ring with one bit flipped in the record at `hit`, and repairs it if needed."""
    if hit is None:
        assert content_of(path) == (left, 0)
        return
    with pytest.raises(StoreCorrupt, match=f"run: xump repair {path}") as caught:
        content_of(path)
    assert "position" in str(caught.value)
    assert path.read_bytes() == damaged
    checked = RingStore.check(path)
    assert path.read_bytes() == damaged
    report = RingStore.repair(path)
    assert report.damage[: len(checked.damage)] == checked.damage
    lost = [one for one in report.damage if one.bytes]
    assert [one.position for one in lost] == [hit] and lost[0].bytes == bounds[hit]
    assert Path(report.quarantine).read_bytes() == damaged[LOG_AT + hit : LOG_AT + hit + bounds[hit]]
    content, cut = content_of(path)
    content = honest(content, left)
    assert cut == 0
    named = {number for kind, number, _ in left if kind == kinds.QUEUE}
    nameless = {number for _, number, _ in left} - named
    assert [one.queue for one in report.damage if not one.bytes] == sorted(nameless)
    names = {key: value for key, value in content.items() if key[0] == kinds.QUEUE and key[1] in nameless}
    assert all(b"recovered-%d" % key[1] in value[2] for key, value in names.items()) and len(names) == len(nameless)
    assert {key: value for key, value in content.items() if key not in names} == left
    assert RingStore.check(path).damage == []


def bounds_of(data, starts):
    return {at: len(raw) for at, raw in records_of(data[LOG_AT : LOG_AT + starts[-1]], 0)}


def test_every_byte_with_a_flipped_bit(tmp_path):
    path = tmp_path / "flip.ring"
    starts, data = small_ring(path)
    bounds = bounds_of(data, starts)
    for at in [*range(HEAD_BYTES), *range(COPY_AT, COPY_AT + HEAD_BYTES), *range(SLOTS_AT, LOG_AT + starts[-1] + 16)]:
        damaged = flip(path, data, at, random.Random(at).randrange(8))
        hit, left = expected(data, starts, at)
        if hit is not None and at % 3:      # a third gets a repair, all get an opening
            with pytest.raises(StoreCorrupt, match="at position"):
                content_of(path)
            assert path.read_bytes() == damaged
        else:
            opened_or_repaired(path, damaged, hit, left, bounds)


def test_every_bit_of_two_groups(tmp_path):
    path = tmp_path / "bits.ring"
    starts, data = small_ring(path)
    bounds = bounds_of(data, starts)
    for at in range(LOG_AT + starts[2], LOG_AT + starts[3] + 56 + 40):
        hit, left = expected(data, starts, at)
        for bit in range(8):
            damaged = flip(path, data, at, bit)
            if bit == at % 8:
                opened_or_repaired(path, damaged, hit, left, bounds)
            else:
                with pytest.raises(StoreCorrupt):
                    content_of(path)


def test_a_flipped_bit_in_a_ring_that_was_not_closed(tmp_path):
    """The last group may go as a torn tail, since no record says that it was synced. All before it may not."""
    path = tmp_path / "open.ring"
    starts, data = small_ring(path, closed=False)
    for at in range(LOG_AT, LOG_AT + starts[-1]):
        damaged = flip(path, data, at, random.Random(at).randrange(8))
        if at - LOG_AT < starts[-2]:
            with pytest.raises(StoreCorrupt):
                content_of(path)
            assert path.read_bytes() == damaged
        else:
            content, cut = content_of(path)
            assert content == content_of_groups(data, starts, len(starts) - 2) and cut > 0


def large_ring(path):
    """Several segments, groups that straddle them, one that fills more than one. The content, and the file's bytes."""
    engine = Engine(path)
    engine.write(hand.queue(1, "jobs"))
    for n in range(1, 60):
        engine.write(hand.enter(1, n, body=bytes([n]) * (n * 131 % 9000)))
    engine.write(hand.enter(1, 60, body=b"giant" * 40_000))
    for n in range(61, 70):
        engine.write(hand.enter(1, n, body=bytes([n]) * 5000))
    content, where = engine.state.content(), dict(engine.state.live)
    slots, capacity = dict(engine.store._segments.slot_of), engine.store._segments.capacity
    engine.close()
    return content, where, slots, capacity


def test_heads_of_segments_are_mended(tmp_path, caplog):
    path = tmp_path / "heads.ring"
    content, _, slots, _ = large_ring(path)
    data = path.read_bytes()
    for number, slot in slots.items():
        for damage in (b"\0" * HEAD_BYTES, b"\xa5" * HEAD_BYTES, bytes([data[SLOTS_AT + slot * SEGMENT] ^ 1])):
            at = SLOTS_AT + slot * SEGMENT
            path.write_bytes(data[:at] + damage + data[at + len(damage) :])
            assert [one.bytes for one in RingStore.check(path).damage] == [HEAD_BYTES] or damage[0] == 0
            caplog.clear()
            try:
                assert content_of(path) == (content, 0)
            except StoreCorrupt as error:       # no record begins in it and it is blank: it could be any slot
                assert damage[0] == 0 and f"segment {number} of the log is missing" in str(error)
                continue
            assert "mended" in caplog.text
            assert RingStore.check(path).damage == []
            path.write_bytes(data[:at] + damage + data[at + len(damage) :])
            assert RingStore.repair(path).quarantine is None
            assert RingStore.check(path).damage == []


@pytest.mark.parametrize("closed", [True, False])
def test_zeros_over_the_beginning_of_the_log(tmp_path, closed):
    """A used slot must not pass for one that was never used, and the log for an empty one."""
    path = tmp_path / "wiped.ring"
    starts, data = small_ring(path, closed)
    whole = content_of_groups(data, starts, len(starts) - 1)
    for size in [HEAD_BYTES, *range(HEAD_BYTES + 8, HEAD_BYTES + starts[-2] + 1, 8)]:
        put(path, data[:SLOTS_AT] + bytes(size) + data[SLOTS_AT + size :])
        if size == HEAD_BYTES:
            assert content_of(path) == (whole, 0)
            continue
        assert RingStore.check(path).damage
        with pytest.raises(StoreCorrupt):
            content_of(path)
        assert RingStore.repair(path).damage
        content_of(path)


def test_zeros_over_the_beginning_of_the_last_segment(tmp_path):
    """Groups behind them tell that the log had gone on there."""
    path = tmp_path / "wiped.ring"
    engine = Engine(path)
    capacity = SEGMENT - HEAD_BYTES
    id = 0
    while engine.store.end < 2 * capacity + 4000:
        id += 1
        engine.write(hand.enter(1, id, body=bytes(1000)))
    engine.kill()
    data = path.read_bytes()
    at = SLOTS_AT + 2 * SEGMENT
    assert data[at : at + 8] == b"XUMPSEGM"
    for size in (512, 2048):
        path.write_bytes(data[:at] + bytes(size) + data[at + size :])
        with pytest.raises(StoreCorrupt):
            content_of(path)
        assert RingStore.check(path).damage
    path.write_bytes(data)
    content_of(path)


def test_damage_anywhere_in_a_large_ring(tmp_path):
    path = tmp_path / "large.ring"
    content, where, slots, capacity = large_ring(path)
    data, end = path.read_bytes(), max(at + length for at, length, _ in where.values())
    for seed in range(25):
        rnd = random.Random(seed)
        damaged, hits = bytearray(data), set()
        for _ in range(rnd.choice([1, 1, 2, 4])):
            position = rnd.randrange(end)
            number, offset = divmod(position, capacity)
            at = SLOTS_AT + slots[number] * SEGMENT + HEAD_BYTES + offset
            size = min(rnd.choice([1, 1, 8, 600]), capacity - offset, end - position)
            damaged[at : at + size] = bytes(255 ^ byte for byte in damaged[at : at + size])
            hits |= {key for key, (start, length, _) in where.items() if start < position + size and position < start + length}
        path.write_bytes(damaged)
        with pytest.raises(StoreCorrupt):
            content_of(path)
        report = RingStore.repair(path)
        found, cut = content_of(path)
        found = honest(found, content)
        lost = hits - {(kinds.QUEUE, 1, 0)}
        assert cut == 0 and len(found) == len(content) - len(lost)
        assert {key: value for key, value in content.items() if key not in hits} == {
            key: value for key, value in found.items() if key not in hits}
        assert {(one.queue, one.id) for one in report.damage if one.id} <= {key[1:] for key in hits}


def test_a_missing_segment_is_reported(tmp_path):
    path = tmp_path / "gap.ring"
    content, where, slots, capacity = large_ring(path)
    data = bytearray(path.read_bytes())
    at = SLOTS_AT + slots[1] * SEGMENT
    data[at : at + SEGMENT] = bytes(SEGMENT)
    path.write_bytes(data)
    with pytest.raises(StoreCorrupt, match="segment 1 of the log is missing"):
        content_of(path)
    report = RingStore.repair(path)
    hits = {key for key, (start, length, _) in where.items() if start < 2 * capacity and capacity < start + length}
    left = {key: value for key, value in content.items() if key not in hits}
    found = content_of(path)[0]
    assert hits and honest(found, left) == left
    assert any("missing" in one.what for one in report.damage)
    before = {key[2] for key, (start, _, _) in where.items() if key in left and key[0] == kinds.ENTER and start < capacity}
    assert {key[2] for key in found if key[0] == kinds.MARK} == before      # but no message that entered after the lost records
    assert report.remains[1].doubtful == len(before) and report.remains[1].messages == len(left) - 1
    assert report.lost >= 1


def test_both_superblocks(tmp_path):
    path = tmp_path / "super.ring"
    starts, data = small_ring(path)
    damaged = bytearray(data)
    damaged[40] ^= 1
    damaged[COPY_AT + 40] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(StoreCorrupt, match=f"run: xump repair {path}"):
        content_of(path)
    report = RingStore.repair(path)
    assert "superblocks" in report.damage[0].what and report.quarantine is None
    assert content_of(path) == (content_of_groups(data, starts, len(starts) - 1), 0)


def test_a_whole_ring_is_not_changed(tmp_path):
    path = tmp_path / "whole.ring"
    starts, data = small_ring(path)
    calls = []
    report = RingStore.repair(path, lambda done, size: calls.append((done, size)))
    assert path.read_bytes() == data and list(tmp_path.iterdir()) == [path]
    assert (report.damage, report.cut, report.quarantine) == ([], 0, None)
    assert report.records == 13 and report.bytes == starts[-1]
    assert calls and calls[-1][0] == calls[-1][1]


class Dying(Quick):
    """The nth call is the process's last."""

    def __init__(self, nth):
        self.left = nth

    def _dies(self):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def pwrite(self, *arguments):
        self._dies()
        return os.pwrite(*arguments)

    def fdatasync(self, fd):
        self._dies()

    fsync = fdatasync


def test_a_crash_during_repair_leaves_one_that_can_be_repaired(tmp_path, monkeypatch):
    path = tmp_path / "again.ring"
    starts, data = small_ring(path)
    at = LOG_AT + starts[1] + 60
    nth, done = 0, False
    while not done:
        nth += 1
        flip(path, data, at, 3)

        monkeypatch.setattr(ring_disk, "os", Dying(nth))
        try:
            RingStore.repair(path)
            done = True
        except KeyboardInterrupt:
            pass
        monkeypatch.setattr(ring_disk, "os", Quick())
        RingStore.repair(path)
        assert content_of(path)[0] == expected(data, starts, at)[1]
    assert nth > 8


def test_what_is_fetched_is_verified(tmp_path):
    path = tmp_path / "fetch.ring"
    _, where, slots, capacity = large_ring(path)
    engine = Engine(path)
    position, _, _ = where[kinds.ENTER, 1, 30]
    with pytest.raises(KeyError, match="message 31 of queue 1 is not at position"):
        engine.store.fetch(1, 31, position)
    with pytest.raises(StoreCorrupt, match="no record"):
        engine.store.fetch(1, 30, position + 8)
    with pytest.raises(KeyError):
        engine.store.fetch(1, 30, engine.store.end)
    number, offset = divmod(position, capacity)
    with path.open("r+b") as file:
        file.seek(SLOTS_AT + slots[number] * SEGMENT + HEAD_BYTES + offset + 100)
        file.write(b"\xff\x00")
    with pytest.raises(StoreCorrupt, match="damaged payload"):
        engine.fetch(1, 30)
    for id in (29, 31, 60):
        engine.fetch(1, id)
    engine.kill()


def test_damage_is_not_copied_forward(tmp_path):
    path = tmp_path / "copy.ring"
    engine = Engine(path)
    engine.write(hand.queue(1, "jobs"))
    engine.write(hand.enter(1, 1, body=bytes(1000)))
    with path.open("r+b") as file:
        file.seek(LOG_AT + engine.state.live[kinds.ENTER, 1, 1][0] + 200)
        file.write(b"x")
    with pytest.raises(StoreCorrupt, match="payload"):
        for n in range(2, 100):
            engine.write(hand.enter(1, n, body=bytes(8000)), hand.settle(1, n))
    assert kinds.HEAD.size == 32 and not isinstance(engine.store._barred, StoreFailed)
    engine.kill()


@pytest.mark.parametrize("behind", [0, 1, 3])
def test_a_beginning_that_a_power_failure_took(tmp_path, behind):
    """Under "none" the superblock may be on the disk, and the segment where the log begins not. Nothing says then that the log
    was synced any further; it is damage all the same, with whatever there is behind it."""
    engine = Engine(tmp_path / "ring", durability="none")
    engine.sync = lambda: None
    engine.write(hand.queue(1, "jobs"), hand.state(1, 1), sync=False)
    id = 0
    while engine.store._segments.begin // engine.store._segments.capacity < 2:
        id += 1
        old = [hand.settle(1, id - 6)] if id > 6 else []
        engine._write([hand.enter(1, id, body=bytes([id & 255]) * 9000), *old], sync=False)
        engine.clean()
    first = engine.store._segments.begin // engine.store._segments.capacity
    while engine.store.end // engine.store._segments.capacity < first + behind:
        id += 1
        engine._write([hand.enter(1, id, body=bytes([id & 255]) * 9000)], sync=False)
    segments, live = engine.store._segments, engine.state.content()
    assert segments.begin % segments.capacity
    data = bytearray((tmp_path / "ring").read_bytes())
    taken = [number for number in segments.slot_of if number == first or number > first + behind]
    for number in taken:
        at = segments.at(segments.slot_of[number])
        data[at : at + SEGMENT] = bytes(SEGMENT)
    places = {key: at // segments.capacity for key, (at, _, _) in engine.state.live.items()}
    engine.kill()
    (tmp_path / "ring").write_bytes(data)
    with pytest.raises(StoreCorrupt, match=f"segment {first} of the log is missing; .* xump repair"):
        Engine(tmp_path / "ring")
    damage = RingStore.check(tmp_path / "ring").damage
    assert damage and not any(one.harmless for one in damage)
    assert RingStore.repair(tmp_path / "ring").damage
    assert not RingStore.check(tmp_path / "ring").damage
    found, _ = content_of(tmp_path / "ring")
    kept = {key for key in live if key[0] == kinds.ENTER and first < places[key] < first + behind}
    assert kept <= set(found) and (behind < 3 or kept)
    assert all(found[key] == live[key] for key in kept)
