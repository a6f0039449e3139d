"""Two engines side by side, the compiled one and the model: every call goes to both, and all that can be seen is compared.

A `World` knows nothing of Hypothesis: `test_state_machine.py` and the soak choose the calls. Calls take small plain values, so
that a failure prints as a program that can be read and run again.
"""

import datetime
import shutil
import tempfile
from pathlib import Path

import pyarrow

import xump
from tests.model.engine import ModelEngine
from tests.model.stores import reopened
from xump import INFINITE, bounce_to, copy_to, deliver, discard, field, match, move_to, where
from xump import always, default, overflow

QUEUES = ["q0", "q1", "q2", "q3", "q4"]
DESTINATIONS = ["d0", "d1", "q1"]
ADDRESSES = ["", "a", "a.b", "a.b.c", "b", "q1", "q2", "q3", "nowhere"]


def even(message):
    """A callable condition."""
    return message.headers.get("n", 1) % 2 == 0


def fails(message):
    """A callable that raises for some."""
    if message.headers["n"] == 3:
        raise ValueError("three")
    return True


CONDITIONS = [
    always, always, always, default, overflow,
    match("eq", "a"), match("eq", "b"), match("topic", "a.#"), match("topic", "*.b"), match("prefix", "a."),
    match("eq", "q2", field="reply_to"), match("eq", "q1", field="headers.to"), match("topic", "#", field="headers.to"),
    where("n > 2"), where("n = 1"), where("to IS NOT NULL AND n < 4"), where({"n": 2}), where({"n": [1, 3]}),
    where("sys.address = 'b'"), where("sys.delivery_count > 0"), where(even), where(fails),
    match("topic", "a.*") & where("n > 1"), match("eq", "a") & where(even), where({"n": 1}) & where("to = 'q2'"),
]
FIELDS = ["address", "reply_to", "destination", "headers.to"]
TARGETS = [*QUEUES, *(field(name) for name in FIELDS)]
ACTIONS = (
    [copy_to(target) for target in TARGETS] + [move_to(target) for target in TARGETS] + [bounce_to(target) for target in TARGETS]
    + [deliver(name) for name in DESTINATIONS] * 2 + [deliver(field(name)) for name in FIELDS]
    + [deliver("d0", queue=target) for target in TARGETS] + [deliver(field("headers.to"), queue="q3"), discard, discard]
)
CREDITS = [0, 1, 1, 2, 3, INFINITE]
HEADERS = pyarrow.struct([("n", pyarrow.int64()), ("to", pyarrow.string())])
STARTS = ["current", "current", "tail", "head", 2, datetime.datetime(1970, 1, 1, 0, 0, 0, 11, tzinfo=datetime.UTC)]


# Nobody commits but `sync` and `close` in "group" durability here; every call does in "process".
STORES = {
    "lmdb": {"durability": "group", "group_ms": 60_000},
    "ring": {"durability": "group", "group_ms": 60_000, "segment_bytes": 1 << 16, "min_bytes": 0, "max_bytes": 1 << 22},
}
FAST = Path("/dev/shm")     # where it is, files need no disk


class World:
    """The pair, the deliveries in your program's hands, and the journal of what was called. `stores`: types of durable ones,
    which are named by them; `written`: by every call."""

    def __init__(self, hop_limit=6, dead_letter=None, stores=(), written=False):
        self.now = 10_000
        self.options = {"clock": lambda: self.now, "hop_limit": hop_limit, "dead_letter": dead_letter}
        self.stores = stores
        self.written = written
        self.places = []        # directories with the stores' files: the last one is in use
        self.model = ModelEngine(**self.options)
        self.model.stores += stores
        self.engine = xump.Engine(**self.options)
        self.forget()
        self.journal = [f"World({hop_limit}, {dead_letter!r}, {stores!r}, {written})"]
        if stores:
            self.places.append(Path(tempfile.mkdtemp(dir=FAST if FAST.is_dir() else None)))
            self.open_stores()

    def forget(self):
        """Deliveries of an engine that was closed are of no use."""
        self.deliveries = []
        self.batches = []
        self.blocks = []

    def open_stores(self):
        for kind in self.stores:
            options = STORES[kind] | ({"durability": "process"} if self.written else {})
            self.engine.create_store(kind, kind, path=str(self.places[-1] / kind), **options)

    def close(self):
        try:
            self.engine.close()
        finally:
            for place in self.places:
                shutil.rmtree(place)

    # ---- the two at once

    def both(self, call, note, any_error=False):
        """Calls `call(engine, side)` on both; both give a result, or the same class of error (`any_error`: where two
        arguments may be wrong, either may be found first). Returns (ok, model's, engine's)."""
        self.journal.append(note)
        self.now += 1       # what entered in different calls did so at different times
        results = []
        for side, engine in enumerate((self.model, self.engine)):
            try:
                results.append((None, call(engine, side)))
            except (xump.XumpError, ValueError, KeyError) as error:
                results.append((type(error), str(error)))
        (model_error, modelled), (engine_error, done) = results
        alike = model_error is engine_error or (any_error and model_error and engine_error)
        assert alike, self.told(f"model {results[0]!r}, engine {results[1]!r}")
        return model_error is None, modelled, done

    def same(self, call, note, any_error=False):
        """As `both`, and the results are plain values that must be equal."""
        ok, modelled, done = self.both(call, note, any_error)
        if ok:
            assert modelled == done, self.told(f"model gave {modelled!r}, engine {done!r}")
        return ok, done

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

    # ---- stores

    def sync(self):
        self.both(lambda engine, side: engine.sync(), "sync()")
        for name, queue in self.engine.queues.items():
            assert queue.durable_id == self.model.queues[name].durable_id, self.told(f"durable_id of {name}: {queue.durable_id}")

    def reopen(self, crash=False):
        """The engine ends, in order or by a crash, and another one opens its stores. What a crash leaves is a copy of the files,
        taken when all was synced, or, where every call is written and there is one store, at any time."""
        if self.blocks or not self.stores:
            return
        if crash and not (self.written and len(self.stores) == 1):
            self.sync()
        self.journal.append(f"reopen({crash})")
        if crash:
            self.places.append(self.places[-1].with_name(f"{self.places[0].name}-{len(self.places)}"))
            shutil.copytree(self.places[-2], self.places[-1])
        self.engine.close()
        self.forget()
        self.model = reopened(self.model, crash)
        self.engine = xump.Engine(**self.options)
        self.open_stores()

    # ---- calls

    def create_queue(self, name, limit, history_limit, auto_delete, dead_letter, delivery_limit, store="ram"):
        self.same(
            lambda engine, side: engine.create_queue(
                name, store=store, limit=limit, history_limit=history_limit, auto_delete=auto_delete, dead_letter=dead_letter,
                delivery_limit=delivery_limit).name,
            f"create_queue({name!r}, {limit}, {history_limit}, {auto_delete}, {dead_letter!r}, {delivery_limit}, {store!r})")

    def create_selector(self, source, when, do, credit, enabled, start, name):
        self.same(
            lambda engine, side: engine.create_selector(
                source, when=when, do=do, credit=credit, enabled=enabled, start=start, name=name).id,
            f"create_selector({source!r}, when={when!r}, do={do!r}, credit={credit}, enabled={enabled}, start={start!r}, "
            f"name={name!r})",
            any_error=True)

    def delete_queue(self, name):
        self.same(lambda engine, side: engine.delete_queue(name), f"delete_queue({name!r})")

    def delete_selector(self, id):
        self.same(lambda engine, side: engine.delete_selector(id), f"delete_selector({id})")

    def publish(self, queue, address, headers, reply_to):
        self.same(
            lambda engine, side: engine.publish(queue, address, b"x", headers, reply_to=reply_to),
            f"publish({queue!r}, {address!r}, {headers!r}, reply_to={reply_to!r})")

    def publish_many(self, queue, messages):
        self.same(lambda engine, side: list(engine.publish_many(queue, messages)), f"publish_many({queue!r}, {messages!r})")

    def publish_batch(self, queue, messages):
        """To the model it is `publish_many`."""
        self.same(
            lambda engine, side: list(
                engine.publish_batch(queue, table_of(messages)) if side else engine.publish_many(queue, messages)),
            f"publish_batch({queue!r}, {messages!r})")

    def take_batch(self, n, destination, verdict):
        """To the model it is `take`, and one call for all."""
        _, modelled, batch = self.both(
            lambda engine, side: engine.take_batch(n, destination) if side else engine.take(n, destination),
            f"take_batch({n}, {destination!r}, {verdict!r})")
        columns = pyarrow.record_batch(batch)
        rows = columns.to_pylist()
        for name in ("timestamp", "expires"):
            for row, moment in zip(rows, columns[name].cast(pyarrow.int64()).to_pylist(), strict=True):
                row[name] = moment
        for row in rows:
            # A column for each header of the batch; null where the message has none.
            row["headers"] = {name: value for name, value in (row["headers"] or {}).items() if value is not None}
        told = [row_seen(delivery) for delivery in modelled]
        assert told == rows, self.told(f"model gave {told},\nengine {rows}")
        if verdict == "ack":
            self.both(lambda engine, side: batch.ack() if side else engine.ack(modelled), "its ack()")
        elif verdict == "nack" and len(modelled) == 1:
            self.both(lambda engine, side: batch.nack() if side else modelled[0].nack(), "its nack()")
        else:
            self.batches.append(batch)      # a batch that is gone gives nothing back, but its rows are not looked at again

    def take(self, n, destination):
        _, modelled, done = self.both(lambda engine, side: engine.take(n, destination), f"take({n}, {destination!r})")
        self.compare_deliveries(modelled, done)

    def compare_deliveries(self, modelled, done):
        told = [[delivery_seen(delivery) for delivery in side] for side in (modelled, done)]
        assert told[0] == told[1], self.told(f"model gave {told[0]},\nengine {told[1]}")
        self.deliveries += zip(modelled, done, strict=True)

    def iterate(self, destination, verdicts):
        """A loop over `deliveries()` with a verdict for each, at most as many as there are verdicts."""
        def bounded(engine, side):
            seen = []
            iterator = iter(engine.deliveries(destination))
            for verdict in verdicts:
                delivery = next(iterator, None)
                if delivery is None:
                    break
                seen.append((delivery_seen(delivery), verdict))
                conclude(delivery, verdict)
            return seen
        self.same(bounded, f"iterate({destination!r}, {verdicts!r})")

    def conclude(self, index, verdict):
        if self.deliveries:
            pair = self.deliveries[index % len(self.deliveries)]
            self.both(lambda engine, side: conclude(pair[side], verdict), f"conclude({index}, {verdict!r})")

    def ack_many(self, indexes):
        if self.deliveries:
            pairs = [self.deliveries[index % len(self.deliveries)] for index in indexes]
            self.both(lambda engine, side: engine.ack([pair[side] for pair in pairs]), f"ack_many({indexes!r})")

    def transact(self, operations, fail):
        """Operations are ("publish", queue, address, headers) or ("ack", index)."""
        if not self.deliveries:
            operations = [operation for operation in operations if operation[0] == "publish"]

        def run(engine, side):
            tx = engine.transaction()
            try:
                with tx:
                    for operation in operations:
                        if operation[0] == "ack":
                            tx.ack(self.deliveries[operation[1] % len(self.deliveries)][side])
                        else:
                            tx.publish(operation[1], operation[2], b"x", operation[3])
                    if fail:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                return "failed", []
            return "done", tx.ids
        self.same(run, f"transact({operations!r}, {fail})")

    def on_selector(self, id, verb, *args):
        self.both(lambda engine, side: getattr(engine.selectors[id], verb)(*args), f"on_selector({id}, {verb!r}, {args})")

    def on_queue(self, name, verb, *args):
        self.same(lambda engine, side: plain(getattr(engine.queues[name], verb)(*args)), f"on_queue({name!r}, {verb!r}, {args})")

    def browse(self, name, start, state, limit, reverse):
        self.same(
            lambda engine, side: [message_seen(message) for message in engine.queues[name].browse(
                **({} if start is None else {"start": start}), state=state, limit=limit, reverse=reverse)],
            f"browse({name!r}, {start!r}, {state!r}, {limit}, {reverse})")

    def build(self):
        """Enters or leaves a building block."""
        if self.blocks:
            blocks = self.blocks.pop()
            self.both(lambda engine, side: blocks[side].__exit__(None, None, None), "build() out")
        else:
            blocks = (self.model.building(), self.engine.building())
            self.both(lambda engine, side: blocks[side].__enter__(), "build() in")
            self.blocks.append(blocks)

    def tick(self, nanoseconds):
        self.journal.append(f"tick({nanoseconds})")
        self.now += nanoseconds


def table_of(messages):
    """Tuples in the order of `publish`, as columns."""
    return pyarrow.table({
        "address": pyarrow.array([message[0] for message in messages], pyarrow.string()),
        "body": pyarrow.array([message[1] for message in messages], pyarrow.binary()),
        "headers": pyarrow.array([message[2] for message in messages], HEADERS),
        "reply_to": pyarrow.array([message[3] for message in messages], pyarrow.string()),
    })


def row_seen(delivery):
    """A delivery as a row of a batch."""
    message = delivery.message
    return {
        "id": message.id, "queue": str(getattr(delivery.queue, "name", delivery.queue)), "destination": delivery.destination,
        "delivery_count": delivery.delivery_count, "timestamp": message.timestamp, "address": message.address,
        "body": message.body, "headers": dict(message.headers), "reply_to": message.reply_to, "message_id": message.message_id,
        "correlation_id": message.correlation_id, "expires": message.expires, "priority": message.priority,
    }


def conclude(delivery, verdict):
    if verdict == "ack":
        delivery.ack()
    elif verdict == "nack":
        delivery.nack()
    elif verdict == "drop":
        delivery.nack(requeue=False)
    else:
        delivery.reject("for a reason")


def plain(value):
    return message_seen(value) if hasattr(value, "address") else value


def message_seen(message):
    return (message.id, message.address, message.body, dict(message.headers), message.reply_to, message.message_id,
            message.destination, message.timestamp, message.hops)


def delivery_seen(delivery):
    return (message_seen(delivery.message), delivery.destination, str(getattr(delivery.queue, "name", delivery.queue)),
            getattr(delivery.selector, "id", delivery.selector), delivery.delivery_count, delivery.redelivered)


QUEUE_KEYS = ("entered", "ready", "outstanding", "history", "settled", "dropped", "deleted", "dead_lettered")
# Not "errors": selectors that share a condition share its evaluations, the model makes one for each.
SELECTOR_KEYS = ("credit", "available", "outstanding", "served", "copied", "dropped", "paid", "returned", "blocked")


def seen_of(engine):
    stats = engine.stats()
    return {
        "queues": {name: {key: stats["queues"][name][key] for key in QUEUE_KEYS} for name in sorted(stats["queues"])},
        "selectors": {id: {key: stats["selectors"][id][key] for key in SELECTOR_KEYS} for id in sorted(stats["selectors"])},
        "messages": {name: {state: [message_seen(message) for message in queue.browse(state=state)]
                            for state in ("ready", "outstanding", "history")} for name, queue in sorted(engine.queues.items())},
        "frontiers": {name: queue.frontier for name, queue in sorted(engine.queues.items())},
    }


def differences(model, engine, path=""):
    """The leaves that are not equal, one a line."""
    if isinstance(model, dict) and isinstance(engine, dict):
        lines = []
        for key in sorted({*model, *engine}, key=str):
            if model.get(key) != engine.get(key):
                lines.append(differences(model.get(key), engine.get(key), f"{path}/{key}"))
        return "\n".join(lines)
    return f"{path}: model {model!r}, engine {engine!r}"


class AtRandom:
    """A program over a `world`: steps that `chance` chooses among `RULES`, names of methods, each compared with the model."""

    def run(self, steps):
        try:
            for _ in range(steps):
                getattr(self, self.chance.choice(self.RULES))()
                self.world.compare()
        finally:
            self.world.close()
