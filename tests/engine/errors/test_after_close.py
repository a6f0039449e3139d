"""After `close()` every public call says so."""

from functools import partial

import pyarrow
import pytest

from xump import (
    Delivery, Engine, always, deliver, discard, match,
)
from xump.errors import (
    Closed,
)
from xump.queue import Queue
from xump.selector import Selector
from xump.window import Window


def of_jobs(name, w):
    return getattr(w.jobs, name)


def of_out(name, w):
    return getattr(w.out, name)


def of_window(name, w):
    found = getattr(w.window, name)
    return found() if callable(found) else found


EVERY_CALL = {
    "Engine.ack": lambda w: w.engine.ack([w.kept]),
    "Engine.adopt": lambda w: w.engine.adopt("jobs", []),
    "Engine.enter": lambda w: w.engine.enter("jobs", 1),
    "Engine.apply": lambda w: w.engine.apply({"version": 1}),
    "Engine.building": lambda w: w.engine.building().__enter__(),
    "Engine.check": lambda w: w.engine.check(),
    "Engine.create_queue": lambda w: w.engine.create_queue("new"),
    "Engine.create_selector": lambda w: w.engine.create_selector("jobs", when=always, do=discard),
    "Engine.create_store": lambda w: w.engine.create_store("new"),
    "Engine.outlet": lambda w: w.engine.outlet(print),
    "Engine.watch": lambda w: w.engine.watch(print),
    "Outlet.add": lambda w: w.outlet.add("new"),
    "Outlet.discard": lambda w: w.outlet.discard("none"),
    "Outlet.take": lambda w: w.outlet.take(1),
    "Engine.create_window": lambda w: w.engine.create_window(1),
    "Engine.delete_window": lambda w: w.engine.delete_window("w"),
    "Window.delete": lambda w: w.window.delete(),
    "Window.resize": lambda w: w.window.resize(1),
    "Engine.delete_queue": lambda w: w.engine.delete_queue("jobs"),
    "Engine.delete_selector": lambda w: w.engine.delete_selector(1),
    "Engine.delete_store": lambda w: w.engine.delete_store("disk"),
    "Engine.deliveries": lambda w: w.engine.deliveries(),
    "Engine.get": lambda w: w.engine.get("jobs"),
    "Engine.not_waiting": lambda w: w.engine.not_waiting().__enter__(),
    "Engine.publish": lambda w: w.engine.publish("jobs"),
    "Engine.publish, waiting": lambda w: w.engine.publish("jobs", timeout=1.0),
    "Engine.publish_batch": lambda w: w.engine.publish_batch("jobs", pyarrow.table({"address": ["a"]})),
    "Engine.publish_many": lambda w: w.engine.publish_many("jobs", []),
    "Engine.request": lambda w: w.engine.request("jobs"),
    "Engine.stats": lambda w: w.engine.stats(),
    "Engine.sync": lambda w: w.engine.sync(),
    "Engine.take": lambda w: w.engine.take(1),
    "Engine.take_batch": lambda w: w.engine.take_batch(1),
    "Engine.tick": lambda w: w.engine.tick(),
    "Engine.when_durable": lambda w: w.engine.when_durable(print),
    "Engine.when_relieved": lambda w: w.engine.when_relieved(print),
    "Engine.to_dot": lambda w: w.engine.to_dot(),
    "Engine.to_mermaid": lambda w: w.engine.to_mermaid(),
    "Engine.topology": lambda w: w.engine.topology(),
    "Engine.transaction": lambda w: w.engine.transaction(),
    "Engine.transaction, its end": lambda w: w.transaction.__exit__(None, None, None),
    "Engine as a context": lambda w: w.engine.__enter__(),
    "Queue.browse": lambda w: list(w.jobs.browse()),
    "Queue.browse_batch": lambda w: w.jobs.browse_batch(),
    "Engine.browse_batch": lambda w: w.engine.browse_batch("jobs"),
    "Selector.pay": lambda w: w.out.pay(),
    "Queue.delete": lambda w: w.jobs.delete(1),
    "Queue.fetch": lambda w: w.jobs.fetch(1),
    "Queue.hold": lambda w: w.jobs.hold(),
    "Queue.publish": lambda w: w.jobs.publish(),
    "Queue.purge": lambda w: w.jobs.purge(),
    "Queue.release": lambda w: w.held.release(),
    "Selector.delete": lambda w: w.out.delete(),
    "Selector.disable": lambda w: w.out.disable(),
    "Selector.enable": lambda w: w.disabled.enable(),
    "Selector.grant": lambda w: w.out.grant(1),
    "Delivery.ack": lambda w: w.kept.ack(),
    "Delivery.ack of a stale one": lambda w: w.acked.ack(),
    "Delivery.extend": lambda w: w.kept.extend(1),
    "Delivery.reply": lambda w: w.kept.reply(),
    "Delivery.nack": lambda w: w.kept.nack(),
    "Delivery.reject": lambda w: w.kept.reject(),
    "Delivery as a context": lambda w: w.kept.__exit__(None, None, None),
    "DeliveryBatch.ack": lambda w: w.batch.ack(),
    "DeliveryBatch.nack": lambda w: w.batch.nack(),
    "DeliveryIterator": lambda w: next(w.iterator),
    "DeliveryIterator, waiting": lambda w: next(w.waiting_iterator),
    "Engine.take, waiting": lambda w: w.engine.take(1, timeout=None),
}
# What can be read without entering the engine.
READINGS = {
    "Queue.browse, from the frontier": lambda w: list(w.jobs.browse("current")),
    "Queue.counters": lambda w: w.jobs.counters(),
    **{f"Queue.{name}": partial(of_jobs, name) for name in (
        "adopted_by", "auto_delete", "dead_letter", "delivery_limit", "durable_id", "entering", "frontier", "held", "history",
        "history_limit", "last_id", "limit", "outstanding", "ready", "stable_id", "staged")},
    "Queue of one that was deleted": lambda w: w.gone.ready,
    **{f"Selector.{name}": partial(of_out, name) for name in ("available", "blocked", "credit", "enabled", "outstanding")},
    **{f"Window.{name}": partial(of_window, name) for name in ("available", "credit", "outstanding", "counters")},
    "Selector of one that was deleted": lambda w: w.gone_selector.credit,
    "Selector.counters": lambda w: w.out.counters(),
}
OTHERS = {"Engine.close", "Queue.counters", "Selector.counters", "Window.counters"}


def test_every_public_call_is_in_the_table():
    calls = {f"{kind.__name__}.{name}" for kind in (Engine, Queue, Selector, Window, Delivery) for name in dir(kind)
             if not name.startswith("_") and callable(getattr(kind, name))}
    assert calls - {name.partition(",")[0] for name in EVERY_CALL} - OTHERS == set()


@pytest.mark.parametrize("case", [*EVERY_CALL, *READINGS])
def test_after_close_every_call_says_so(w, case):
    w.iterator, w.waiting_iterator = w.engine.deliveries(), w.engine.deliveries(timeout=None)
    w.engine.close()
    assert w.engine.closed and "closed" in repr(w.engine)
    with pytest.raises(Closed, match="closed"):
        (EVERY_CALL | READINGS)[case](w)
    w.engine.close()


def test_after_close_what_was_settled_stays_settled(w):
    w.engine.close()
    w.settled.ack()
    w.settled.nack()
    w.settled.reject()
    assert (w.settled.message.address, w.kept.message.body) == ("b", b"1")
    assert dict(w.engine.queues) == dict(w.engine.selectors) == {}
    assert [repr(thing) for thing in (w.jobs, w.out)] == ["<Queue 'jobs', deleted>", "<Selector 1 'out', deleted>"]
    assert "stale" in repr(w.kept)
    assert (w.jobs.name, str(w.jobs), w.jobs.store.name, w.out.id, w.out.name, w.out.source.name) == (
        "jobs", "jobs", "ram", 1, "out", "jobs")
    assert (w.out.when, w.out.do, w.kept.queue, w.kept.selector, w.kept.id) == (
        match("topic", "out.#"), deliver("worker"), w.jobs, w.out, 5)
