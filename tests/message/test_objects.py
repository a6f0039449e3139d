"""Objects made without their constructors, copies and pickles of proper ones, and texts that are no exact str.

Whatever Python code can reach is harmless or raises; it never ends the process. Code that might end it runs in a child process.
"""

import copy
import dataclasses
import enum
import pickle
import subprocess
import sys
from functools import partial

import pyarrow
import pytest

import xump
from tests.test_layout import COMPILED, ROOT
from xump import (
    Delivery, Engine, Housecat, Message, Parrot, Wolfpack, always, bounce_to, copy_to, deliver, discard, field, match, move_to,
    where,
)
from xump.actions import Action, Field
from xump.conditions import All, Match, Role, Where
from xump.errors import (
    Closed, InvalidFilter, InvalidPattern, QueueNotFound, SelectorNotFound, StaleDelivery,
)
from xump.operators import register_operator
from xump.queue import Queue
from xump.selector import Selector
from xump_ext.arrow.batch import DeliveryBatch
from xump_ext.engine.taking import DeliveryIterator

# ---- objects that were not initialised

BLANK = """
import contextlib, importlib
from xump import Engine
from xump.queue import Queue
from xump.selector import Selector

engine = Engine()
for module in {modules}:
    for kind in [*vars(importlib.import_module(module)).values(), Queue, Selector, Engine]:
        if isinstance(kind, type) and (kind.__module__.startswith("xump")) and not issubclass(kind, BaseException):
            for arguments in [(), (None,), (engine,), (None, None, 0), (engine, None, 0)]:
                with contextlib.suppress(Exception):
                    thing = kind.__new__(kind, *arguments)
                    for name in ["__repr__", "__str__", "__len__", "__iter__", "__next__", "__hash__", "__reduce__", "__eq__",
                                 "__contains__", "__getitem__", "__enter__", "__exit__", "__init__", "__sizeof__", *dir(thing)]:
                        if name not in ("__class__", "__subclasshook__", "__init_subclass__"):
                            with contextlib.suppress(Exception):
                                method = getattr(thing, name)
                                for given in [(), (None,), (1,), ("a",), (None, None, None), ("a", 1), (thing,)]:
                                    with contextlib.suppress(Exception):
                                        method(*given)
print("alive")
"""


@pytest.mark.parametrize("package", sorted({module.rpartition(".")[0] for module in COMPILED}))
def test_blank_objects_do_not_end_the_process(package):
    modules = [module for module in COMPILED if module.rpartition(".")[0] == package]
    done = subprocess.run([sys.executable, "-c", BLANK.format(modules=modules)], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    assert done.stdout.endswith("alive\n"), (done.returncode, done.stderr)


def test_a_blank_message_says_nothing():
    blank = Message.__new__(Message)
    assert blank == Message() and repr(blank) == "Message('', b'')" and dict(blank.headers) == {}
    assert (blank.address, blank.body, blank.reply_to, blank.message_id, blank.destination) == ("", b"", None, None, None)
    assert (blank.id, blank.timestamp, blank.hops) == (0, 0, 0)
    assert hash(blank) == hash(Message()) and blank.replace(address="a") == Message("a")
    assert Message.__new__(Message, "ignored") == blank
    with Engine() as engine:
        engine.create_queue("q")
        assert engine.publish_many("q", [blank]) == range(1, 2)


@pytest.mark.parametrize("kind", [Delivery, DeliveryBatch, type(Message().headers)])
def test_what_the_engine_makes_cannot_be_made(kind):
    for make in (lambda: kind.__new__(kind), kind, lambda: kind(1), lambda: kind.__new__(kind, 1)):
        with pytest.raises(TypeError):
            make()
    assert list(Message(headers={"a": 1}).headers) == ["a"]      # the engine still can
    with pytest.raises(TypeError):
        DeliveryIterator.__new__(DeliveryIterator)


def test_blank_queues_and_selectors_are_nobody_s():
    queue, selector = Queue.__new__(Queue), Selector.__new__(Selector)
    for thing, error in ((queue, QueueNotFound), (selector, SelectorNotFound)):
        assert "deleted" in repr(thing) and thing != 1
        with pytest.raises(error):
            thing.counters()
    with Engine() as engine, pytest.raises(QueueNotFound):
        engine.publish(queue)
    with Engine() as engine:
        assert engine.delete_selector(selector) is False and engine.delete_queue(queue) is False


# ---- copies

def copies_of(thing):
    yield copy.copy(thing)
    yield copy.deepcopy(thing)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(thing, protocol))


def test_a_message_can_be_copied_and_pickled():
    with Engine(clock=lambda: 7) as engine:
        engine.create_queue("q")
        engine.create_queue("r")
        engine.create_selector("q", when=always, do=deliver("d", "r"), credit=9)
        engine.publish("q", "ä", b"body", {"n": 1, "t": True, "f": 0.5, "s": "ö", "b": b"\0"}, reply_to="r", message_id="m")
        [message] = engine.queues["r"].browse()
    for original in (message, Message(), Message.__new__(Message), Message("a", headers={"x": "y"})):
        for twin in copies_of(original):
            assert twin == original and repr(twin) == repr(original) and twin.headers == original.headers
            assert (twin.destination, twin.id, twin.timestamp, twin.hops) == (
                original.destination, original.id, original.timestamp, original.hops)


def test_a_bounced_message_may_have_more_headers_than_can_be_published():
    """It can be copied, published as a message and bounced again; as columns it cannot be published."""
    headers_max = {"x": "y" * ((1 << 20) - 8)}
    with Engine(dead_letter="dead") as engine:
        queue = engine.create_queue("dead")
        engine.publish("nowhere", "a", b"", headers_max)
        [bounced] = queue.browse()
        assert len(bounced.headers) == 4
        for twin in copies_of(bounced):
            assert twin == bounced and dict(twin.headers) == dict(bounced.headers)
        engine.publish_many("nowhere", [twin])
        assert [dict(message.headers) for message in queue.browse()] == [dict(bounced.headers)] * 2
        engine.create_selector("dead", when=always, do=deliver("d"), credit=9)
        with pytest.raises(ValueError, match="'headers', row 0: 10[0-9]+ bytes, allowed are 1048576"):
            engine.publish_batch("dead", engine.take_batch(1))
    parts = bounced.__reduce__()[1]
    with pytest.raises(ValueError, match="allowed are 2097152"):
        type(bounced)(*parts[:2]).__reduce__()[0](*parts[:2], {"x": "y" * (2 << 20)}, *parts[3:])


def test_headers_are_copied_as_a_dict():
    for twin in copies_of(Message(headers={"n": 1, "s": "x"}).headers):
        assert twin == {"n": 1, "s": "x"}


def test_what_belongs_to_an_engine_cannot_be_copied():
    with Engine() as engine:
        queue = engine.create_queue("q")
        selector = engine.create_selector("q", when=always, do=deliver("d"), credit=9)
        engine.publish_many("q", [("a",), ("b",)])
        [delivery] = engine.take(1)
        for thing in (delivery, engine.take_batch(1), engine, queue, selector, engine.deliveries(), engine.transaction(),
                      engine.building()):
            for copies in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match=f"^{type(thing).__name__} objects cannot be pickled or copied: .*topology"):
                    copies(thing)
        engine.check()
        delivery.ack()


# ---- a delivery that is paid for in its block

@pytest.mark.parametrize("raises", [False, True])
def test_a_delivery_that_was_paid_for_is_answered(raises):
    with Engine() as engine:
        queue = engine.create_queue("q")
        selector = engine.create_selector("q", when=always, do=deliver("d"), credit=9)
        engine.publish_many("q", [("a",), ("b",), ("c",)])
        first, second, third = engine.take(3)
        try:
            with first, second:
                selector.pay(2)
                if raises:
                    raise LookupError
        except LookupError:
            assert raises
        assert (queue.outstanding, selector.outstanding) == (1, 1)
        for delivery in (first, second):
            with pytest.raises(StaleDelivery):
                delivery.ack()
        with pytest.raises(StaleDelivery), third:       # taken back is another thing
            selector.delete()
        engine.check()


def test_paying_for_a_batch_and_for_deliveries_that_are_gone():
    with Engine() as engine:
        engine.create_queue("q")
        selector = engine.create_selector("q", when=always, do=deliver("d"), credit=9)
        engine.publish_many("q", [(name,) for name in "abcde"])
        batch = engine.take_batch(3)
        engine.take(1)                                  # nobody has it any more
        [delivery] = engine.take(1)
        selector.pay(2)
        with pytest.raises(StaleDelivery):
            batch.ack([1])
        batch.nack([3])
        [again] = engine.take(1)
        with again, delivery:
            selector.pay(3)
        assert selector.outstanding == 0
        engine.check()


# ---- texts that are no exact str

class Name(enum.StrEnum):
    JOBS = "jobs"
    WORK = "work"
    DEAD = "dead"
    WORKER = "worker"
    TOPIC = "jobs.#"
    FIELD = "headers.to"


class Mixed(str, enum.Enum):  # noqa: UP042
    """Whose `str()` is not its value."""

    JOBS = "jobs"
    WORK = "work"
    DEAD = "dead"
    WORKER = "worker"
    TOPIC = "jobs.#"
    FIELD = "headers.to"


class Text(str):
    """One that says something else about itself."""

    def __str__(self):
        return "another"

    def __repr__(self):
        return "another"

    def __format__(self, spec):
        return "another"

    def __eq__(self, other):
        return str.__eq__(self, other)

    def __hash__(self):
        return 7

    @classmethod
    def of(cls, member):
        return cls(member.value)


class Texts:
    JOBS, WORK, DEAD, WORKER, TOPIC, FIELD = map(Text.of, Name)


@pytest.mark.parametrize("names", [Name, Mixed, Texts])
def test_a_str_counts_by_its_value(names):
    if "objects_same" not in xump.operators.operator_names():
        register_operator(Text("objects_same"), lambda pattern, value: type(pattern) is type(value) is str and pattern == value)
    with Engine(dead_letter=names.DEAD) as engine:
        engine.create_store(names.WORK, Text("ram"))
        jobs = engine.create_queue(names.JOBS, dead_letter=names.DEAD)
        engine.create_queue(names.WORK, store=names.WORK)
        dead = engine.create_queue(names.DEAD)
        assert engine.create_queue("jobs", dead_letter="dead") is jobs and jobs.dead_letter == "dead"
        named = engine.create_selector(
            names.JOBS, when=match("eq", names.JOBS), do=move_to(names.WORK), name=names.WORKER, credit=9)
        assert engine.create_selector("jobs", when=match("eq", "jobs"), do=move_to("work"), name="worker", credit=9) is named
        for when in (match(Text("topic"), names.TOPIC), where({names.WORK: names.WORK}), where(Text("work = 'work'")),
                     match("prefix", names.JOBS, names.FIELD), match(Text("objects_same"), names.JOBS)):
            engine.create_selector(names.JOBS, when=when, do=copy_to(names.DEAD))
        engine.create_selector(names.WORK, when=always, do=deliver(names.WORKER), credit=9)
        engine.create_selector(names.JOBS, when=match("eq", "field"), do=move_to(field(names.FIELD)), credit=9)
        assert engine.publish(
            names.JOBS, names.JOBS, b"", {names.WORK: names.WORK}, reply_to=names.DEAD, message_id=names.JOBS) == 1
        assert engine.publish_many(names.JOBS, [(names.WORK,), Message(names.JOBS)]) == range(2, 4)
        assert engine.publish_batch(names.JOBS, pyarrow.table({"address": ["field"], "headers": [{"to": "work"}]})) == range(4, 5)
        with engine.transaction() as tx:
            tx.publish(names.JOBS, names.JOBS)
        assert engine.publish(Text("nowhere")) == 0 and engine.publish_many(Text("nowhere"), [("a",)]) == range(0)
        taken = [*engine.take(1, names.WORKER), *engine.deliveries(names.WORKER), *engine.take(1, Text("nobody"))]
        assert [delivery.message.address for delivery in taken] == ["jobs", "jobs", "field", "jobs"]
        taken[0].reject(names.WORK)
        first = taken[0].message
        texts = [first.address, first.reply_to, first.message_id, *first.headers, *first.headers.values(), taken[0].destination,
                 *engine.queues, *engine.stores, *engine._named, jobs.name, jobs.dead_letter, engine.dead_letter, named.do.queue,
                 named.when.pattern, named.name, *(message.headers["xump_bounced_from"] for message in dead.browse(
                     where="xump_bounced_from IS NOT NULL"))]
        assert {type(text) for text in texts} == {str}
        assert "another" not in repr([texts, dict(engine.queues), dict(engine.selectors), engine.topology(), engine.to_mermaid()])
        assert {"nowhere", "work"} <= set(texts)
        engine.check()
        assert engine.delete_queue(names.WORK) and engine.delete_store(names.WORK)
        assert sorted(engine.queues) == ["dead", "jobs"]
        with pytest.raises(QueueNotFound, match="'work'"):
            engine.create_selector(names.JOBS, when=always, do=bounce_to(names.WORK))


@pytest.mark.parametrize("names", [Name, Mixed, Texts])
def test_topologies_take_any_str(names):
    with Engine() as engine:
        for n, topology in enumerate((Housecat, Parrot, Wolfpack)):
            kind = topology(engine, [names.JOBS, names.DEAD, names.TOPIC][n])
            arguments = (names.TOPIC,) if topology is Parrot else ()
            recipient = kind.join([names.WORK, names.WORKER, names.FIELD][n], *arguments)
            engine.publish(kind.name, {Housecat: "work", Parrot: "jobs.x", Wolfpack: "any"}[topology])
            assert len(list(recipient.deliveries())) == 1
            assert type(recipient.name) is type(recipient.queue.name) is str
            recipient.leave()
        engine.check()


def test_after_close_a_queue_that_never_was_there_is_not_there():
    engine = Engine()
    queue = engine.create_queue("q")
    engine.close()
    with pytest.raises(Closed):
        queue.ready  # noqa: B018
    with pytest.raises(Closed):
        engine.create_selector(queue, when=always, do=discard)


# ---- actions and conditions that were not made by their functions

def unfinished(kind, **values):
    thing = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(thing, name, value)
    return thing


@pytest.mark.parametrize("make, error, text", [
    (lambda: Action("move"), TypeError, "target queue must be a name, a Queue or field"),
    (lambda: Action("copy", 5), TypeError, "target queue must be a name, a Queue or field"),
    (lambda: dataclasses.replace(move_to("q"), queue=None), TypeError, "target queue"),
    (lambda: dataclasses.replace(bounce_to("q"), queue=""), ValueError, "target queue must not be empty"),
    (lambda: move_to(Queue.__new__(Queue)), TypeError, "target queue .*NoneType"),
    (lambda: move_to("q\ud800"), ValueError, "lone surrogate"),
    (lambda: Action("deliver"), TypeError, "destination must be a name"),
    (lambda: Action("deliver", "q"), TypeError, "destination must be a name"),
    (lambda: Action("move", "q", "d"), ValueError, "move .*no destination, got 'd'"),
    (lambda: Action("discard", "q"), ValueError, "discard .*no target queue, got 'q'"),
    (lambda: Action("fly", "q"), ValueError, "unknown verb 'fly'; allowed are copy, move, deliver, bounce, discard"),
    (lambda: Action(["move"], "q"), ValueError, "unknown verb"),
    (lambda: Field("body"), InvalidPattern, "unknown field 'body'"),
    (lambda: Field("headers."), InvalidPattern, "unknown field 'headers.'"),
    (lambda: Field(5), TypeError, "field must be a str, got int"),
    (lambda: Role("never"), ValueError, "unknown role 'never'; allowed are always, default, overflow"),
    (lambda: Match("eq", 5), TypeError, "pattern must be a str"),
    (lambda: Match("like", "a"), InvalidPattern, "unknown operator 'like'"),
    (lambda: Match("topic", "a.b*"), InvalidPattern, "must be a word of its own"),
    (lambda: Match("eq", "a", "body"), InvalidPattern, "unknown field 'body'"),
    (lambda: Where("a ="), InvalidFilter, "1|2|3"),
    (lambda: Where(5), TypeError, "a filter is a str, a mapping or a callable"),
    (lambda: All(()), TypeError, "two or more conditions"),
    (lambda: All(5), TypeError, "two or more conditions"),
])
def test_values_made_by_hand_are_checked(make, error, text):
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize("broken", [
    unfinished(Action), unfinished(Action, verb="move"), unfinished(Action, verb="deliver", queue="q"),
    unfinished(Action, verb="move", queue=unfinished(Field)),
    unfinished(Action, verb="move", queue=unfinished(Field, name="body")),
    unfinished(Action, verb="move", queue=b"q"), unfinished(Match), unfinished(Match, operator="eq", pattern=None),
    unfinished(Match, operator="eq", pattern="a", field=None), unfinished(Where), unfinished(Where, source="a = 1"),
    unfinished(Where, source="a = 1", tree=("nonsense",)),
    unfinished(Role), unfinished(Role, name="never"), unfinished(All), unfinished(All, parts=5), unfinished(All, parts=()),
    unfinished(All, parts=(match("eq", "a"), unfinished(Match))), unfinished(All, parts=(always, match("eq", "a"))),
])
def test_values_that_were_never_made_are_refused(broken):
    with Engine() as engine:
        engine.create_queue("q")
        arguments = {"when": always, "do": discard} | {"do" if isinstance(broken, Action) else "when": broken}
        with pytest.raises((TypeError, ValueError)):
            engine.create_selector("q", **arguments)
        assert not engine.selectors
        engine.publish("q", "a", b"", {"a": 1})
        engine.check()


@pytest.mark.parametrize("verb, text", [(0, "target"), (1, "target"), (2, "destination"), (3, "target")])
def test_the_core_refuses_a_selector_that_goes_nowhere(verb, text):
    with Engine() as engine:
        queue = engine.create_queue("q")
        selector = Selector.__new__(Selector)
        selector._describe(engine, 1, None, queue, always, discard, None, ())
        with pytest.raises(ValueError, match=text):
            engine._create_selector(selector, verb, 0, (), None, None, None, None, 1, None, 0, None, None, True, "current")
        assert not engine.selectors and queue._enabled_selector(0) is None
        engine.publish("q", "a")
        engine.check()


def test_values_made_by_hand_are_what_their_functions_make():
    assert Match(Text("eq"), Text("a"), Text("reply_to")) == match("eq", "a", "reply_to")
    for when in (Where("n = 1"), Where({"n": 1, "m": [1, 2]}), dataclasses.replace(where({"n": 1})), Where(callable)):
        assert when == where(dict(when.source) if isinstance(when.source, tuple) else when.source) and when.tree
    assert Action("move", Text("q")) == move_to("q") and type(Action("move", Text("q")).queue) is str
    for value in (move_to("q"), deliver("d", field("reply_to")), discard, match("eq", "a") & where({"n": 1}), always):
        for twin in copies_of(value):
            assert twin == value and repr(twin) == repr(value) and hash(twin) == hash(value)


def test_the_queue_of_an_action_stands_for_itself():
    with Engine() as engine, Engine() as other:
        engine.create_queue("q")
        gone = engine.create_queue("twin")
        gone_too, foreign = deliver("d", gone), other.create_queue("twin")
        engine.delete_queue("twin")
        twin = engine.create_queue("twin")
        for do in (copy_to(foreign), move_to(foreign), bounce_to(foreign), deliver("d", foreign), Action("move", gone), gone_too):
            with pytest.raises(QueueNotFound, match="target: no queue 'twin' in this engine"):
                engine.create_selector("q", when=always, do=do)
        assert not engine.selectors
        named = engine.create_selector("q", when=always, do=copy_to(twin), name="named")
        assert engine.create_selector("q", when=always, do=copy_to("twin"), name="named") is named
        with pytest.raises(QueueNotFound):
            engine.create_selector("q", when=always, do=copy_to(foreign), name="named")
        assert copy_to(twin) == copy_to("twin") and repr(copy_to(twin)) == "copy_to('twin')"
        assert dataclasses.asdict(copy_to(twin)) == {"verb": "copy", "queue": "twin", "destination": None}
        assert pickle.loads(pickle.dumps(copy_to(foreign))) == copy_to("twin")     # across processes, names are all there is


# ---- batches that nobody filled

BLANK_BATCH = """
import gc
from xump_ext.arrow.batch import DeliveryBatch
from xump import Engine
made = []
def make(phase, info):
    try:
        made.append(DeliveryBatch.__new__(DeliveryBatch))
    except TypeError:
        pass
with Engine() as engine:
    gc.callbacks.append(make)
    gc.set_threshold(1, 1, 1)
    for _ in range(2000):
        engine.take_batch(1)
    gc.callbacks.clear()
for batch in made:
    for method in (batch.ack, batch.nack):
        try:
            method()
        except Exception:
            pass
print(len(made), "made")
"""


def test_nobody_gets_a_blank_batch_from_inside_the_collector():
    done = subprocess.run([sys.executable, "-c", BLANK_BATCH], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "0 made\n", (done.returncode, done.stderr)


# ---- headers whose names are texts of one's own

class Unlike(str):
    """Equal to itself alone."""

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other


def test_a_message_has_a_header_once():
    once, twice = {Unlike("a"): 1, "b": 2}, {Unlike("a"): 1, "b": 2, Unlike("a"): 3}
    assert dict(Message(headers=once).headers) == {"a": 1, "b": 2}
    with Engine() as engine:
        engine.create_queue("q")
        for call in (lambda: Message(headers=twice), lambda: Message(headers={Unlike("a"): 1, "a": 1}),
                     lambda: engine.publish("q", "", b"", twice), lambda: engine.publish_many("q", [("", b"", twice)])):
            with pytest.raises(ValueError, match="header 'a' is there twice"):
                call()
        assert not engine.queues["q"].last_id


# ---- engines that were not initialised

class Forgetful(Engine):
    def __init__(self):
        """Does not call the other one."""


@pytest.mark.parametrize("make", [lambda: Engine.__new__(Engine), Forgetful])
def test_an_engine_that_was_not_initialised_says_so(make):
    blank = make()
    for call in (
        partial(blank.create_queue, "q"), partial(blank.create_store, "s"), partial(blank.publish, "q"), partial(blank.take, 1),
        partial(blank.publish_many, "q", []), partial(blank.take_batch, 1), blank.deliveries, blank.stats,
        partial(blank.create_selector, "q", when=always, do=discard), partial(blank.delete_queue, "q"), partial(blank.ack, []),
        partial(blank.delete_selector, 1), partial(blank.delete_store, "s"), lambda: blank.building().__enter__(),
        blank.transaction, blank.sync, blank.check, blank.topology,
        blank.to_dot, blank.to_mermaid, partial(blank.apply, {}), blank.__enter__,
    ):
        with pytest.raises(Closed, match=r"the engine was not initialised: call super\(\).__init__\(\)"):
            call()
    assert dict(blank.stores) == dict(blank.queues) == dict(blank.selectors) == {} and not blank.closed
    blank.close()
    blank.close()
    assert blank.closed


def test_an_engine_can_be_initialised_later():
    engine = Engine.__new__(Engine)
    with pytest.raises(TypeError):
        engine.__init__(clock=7)
    with pytest.raises(Closed):
        engine.create_queue("q")
    engine.__init__()
    with engine:
        assert engine.create_queue("q").publish() == 1
