"""The ring on a disk that fails, loses power, or whose process is killed: all groups that were synced are there, each of them
whole."""

import errno
import random
import signal
import subprocess
import sys

import pytest

from xump.testing import records_by_hand as hand
from tests.ring.ring_engine import SEGMENT, Engine, content_of
from tests.ring.ring_faults import Failing, Power, Quick
from xump.errors import StoreFailed, StoreFull
from xump.stores import ring_disk
from xump.stores.ring import RingStore
from xump.stores.ring_file import COPY_AT, HEAD_BYTES, SLOTS_AT
from xump.stores.ring_file import SEGMENT as SEGMENT_MAGIC
from xump_ext.store import Demand


class Program:
    """Enters and settles at random, laps, grows, shrinks, closes and opens; keeps the content after each group."""

    def __init__(self, path, rnd, **options):
        self.path, self.rnd, self.options = path, rnd, options
        self.contents = [{}]
        self.synced = 0
        self.engine = None
        self.next_id = 1

    def open(self):
        self.engine = Engine(self.path, **self.options)
        self._noted(True)
        write, sync = self.engine.store.write, self.engine.store.sync

        def noted_write(batch):
            self.engine.state.apply(batch, batch.position)
            self.contents.append(self.engine.state.content())       # it may be there even where the write fails
            write(batch)

        def noted_sync():
            number = len(self.contents) - 1
            sync()
            self.synced = number

        self.engine.store.write, self.engine.store.sync = noted_write, noted_sync

    def _noted(self, synced):
        self.contents.append(self.engine.state.content())
        if synced:
            self.synced = len(self.contents) - 1

    def step(self):
        rnd, engine = self.rnd, self.engine
        what = rnd.random()
        messages = engine.state.messages()
        if self.next_id == 1:
            engine.write(hand.queue(1, "jobs"), hand.state(1, 1))
        if what < 0.5:
            sizes = [rnd.choice([8, 100, 3000, 9000]) for _ in range(rnd.choice([1, 2, 6]))]
            if engine.has_room(sum(sizes) + 200 * len(sizes), max(sizes)):
                records = [hand.enter(1, self.next_id + n, body=rnd.randbytes(size)) for n, size in enumerate(sizes)]
                self.next_id += len(sizes)
                engine.write(*records, sync=rnd.random() < 0.6)
        elif what < 0.93 and messages:
            count = min(len(messages), rnd.choice([1, 4, 12]))
            taken = messages[:count] if rnd.random() < 0.6 else rnd.sample(messages, count)
            engine.write(*(hand.settle(*message) for message in taken), sync=rnd.random() < 0.6)
        elif what < 0.96:
            engine.sync()
        elif what < 0.98:
            engine.close()
            self.open()

    def check(self, content):
        """One of the states since the last sync."""
        assert content in self.contents[self.synced :]


def run_program(program, steps):
    program.open()
    for _ in range(steps):
        program.step()
    program.engine.close()


def refuses_all(store):
    batch = hand.batch(hand.Log(store.salt, store.end), hand.state(1, 1))
    for refused in (lambda: RingStore.write(store, batch), lambda: RingStore.sync(store),
                    lambda: store.oldest(Demand(0, 0, 0, 0)), store.room, lambda: store.release(0)):
        with pytest.raises(StoreFailed, match="open it anew"):
            refused()


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("kind", [errno.EIO, errno.ENOSPC, "short"])
def test_the_nth_call_of_the_disk_fails(tmp_path, monkeypatch, kind, forever):
    nth = failures = 0
    disk = None
    while disk is None or disk.failed:
        nth += 1 if nth < 40 else 5
        path = tmp_path / f"{nth}.ring"
        disk = Failing(nth, kind, forever)
        monkeypatch.setattr(ring_disk, "os", disk)
        program = Program(path, random.Random(5), max_bytes=12 * SEGMENT)
        try:
            run_program(program, 110)
        except (StoreFailed, StoreFull, OSError) as error:
            failures += 1
            assert isinstance(error, (StoreFailed, StoreFull)) or not path.exists() or program.engine is None
            if isinstance(error, StoreFailed):
                assert isinstance(error.__cause__, OSError)
        if not path.exists():
            assert disk.failed and list(tmp_path.iterdir()) == []
            continue
        store = program.engine.store if program.engine is not None else None
        if store is not None and isinstance(store._barred, StoreFailed):
            calls = disk.calls
            refuses_all(store)
            assert disk.calls == calls      # nothing is tried again
            program.engine.kill()
        monkeypatch.setattr(ring_disk, "os", Quick())
        program.check(content_of(path)[0])
        path.unlink()
    assert failures > 20


@pytest.mark.parametrize("seed", range(10))
def test_power_fails(tmp_path, monkeypatch, seed):
    rnd = random.Random(seed)
    path, image = tmp_path / "power.ring", tmp_path / "image.ring"
    power = Power(path)
    monkeypatch.setattr(ring_disk, "os", power)
    program = Program(path, rnd, max_bytes=rnd.choice([6, 9, 30]) * SEGMENT)
    program.open()
    power.all_durable()
    seen = []

    def fails():
        if rnd.random() > 0.5:
            return
        image.write_bytes(power.image(rnd))
        monkeypatch.setattr(ring_disk, "os", Quick())
        content, cut = content_of(image)
        program.check(content)
        seen.append(cut)
        # A tail that was cut off never comes back, even when other groups are written in its place.
        again = Engine(image)
        assert again.store.cut == 0 and again.state.content() == content
        again.write(hand.state(1, 1))
        content = again.state.content()
        again.kill()
        assert content_of(image) == (content, 0)
        monkeypatch.setattr(ring_disk, "os", power)

    power.changed = fails
    for _ in range(250):
        program.step()
    program.engine.close()
    assert len(seen) > 50 and sum(map(bool, seen)) > 5


def test_power_fails_while_a_torn_tail_is_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(ring_disk, "os", Quick())
    path, image = tmp_path / "a.ring", tmp_path / "image.ring"
    engine = Engine(path)
    engine.write(hand.queue(1, "jobs"))
    start = engine.store.end
    synced = engine.state.content()
    for n in range(1, 30):
        engine.write(hand.enter(1, n, body=bytes(6000)), sync=False)
    engine.kill()
    torn = bytearray(path.read_bytes())
    at = torn.index(start.to_bytes(8, "little") + (2).to_bytes(8, "little"))
    torn[at + 100] ^= 1     # in the second group: all behind it has to go
    for seed in range(30):
        rnd = random.Random(seed)
        path.write_bytes(torn)
        power = Power(path)
        power.all_durable()
        monkeypatch.setattr(ring_disk, "os", power)
        engine = Engine(path)
        assert engine.store.cut > 100_000 and engine.state.content() == synced
        engine.kill()
        image.write_bytes(power.image(rnd))
        assert content_of(image)[0] == synced


WRITER = """
import sys
from xump.testing import records_by_hand as hand
from tests.ring.ring_engine import Engine, SEGMENT
engine = Engine(sys.argv[1], max_bytes=8 * SEGMENT)
if not engine.state.live:
    engine.write(hand.queue(1, "jobs"))
first = max((id for _, id in engine.state.messages()), default=0)
for n in range(first + 1, first + 100_000):
    engine.write(hand.enter(1, 2 * n, body=b"x" * (n % 700)), hand.enter(1, 2 * n + 1, body=b"y" * 300))
    if n - first > 20:
        engine.write(hand.settle(1, 2 * (n - 20), 2))
    print(2 * n, flush=True)
"""


def test_a_writer_is_killed(tmp_path):
    path = tmp_path / "killed.ring"
    for seed in range(12):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        confirmed = [int(process.stdout.readline()) for _ in range(random.Random(seed).randrange(1, 60))]
        process.send_signal(signal.SIGKILL)
        confirmed += [int(line) for line in process.stdout.read().split()]
        process.wait()
        process.stdout.close()
        engine = Engine(path)
        messages = {id for _, id in engine.state.messages()}
        assert {id for id in confirmed[-15:] if id >= confirmed[0]} <= messages
        assert all((id ^ 1) in messages for id in messages)         # groups are whole
        for id in sorted(messages):
            engine.fetch(1, id)
        engine.close()


def ring_of_three_segments(path, monkeypatch):
    """A killed ring, of which only the first messages were synced."""
    monkeypatch.setattr(ring_disk, "os", Quick())
    engine = Engine(path)
    engine.write(hand.queue(1, "jobs"))
    for n in range(1, 30):
        engine.write(hand.enter(1, n, body=b"old" * 2000), sync=n < 8)
    assert engine.store._segments.slot_of == {0: 0, 1: 1, 2: 2}
    engine.kill()


def wipe(path, slot, size):
    with path.open("r+b") as file:
        file.seek(SLOTS_AT + slot * SEGMENT)
        file.write(bytes(size))


@pytest.mark.parametrize(("size", "messages"), [(HEAD_BYTES, 29), (512, 21), (8192, 21)])
def test_the_last_segment_is_found_though_its_head_was_lost(tmp_path, monkeypatch, size, messages):
    """It was not synced, so a power failure may take part of it: a torn tail."""
    path = tmp_path / "a.ring"
    ring_of_three_segments(path, monkeypatch)
    wipe(path, 2, size)
    engine = Engine(path)
    assert len(engine.state.messages()) == messages and bool(engine.store.cut) == (messages < 29)
    engine.write(hand.enter(1, 30, body=b"new" * 2000), sync=False)
    content = engine.state.content()
    engine.kill()
    assert content_of(path) == (content, 0)


def test_remains_of_a_segment_behind_one_that_was_lost(tmp_path, monkeypatch):
    """The last segment has lost its head, and the one before it everything, so its slot looks empty when it is opened. Groups as
    long as the lost ones are written in their place: nothing joins up with them."""
    path = tmp_path / "a.ring"
    ring_of_three_segments(path, monkeypatch)
    wipe(path, 1, SEGMENT)
    wipe(path, 2, HEAD_BYTES)
    power = Power(path)
    monkeypatch.setattr(ring_disk, "os", power)
    engine = Engine(path)
    kept = len(engine.state.messages())
    assert 8 <= kept < 12
    while len(engine.store._segments.slot_of) < 3:
        kept += 1
        engine.write(hand.enter(1, kept, body=b"new" * 2000), sync=False)
    assert bytes(SEGMENT) not in [data for _, data in power.pending]       # the zeros are durable before the group is written
    content = engine.state.content()
    engine.kill()
    assert content_of(path) == (content, 0)


def test_a_release_waits_for_the_settling(tmp_path, monkeypatch):
    """Messages are settled, and their space is released; the superblocks reach the disk and the settling does not."""
    path = tmp_path / "a.ring"
    power = Power(path)
    monkeypatch.setattr(ring_disk, "os", power)
    engine = Engine(path)
    power.all_durable()
    for n in range(1, 30):
        engine.write(hand.enter(1, n, body=bytes(6000)))
    content, segments = engine.state.content(), engine.store._segments
    engine._write([hand.settle(1, 1, 29)], False)
    engine.store.release(engine.store.end)
    assert len(segments.released) > 1 and not segments.resting
    power.pending = [change for change in power.pending if change[0] < SLOTS_AT]
    (tmp_path / "image.ring").write_bytes(power.image(random.Random(0)))
    assert content_of(tmp_path / "image.ring")[0] == content
    number = engine.store.end // segments.capacity + 1
    n = 30
    while number not in segments.slot_of:
        engine._write([hand.enter(1, n, body=bytes(6000))], False)
        n += 1
    power.pending = [(at, data[:HEAD_BYTES]) for at, data in power.pending if data[:8] == SEGMENT_MAGIC]
    assert len(power.pending) == 1      # nor does the head of the next segment say too much
    (tmp_path / "image.ring").write_bytes(power.image(random.Random(1)))
    assert content_of(tmp_path / "image.ring")[0] == content
    free = len(segments.free)
    engine.sync()
    assert len(segments.resting) > 1 and len(segments.free) == free     # the superblock is not durable yet
    engine.sync()
    assert len(segments.free) > free
    engine.kill()


def test_found_records_are_durable(tmp_path, monkeypatch):
    """Opening syncs the groups that a killed process had written and not synced."""
    path = tmp_path / "a.ring"
    power = Power(path)
    monkeypatch.setattr(ring_disk, "os", power)
    engine = Engine(path)
    power.all_durable()
    for n in range(1, 30):
        engine.write(hand.enter(1, n, body=bytes(6000)), sync=False)
    engine.kill()
    engine = Engine(path)
    assert len(engine.state.messages()) == 29
    (tmp_path / "image.ring").write_bytes(power.durable)
    assert content_of(tmp_path / "image.ring")[0] == engine.state.content()
    engine.kill()


def test_one_superblock_is_always_durable(tmp_path, monkeypatch):
    path = tmp_path / "a.ring"
    power = Power(path)
    monkeypatch.setattr(ring_disk, "os", power)
    for durability in ("none", "process", "group"):
        engine = Engine(path, durability=durability, max_bytes=6 * SEGMENT)
        for n in range(1, 300):
            engine.write(hand.enter(1, n, body=bytes(6000)), hand.settle(1, n), sync=durability == "group")
            assert len({at for at, _ in power.pending} & {0, COPY_AT}) < 2
        engine.close()
