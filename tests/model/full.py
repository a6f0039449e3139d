"""A world whose durable stores are so small that they are full again and again. The engine goes first, and the model is told what
found room (`told.py`). It knows all the rest: what a refused call leaves as it was, what waits and in which order, that takes,
acks, deletes and purges work, and that all goes on when there is room again.

That something found no room is not taken on trust. `need` works out how much room a store may ask for at the most. What needs
less is not refused, no selector stands still in front of so much room, and a store with nothing in it takes a message.

`met` counts the corners that programs came to, and what was undecided.
"""

import re
import threading
import time
from collections import Counter
from queue import SimpleQueue

import xump
from tests.model.entries import number_of
from tests.model.hearing import Hearing
from tests.model.lockstep import World
from tests.model.order import everywhere, may_take
from tests.model.matching import makes
from tests.model.pair import recorded
from tests.model.room import is_below_limit
from tests.model.windows import line_of
from tests.patience import PATIENCE
from xump_ext.engine.publishers import Publisher

SEGMENT = 1 << 16
SMALL = {
    "lmdb": {"max_bytes": 1 << 20},
    "ring": {"segment_bytes": SEGMENT, "min_bytes": 0, "max_bytes": 7 * SEGMENT},
}
RECORD_BYTES = 700      # of a message beside its body, with the record of its end: more than there are
USUAL_BYTES = 4096      # what `xump_ext/log/room.pyx` adds for a bounce
MAP_BYTES = 66_000
AHEAD_NS = 1_000_000


class FullWorld(World):
    """Calls take sizes where those of `World` take bodies: each body is another one, and bears its number. `expires`: messages
    do."""

    met = Counter()

    def __init__(self, hop_limit, dead_letter, stores, written, pace=1, expires=False):
        self.expires = expires
        self.names = {}             # of queues, by the numbers that they have in their stores
        self.bodies = 0
        self.asked = []             # bytes of the messages of this call
        self.live = []              # messages that were there when it began
        self.tellings = []          # what the model was told since it was last found equal
        self.note = ""
        super().__init__(hop_limit, dead_letter, stores, written, pace)
        self.given = (*self.given, expires)

    def options_of(self, kind):
        return super().options_of(kind) | SMALL[kind]

    def open_stores(self):
        super().open_stores()
        self.hearing = Hearing(self.engine, self.names, self.run_ahead)
        for committer in self.engine._committers():
            committer._standstill._seconds = threading.TIMEOUT_MAX      # `sync` does what the thread would

    def run_ahead(self):
        """The clock goes on while room is made. A call keeps its time, so the model sees nothing of that."""
        self.ahead = AHEAD_NS

    def told(self, what):
        tellings = "".join(f"\nthe model was told: {told}" for told in self.tellings)
        return re.sub(r"\.{4,}", "...", super().told(what + tellings))

    def sync(self):
        """Stores stand still then, too: they are cleaned for any gain."""
        def synced(engine, side):
            engine.sync()
            for committer in engine._committers() if side else ():
                committer.write_for_others(stands_still=True)
        self.both(synced, "sync()")
        self.compare_synced()

    # ---- a call

    def both(self, call, note, any_error=False):
        self.note = note
        return super().both(call, note, any_error)

    def results_of(self, call):
        self.do_what_is_due()
        return self.told_results(call)

    def told_results(self, call):
        full, before = self.full_stores(), {
            store: (self.room(store), self.charges(store), self.committer(store)._port.fenced) for store in self.stores}
        self.hearing.begin()
        self.live = [entry.message for queue in self.model.queues.values() for entry in queue.entries if entry.state != "history"]
        error, result = self.result_of(call, 1)
        self.ahead = 0
        if error is not None:
            self.engine.check()
            self.engine.tick()          # what is due, as far as the call has not got to it
        while not self.hearing.has_heard_all():
            self.engine.sync()          # what was written says which message entered
        self.wait_for_threads()
        self.ahead = 0
        told = self.model.told = self.hearing.told(error, result, self.refused_publishers(result))
        told.live, told.had_lines = self.live, self.has_lines()
        told.newly = [place for place, _ in self.hearing.newly]
        self.tellings.append(told)
        modelled = self.result_of(call, 0)
        if error is not None:
            self.model.tick()
        if self.note.startswith("transact(") and {modelled[0], error} == {xump.QueueFull, xump.QueueNotFound}:
            modelled = error, result        # the first of the two is not told: a dead letter may have found room before
        told.end(self.model)
        self.check_refusals(told, before, error)
        self.count(told, full, error, result)
        self.asked = []
        return [modelled, (error, result)]

    def wait_for_threads(self):
        """A store's thread, once there is one, may have written what the call changed in that store, and be at what this brought
        about in the others."""
        committers = self.engine._committers()
        while any(self.hearing.is_at_work(committer) for committer in committers):
            time.sleep(0.0001)
        if not self.written or len(self.stores) == 1:
            return
        while any(committer._has_work() for committer in committers):
            time.sleep(0.0001)
        self.wait_for_turns()

    def do_what_is_due(self):
        """Where something waits for room, what falls due at the time of a call is done in one before it: records do not say which
        of the two let it go on."""
        due = self.model.next_due
        if due is not None and due <= self.now and not self.blocks and self.has_lines():
            note, asked, self.note, self.asked = self.note, self.asked, "tick()", []
            self.told_results(lambda engine, side: engine.tick())
            self.note, self.asked = note, asked

    def has_lines(self):
        """Whether a selector waits for room."""
        return any(selector.blocked for selector in self.model.selectors.values())

    def is_undecided(self):
        """Records do not tell twins apart: copies of a message that are alike, of which only one found room. Nor do they tell all
        of what came first: whether one that was refused went on when the largest message of its store had ended, in the same run;
        whether a message entered before or after another one had expired in its full queue, where an overflow selector takes it
        before; whether an urgent one went before one that waits, which it does if there is room for that; which of those that
        came when there was room expired before the next one came."""
        undecided = any(has_twins(*told.live, *told.arrivals) or told.has_twins() or told.guessed or told.largest_ended
                        for told in self.tellings)
        self.met["undecided"] += undecided
        return undecided

    def refused_publishers(self, result):
        """Numbers of the messages that wait no more, since the store of their queue is full."""
        waiting = [(number_of(modelled.message.body), publisher) for modelled, publisher in self.publishers]
        if isinstance(result, Publisher):
            waiting.append((self.bodies, result))
        return {number for number, publisher in waiting if not publisher.waits and isinstance(publisher.error, xump.StoreFull)}

    def committer(self, store):
        return self.engine._stores[store].committer

    def room(self, store):
        return self.committer(store)._backend.room() - self.committer(store)._port.open_bytes

    def room_cleaned(self, store):
        """With what cleaning gains where that is worth it: a ring is cleaned as soon as so many bytes of its log are dead."""
        backend, room = self.committer(store)._backend, self.room(store)
        if store != "ring":
            return room
        slots, live = SMALL["ring"]["max_bytes"] // SEGMENT, self.committer(store)._port.demand(0).live_bytes
        return max(room, (slots - 2) * backend._segments.capacity - live - backend._worth_bytes() - SEGMENT // 4)

    def is_at_rest(self, store):
        port = self.committer(store)._port
        return not port.waiting and not port.fenced

    # ---- bounds of what is refused

    def charges(self, store):
        """Bytes of all that is in the store, or has its end there; more than it takes."""
        entries = {id(e): e for queue in self.model.queues.values() for entry in queue.entries
                   for e in (entry, entry.owner) if e is not None and e.queue.store == store}
        queues = [queue for queue in self.model.queues.values() if queue.store == store]
        maps = [self.model.store_maps[store], *(queue.items for queue in queues)]
        return [charge(e.message) for e in entries.values()] + [size_of(items) for items in maps if items]

    def need(self, store, bytes, *others):
        """So much room is enough for messages of so many bytes, beside others that are there, or were."""
        backend = self.committer(store)._backend
        largest = 1.3 * max([bytes + USUAL_BYTES, *others, *self.charges(store)])
        kept = backend.kept_bytes * (1.5 if len(self.stores) > 1 else 1)
        return 1.02 * bytes + USUAL_BYTES + kept + (4 if backend.copies_forward else 2) * largest

    def full_stores(self):
        """Those that would not take a small message."""
        return {store for store in self.stores if self.room(store) < self.need(store, RECORD_BYTES)}

    def check_refusals(self, told, before, error):
        """Whether what was refused needed more room than there was."""
        entered = [size for _, size in self.hearing.newly]
        for what, store, message in told.lacked:
            room, charges, fenced = before[store]
            if fenced:                      # messages end there that have ended in another store
                continue
            if what in ("wait", "overflow") or told.ran_before or told.after or not self.is_at_rest(store):
                continue
            if sum(charges) > sum(self.charges(store)):     # something ended, perhaps after the refusal
                continue
            if what == "push" and error is None:
                room -= 1.02 * sum(entered) + USUAL_BYTES + 200 * len(entered)
                room -= MAP_BYTES if self.note.startswith("transact(") else 0
                bytes = charge(message)
            elif what == "push":        # a replay enters as a whole or not at all
                continue
            else:
                room, bytes = self.room(store), sum(self.asked) + (MAP_BYTES if what in ("map", "transaction", "adopt") else 0)
                if self.model.dead_letter or any(queue.dead_letter for queue in self.model.queues.values()):
                    bytes += sum(self.asked) + USUAL_BYTES * len(self.asked)    # each may become a dead letter as well
                bytes += sum(charge(message) + 2 * USUAL_BYTES for message in told.answered)
                self.check_empty(store, bytes)
            need = self.need(store, bytes, *charges, *entered)
            assert room < need, self.told(f"{what} into {store!r}: refused, though {need} bytes are enough and {room} are left")

    def check_empty(self, store, bytes):
        """A store with nothing in it takes a message (decision 76)."""
        assert bytes > SEGMENT // 4 or self.charges(store), self.told(f"an empty store {store!r} refuses {bytes} bytes")

    def compare(self):
        super().compare()
        if not self.model.depth:
            self.check_lines()
        self.tellings = []

    def compare_synced(self):
        """What went on because the sync made room may be durable, too: `compare` asks for the rest."""

    def check_lines(self):
        """No line for a queue stands still where there is room for each that may be the first in it. Which one is the first the
        model does not know: it was not told at which moment each was refused."""
        for target, firsts in self.lines().items():
            if all(is_below_limit(self.model, target, leaving=entry) for entry in firsts.values()):
                need = max(self.need(target.store, charge(makes(selector, entry))) for selector, entry in firsts.items())
                room, ids = self.room_cleaned(target.store), [selector.id for selector in firsts]
                assert room < need, self.told(f"selectors {ids} wait for {need} bytes at most in {target.store!r} of {room}")
                self.met["a selector waits for a store"] += 1

    def lines(self):
        """For each durable queue for which selectors wait: the message that each would put there next."""
        found = {}
        for entry in everywhere(self.model, "waiting"):
            for selector in entry.queue.selectors:
                if not entry.queue.held and selector.is_able and may_take(selector, entry):
                    target = line_of(selector, entry.message)
                    if getattr(target, "durable", False) and self.is_at_rest(target.store):
                        found.setdefault(target, {}).setdefault(selector, entry)
        return found

    # ---- corners

    def count(self, told, full, error, result):
        verb = self.note.partition("(")[0]
        kinds = {what for what, _, _ in told.lacked}
        if error is xump.StoreFull:
            self.met[f"{verb} was refused"] += 1
        if "push" in kinds:
            self.met["a copy or a dead letter found no room"] += 1
        if "overflow" in kinds:
            self.met["an overflow found no room"] += 1
        if told.ran_before:
            self.met["what waited went before a call that made room"] += 1
        if told.after:
            self.met["what waited went on after a call"] += 1
        if full and error is None:
            self.met[f"{verb} beside a full store"] += 1
        if told.refusals and False in told.refusals and True in told.refusals:
            self.met["a store was full in the middle of a batch"] += 1

    # ---- calls with bodies

    def body(self, size):
        """No two are alike."""
        if isinstance(size, bytes):
            size = 4_000 * len(size)
        self.bodies += 1
        made = (b"#%d#" % self.bodies).ljust(size, b".")
        self.asked.append(len(made) + RECORD_BYTES)
        return made

    def body_of_its_own(self):
        return self.body(1_000 * (self.bodies % 7))

    @recorded
    def publish(self, queue, address, headers, reply_to, size=1_000, message_id=None, **terms):
        super().publish(queue, address, headers, reply_to, self.body(size), message_id, **terms)

    @recorded
    def publish_annexed(self, queue, address, n, to):
        super().publish_annexed(queue, address, n, to, self.body(1_000 * n))

    @recorded
    def publish_waiting(self, queue, address, headers, reply_to, size=1_000, message_id=None, **terms):
        """Where messages expire, only one waits at a time: the model is not told which of two a store made room for first."""
        if not (self.expires and self.model.publishers):
            super().publish_waiting(queue, address, headers, reply_to, self.body(size), message_id, **terms)

    @recorded
    def create_selector(self, source, when, do, *rest, **terms):
        """Leave it out if no record would say whether it or something else put a message into its target: a COPY beside a MOVE
        there."""
        verbs = {other.do.verb for other in self.engine.selectors.values()
                 if other.source.name == source and do.queue is not None and other.do.queue == do.queue}
        if not (verbs | {do.verb} > {"copy"}):
            super().create_selector(source, when, do, *rest, **terms)

    @recorded
    def delete_queue(self, name):
        """Do first, in a call of its own, what is due: no record tells of messages that entered a queue that is gone."""
        self.tick()
        self.now -= self.pace
        super().delete_queue(name)

    @recorded
    def take(self, n, destination):
        """One after the other where something waits for room: the model is not told which of them made it."""
        waits = self.full_stores() or self.has_lines()
        for _ in range(n if waits else 1):
            super().take(1 if waits else n, destination)

    @recorded
    def give_up(self, index):
        if self.publishers:
            modelled, publisher = self.publishers.pop(index % len(self.publishers))

            def give_up(engine, side):
                if side:
                    return engine._publish_no_more(publisher)
                waited = modelled in engine.publishers
                if waited:
                    engine.publishers.remove(modelled)
                    if engine.publishers:
                        engine.tick()
                return waited
            self.same(give_up, f"give_up({index})")

    @recorded
    def publish_many(self, queue, messages, **terms):
        super().publish_many(queue, [(address, self.body(size), *rest) for address, size, *rest in messages], **terms)

    @recorded
    def publish_batch(self, queue, messages):
        super().publish_batch(queue, [(address, self.body(size), *rest) for address, size, *rest in messages])

    # ---- stores

    @recorded
    def wait_to_be_told(self):
        def wait(engine, side):
            told = SimpleQueue()
            if side or not self.written:
                engine.when_durable(told.put)
                self.hear(told.get(timeout=PATIENCE))
        self.both(wait, "wait_to_be_told()")
        self.compare()

    @recorded
    def reopen(self, crash=False):
        """What a sync made room for, and what that made room for, is durable only after the next one."""
        before = None
        while crash and not self.blocks and not (self.written and len(self.stores) == 1) and self.hearing.limits() != before:
            before = self.hearing.limits()
            self.sync()
        if not self.blocks and self.full_stores():
            self.met[f"a full store is {'lost in a crash' if crash else 'closed'} and opened again"] += 1
        super().reopen(crash)


def has_twins(*messages):
    return max(Counter((number_of(m.body), m.address, m.hops) for m in messages).values(), default=0) > 1


def charge(message):
    texts = (message.address, message.reply_to, message.message_id, message.destination, message.correlation_id)
    size = len(message.body) + sum(len(text) for text in texts if text) + len(repr(message.headers))
    return size + RECORD_BYTES + (len(message.annex[1]) if message.annex else 0)


def size_of(items):
    return RECORD_BYTES + sum(len(name) + len(value) + 8 for name, value in items.items())
