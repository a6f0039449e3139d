"""`Engine.check()`: holds after every call of every action, changes nothing, and finds whatever is wrong in the books.

To make the books wrong, `corrupt.pyx` tells where they are; one field at a time is overwritten, and restored afterwards.
"""

import contextlib
import ctypes
import gc
import subprocess
import sys
from pathlib import Path

import pytest

import xump
from tests.compiled import compiled
from tests.durability.log_in_memory import LOGS
from xump import INFINITE, always, bounce_to, copy_to, default, deliver, discard, field, match, move_to, overflow, where

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def corrupt():
    return compiled(HERE / "corrupt.pyx")


# ---- whatever is done, the laws hold

ACTIONS = {
    "copy": copy_to("b"), "move": move_to("b"), "bounce": bounce_to("b"), "deliver": deliver("d"), "discard": discard,
    "deliver through a queue": deliver("d", queue="b"), "copy by field": copy_to(field("address")),
    "move by field": move_to(field("address")), "bounce by field": bounce_to(field("headers.to")),
    "deliver by field": deliver(field("reply_to")), "deliver by field through a queue": deliver("d", queue=field("address")),
}
CONDITIONS = {
    "always": always, "default": default, "overflow": overflow, "match": match("prefix", "b"), "where": where("n > 1"),
    "callable": where(lambda message: message.headers["n"] == 2), "field": match("eq", "b", field="headers.to"),
}


class Checked:
    """Calls go to the engine, and `check` follows each."""

    def __init__(self, engine):
        self.engine = engine

    def __getattr__(self, name):
        def call(*args, **kwargs):
            try:
                return getattr(self.engine, name)(*args, **kwargs)
            except (xump.QueueFull, xump.QueueNotFound, ValueError):
                return None
            finally:
                self.engine.check()
        return call


def drive(engine, do, when, credit, building):
    """A bit of everything around one selector."""
    checked = Checked(engine)
    for name, limit in (("a", 3), ("b", 2)):
        checked.create_queue(name, limit=limit, history_limit=1, delivery_limit=2)
    checked.publish("a", "b", b"early", {"n": 2, "to": "b"}, reply_to="b")
    with engine.building() if building else contextlib.nullcontext():
        checked.create_selector("a", when=when, do=do, credit=credit)
        checked.create_selector("a", when=always, do=deliver("e"), credit=1)
        checked.create_selector("b", when=match("prefix", "b"), do=deliver("d"), credit=1)
        for n in range(5):
            checked.publish(*"ab"[n % 2], "bb"[: n % 3] or "b", b"x", {"n": n, "to": "b"}, reply_to="b")
    for _ in range(3):
        for delivery, verdict in zip(engine.take(2), ("ack", "nack"), strict=False):
            engine.check()
            getattr(delivery, verdict)()
            engine.check()
    for selector in list(engine.selectors.values()):
        for verb in ("disable", "enable"):
            getattr(selector, verb)()
            engine.check()
    kept = engine.take(1)
    engine.queues["b"].purge()
    engine.check()
    engine.queues["a"].hold()
    checked.publish("a", "b", b"late", {"n": 2, "to": "b"})
    engine.queues["a"].release()
    engine.check()
    checked.delete_selector(1)
    checked.delete_queue("b")
    return kept


@pytest.mark.parametrize("when", CONDITIONS.values(), ids=CONDITIONS)
@pytest.mark.parametrize("do", ACTIONS.values(), ids=ACTIONS)
def test_the_laws_hold_after_every_call(do, when, clock):
    for credit in (0, 1, INFINITE):
        for building in (False, True):
            engine = xump.Engine(clock=clock)
            if when is not overflow or do.consuming:
                drive(engine, do, when, credit, building)
            engine.check()
            engine.close()


def test_it_changes_nothing_and_asks_no_user_code(books):
    engine = books.engine
    asked = []
    engine.create_selector("waiting", when=where(lambda message: asked.append(message) or True), do=deliver("x"), credit=0)
    before, questions = seen(engine), len(asked)
    engine.check()
    engine.check()
    assert (seen(engine), len(asked)) == (before, questions)


def test_inside_building_what_waits_for_its_end_is_no_fault(clock):
    engine = xump.Engine(clock=clock)
    engine.create_queue("q")
    with engine.building():
        engine.create_selector("q", when=always, do=deliver("d"), credit=2)
        engine.publish("q", "a")
        engine.check()
        assert engine.take(1) == []
    engine.check()
    assert len(engine.take(1)) == 1
    engine.close()


def test_from_inside_and_after_the_end():
    engine = xump.Engine()
    engine.create_queue("q")
    engine.create_selector("q", when=where(lambda message: engine.check()), do=discard)
    engine.publish("q", "a")
    assert engine.stats()["selectors"][1]["errors"] == 1
    engine.close()
    with pytest.raises(xump.Closed):
        engine.check()


def seen(engine):
    return engine.stats(), {name: [(m.id, m.address) for m in queue.browse()] for name, queue in engine.queues.items()}


# ---- whatever is wrong is found

class Books:
    """An engine with something in every list."""

    def __init__(self, clock):
        self.engine = engine = xump.Engine(clock=clock)
        for name in ("entry", "work", "waiting", "idle", "full", "out", "bound", "strait", "before strait", "back", "names",
                     "starved", "narrow", "close"):
            limit = {"full": 1, "strait": 1, "narrow": 0, "close": 0}.get(name)
            engine.create_queue(name, limit=limit, history_limit=2 if name == "work" else 0)
        engine.create_selector("entry", when=always, do=move_to("work"), credit=9)                              # 1
        engine.create_selector("work", when=always, do=deliver("d"), credit=5)                                  # 2
        engine.create_selector("waiting", when=match("prefix", "a"), do=deliver("d"), credit=0)                 # 3
        engine.create_selector("waiting", when=match("eq", "b"), do=move_to("full"), credit=2)                  # 4
        engine.create_selector("waiting", when=match("eq", "b"), do=move_to("full"), credit=2)                  # 5
        engine.create_selector("waiting", when=match("eq", "p"), do=deliver("d"), credit=1, enabled=False)      # 6
        engine.create_selector("waiting", when=match("eq", "full"), do=bounce_to(field("address")), credit=1)   # 7
        engine.create_selector("bound", when=always, do=deliver("e"), credit=INFINITE)                          # 8
        engine.create_selector("work", when=match("eq", "never"), do=copy_to("out"))                            # 9
        engine.create_selector("idle", when=overflow, do=move_to("out"), credit=1)                              # 10
        engine.create_selector("entry", when=match("eq", "none"), do=deliver("d"), credit=1)                    # 11
        engine.create_selector("entry", when=match("eq", "none"), do=deliver("d"), credit=1)                    # 12
        engine.create_selector("strait", when=overflow, do=move_to(field("address")))                           # 13
        engine.create_selector("before strait", when=always, do=move_to("strait"), credit=1)                    # 14
        back = engine.create_selector("back", when=always, do=deliver("f"), credit=4)                           # 15
        engine.publish("full", "x")
        engine.publish_many("entry", [("m", b"")] * 7)
        engine.publish_many("waiting", [("a",), ("a",), ("a",), ("b",), ("b",), ("p",), ("full",)])
        engine.publish_many("bound", [("m",)] * 2)
        engine.publish_many("idle", [("m",)] * 70)
        engine.publish_many("strait", [("x",)])
        engine.publish_many("before strait", [("x",)] * 2)
        engine.publish_many("back", [("m",)] * 6)
        returned = engine.take(4, destination="f")
        back.disable()
        mover = engine.create_selector("names", when=match("prefix", ""), do=move_to(field("address")), credit=4)   # 16
        engine.create_selector("names", when=match("prefix", ""), do=move_to(field("address")), credit=0)       # 17
        engine.create_selector("starved", when=always, do=move_to(field("address")), credit=0)                  # 18
        engine.publish_many("names", [("close",), ("narrow",)])
        engine.publish_many("starved", [("close",), ("narrow",)])
        mover.grant(1)      # is refused by both
        for at in (0, 2, 1):
            returned[at].nack()
        self.kept_too = returned
        for delivery in engine.take(2, destination="d"):
            delivery.ack()
        self.kept = engine.take(2, destination="d")
        engine.take(1, destination="d")[0].nack()
        engine.check()


@pytest.fixture
def own_chunks(corrupt):
    """The chunks of entries of what a test makes stand first in their list and have room, whatever earlier tests left: chunks
    with room are filled before, and no engine of theirs is collected meanwhile."""
    gc.disable()
    taken = corrupt.fill_entries()
    yield
    corrupt.give_entries(taken)
    gc.enable()


@pytest.fixture
def books(clock, own_chunks):
    made = Books(clock)
    yield made
    made.engine.check()
    made.engine.close()


@contextlib.contextmanager
def wrong(place, value):
    """The bytes there, overwritten by `value`, or raised by it if it is a str like "+1"; they are restored at the end."""
    address, size = place
    memory = (ctypes.c_char * size).from_address(address)
    was = memory.raw
    number = int.from_bytes(was, sys.byteorder)
    number = number + int(value) if isinstance(value, str) else value
    memory.raw = (number % 256**size).to_bytes(size, sys.byteorder)
    assert memory.raw != was
    try:
        yield
    finally:
        memory.raw = was


def to(kind, *key):
    """A pointer to something else."""
    return kind, key


NOWHERE = 0
WRONG = [
    # where, field, what is put there, what is said of it
    ("engine", (), "sequence", "-90", "Order: queue"),
    ("engine", (), "run_start", "+1", "Quiet: engine: the run"),
    ("engine", (), "offered", "-1", "Once: queue 'work', message 5: its offer"),
    ("engine", (), "nacks", 0, "Links: queue 'work', message 5: the number of its last nack"),
    ("engine", (), "dirty", to("queue", "work"), "Links: queue 'work': its flag and the list of dirty queues disagree"),
    ("engine", (), "field_lines", NOWHERE, "Links: queue 'strait': its flag and the list of waiting lists"),
    ("engine", (), "run_queue_count", "+1", "Quiet: engine: 1 messages are still to be routed"),
    ("engine", (), "backlogs.count", "+1", "Quiet: engine: 1 backlogs are still to be routed"),
    ("engine", (), "parked_count", "+1", "Quiet: engine: 1 messages are still to be routed"),
    ("engine", (), "offers_head", NOWHERE, "Recount: engine: 5 offers"),
    ("engine", (), "offers_tail", NOWHERE, "Recount: engine: 5 offers"),
    ("engine", (), "offer_count", "+1", "Recount: engine: 6 offers"),
    ("engine", (), "chunks", NOWHERE, "Recount: memory: a chunk with room is not in the list"),
    ("engine", (), "chunk.live", "+1", "Recount: memory: a chunk counts"),
    ("engine", (), "chunk.fresh", "-88", "Recount: memory: a chunk counts"),
    ("engine", (), "chunk.listed", 0, "Recount: memory: a chunk with"),
    ("engine", (), "chunk.cell_bytes", "+8", "Recount: engine: a chunk with"),
    ("engine", (), "called_name", NOWHERE, "Links: engine: the queue that was called last"),
    ("engine", (), "entries", "+1", "Recount: engine"),
    ("queue", ("work",), "next_id", "+1", "Conservation: queue 'work': 8 entered"),
    ("queue", ("work",), "next_id", "-1", "Once: queue 'work', message 7"),
    ("queue", ("idle",), "frontier", "+1", "Order: queue 'idle', message 1: it is not routed"),
    ("queue", ("idle",), "frontier", 0, "Order: queue 'idle': its frontier"),
    ("queue", ("work",), "timestamp", "-1", "Order: queue 'work', message 1: its timestamp"),
    ("queue", ("work",), "ready", "+1", "Recount: queue 'work': ready counts 1, found 0"),
    ("queue", ("idle",), "unrouted", "-1", "Recount: queue 'idle': unrouted counts 69, found 70"),
    ("queue", ("work",), "outstanding", "-1", "Recount: queue 'work': outstanding counts 4, found 5"),
    ("queue", ("work",), "history.head", NOWHERE, "Recount: queue 'work', its history"),
    ("queue", ("work",), "history.tail", NOWHERE, "Recount: queue 'work', its history"),
    ("queue", ("work",), "history.count", "+1", "Recount: queue 'work', its history"),
    ("queue", ("work",), "history_limit", 1, "Recount: queue 'work': 2 in its history"),
    ("queue", ("full",), "limit", 2, "Recount: queue 'full': 2 messages may be ready, by its limits it is 1"),
    ("queue", ("work",), "slot", "+1", "Once: engine: queues share a number"),
    ("queue", ("idle",), "active", 1, "Recount: queue 'idle'"),
    ("queue", ("work",), "dying", 1, "Links: queue 'work': it is being deleted"),
    ("queue", ("full",), "waiters_head", NOWHERE, "Recount|Links: queue 'full', its waiting list"),
    ("queue", ("full",), "waiters_tail", NOWHERE, "Links: queue 'full', its waiting list"),
    ("queue", ("idle",), "overflow", NOWHERE, "Links: queue 'idle': its overflow selector"),
    ("queue", ("full",), "sources", NOWHERE, "Links: queue 'full': 0 sources"),
    ("queue", ("waiting",), "selectors", "+1", "Recount: queue 'waiting': 6 selectors"),
    ("queue", ("work",), "dirty", 1, "Links: queue 'work': its flag and the list of dirty queues disagree"),
    ("queue", ("work",), "returned", 1, "Links: queue 'work': its flag and the list of queues where something came back"),
    ("queue", ("strait",), "field_lines", 0, "Links: queue 'strait': its flag and the list of waiting lists"),
    ("queue", ("strait",), "field_lines.previous", to("queue", "work"), "Links: engine: the list of waiting lists"),
    ("queue", ("strait",), "waiters_head", NOWHERE, "Links: queue 'strait', its waiting list"),
    ("queue", ("waiting",), "watched", "-1", "Recount: queue 'waiting': 0 clauses"),
    ("queue", ("work",), "field_copies", "+1", "Recount: queue 'work': 1 clauses copy by a field"),
    ("queue", ("out",), "overflown", "-1", "Recount: queue 'out': 0 selectors overflow"),
    ("queue", ("entry",), "settled", "-1", "Conservation: queue 'entry': 7 entered"),
    ("queue", ("entry",), "deleted", "+1", "Conservation: queue 'entry'"),
    ("queue", ("entry",), "dropped", "+1", "Conservation: queue 'entry'"),
    ("queue", ("work",), "engine", NOWHERE, "Links: queue 'work': its engine"),
    ("queue", ("waiting",), "waitsets", NOWHERE, "Links|Recount: queue 'waiting'"),
    ("index", ("idle",), "count", "+1", "Recount: queue 'idle': its index"),
    ("index", ("idle",), "tail", NOWHERE, "Recount: queue 'idle': its index"),
    ("index", ("idle",), "table", NOWHERE, "Recount: queue 'idle': the table"),
    ("index", ("idle",), "mask", "-1", "Links: queue 'idle': the table"),
    ("index", ("idle",), "number", "+1", "Links: queue 'idle': at id 33"),
    ("index", ("idle",), "live", "+1", "Recount: queue 'idle': page 0"),
    ("index", ("idle",), "previous", NOWHERE, "Order: queue 'idle': page 1"),
    ("index", ("idle",), "slot", NOWHERE, "Recount: queue 'idle': page 0"),
    ("index", ("idle",), "root", NOWHERE, "Links: queue 'idle': the root"),
    ("index", ("idle",), "root", to("page_below", "idle"), "Order|Recount: queue 'idle'"),
    ("index", ("idle",), "root.rank", 0, "Order: queue 'idle': page"),
    ("index", ("idle",), "below", NOWHERE, "Recount: queue 'idle': the tree"),
    ("index", ("idle",), "below", to("queue", "idle"), "Order: queue 'idle': page"),
    ("entry", ("idle", 3), "id", "+1", "Links: queue 'idle': at id 3"),
    ("entry", ("idle", 3), "sequence", "+1", "Order: queue 'idle', message 4"),
    ("entry", ("idle", 1), "sequence", 1, "Once: engine: two messages have the sequence 1"),
    ("entry", ("idle", 3), "timestamp", "-1", "Order: queue 'idle', message 3: its timestamp"),
    ("entry", ("idle", 3), "content", NOWHERE, "Links: queue 'idle', message 3: it has no content"),
    ("entry", ("idle", 3), "queue", to("queue", "work"), "Links: queue 'idle': at id 3"),
    ("entry", ("idle", 3), "holder", to("selector", 1), "Links: queue 'idle', message 3: a selector holds it"),
    ("entry", ("idle", 3), "below", to("entry", "idle", 4), "Links: queue 'idle', message 3: no selector holds it"),
    ("entry", ("idle", 3), "state", 9, "Links: queue 'idle', message 3: its state is 9"),
    ("entry", ("idle", 3), "state", 1, "Links: queue 'idle', message 3: it waits in a waitset of another"),
    ("entry", ("idle", 3), "flags", 32, "Quiet: queue 'idle', message 3: it is in the midst"),
    ("entry", ("idle", 3), "flags", 128, "Links: queue 'idle', message 3: it is in a returned heap"),
    ("entry", ("back", 2), "flags", 1, "Links: queue 'back', message 2: its stored position"),
    ("entry", ("back", 3), "link", NOWHERE, "Links: queue 'back', message 3: its stored position"),
    ("entry", ("back", 2), "holder", to("waitset", "waiting", 4), "Links: queue 'back': message 2 is in a waitset"),
    ("entry", ("waiting", 2), "flags", 128, "Links: queue 'waiting': message 2 is in a waitset"),
    ("entry", ("idle", 3), "flags", 64, "Quiet: queue 'idle', message 3: it is in the midst"),
    ("entry", ("idle", 3), "flags", 16, "Links: queue 'idle', message 3: the number of its last nack"),
    ("entry", ("idle", 3), "parent", to("entry", "entry", 3), "Links: queue 'idle', message 3: its parent"),
    ("entry", ("work", 2), "link", NOWHERE, "Links: queue 'work', its history: message 2"),
    ("entry", ("work", 1), "next", NOWHERE, "Recount|Links: queue 'work', its history"),
    ("entry", ("work", 1), "parent", to("entry", "entry", 3), "Links: queue 'work', message 1: it is settled"),
    ("entry", ("work", 3), "parent", NOWHERE, "Links: queue 'entry', message 3: its child"),
    ("entry", ("work", 3), "parent", to("entry", "entry", 4), "Links: queue 'entry', message 3: its child"),
    ("entry", ("work", 3), "holder", to("selector", 1), "Links: selector 2, what was taken: message 3"),
    ("entry", ("work", 3), "below", to("entry", "idle", 1), "Links: queue 'work', message 3: its delivery"),
    ("entry", ("work", 6), "below", NOWHERE, "Links: engine: offer"),
    ("entry", ("work", 6), "state", 4, "Links: selector 2, what it holds: message 6"),
    ("entry", ("work", 5), "flags", 0, "Recount: engine: 4 messages were nacked, found 3"),
    ("entry", ("entry", 3), "below", NOWHERE, "Links: queue 'entry', message 3: its child"),
    ("entry", ("entry", 3), "below", to("entry", "work", 4), "Links: queue 'entry', message 3: its child"),
    ("entry", ("entry", 3), "state", 3, "Links: queue 'entry', message 3"),
    ("entry", ("waiting", 2), "sequence", "+50", "Order: queue 'waiting', message 3"),
    ("entry", ("waiting", 2), "holder", to("waitset", "waiting", 4), "Links: queue 'waiting': message 2 is in a waitset"),
    ("entry", ("waiting", 2), "next", NOWHERE, "Links: queue 'waiting': the last message"),
    ("entry", ("waiting", 2), "flags", 2, "Links: queue 'waiting', message 2"),
    ("offer", ("work", 6), "entry", to("entry", "work", 7), "Links: engine: offer"),
    ("offer", ("work", 6), "destination", NOWHERE, "Links: queue 'work', message 6"),
    ("offer", ("work", 6), "number", "+1", "Order: queue 'work', message 7: its offer"),
    ("offer", ("work", 7), "previous", NOWHERE, "Order: queue 'work', message 7: its offer"),
    ("offer", ("work", 6), "next", NOWHERE, "Recount: engine: 5 offers"),
    ("offer", ("work", 7), "above", NOWHERE, "Order: destination 'd': offer"),
    ("offer", ("work", 6), "below", NOWHERE, "Recount: destination 'd'"),
    ("destination", ("d",), "head", NOWHERE, "Recount: destination 'd'"),
    ("destination", ("d",), "tail", NOWHERE, "Recount: destination 'd'"),
    ("destination", ("d",), "count", "-1", "Recount: destination 'd'"),
    ("destination", ("d",), "pins", "-1", "Recount: destination 'd'"),
    ("selector", (11,), "ready.key", "+2", "Order: selector|Order: queue 'entry', clause"),
    ("selector", (3,), "ready.key", (32_767 << 48) + 11, "Once: selector 11: another one"),
    ("selector", (1,), "ready.position", NOWHERE, "Order: queue 'entry', clause"),
    ("selector", (3,), "ready.position", "+1", "Recount|Credit: selector 3"),
    ("selector", (1,), "id", "+1", "Links: selector 1"),
    ("selector", (1,), "verb", 0, "Links: queue 'entry', clause"),
    ("selector", (1,), "role", 1, "Links: queue 'entry', clause"),
    ("selector", (1,), "role", 2, "Links: selector 1: a selector has a clause"),
    ("selector", (1,), "puts", 0, "Links: selector 1: its action"),
    ("selector", (2,), "puts", 1, "Links: selector 2: its action"),
    ("selector", (1,), "enabled", 0, "Credit: selector 1: it is ready"),
    ("selector", (8,), "infinite", 0, "Links: selector 8, what it holds|Credit"),
    ("selector", (1,), "window", "+1", "Credit: selector 1: a window of 10, but 4 available and 5 outstanding"),
    ("selector", (1,), "available", "-1", "Credit: selector 1: a window of 9, but 3 available"),
    ("selector", (2,), "available", "+1", "Credit: selector 2: it can take, though it is not ready"),
    ("selector", (1,), "source", to("queue", "work"), "Links: selector 1: its source"),
    ("selector", (1,), "source", NOWHERE, "Links: selector 1: its source"),
    ("selector", (1,), "target", to("queue", "out"), "Links: queue 'work': the list of its sources"),
    ("selector", (1,), "target", to("selector", 2), "Links: selector 1: its target"),
    ("selector", (1,), "clause", NOWHERE, "Links: selector 1: a selector has a clause"),
    ("selector", (2,), "destination", NOWHERE, "Links|Recount: (queue 'work', message 6|destination 'd')"),
    ("selector", (4,), "waiters", NOWHERE, "Credit: selector 4: it can take, though it is not ready"),
    ("selector", (1,), "holding.head", NOWHERE, "Recount: selector 1, what it holds"),
    ("selector", (1,), "holding.count", "+1", "Recount: selector 1, what it holds"),
    ("selector", (2,), "taken.tail", NOWHERE, "Recount: selector 2, what was taken"),
    ("selector", (2,), "taken.count", "-1", "Recount: selector 2, what was taken"),
    ("selector", (9,), "start", 99, "Order: selector 9: starts at 99"),
    ("selector", (1,), "served", "+1", "Credit: selector 1: 8 served"),
    ("selector", (1,), "paid", "-1", "Credit: selector 1: 7 served"),
    ("selector", (2,), "returned", "-1", "Credit: selector 2: 8 served"),
    ("selector", (5,), "next_same_target", NOWHERE, "Links: queue 'full': 1 sources"),
    ("waiter", (4,), "selector", to("selector", 5), "Once|Links: selector"),
    ("waiter", (4,), "target", to("queue", "out"), "Links: queue 'full', its waiting list"),
    ("waiter", (5,), "previous", NOWHERE, "Links: queue 'full', its waiting list"),
    ("waiter", (4,), "next", NOWHERE, "Links: queue 'full', its waiting list"),
    ("waiter", (4,), "next_of_selector", to("waiter", 5), "Links: selector 4: it stands in more waiting lists"),
    ("waiter", (16,), "next_of_selector", NOWHERE, "Recount: selector 16: 2 waiters, found 1"),
    (
        "waiter", (16,), "previous_of_selector", to("waiter", 4),
        "Links: selector 16: one of its waiters is not linked back"),
    ("selector", (16,), "waiter_count", "-1", "Recount: selector 16: 1 waiters, found 2"),
    ("selector", (17,), "refusals", "+2", "Quiet: selector 17: it is not in the waiting list of queue"),
    ("clause", (3,), "slot", "+1", "Links: queue 'waiting': the clause at 1"),
    ("clause", (3,), "consuming", 0, "Links: queue 'waiting', clause 0: selector 3"),
    ("clause", (3,), "names_queue", 1, "Links: queue 'waiting': the clause at 0 has a wrong flag"),
    ("clause", (3,), "count", 0, "Links: queue 'waiting': the clause at 0 has no selectors"),
    ("clause", (3,), "enabled", 0, "Recount: queue 'waiting', clause 0: 0 enabled"),
    ("clause", (6,), "woken_from", 0, "Links: queue 'waiting', clause 2: its flag and the list of parked messages"),
    ("clause", (1,), "ready.count", 0, "Order: selector 1: its stored heap position"),
    ("clause", (3,), "lanes", NOWHERE, "Recount: queue 'waiting', clause 0: 1 lanes"),
    ("clause", (3,), "lane.clause", NOWHERE, "Links: queue 'waiting', clause 0: the lane"),
    ("clause", (3,), "lane.queue", to("queue", "out"), "Links: queue 'waiting', clause 0: the lane"),
    ("clause", (3,), "lane.members", "+1", "Recount: queue 'waiting', clause 0: a lane has 2 waitsets"),
    ("clause", (3,), "lane.waitsets.count", 0, "Order: queue 'waiting': the stored position of a waitset"),
    ("clause", (3,), "lane.runnable.position", 1, "Order: queue 'waiting': the stored heap position of a lane of clause 0"),
    ("clause", (16,), "closed_last", NOWHERE, "Links: queue 'names', clause 0: 2 closed lanes are not in its list"),
    ("clause", (16,), "closings", "-1", "Order: queue 'names', clause 0: its closed lanes are not in order"),
    ("clause", (16,), "lane.previous", to("waiter", 4), "Links: queue 'names', clause 0: the lane of target .* not linked back"),
    ("clause", (16,), "lane.closed", 0, "Order: queue 'names', message 2: a credit for clause 0 does not find it"),
    ("clause", (16,), "lane.closed", "-1", "Order: queue 'names', clause 0: its closed lanes are not in order"),
    ("clause", (16,), "lane.open.position", 1, "Order: queue 'names', clause 0: the stored heap position of an open lane"),
    ("clause", (16,), "lane.closed_before", NOWHERE, "Links: queue 'names', clause 0: 1 closed lanes are not in its list"),
    ("clause", (16,), "lane.closed_after", to("waiter", 4), "Links: queue 'names', clause 0: the list of its closed lanes"),
    ("clause", (18,), "open.count", "-1", "Order: queue 'starved', clause 0: the stored heap position of an open lane"),
    ("clause", (18,), "lane.open.key", "+1", "Order: queue 'starved', message 2: a credit for clause 0 does not find it"),
    ("clause", (18,), "lane.open.position", 0, "Order: queue 'starved', clause 0"),
    ("clause", (3,), "lane.closed", 1, "Once: queue 'waiting', clause 0: a lane is open and closed, or no field"),
    ("waitset", ("waiting", 1), "queue", to("queue", "out"), "Links: queue 'waiting': the list of its waitsets"),
    ("waitset", ("waiting", 1), "head", NOWHERE, "Links: queue 'waiting': the last message"),
    ("waitset", ("waiting", 1), "head", to("entry", "waiting", 2), "Links: queue 'waiting': message 2"),
    ("waitset", ("waiting", 1), "tail", NOWHERE, "Links: queue 'waiting': the last message"),
    ("waitset", ("back", 2), "returned", to("entry", "back", 3), "Links: queue 'back', message 3: its stored position"),
    ("waitset", ("back", 2), "returned_count", "-1", "Recount: queue 'back': a waitset has 5 messages, found 3 and 1"),
    ("waitset", ("back", 2), "returned_capacity", 1, "Recount: queue 'back': a waitset has 5 messages"),
    ("waitset", ("waiting", 1), "count", "+1", "Recount: queue 'waiting': a waitset has 4 messages"),
    ("waitset", ("waiting", 1), "defaulted", 1, "Links: queue 'waiting', message 1"),
    ("waitset", ("waiting", 1), "parked", 1, "Links: queue 'waiting': waitset"),
    ("waitset", ("waiting", 6), "slot_count", 0, "Links: queue 'waiting': waitset"),
    ("waitset", ("waiting", 1), "pinned", 0, "Links: queue 'waiting': the pin of waitset"),
    ("waitset", ("waiting", 1), "previous", NOWHERE, "Links: queue 'waiting': the list of its waitsets"),
    ("waitset", ("waiting", 4), "next", NOWHERE, "Links|Recount: queue 'waiting'"),
    ("waitset", ("waiting", 1), "member_count", 0, "Links: queue 'waiting': waitset"),
    ("waitset", ("waiting", 1), "node.key", "+1", "Order: queue 'waiting', message 1: clause 0 does not find it"),
    ("waitset", ("waiting", 1), "node.position", 0, "Order: queue 'waiting', clause 0, lane"),
    ("waitset", ("waiting", 1), "node.owner", to("waitset", "waiting", 4), "Links: queue 'waiting': a waitset is in a lane"),
    ("route", ("waiting",), "slots", 77, "Links: queue 'waiting', route of the clauses"),
    ("route", ("waiting",), "slot_count", 0, "Links: queue 'waiting', route of the clauses"),
    ("route", ("waiting",), "copy_count", "+1", "Links: queue 'waiting', route of the clauses"),
    ("route", ("waiting",), "clauses", NOWHERE, "Links: queue 'waiting', route of the clauses"),
    ("route", ("waiting",), "names_queue", 1, "Links: queue 'waiting', route of the clauses"),
    ("route", ("waiting",), "waitset", NOWHERE, "Links: queue 'waiting': the pin of waitset"),
    ("route", ("waiting",), "hash", "+1", "Recount: queue 'waiting'"),
    ("route", ("waiting",), "route_count", "+1", "Recount: queue 'waiting'"),
    ("route", ("waiting",), "known_count", "+1", "Recount: queue 'waiting'"),
]


def named(case):
    kind, key, name, value, _ = case
    return f"{kind} {' '.join(str(part) for part in key)} {name} {value if not isinstance(value, tuple) else 'to ' + value[0]}"


@pytest.mark.parametrize(("kind", "key", "name", "value", "told"), WRONG, ids=map(named, WRONG))
def test_whatever_is_wrong_is_found(books, corrupt, kind, key, name, value, told):
    place = getattr(corrupt, kind)(books.engine, *key)[name]
    if isinstance(value, tuple):
        value = getattr(corrupt, value[0])(books.engine, *value[1])["self"][0]
    with wrong(place, value), pytest.raises(xump.InvariantError, match=told):
        books.engine.check()
    books.engine.check()


# ---- in the books of durable stores, too

class DurableBooks:
    """Two stores of which nothing was written yet, with a record behind every fence, and an entry in RAM for every shadow."""

    def __init__(self, clock):
        self.engine = engine = xump.Engine(clock=clock)
        for name in ("left", "right"):
            engine.create_store(name, "log shelf", path=name)
        for name, history_limit in (("out", 0), ("copied", 0), ("kept", 2), ("lent", 0), ("idle", 0)):
            engine.create_queue(name, store="left", history_limit=history_limit)
        for name in ("in", "still"):
            engine.create_queue(name, store="right")
        engine.create_queue("ram")
        engine.create_selector("out", when=always, do=move_to("in"), credit=INFINITE)
        engine.create_selector("copied", when=always, do=copy_to("in"))
        engine.create_selector("kept", when=always, do=move_to("ram"), credit=INFINITE)
        engine.create_selector("lent", when=always, do=move_to("ram"), credit=INFINITE)
        engine.publish("in", body=b"first")
        engine.sync()
        for name in ("kept", "lent", "out", "copied"):
            engine.publish_many(name, [("a", b"body")] * 3)
        engine.queues["idle"].publish("b")
        engine.queues["idle"].publish("b")
        engine.queues["idle"].delete(1)
        engine.check()


@pytest.fixture
def durable_books(clock):
    LOGS.clear()
    made = DurableBooks(clock)
    yield made
    made.engine.check()
    made.engine.close()


WRONG_IN_STORES = [
    ("durable", (), "stores", NOWHERE, "Recount: engine: 2 durable stores, 0 linked"),
    ("durable", (), "stores", to("queue", "in"), "Links: engine: the list of its durable stores"),
    ("durable", (), "store_count", "+1", "Recount: engine: 3 durable stores, 2 linked"),
    ("durable", (), "claim", to("queue", "in"), "Quiet: engine: a durable message waits for an entry"),
    ("store", ("out",), "engine", NOWHERE, "Links: store 'left': its engine"),
    ("store", ("out",), "slot", 1, "Once: engine: durable stores share a number"),
    ("store", ("in",), "next", NOWHERE, "Recount: engine: 2 durable stores, 1 linked"),
    ("store", ("out",), "is_changed", 1, "Links: store 'left': its flag and the list of stores that have something"),
    ("store", ("out",), "touched", NOWHERE, "Links: queue '.*': its flag and the list of queues whose state"),
    ("store", ("out",), "touched", to("queue", "in"), "Links: store 'left': the list of queues whose state"),
    ("store", ("out",), "size", "-8", "Order: store 'left': at byte"),
    ("store", ("out",), "size", 8, "Recount: store 'left': its open group"),
    ("store", ("out",), "position", "+8", "Order: store 'left': at byte"),
    ("store", ("out",), "records", "+1", "Recount: store 'left': .* records in its open group"),
    ("store", ("out",), "durable", "+1", "Recount: store 'left': its open group, number 2"),
    ("store", ("out",), "live", "-8", "Recount: store 'left': messages in it"),
    ("store", ("out",), "size_top", "+1", "Recount: store 'left': of some size"),
    ("store", ("out",), "resident", "+8", "Recount: store 'left': contents in memory"),
    ("store", ("out",), "fence_count", "-2", "Recount: queue 'copied': its frontier waits for 3"),
    ("store", ("out",), "fence_mask", 1, "Recount: store 'left', what waits for others"),
    ("store", ("out",), "last_number", 1, "Once: queue '.*': its number"),
    ("durable_queue", ("idle",), "store", NOWHERE, "Links: store 'left': its queue number"),
    ("durable_queue", ("idle",), "store", to("store", "in"), "Links: store 'left': its queue number"),
    ("durable_queue", ("idle",), "durable", 0, "Links: queue 'idle': its store"),
    ("durable_queue", ("ram",), "durable", 1, "Links: queue 'ram': its store"),
    ("durable_queue", ("ram",), "touched", 1, "Links: queue 'ram': it is in RAM"),
    ("durable_queue", ("idle",), "number", "-1", "Once: queue 'idle': its number"),
    ("durable_queue", ("idle",), "touched", 0, "Links: queue 'idle': its flag and the list of queues whose state"),
    ("durable_queue", ("idle",), "next_touched", to("queue", "ram"), "Links: store 'left': the list of queues whose state"),
    ("durable_queue", ("still",), "handed", 1, "Order: queue 'still': ids up to 1 were handed out"),
    ("durable_queue", ("idle",), "settled_at", "+8", "Links: queue 'idle': the record of what was settled last"),
    ("durable_queue", ("out",), "settled_group", 2, "Links: queue 'out': the record of what was settled last"),
    ("durable_queue", ("in",), "durable_id", 99, "Order: queue 'in': ids up to 99 are durable"),
    ("durable_queue", ("in",), "written_id", 99, "Order: queue 'in': ids up to 1 are durable, up to 99 written"),
    ("durable_queue", ("copied",), "frontier_safe", 3, "Order: queue 'copied': its frontier is safe up to 3"),
    ("durable_queue", ("copied",), "frontier_waits", "-1", "Recount: queue 'copied': its frontier waits for 2"),
    ("fence", ("out", 0), "other", to("store", "out"), "Links: store 'left', what waits for others: a fence"),
    ("fence", ("out", 0), "other", NOWHERE, "Links: store 'left', what waits for others: a record of kind 0"),
    ("fence", ("out", 0), "group", "+1", "Links: store 'left', what waits for others: a fence"),
    ("fence", ("out", 1), "id", 99, "Order: store 'left', what waits for others: message 99 of queue 'out'"),
    ("fence", ("out", 1), "id", 0, "Links: store 'left', what waits for others: a record"),
    ("fence", ("out", 1), "queue", 99, "Links: store 'left', what waits for others: the end of queue number 99"),
    ("fence", ("out", 1), "charge", "+8", "Recount: store 'left': messages in it"),
    ("fence", ("out", 1), "kind", 2, "Links: store 'left', what waits for others: a record of kind 2"),
    ("entry", ("kept", 2), "flags", 0, "Links: queue 'kept', message 2: it owns an entry in RAM"),
    ("entry", ("idle", 2), "flags", 512, "Links: queue 'idle', message 2: it is a shadow"),
    ("entry", ("idle", 2), "flags", 1024, "Links: queue 'idle', message 2: it is durable"),
    ("entry", ("ram", 1), "content", "+2", "Links: queue 'ram', message 1: it is in RAM"),
    ("entry", ("ram", 1), "flags", 0, "Links: engine: 5 messages in RAM are owned"),
    ("entry", ("ram", 1), "flags", "+256", "Links: queue 'ram', message 1: it is in RAM"),
]


@pytest.mark.parametrize(("kind", "key", "name", "value", "told"), WRONG_IN_STORES, ids=map(named, WRONG_IN_STORES))
def test_whatever_is_wrong_in_stores_is_found(durable_books, corrupt, kind, key, name, value, told):
    test_whatever_is_wrong_is_found(durable_books, corrupt, kind, key, name, value, told)


def test_held_queues_excuse_what_waits(books, corrupt):
    books.engine.queues["waiting"].hold()
    full = corrupt.queue(books.engine, "full")
    with wrong(full["limit"], 2), wrong(full["limit_given"], 2):
        books.engine.check()
    with wrong(corrupt.queue(books.engine, "waiting")["held"], 0), wrong(full["limit"], 2), wrong(full["limit_given"], 2):
        with pytest.raises(xump.InvariantError, match="Quiet"):
            books.engine.check()


WITHOUT_MEMORY = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import corrupt
from xump import Engine, copy_to, match
engine = Engine()
for name in "at":
    engine.create_queue(name)
engine.create_selector("a", when=match("eq", "x"), do=copy_to("t"))
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
corrupt.exhaust([128, 512])     # the tables of a plan
engine.delete_queue("a")
engine.check()
engine.close()
"""


def test_a_queue_is_deleted_when_there_is_no_memory(corrupt):
    done = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY, str(Path(corrupt.__file__).parent)], cwd=HERE.parents[1],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
