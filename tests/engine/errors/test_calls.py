"""Every error path of a call: the call, the class of error, what its message says; and whatever raised, nothing changed."""

from datetime import UTC, datetime
from types import MappingProxyType, SimpleNamespace

import pyarrow
import pytest

import xump
from tests.arrow.test_damage import DAMAGE, Given
from xump import (
    INFINITE, Delivery, Message, always, bounce_to, copy_to, default, deliver, discard, limits, match, move_to,
    overflow, where,
)
from xump.conditions import Condition
from xump.errors import (
    Conflict, InvalidFilter, QueueFull, QueueNotFound, SelectorNotFound, StaleDelivery, StoreNotFound, TransactionError,
)
from tests.engine.errors.life import BEYOND, LONG, nothing_changed, queue, seen, selector


def test_a_life_has_every_state_in_it(w):
    counts = {name: (queue.ready, queue.outstanding, queue.history) for name, queue in w.engine.queues.items()}
    assert counts == {
        "jobs": (4, 10, 2), "work": (2, 1, 0), "full": (1, 1, 0), "bound": (1, 0, 0), "parked": (1, 0, 0), "held": (2, 0, 0),
        "spill": (6, 0, 0), "closed to all": (0, 0, 0), "private": (0, 0, 0)}
    assert w.down.blocked and w.engine.stats()["engine"]["deliverable"] > 0
    nothing_changed(w)


AWARE = datetime(2024, 1, 1, tzinfo=UTC)
NAIVE = datetime(2024, 1, 1)

BIG = bytes(limits.body_bytes_max + 1)

COUNT_BEYOND = 2**62 + 1


def publish(*arguments, **options):
    return lambda w: w.engine.publish(*arguments, **options)


def tuples(*messages):
    return lambda w: w.engine.publish_many("jobs", [("out.before",), *messages])


def raises_when_read():
    yield ("out.first",)
    raise LookupError("the source broke")


def in_transaction(*operations):
    """Each operation is called with the world and the transaction."""
    def call(w):
        with w.engine.transaction() as tx:
            for operation in operations:
                operation(w, tx)
    return call


def reuse(w):
    with w.engine.transaction() as tx:
        pass
    with tx:
        pass


def crowd(w):
    with w.engine.transaction() as tx:
        tx.ack(w.kept)
        for _ in range(60):
            tx.publish("jobs")


def raising_block(w):
    with w.engine.transaction() as tx:
        tx.publish("jobs", "out.x")
        tx.ack(w.kept)
        raise LookupError("in the block")


ERRORS = {
    # what is published
    "body a str": (publish("jobs", "a", "text"), TypeError, ["body", "bytes", "str", "encode it"]),
    "body a list": (publish("jobs", "a", [1]), TypeError, ["body", "bytes", "list"]),
    "body None": (publish("jobs", "a", None), TypeError, ["body", "bytes", "NoneType"]),
    "body too large": (publish("jobs", "a", BIG), ValueError, ["body", str(len(BIG)), str(limits.body_bytes_max)]),
    "address None": (publish("jobs", None), TypeError, ["address", "str", "NoneType"]),
    "address bytes": (publish("jobs", b"a"), TypeError, ["address", "str", "bytes"]),
    "address too long": (publish("jobs", LONG), ValueError, ["address", "65536", "65534"]),
    "address too long in UTF-8": (publish("jobs", "ä" * 32768), ValueError, ["address", "65536", "65534"]),
    "address without UTF-8": (publish("jobs", "ab\ud800"), ValueError, ["address", "surrogate", r"'\ud800', at 2"]),
    "reply_to without UTF-8": (publish("jobs", reply_to="\ud800"), ValueError, ["reply_to", "surrogate", "at 0"]),
    "message_id without UTF-8": (publish("jobs", message_id="a\udfff"), ValueError, ["message_id", r"'\udfff', at 1"]),
    "reply_to a number": (publish("jobs", reply_to=5), TypeError, ["reply_to", "str", "int"]),
    "reply_to too long": (publish("jobs", reply_to=LONG), ValueError, ["reply_to", "65536", "65534"]),
    "message_id bytes": (publish("jobs", message_id=b"1"), TypeError, ["message_id", "str", "bytes"]),
    "message_id too long": (publish("jobs", message_id=LONG), ValueError, ["message_id", "65536", "65534"]),
    "headers a list": (publish("jobs", headers=[("a", 1)]), TypeError, ["headers", "mapping", "list"]),
    "headers a str": (publish("jobs", headers="a"), TypeError, ["headers", "mapping", "str"]),
    "header a list": (publish("jobs", headers={"n": [1]}), TypeError, ["'n'", "bool, int, float, str or bytes", "list"]),
    "header None": (publish("jobs", headers={"first": 1, "n": None}), TypeError, ["'n'", "NoneType"]),
    "header of a mapping": (publish("jobs", headers=MappingProxyType({"n": {}})), TypeError, ["'n'", "dict"]),
    "header's name a number": (publish("jobs", headers={5: 1}), TypeError, ["name", "str", "int"]),
    "header's name empty": (publish("jobs", headers={"": 1}), ValueError, ["name", "0 bytes", "1 to 65535"]),
    "header's name too long": (publish("jobs", headers={LONG: 1}), ValueError, ["name", "65536", "65535"]),
    "header's name without UTF-8": (publish("jobs", headers={"n": 1, "x\ud800": 1}), ValueError, ["header's name", "at 1"]),
    "header without UTF-8": (publish("jobs", headers={"n": "x\ud800"}), ValueError, ["header 'n'", "surrogate", "at 1"]),
    "header beyond 64 bits": (publish("jobs", headers={"n": BEYOND}), ValueError, ["'n'", str(BEYOND), "64 bits", "2**63 - 1"]),
    "header below 64 bits": (publish("jobs", headers={"n": -BEYOND - 1}), ValueError, ["'n'", str(-BEYOND - 1), "-2**63"]),
    "headers too large": (publish("jobs", headers={"n": "x" * 2**20}), ValueError, ["headers", "1048584", str(2**20)]),
    "many headers too large": (
        publish("jobs", headers={f"{n:04}": b"x" * 1021 for n in range(1024)}), ValueError, ["headers", "1056768", str(2**20)]),
    "more arguments": (publish("jobs", "a", b"", None, "reply"), TypeError, ["publish"]),
    # into which queue
    "publish nowhere": (publish("nowhere"), QueueNotFound, ["'nowhere'"]),
    "publish to a number": (publish(5), TypeError, ["str", "Queue", "int"]),
    "publish to None": (publish(None), TypeError, ["str", "Queue", "NoneType"]),
    "publish to bytes": (publish(b"jobs"), TypeError, ["str", "Queue", "bytes"]),
    "publish to another engine's": (lambda w: w.engine.publish(w.foreign), QueueNotFound,
        ["'jobs'", "another engine"]),
    "publish to a full one": (publish("full"), QueueFull, ["'full'", "1 ready", "limit of 1"]),
    "publish_many to another engine's": (lambda w: w.engine.publish_many(w.foreign, [("a",)]), QueueNotFound, ["another engine"]),
    "publish to a name too long": (publish(LONG), ValueError, ["queue's name", "65536", "65534"]),
    "publish_many to a name too long": (lambda w: w.engine.publish_many(LONG, [("a",)]), ValueError, ["queue's name", "65536"]),
    "publish_many to a number": (lambda w: w.engine.publish_many(5, [("a",)]), TypeError, ["str", "Queue", "int"]),
    "publish_many without room": (
        lambda w: w.engine.publish_many("jobs", [("a",)] * 47), QueueFull, ["'jobs'", "4 ready", "limit of 50", "message 47"]),
    "publish_many to a full one": (lambda w: w.engine.publish_many("full", [("a",)]), QueueFull, ["'full'", "1"]),
    # many messages
    "many: a number": (lambda w: w.engine.publish_many("jobs", 5), TypeError, ["int", "iterable"]),
    "many: None": (lambda w: w.engine.publish_many("jobs", None), TypeError, ["NoneType", "iterable"]),
    "many: a source that breaks": (lambda w: w.engine.publish_many("jobs", raises_when_read()), LookupError, ["source broke"]),
    "many: a list": (tuples(["a"]), TypeError, ["Message", "tuple", "list"]),
    "many: a str": (lambda w: w.engine.publish_many("jobs", "ab"), TypeError, ["Message", "tuple", "str"]),
    "many: six parts": (tuples(("a", b"", None, None, None, 6)), TypeError, ["at most 5", "got 6", "reply_to"]),
    "many: body a str": (tuples(("a", "b")), TypeError, ["body", "bytes", "str"]),
    "many: body None": (tuples(("a", None)), TypeError, ["body", "NoneType"]),
    "many: address None": (tuples((None,)), TypeError, ["address", "NoneType"]),
    "many: header a list": (tuples(("a", b"", {"n": [1]})), TypeError, ["'n'", "list"]),
    "many: reply_to a number": (tuples(("a", b"", None, 5)), TypeError, ["reply_to", "int"]),
    "many: message_id a number": (tuples(("a", b"", None, None, 5)), TypeError, ["message_id", "int"]),
    # queues
    "queue's name a number": (queue(5), TypeError, ["queue name", "str", "int"]),
    "queue's name empty": (queue(""), ValueError, ["queue name", "empty"]),
    "queue's name without UTF-8": (queue("\ud800"), ValueError, ["queue name", "surrogate", "at 0"]),
    "dead_letter without UTF-8": (queue("new", dead_letter="a\ud800"), ValueError, ["dead_letter", "surrogate", "at 1"]),
    "limit a str": (queue("new", limit="5"), TypeError, ["limit", "int", "str"]),
    "limit a bool": (queue("new", limit=True), TypeError, ["limit", "int", "bool"]),
    "limit a float": (queue("new", limit=5.0), TypeError, ["limit", "int", "float"]),
    "limit below": (queue("new", limit=-1), ValueError, ["limit", "0", str(2**62), "-1"]),
    "limit beyond": (queue("new", limit=COUNT_BEYOND), ValueError, ["limit", str(2**62), str(COUNT_BEYOND)]),
    "history_limit a str": (queue("new", history_limit="all"), TypeError, ["history_limit", "int", "str"]),
    "history_limit below": (queue("new", history_limit=-1), ValueError, ["history_limit", "-1"]),
    "history_limit beyond": (queue("new", history_limit=COUNT_BEYOND), ValueError, ["history_limit", str(COUNT_BEYOND)]),
    "delivery_limit a str": (queue("new", delivery_limit="3"), TypeError, ["delivery_limit", "int", "str"]),
    "delivery_limit 0": (queue("new", delivery_limit=0), ValueError, ["delivery_limit", "from 1", "got 0"]),
    "delivery_limit beyond": (queue("new", delivery_limit=2**32), ValueError, ["delivery_limit", "65535", str(2**32)]),
    "auto_delete a number": (queue("new", auto_delete=1), TypeError, ["auto_delete", "bool", "int"]),
    "dead_letter a number": (queue("new", dead_letter=5), TypeError, ["dead_letter", "str", "int"]),
    "dead_letter empty": (queue("new", dead_letter=""), ValueError, ["dead_letter", "empty"]),
    "store unknown": (queue("new", store="disk"), StoreNotFound, ["'disk'", "'ram'"]),
    "store a number": (queue("new", store=5), TypeError, ["store", "str", "int"]),
    "another store": (queue("jobs", store="disk"), StoreNotFound, ["'disk'", "'ram'"]),
    **{
        f"again with other {name}": (
            queue("jobs", **{"limit": 50, "history_limit": 2, "delivery_limit": 3} | {name: wanted}),
            Conflict, ["'jobs'", f"{name}={had!r};", f"asked for {name}={wanted!r}"])
        for name, had, wanted in [
            ("limit", 50, 51), ("limit", 50, None), ("history_limit", 2, None), ("auto_delete", False, True),
            ("dead_letter", None, "dead"), ("delivery_limit", 3, 4), ("delivery_limit", 3, None)]
    },
    # stores
    "store's type unknown": (lambda w: w.engine.create_store("s", "disk"), StoreNotFound, ["'disk'", "ram"]),
    "store's type a list": (lambda w: w.engine.create_store("s", []), TypeError, ["store type", "str", "list"]),
    "store's name without UTF-8": (lambda w: w.engine.create_store("\ud800"), ValueError, ["store name", "surrogate"]),
    "delete_store of a list": (lambda w: w.engine.delete_store([]), TypeError, ["str", "Store", "list"]),
    "store's name a number": (lambda w: w.engine.create_store(5), TypeError, ["store name", "str", "int"]),
    "store's name empty": (lambda w: w.engine.create_store(""), ValueError, ["store name", "empty"]),
    "store's options": (lambda w: w.engine.create_store("s", "ram", path="p"), TypeError, ["'ram'", "path", "none"]),
    "store again, of another type": (lambda w: w.engine.create_store("ram", "disk"), Conflict, ["'ram'", "'disk'"]),
    "store again, with options": (lambda w: w.engine.create_store("ram", path="p"), Conflict, ["'ram'", "path"]),
    "the store ram": (lambda w: w.engine.delete_store("ram"), ValueError, ["'ram'", "cannot be deleted"]),
    # selectors: where from, when, what, where to
    "source unknown": (selector("nowhere"), QueueNotFound, ["source", "'nowhere'"]),
    "source a number": (selector(5), TypeError, ["source", "queue", "int"]),
    "source deleted": (lambda w: selector(w.gone)(w), QueueNotFound, ["source", "'gone'"]),
    "source of another engine": (lambda w: selector(w.foreign)(w), QueueNotFound, ["source", "'jobs'"]),
    "when a str": (selector(when="n > 1"), TypeError, ["when", "where(...)", "str"]),
    "when a function": (selector(when=lambda message: True), TypeError, ["when", "function", "wrap it in where(...)"]),
    "when not called": (selector(when=match), TypeError, ["when", "function", "call it"]),
    "when None": (selector(when=None), TypeError, ["when", "always", "NoneType"]),
    "when an action": (selector(when=discard), TypeError, ["when", "condition", "Action"]),
    "when one's own": (selector(when=Condition()), TypeError, ["Condition", "no condition"]),
    "do a str": (selector(do="discard"), TypeError, ["do", "move_to", "str"]),
    "do a condition": (selector(do=always), TypeError, ["do", "action", "Role"]),
    "do not called": (selector(do=deliver), TypeError, ["do", "action", "call it, as in deliver('worker')"]),
    **{
        f"{verb} to none": (selector(do=do("nowhere")), QueueNotFound, ["target", "'nowhere'"])
        for verb, do in {
            "copy": copy_to, "move": move_to, "bounce": bounce_to, "deliver": lambda name: deliver("d", name)}.items()
    },
    "target deleted": (lambda w: selector(do=move_to(w.gone))(w), QueueNotFound, ["target", "'gone'"]),
    "overflow copies": (selector("work", when=overflow, do=copy_to("spill")), ValueError, ["overflow", "copy_to"]),
    "overflow to itself": (selector("work", when=overflow, do=move_to("work")), ValueError, ["own queue", "'work'"]),
    "overflow bounces to itself": (selector("work", when=overflow, do=bounce_to("work")), ValueError, ["own queue", "'work'"]),
    "overflow delivers to itself": (
        lambda w: selector(w.work, when=overflow, do=deliver("d", w.work))(w), ValueError, ["own queue", "'work'"]),
    "credit a str": (selector(credit="1"), TypeError, ["credit", "int", "str"]),
    "credit None": (selector(credit=None), TypeError, ["credit", "int or xump.INFINITE", "NoneType"]),
    "credit a float": (selector(credit=float("inf")), TypeError, ["credit", "int or xump.INFINITE", "float"]),
    "credit a bool": (selector(credit=True), TypeError, ["credit", "int", "bool"]),
    "credit infinite": (selector(credit=float("inf")), TypeError, ["credit", "int", "float"]),
    "credit below": (selector(credit=-1), ValueError, ["credit", "from 0", "-1"]),
    "credit beyond": (selector(credit=COUNT_BEYOND), ValueError, ["credit", str(2**62), str(COUNT_BEYOND)]),
    "enabled a number": (selector(enabled=1), TypeError, ["enabled", "bool", "int"]),
    "selector's name a number": (selector(name=5), TypeError, ["selector name", "str", "int"]),
    "selector's name without UTF-8": (selector(name="\ud800"), ValueError, ["selector name", "surrogate"]),
    "selector's name empty": (selector(name=""), ValueError, ["selector name", "empty"]),
    **{
        f"{do.verb} from {start!r}": (selector(do=do, start=start), ValueError, [repr(start), "copy_to", "'current'"])
        for do in (discard, move_to("spill"), deliver("d"), bounce_to("spill")) for start in ("head", "tail", 3, AWARE)
    },
    "start unknown": (
        selector(do=copy_to("spill"), start="last"), ValueError, ["'last'", "'head', 'tail', 'current'", "an id", "datetime"]),
    "start naive": (selector(do=copy_to("spill"), start=NAIVE), ValueError, ["2024", "time zone", "aware"]),
    "start None": (selector(do=copy_to("spill"), start=None), TypeError, ["start", "datetime", "NoneType"]),
    "start a bool": (selector(do=copy_to("spill"), start=True), TypeError, ["start", "bool"]),
    "start a float": (selector(do=copy_to("spill"), start=1.0), TypeError, ["start", "float"]),
    "start below": (selector(do=copy_to("spill"), start=-1), ValueError, ["start", "from 0", "-1"]),
    "start beyond": (selector(do=copy_to("spill"), start=2**64 - 1), ValueError, ["start", str(2**64 - 2), str(2**64 - 1)]),
    "replay without room": (selector(do=copy_to("full"), start="head"), QueueFull, ["'full'", "limit of 1", "replay"]),
    "second default": (selector(when=default), Conflict, ["'jobs'", "default", "number 4"]),
    "second overflow": (selector("full", when=overflow), Conflict, ["'full'", "overflow", "number 6"]),
    "second default enabled": (lambda w: w.second_default.enable(), Conflict, ["'jobs'", "default", "number 4"]),
    "second overflow enabled": (lambda w: w.second_overflow.enable(), Conflict, ["'full'", "overflow", "number 6"]),
    **{
        f"selector again with other {name}": (
            selector(**{"source": "jobs", "when": match("topic", "out.#"), "do": deliver("worker"), "credit": 6, "name": "out"}
                     | {name: wanted}),
            Conflict, ["'out'", f"{name}=", f"asked for {name}={wanted!r}"])
        for name, wanted in [
            ("source", "work"), ("when", match("topic", "out.*")), ("do", deliver("rest")), ("credit", 7), ("credit", INFINITE),
            ("enabled", False)]
    },
    "selector again with other start": (
        selector("parked", when=where({"n": 1}), do=copy_to("spill"), enabled=False, name="replay", start="tail"),
        Conflict, ["'replay'", "start='head'", "'tail'"]),
    "selector again with a filter of another type": (
        selector("parked", when=where({"n": True}), do=copy_to("spill"), enabled=False, name="replay", start="head"),
        Conflict, ["'replay'", "when=", "True"]),
    # what is deleted
    "delete_queue of a number": (lambda w: w.engine.delete_queue(5), TypeError, ["str", "Queue", "int"]),
    "delete_queue of None": (lambda w: w.engine.delete_queue(None), TypeError, ["str", "Queue", "NoneType"]),
    "delete_selector of a bool": (lambda w: w.engine.delete_selector(True), TypeError, ["Selector", "id", "bool"]),
    "delete_selector of a float": (lambda w: w.engine.delete_selector(2.0), TypeError, ["Selector", "id", "float"]),
    "delete_selector of a list": (lambda w: w.engine.delete_selector([]), TypeError, ["Selector", "id", "list"]),
    "delete_selector of a name": (lambda w: w.engine.delete_selector("out"), TypeError, ["Selector", "id", "str"]),
    # selectors: verbs
    "grant a str": (lambda w: w.out.grant("1"), TypeError, ["credits", "str"]),
    "grant a bool": (lambda w: w.out.grant(True), TypeError, ["credits", "bool"]),
    "grant below what is outstanding": (lambda w: w.out.grant(-1), ValueError, ["-1", "window of 6", "6 are outstanding"]),
    "grant beyond": (lambda w: w.out.grant(2**62), ValueError, [str(2**62), "window of 6"]),
    "grant far beyond": (lambda w: w.out.grant(10**30), ValueError, [str(10**30), "window of 6"]),
    "grant far below": (lambda w: w.out.grant(-10**30), ValueError, [str(-10**30), "window of 6"]),
    "grant to INFINITE": (lambda w: w.endless.grant(1), ValueError, ["INFINITE", "9"]),
    "grant after deletion": (lambda w: w.gone_selector.grant(1), SelectorNotFound, ["13"]),
    "pay a float": (lambda w: w.out.pay(1.0), TypeError, ["messages", "float"]),
    "pay below": (lambda w: w.out.pay(-1), ValueError, ["negative", "-1"]),
    "pay beyond what was taken": (lambda w: w.out.pay(4), ValueError, ["cannot ack 4", "holds 2", "selector 1"]),
    "pay far beyond": (lambda w: w.out.pay(10**30), ValueError, [str(10**30), "holds 2"]),
    "pay a MOVE": (lambda w: w.down.pay(), ValueError, ["move_to('work')", "deliver to your program"]),
    "pay a COPY": (lambda w: w.copies.pay(), ValueError, ["copy_to('spill')", "deliver to your program"]),
    "pay INFINITE": (lambda w: w.endless.pay(), ValueError, ["INFINITE", "settled when they are taken"]),
    "pay after deletion": (lambda w: w.gone_selector.pay(), SelectorNotFound, ["13"]),
    "enable after deletion": (lambda w: w.gone_selector.enable(), SelectorNotFound, ["13"]),
    "disable after deletion": (lambda w: w.gone_selector.disable(), SelectorNotFound, ["13"]),
    # queues: verbs
    "hold after deletion": (lambda w: w.gone.hold(), QueueNotFound, ["'gone'"]),
    "release after deletion": (lambda w: w.gone.release(), QueueNotFound, ["'gone'"]),
    "purge after deletion": (lambda w: w.gone.purge(), QueueNotFound, ["'gone'"]),
    "fetch after deletion": (lambda w: w.gone.fetch(1), QueueNotFound, ["'gone'"]),
    "delete after deletion": (lambda w: w.gone.delete(1), QueueNotFound, ["'gone'"]),
    "browse after deletion": (lambda w: list(w.gone.browse()), QueueNotFound, ["'gone'"]),
    "browse current after deletion": (lambda w: list(w.gone.browse("current")), QueueNotFound, ["'gone'"]),
    "fetch a str": (lambda w: w.jobs.fetch("1"), TypeError, ["id", "int", "str"]),
    "fetch a bool": (lambda w: w.jobs.fetch(True), TypeError, ["id", "int", "bool"]),
    "delete None": (lambda w: w.jobs.delete(None), TypeError, ["id", "int", "NoneType"]),
    "browse from nowhere": (lambda w: w.jobs.browse("tail"), ValueError, ["'tail'", "'head', 'current'"]),
    "browse from a naive time": (lambda w: w.jobs.browse(NAIVE), ValueError, ["2024", "time zone", "aware"]),
    "browse from None": (lambda w: w.jobs.browse(None), TypeError, ["start", "NoneType"]),
    "browse from below": (lambda w: w.jobs.browse(-1), ValueError, ["start", "-1"]),
    "browse from beyond": (lambda w: w.jobs.browse(2**64), ValueError, ["start", str(2**64)]),
    "browse a state": (
        lambda w: w.jobs.browse(state="gone"), ValueError, ["'gone'", "'ready', 'delayed', 'outstanding', 'history'"]),
    "browse a limit": (lambda w: w.jobs.browse(limit=-1), ValueError, ["limit", "-1"]),
    "browse a limit, a str": (lambda w: w.jobs.browse(limit="x"), TypeError, ["limit", "str"]),
    "browse a limit, a bool": (lambda w: w.jobs.browse(limit=True), TypeError, ["limit", "bool"]),
    "browse reverse a str": (lambda w: w.jobs.browse(reverse="no"), TypeError, ["reverse", "bool", "str"]),
    "browse where, a match": (lambda w: w.jobs.browse(where=match("eq", "a")), TypeError, ["filter", "Match"]),
    "browse where, what has a tree": (
        lambda w: w.jobs.browse(where=SimpleNamespace(tree=("=", 1, 1), source="n = 1")), TypeError,
        ["filter", "SimpleNamespace"]),
    "browse where": (lambda w: w.jobs.browse(where="n >"), InvalidFilter, ["3", "value"]),
    "browse where a number": (lambda w: w.jobs.browse(where=5), TypeError, ["filter", "int"]),
    # taking
    "take a str": (lambda w: w.engine.take("1"), TypeError, ["n", "int", "str"]),
    "take a bool": (lambda w: w.engine.take(True), TypeError, ["n", "int", "bool"]),
    "take below": (lambda w: w.engine.take(-1), ValueError, ["n", "from 0", "-1"]),
    "take beyond": (lambda w: w.engine.take(COUNT_BEYOND), ValueError, ["n", str(2**62), str(COUNT_BEYOND)]),
    "take from a number": (lambda w: w.engine.take(1, 5), TypeError, ["destination", "must be a str", "int"]),
    "take within a str": (lambda w: w.engine.take(1, timeout="1"), TypeError, ["timeout", "seconds", "str"]),
    "take within a bool": (lambda w: w.engine.take(1, timeout=True), TypeError, ["timeout", "seconds", "bool"]),
    "take before now": (lambda w: w.engine.take(1, timeout=-0.1), ValueError, ["timeout", "negative", "-0.1"]),
    "take within nan": (lambda w: w.engine.take(1, timeout=float("nan")), ValueError, ["timeout", "nan"]),
    "take within no float": (lambda w: w.engine.take(1, timeout=10**400), ValueError, ["timeout", "float", "None"]),
    "deliveries within no float": (lambda w: w.engine.deliveries(timeout=10**400), ValueError, ["timeout", "float"]),
    "take_batch a str": (lambda w: w.engine.take_batch("1"), TypeError, ["n", "int", "str"]),
    "take_batch below": (lambda w: w.engine.take_batch(-1), ValueError, ["n", "-1"]),
    "take_batch from a number": (lambda w: w.engine.take_batch(1, 5), TypeError, ["destination", "int"]),
    "take_batch before now": (lambda w: w.engine.take_batch(1, timeout=-1), ValueError, ["timeout", "-1"]),
    "deliveries from a number": (lambda w: w.engine.deliveries(5), TypeError, ["destination", "int"]),
    "deliveries within a str": (lambda w: w.engine.deliveries(timeout="1"), TypeError, ["timeout", "str"]),
    "deliveries before now": (lambda w: w.engine.deliveries(timeout=-1), ValueError, ["timeout", "-1"]),
    "sync before now": (lambda w: w.engine.sync(timeout=-1), ValueError, ["timeout", "-1"]),
    "sync within a str": (lambda w: w.engine.sync(timeout="1"), TypeError, ["timeout", "str"]),
    "a delivery of one's own": (lambda w: Delivery(), TypeError, ["take()", "deliveries()"]),
    "a batch of one's own": (lambda w: type(w.batch)(), TypeError, ["take_batch()"]),
    # answers
    "ack a number": (lambda w: w.engine.ack(5), TypeError, ["int", "iterable"]),
    "ack a str": (lambda w: w.engine.ack([w.kept, "x"]), TypeError, ["Delivery", "str"]),
    "ack None": (lambda w: w.engine.ack([None]), TypeError, ["Delivery", "NoneType"]),
    "ack a message": (lambda w: w.engine.ack([w.kept.message]), TypeError, ["Delivery", "Message"]),
    "ack of another engine": (lambda w: w.engine.ack(w.of_another_engine), StaleDelivery, ["message 1", "another engine"]),
    "ack of another engine among others": (
        lambda w: w.engine.ack([w.kept, w.settled, w.of_another_engine]), StaleDelivery, ["another engine"]),
    "ack given twice": (lambda w: w.engine.ack([w.kept, w.kept]), StaleDelivery, ["message 5", "'jobs'", "twice"]),
    "nack with a str": (lambda w: w.kept.nack(requeue="no"), TypeError, ["requeue", "bool", "str"]),
    "nack with a number": (lambda w: w.kept.nack(requeue=0), TypeError, ["requeue", "bool", "int"]),
    "nack with None": (lambda w: w.kept.nack(requeue=None), TypeError, ["requeue", "bool", "NoneType"]),
    "reject without UTF-8": (lambda w: w.kept.reject("no\ud800"), ValueError, ["reason", "surrogate", "at 2"]),
    "reject at length": (lambda w: w.kept.reject(LONG), ValueError, ["reason", "65536", "65534"]),
    "reject for a number": (lambda w: w.kept.reject(5), TypeError, ["reason", "str", "int"]),
    "reject for None": (lambda w: w.kept.reject(None), TypeError, ["reason", "str", "NoneType"]),
    **{
        f"{verb} of the {which}": (lambda w, which=which, act=act: act(w, getattr(w, which)), StaleDelivery, ["message", "stale"])
        for which in ("acked", "nacked", "rejected", "paid", "recalled")
        for verb, act in {
            "ack": lambda w, delivery: delivery.ack(), "nack": lambda w, delivery: delivery.nack(),
            "nack without requeue": lambda w, delivery: delivery.nack(requeue=False),
            "reject": lambda w, delivery: delivery.reject(),
            "ack by the engine": lambda w, delivery: w.engine.ack([w.kept, delivery]),
        }.items()
    },
    "ack of an unknown row": (lambda w: w.batch.ack([99]), ValueError, ["99", "batch"]),
    "ack of a row twice": (lambda w: w.batch.ack([6, 6]), StaleDelivery, ["twice"]),
    "nack of a row twice": (lambda w: w.batch.nack([6, ("jobs", 6)]), StaleDelivery, ["twice"]),
    "ack of rows that are none": (lambda w: w.batch.ack(6), TypeError, ["int", "iterable"]),
    # transactions
    "transaction: in the block": (raising_block, LookupError, ["in the block"]),
    "transaction: body a str": (in_transaction(lambda w, tx: tx.publish("jobs", "a", "b")), TypeError, ["body", "str"]),
    "transaction: header": (
        in_transaction(lambda w, tx: tx.publish("jobs", headers={"n": BEYOND})), ValueError, ["'n'", "64 bits"]),
    "transaction: queue a number": (in_transaction(lambda w, tx: tx.publish(5)), TypeError, ["str", "Queue", "int"]),
    "transaction: another engine's": (
        in_transaction(lambda w, tx: tx.publish("jobs"), lambda w, tx: tx.publish(w.foreign)), QueueNotFound, ["another engine"]),
    "transaction: a full queue": (
        in_transaction(lambda w, tx: tx.publish("jobs", "out.x"), lambda w, tx: tx.publish("full")), QueueFull, ["'full'", "1"]),
    "transaction: ack a number": (in_transaction(lambda w, tx: tx.ack(5)), TypeError, ["int"]),
    "transaction: ack a batch": (
        in_transaction(lambda w, tx: tx.ack(w.batch)), TypeError, ["DeliveryBatch", "batch.ack"]),
    "transaction: ack many, one is none": (in_transaction(lambda w, tx: tx.ack([w.kept, None])), TypeError, ["NoneType"]),
    "transaction: ack a str": (
        in_transaction(lambda w, tx: tx.publish("jobs"), lambda w, tx: tx.ack("x")), TypeError, ["Delivery", "str"]),
    "transaction: stale": (
        in_transaction(lambda w, tx: tx.publish("jobs", "out.x"), lambda w, tx: tx.ack(w.acked)), StaleDelivery, ["stale"]),
    "transaction: given twice": (
        in_transaction(lambda w, tx: tx.ack(w.kept), lambda w, tx: tx.ack(w.kept)), StaleDelivery, ["twice"]),
    "transaction: another engine's delivery": (
        in_transaction(lambda w, tx: tx.publish("jobs", "out.x"), lambda w, tx: tx.ack(w.of_another_engine)),
        StaleDelivery, ["another engine"]),
    "transaction: again": (reuse, TransactionError, ["committed", "another one"]),
    "transaction: before its block": (lambda w: w.engine.transaction().publish("jobs"), TransactionError, ["inside the block"]),
    "transaction: ack before its block": (lambda w: w.engine.transaction().ack(w.kept), TransactionError, ["inside the block"]),
    "transaction: without room": (crowd, QueueFull, ["'jobs'", "limit of 50", "no room for message ", " of 60"]),
    # times, priorities
    "publish: delay and at": (lambda w: w.jobs.publish(delay=1, at=5), ValueError, ["delay=1", "at=5", "one of them"]),
    "publish: ttl and expires": (lambda w: w.jobs.publish(ttl=1, expires=5), ValueError, ["ttl=1", "expires=5", "one of them"]),
    "publish: delay a text": (lambda w: w.jobs.publish(delay="1"), TypeError, ["delay", "seconds", "str"]),
    "publish: delay a bool": (lambda w: w.jobs.publish(delay=True), TypeError, ["delay", "bool"]),
    "publish: delay negative": (lambda w: w.jobs.publish(delay=-0.5), ValueError, ["delay", "from 0 to", "-0.5"]),
    "publish: delay no number": (lambda w: w.jobs.publish(delay=float("nan")), ValueError, ["delay", "nan"]),
    "publish: ttl for ever": (lambda w: w.jobs.publish(ttl=float("inf")), ValueError, ["ttl", "100 years", "inf"]),
    "publish: ttl too long": (lambda w: w.jobs.publish(ttl=10**10), ValueError, ["ttl", "3155760000", str(10**10)]),
    "publish: at without a zone": (
        lambda w: w.jobs.publish(at=datetime(2024, 1, 1)), ValueError, ["at ", "no time zone"]),
    "publish: at in seconds": (lambda w: w.jobs.publish(at=1.5), TypeError, ["at ", "float", "nanoseconds"]),
    "publish: expires too late": (
        lambda w: w.jobs.publish(expires=datetime(2300, 1, 1, tzinfo=UTC)), ValueError, ["expires", "2262", "2300"]),
    "publish: priority beyond": (lambda w: w.jobs.publish(priority=256), ValueError, ["priority", "0 to 255", "256"]),
    "publish: priority a float": (lambda w: w.jobs.publish(priority=1.0), TypeError, ["priority", "float"]),
    "publish: correlation_id a number": (lambda w: w.jobs.publish(correlation_id=5), TypeError, ["correlation_id", "int"]),
    "publish: a Message and a priority": (
        lambda w: w.jobs.publish(Message("a"), priority=1), TypeError, ["as it is", "priority", "replace"]),
    "publish: a Message that expires and ttl": (
        lambda w: w.jobs.publish(Message("a", expires=2**62), ttl=2), ValueError, ["ttl=2", str(2**62)]),
    "publish: no such argument": (lambda w: w.jobs.publish(dealy=1), TypeError, ["dealy"]),
    "publish: too many arguments": (lambda w: w.jobs.publish("a", b"", {}, "r"), TypeError, ["publish()", "3 positional"]),
    "publish: a queue is missing": (lambda w: w.engine.publish(), TypeError, ["publish()", "1 positional"]),
    "publish_many: a Message and expires": (
        lambda w: w.engine.publish_many("jobs", [("a",), Message("a")], expires=5), TypeError, ["as it is", "expires"]),
    "publish_many: ttl": (
        lambda w: w.engine.publish_many("jobs", [("a",), Message("a", expires=7)], ttl=5), ValueError, ["ttl=5", "expires=7"]),
    "transaction: a Message that expires and ttl": (
        in_transaction(lambda w, tx: tx.publish("jobs", Message("a", expires=7), ttl=5)), ValueError, ["ttl=5", "expires=7"]),
    "batch: a priority": (
        lambda w: w.engine.publish_batch("jobs", pyarrow.table({"priority": [0, 256]})), ValueError, ["row 1", "256", "255"]),
    "batch: a time": (
        lambda w: w.engine.publish_batch("jobs", pyarrow.table({"at": pyarrow.array([2**40], pyarrow.timestamp("s", "UTC"))})),
        ValueError, ["'at'", "row 0", str(2**40)]),
    "batch: times in doubles": (
        lambda w: w.engine.publish_batch("jobs", pyarrow.table({"expires": [1.5]})), TypeError, ["'expires'", "timestamps"]),
    # properties of queues and selectors
    "queue: retry_delay empty": (lambda w: w.engine.create_queue("new", retry_delay=[]), ValueError, ["retry_delay", "1 to"]),
    "queue: retry_delay of texts": (
        lambda w: w.engine.create_queue("new", retry_delay=[1, "2"]), TypeError, ["retry_delay", "seconds", "str"]),
    "queue: ttl negative": (lambda w: w.engine.create_queue("new", ttl=-1), ValueError, ["ttl", "-1"]),
    "queue: priority 0": (lambda w: w.engine.create_queue("new", priority=0), ValueError, ["priority", "1 to 255"]),
    "queue: group a text": (lambda w: w.engine.create_queue("new", group="headers.n"), TypeError, ["group", "field(", "str"]),
    "queue: dedup a text": (lambda w: w.engine.create_queue("new", dedup="1"), TypeError, ["dedup", "str"]),
    "queue: dedup_limit 0": (lambda w: w.engine.create_queue("new", dedup_limit=0), ValueError, ["dedup_limit", "1 to"]),
    "queue: dedup_limit None": (lambda w: w.engine.create_queue("new", dedup_limit=None), TypeError, ["dedup_limit", "NoneType"]),
    "queue: limit_bytes negative": (lambda w: w.engine.create_queue("new", limit_bytes=-1), ValueError, ["limit_bytes", "-1"]),
    "queue: when_full": (
        lambda w: w.engine.create_queue("new", when_full="drop"), ValueError,
        ["when_full", "'refuse' or 'drop_oldest' or 'drop_to_fit'", "'drop'"]),
    "queue: unmatched": (lambda w: w.engine.create_queue("new", unmatched=None), ValueError, ["unmatched", "'keep'", "None"]),
    "queue: transit with a ttl": (
        lambda w: w.engine.create_queue("new", transit=True, ttl=5), ValueError, ["ttl", "keep messages", "leave it out"]),
    "queue: transit, a number": (lambda w: w.engine.create_queue("new", transit=1), TypeError, ["transit", "int"]),
    "queue: another ttl": (lambda w: w.engine.create_queue("spill", ttl=5), Conflict, ["'spill'", "ttl=None", "ttl=5"]),
    "selector: rank of a copy": (
        lambda w: w.engine.create_selector("jobs", when=always, do=copy_to("spill"), rank=1), ValueError, ["rank=1", "copy_to"]),
    "selector: rank too high": (
        lambda w: w.engine.create_selector("jobs", when=always, do=deliver("d"), rank=32_768), ValueError,
        ["rank", "32768", "-32768 to 32767"]),
    "outcomes: a number": (lambda w: w.engine.publish_many("jobs", [("a",)], outcomes=1), TypeError, ["outcomes", "bool", "1"]),
    "ack: a number": (lambda w: w.engine.ack(5), TypeError, ["deliveries", "int 5"]),
    "ack in a transaction: nothing": (in_transaction(lambda w, tx: tx.ack(None)), TypeError, ["deliveries", "NoneType"]),
    "outlet: a number": (lambda w: w.engine.outlet(print, 5), TypeError, ["destinations", "int 5"]),
    "outlet: a number as destination": (lambda w: w.engine.outlet(print, ["d", 5]), TypeError, ["destination", "int 5"]),
    "adopt: a number": (lambda w: w.engine.adopt("jobs", 5), TypeError, ["queues", "pairs", "int 5"]),
    "adopt: a name alone": (lambda w: w.engine.adopt("jobs", ["full"]), TypeError, ["queues", "pairs", "'full'"]),
    "adopt: a number as map": (lambda w: w.engine.adopt("jobs", [], meta=5), TypeError, ["meta", "int 5"]),
    "request: a number as body": (lambda w: w.engine.request("jobs", body=5, timeout=0), TypeError, ["body", "int"]),
    "request: no such queue": (lambda w: w.engine.request("nope", timeout=0), QueueNotFound, ["'nope'"]),
    "queue: a store of another engine": (
        lambda w: w.engine.create_queue("new", store=xump.Engine().stores["ram"]), StoreNotFound, ["'ram'", "another engine"]),
    "map of a queue of another engine": (
        in_transaction(lambda w, tx: tx.set_meta(xump.Engine().create_queue("jobs"), "k", b"v")), QueueNotFound,
        ["'jobs'", "another engine"]),
    "selector: rank a text": (
        lambda w: w.engine.create_selector("jobs", when=always, do=deliver("d"), rank="1"), TypeError, ["rank", "str"]),
    "selector: ahead of a move": (
        lambda w: w.engine.create_selector("jobs", when=always, do=move_to("spill"), ahead=1), ValueError,
        ["ahead=1", "move_to"]),
    "selector: ahead 0": (
        lambda w: w.engine.create_selector("jobs", when=always, do=deliver("d"), ahead=0), ValueError, ["ahead", "0", "1"]),
    "selector: deleted without a recall, a number": (
        lambda w: w.engine.delete_selector(1, recall=0), TypeError, ["recall", "int"]),
    "selector: ack_timeout of a move": (
        lambda w: w.engine.create_selector("jobs", when=always, do=move_to("spill"), ack_timeout=5), ValueError,
        ["ack_timeout=5", "move_to"]),
    "selector: ack_timeout into a queue": (
        lambda w: w.engine.create_selector("jobs", when=always, do=deliver("d", "spill"), ack_timeout=5), ValueError,
        ["ack_timeout=5", "deliver to your program"]),
    "selector: ack_timeout and INFINITE": (
        lambda w: w.engine.create_selector("jobs", when=always, do=deliver("d"), credit=INFINITE, ack_timeout=5), ValueError,
        ["ack_timeout=5", "INFINITE"]),
    # topologies
    "Housecat: recipient a number": (
        lambda w: xump.Housecat(w.engine, "jobs").join(5), TypeError, ["recipient must be a str", "int"]),
    "Housecat: address a number": (
        lambda w: xump.Housecat(w.engine, "jobs").join("new", 5), TypeError, ["address must be a str", "int"]),
    "Parrot: recipient a number": (
        lambda w: xump.Parrot(w.engine, "jobs").join(5, "#"), TypeError, ["recipient must be a str", "int"]),
    "Parrot: pattern a number": (
        lambda w: xump.Parrot(w.engine, "jobs").join("new", 5), TypeError, ["pattern must be a str", "int"]),
    "Wolfpack: recipient a number": (
        lambda w: xump.Wolfpack(w.engine, "jobs").join(5), TypeError, ["recipient must be a str", "int"]),
    "apply a list": (lambda w: w.engine.apply([]), TypeError, ["list"]),
    "apply another version": (lambda w: w.engine.apply({"version": 2}), Conflict, ["version is 2", "version = 1"]),
    # Arrow data
    "batch: a number": (lambda w: w.engine.publish_batch("jobs", 5), TypeError, ["__arrow_c_stream__", "int"]),
    "batch: to a number": (
        lambda w: w.engine.publish_batch(5, pyarrow.table({"address": ["a"]})), TypeError, ["str", "Queue", "int"]),
    "batch: to another engine's": (
        lambda w: w.engine.publish_batch(w.foreign, pyarrow.table({"address": ["a"]})), QueueNotFound, ["another engine"]),
    "batch: without room": (
        lambda w: w.engine.publish_batch("jobs", pyarrow.table({"address": ["a"] * 47})), QueueFull, ["'jobs'", "50"]),
    "batch: of nothing to nobody": (
        lambda w: w.engine.publish_batch("nope", pyarrow.table({"address": pyarrow.array([], "string")})),
        QueueNotFound, ["'nope'", "dead_letter"]),
    "batch: unknown column": (
        lambda w: w.engine.publish_batch("jobs", pyarrow.table({"adress": ["a"]})), ValueError, ["'adress'", "address, body"]),
    "batch: column of numbers": (
        lambda w: w.engine.publish_batch("jobs", pyarrow.table({"address": [1]})), TypeError, ["'address'", "int64"]),
    "batch: headers of text": (
        lambda w: w.engine.publish_batch("spill", pyarrow.table({"headers": ["a"]})), TypeError, ["'headers'"]),
    "batch: an address too long": (
        lambda w: w.engine.publish_batch("spill", pyarrow.table({"address": ["a", LONG]})), ValueError,
        ["row 1", "65536", "65534"]),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_raises_says_why_and_changes_nothing(w, case):
    call, error, fragments = ERRORS[case]
    with pytest.raises(error) as raised:
        call(w)
    assert raised.type is error
    assert [fragment for fragment in fragments if fragment not in str(raised.value)] == [], str(raised.value)
    nothing_changed(w)


def test_damaged_arrow_data_changes_nothing(w):
    before = seen(w)
    for name in ("spill", "jobs", "nowhere"):       # of any number, limited, unknown
        for column, error, _ in DAMAGE.values():
            for stream in (False, True):
                if not (stream and column.array_released):      # that is how a stream ends
                    with pytest.raises((error, QueueNotFound)):
                        w.engine.publish_batch(name, Given(column, stream=stream))
    assert seen(w) == before
    nothing_changed(w)


@pytest.mark.parametrize("operations", [
    [("ack",), ("publish", "full")], [("ack",), ("publish", 5)], [("ack",), ("ack",)],
    [("publish", "jobs", "out.x"), ("ack",), ("raise",)],
])
def test_an_ack_that_failed_is_no_answer(w, operations):
    """The block around a delivery acks at its end, as if nobody had tried before."""
    with w.kept:
        with pytest.raises((QueueFull, StaleDelivery, TypeError, ZeroDivisionError)), w.engine.transaction() as tx:
            for verb, *arguments in operations:
                if verb == "raise":
                    raise ZeroDivisionError
                getattr(tx, verb)(*(arguments or [w.kept]))
        with pytest.raises(StaleDelivery):
            w.engine.ack([w.kept, w.acked])
        assert "stale" not in repr(w.kept)
    assert "stale" in repr(w.kept)
    w.engine.check()
