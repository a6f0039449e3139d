"""A pair of engines, the compiled one and the model: makes a call on both, compares all that can be seen, and opens stores.

`lockstep.py` has the calls.
"""

import shutil
import tempfile
from functools import wraps
from pathlib import Path
from queue import SimpleQueue
from unittest.mock import patch

import lmdb

import xump
from tests.model.engine import ModelEngine
from tests.model.seen import delivery_seen, differences, plain, seen_of
from tests.model.stores import keep_retries, reopened, retries_that_may_be_kept
from tests.patience import PATIENCE
from xump_ext.engine import core
from xump_ext.records import kinds

NEVER_MS = 10**8        # longer than a machine stands still, and than the longest time that a store can be given
# Nobody commits but `sync`, `when_durable` and `close` in "group" durability here; every call does in "process".
STORES = {
    "lmdb": {"durability": "group", "group_ms": 60_000},
    "ring": {"durability": "group", "group_ms": 60_000, "segment_bytes": 1 << 16, "min_bytes": 0, "max_bytes": 1 << 22},
}
FAST = Path("/dev/shm")     # where it is, files need no disk


class Compiled(xump.Engine):
    """The compiled engine. What waits in a thread of its own is begun here, and looked at later."""

    requests = 0

    def publish_waiting(self, queue, address="", body=b"", headers=None, *, reply_to=None, message_id=None, **terms):
        given = {name: terms.get(name) for name in ("correlation_id", "delay", "at", "ttl", "expires")} | {
            "priority": terms.get("priority", 0)}
        return self._publish_later([], lambda: None, queue, address, body, headers, reply_to, message_id, *given.values())

    def request_waiting(self, queue, address="", body=b"", headers=None):
        """As `request`, with the message ids of the model."""
        with patch.object(core, "urandom", self._next_name):
            return self._requested(queue, address, body, headers, lambda: None)

    def _next_name(self, size):
        self.requests += 1
        return Named(f"request-{self.requests}")


class Named(str):
    """What stands for random bytes."""

    def hex(self):
        return str(self)


def recorded(call):
    """A call of a world, which it remembers as a part of its program."""
    @wraps(call)
    def remembered(world, *args, **named):
        outermost, world.recording = world.recording, False
        if outermost:
            world.program.append((call.__name__, args, named))
        try:
            return call(world, *args, **named)
        finally:
            world.recording = outermost
    return remembered


class Pair:
    """The two engines, the deliveries in your program's hands, and the journal of what was called. `stores`: types of durable
    ones, which are named by them; `written`: by every call; `pace`: by how much the clock goes on with each call, in ns."""

    recording = True
    pace = 1

    def __init__(self, hop_limit=6, dead_letter=None, stores=(), written=False, pace=1):
        self.now = 10_000
        self.ahead = 0          # by how much the clock goes on within a call of the engine
        self.pace = pace
        self.options = {"clock": lambda: self.now + self.ahead, "hop_limit": hop_limit, "dead_letter": dead_letter}
        self.stores = stores
        self.written = written
        self.places = []        # directories with the stores' files: the last one is in use
        self.model = ModelEngine(**self.options)
        self.model.stores += stores
        self.engine = Compiled(**self.options)
        self.forget()
        self.given = (hop_limit, dead_letter, stores, written, pace)
        self.journal = [f"World{self.given!r}"]
        if stores:
            self.places.append(Path(tempfile.mkdtemp(dir=FAST if FAST.is_dir() else None)))
            self.open_stores()
        self.watch()

    @property
    def program(self):
        """The calls, to be made again."""
        return vars(self).setdefault("_program", [])

    def forget(self):
        """Deliveries, publishers and requests of an engine that was closed are of no use."""
        self.deliveries = []
        self.batches = []
        self.blocks = []
        self.publishers = []
        self.requests = []
        self.outlets = []       # (model's, engine's, how often each called back)

    def watch(self):
        """Both engines tell what comes and goes."""
        self.changes = [], []
        for engine, changes in zip((self.model, self.engine), self.changes, strict=True):
            engine.watch(changes.extend)

    def options_of(self, kind):
        return STORES[kind] | ({"durability": "process"} if self.written else {})

    def open_stores(self):
        for kind in self.stores:
            options = self.options_of(kind)
            self.engine.create_store(kind, kind, path=str(self.places[-1] / kind), **options)
        for committer in self.engine._committers():
            committer._backend.group_ms = NEVER_MS

    def close(self):
        try:
            self.engine.close()
        finally:
            self.forget()       # the collector of garbage does not see cycles through deliveries
            for place in self.places:
                shutil.rmtree(place)

    # ---- the two at once

    def both(self, call, note, any_error=False):
        """Calls `call(engine, side)` on both; both give a result, or the same class of error (`any_error`: where two
        arguments may be wrong, either may be found first). Returns (ok, model's, engine's)."""
        self.journal.append(note)
        self.now += self.pace       # what entered in different calls did so at different times, unless the clock stands still
        results = self.results_of(call)
        (model_error, modelled), (engine_error, done) = results
        alike = model_error is engine_error or (any_error and model_error and engine_error)
        assert alike, self.told(f"model {results[0]!r}, engine {results[1]!r}")
        if model_error is not None:     # a call that was refused may not have got as far as what is due
            self.results_of(lambda engine, side: engine.tick())
        return model_error is None, modelled, done

    def results_of(self, call):
        """What comes of a call on the model and on the engine: (class of the error or None, result)."""
        return [self.result_of(call, side) for side in (0, 1)]

    def result_of(self, call, side):
        try:
            return None, call((self.model, self.engine)[side], side)
        except (xump.XumpError, ValueError, KeyError) as error:
            return type(error), str(error)

    def same(self, call, note, any_error=False):
        """As `both`, and the results are plain values that must be equal."""
        ok, modelled, done = self.both(call, note, any_error)
        if ok:
            assert modelled == done, self.told(f"model gave {modelled!r}, engine {done!r}")
        return ok, done

    def is_undecided(self):
        """Whether the last call, of which model and engine have made different things, leaves open who is right."""
        return False

    def told(self, what):
        return what + "\n" + "\n".join(self.journal)

    def compare(self):
        """All that can be seen, and the laws."""
        try:
            self.engine.check()
            self.model.check()
        except xump.InvariantError as error:
            raise AssertionError(self.told(str(error))) from error
        seen = [seen_of(engine) for engine in (self.model, self.engine)]
        assert seen[0] == seen[1], self.told(differences(*seen))
        for name, queue in self.engine.queues.items():
            modelled = self.model.queues[name]
            assert queue.held == modelled.held, self.told(f"queue {name!r} is held: {queue.held}")
            assert modelled.durable_id <= queue.durable_id < modelled.next_id or not queue.durable_id, self.told(
                f"queue {name!r} is durable up to {queue.durable_id}, at least {modelled.durable_id}")
        for name in ("ram", *self.stores):
            told, seen = [dict(meta) for meta in (self.model.store_meta(name), self.engine.stores[name].meta)]
            assert told == seen, self.told(f"the map of store {name!r}: model {told}, engine {seen}")
        self.compare_those_who_wait()
        self.compare_those_who_are_told()

    def compare_those_who_are_told(self):
        """How often outlets called back, and what watches saw."""
        for modelled, outlet, called in self.outlets:
            assert modelled.destinations == outlet.destinations and called[0] == called[1], self.told(
                f"{outlet}: called {called}, of {modelled.destinations}")
        told, seen = [sorted(f"{what} {getattr(thing, 'name', '') or thing.id} {came}" for what, came, thing in changes)
                      for changes in self.changes]
        assert told == seen, self.told(f"changes of the graph: model {told}, engine {seen}")
        for changes in self.changes:
            changes.clear()

    def compare_those_who_wait(self):
        """Publishers that wait for room, and requests that wait for replies."""
        for modelled, publisher in self.publishers:
            over = modelled not in self.model.publishers
            told = (not over, modelled.id, over and type(modelled.error))
            seen = (publisher.waits, publisher.id or (0 if modelled.id == 0 else None), over and type(publisher.error))
            assert told == seen, self.told(f"a publisher for {modelled.queue!r}: model {told}, engine {seen}")
        for modelled, request in self.requests:
            told, seen = [plain(side.answer) for side in (modelled, request)]
            assert told == seen, self.told(f"{modelled.message_id}: model {told}, engine {seen}")

    def compare_deliveries(self, modelled, done):
        told = [[delivery_seen(delivery) for delivery in side] for side in (modelled, done)]
        assert told[0] == told[1], self.told(f"model gave {told[0]},\nengine {told[1]}")
        self.deliveries += zip(modelled, done, strict=True)

    # ---- stores

    @recorded
    def sync(self):
        self.both(lambda engine, side: engine.sync(), "sync()")
        self.compare_synced()

    def compare_synced(self):
        for name, queue in self.engine.queues.items():
            assert queue.durable_id == self.model.queues[name].durable_id, self.told(f"durable_id of {name}: {queue.durable_id}")

    @recorded
    def wait_to_be_told(self):
        """`when_durable`; where every call is written, it does not sync."""
        told = SimpleQueue()
        self.engine.when_durable(told.put)
        if not self.written:
            self.model.when_durable(lambda error: None)
        self.work()
        self.hear(told.get(timeout=PATIENCE))
        self.compare()

    def work(self):
        """The threads of the stores work by themselves."""

    def hear(self, error):
        """What `when_durable` has told. The thread that did it may still say how much room there is, and clean the store."""
        assert error is None, self.told(f"when_durable told of {error!r}")
        self.wait_for_turns()

    def wait_for_turns(self):
        """Until nobody writes for any store."""
        for committer in self.engine._committers():
            with committer._turn:
                pass

    @recorded
    def reopen(self, crash=False):
        """The engine ends, in order or by a crash, and another one opens its stores. What a crash leaves is a copy of the files,
        taken when all was synced, or, where every call is written and there is one store, at any time."""
        if self.blocks or not self.stores:
            return
        if crash and not (self.written and len(self.stores) == 1):
            (self.sync if len(self.journal) % 2 else self.wait_to_be_told)()
        self.journal.append(f"reopen({crash})")
        if crash:
            self.places.append(self.places[-1].with_name(f"{self.places[0].name}-{len(self.places)}"))
            shutil.copytree(self.places[-2], self.places[-1])
        self.engine.close()
        if not crash and "lmdb" in self.stores:
            strays = stray_marks(self.places[-1] / "lmdb")
            assert not strays, self.told(f"marks of messages that are gone: (queue's number, id) {strays}")
        self.forget()
        self.model = reopened(self.model, crash)
        self.engine = Compiled(**self.options)
        self.open_stores()
        for name, entries in retries_that_may_be_kept(self.model).items():
            if entries[0].id in (message.id for message in self.engine.queues[name].browse(state="delayed")):
                keep_retries(entries)
        self.watch()


def stray_marks(path):
    """The MARKs in an `lmdb` store that nothing will ever delete."""
    found = {kinds.ENTER: set(), kinds.MARK: set()}
    with lmdb.open(str(path), readonly=True, lock=False) as environment, environment.begin() as transaction:
        for kind, places in found.items():
            first = bytes([kinds.KEY_OF_KIND[kind]])
            cursor = transaction.cursor()
            there = cursor.set_range(first)
            while there and cursor.key()[:1] == first:
                places.add(kinds.KEY.unpack(cursor.key())[1:])
                there = cursor.next()
    return found[kinds.MARK] - found[kinds.ENTER]
