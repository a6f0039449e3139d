"""Two engines of the same life: a small graph, with messages in every state. A call is made on one of them; then both are
compared, at once, and again after both have lived on for a while."""

from types import SimpleNamespace


from tests.model.seen import differences, message_seen, seen_of
from xump import (
    INFINITE, Engine, Message, always, bounce_to, copy_to, default, deliver, discard, field, match, move_to,
    overflow, where,
)


def live():
    """An engine with all kinds of selectors, a message in every state, and deliveries in your program's hands."""
    w = SimpleNamespace(now=1_000_000)
    w.engine = Engine(clock=lambda: w.now, hop_limit=9, dead_letter="dead")
    create, select = w.engine.create_queue, w.engine.create_selector
    w.other = Engine()
    w.foreign = w.other.create_queue("jobs")
    w.foreign_selector = w.other.create_selector("jobs", when=always, do=deliver("d"))
    w.foreign.publish("x")
    [w.of_another_engine] = w.other.take(1)
    with w.engine.building():
        w.jobs = create("jobs", limit=50, history_limit=2, delivery_limit=3)
        w.work = create("work", limit=2)
        w.full = create("full", limit=1)
        w.bound, w.parked, w.held, w.spill = create("bound"), create("parked"), create("held"), create("spill")
        w.closed_to_all = create("closed to all", limit=0, dead_letter="dead")
        w.private = create("private", auto_delete=True)
        w.held.hold()
        w.out = select("jobs", when=match("topic", "out.#"), do=deliver("worker"), credit=6, name="out")
        w.down = select("jobs", when=match("eq", "down"), do=move_to("work"), credit=9)
        w.copies = select("jobs", when=where("n > 3"), do=copy_to("spill"))
        w.default = select("jobs", when=default, do=deliver("rest"), credit=1)
        w.second_default = select("jobs", when=default, do=discard, enabled=False)
        w.overflow = select("full", when=overflow, do=move_to("spill"), credit=1)
        w.second_overflow = select("full", when=overflow, do=discard, enabled=False)
        w.below = select("work", when=match("eq", "down"), do=deliver("worker"), credit=1)
        w.endless = select("bound", when=always, do=deliver("endless"), credit=INFINITE)
        w.outlet = w.engine.outlet(print)
        w.window = w.engine.create_window(9)
        w.disabled = select("parked", when=where({"n": 1}), do=copy_to("spill"), enabled=False, name="replay", start="head")
        w.held_one = select("held", when=always, do=move_to(field("reply_to")), credit=2)
        w.last = select("private", when=always, do=bounce_to("jobs"))
    w.engine.publish_many("jobs", [("out.a", b"1", {"n": n}) for n in range(9)])
    w.now += 1
    w.engine.publish_many("jobs", [("down",)] * 5)
    w.engine.publish_many("jobs", [Message("nobody's", message_id=str(n)) for n in range(3)])
    w.engine.publish_many("bound", [("b",), ("c",)])
    w.engine.publish("parked", "p", headers={"n": 1})
    w.engine.publish_many("held", [("h", b"", None, "work"), ("h", b"", None, "nowhere")])
    w.engine.publish_many("full", [("f",), ("g",)])
    w.deliveries = w.engine.take(5, "worker")
    w.acked, w.nacked, w.rejected, w.paid, w.kept = w.deliveries
    w.acked.ack()
    w.nacked.nack()
    w.rejected.reject("no good")
    w.out.pay(1)
    w.gone = create("gone")
    w.gone_selector = select("gone", when=always, do=deliver("gone"), name="gone")
    w.gone.publish("x")
    [w.recalled] = w.engine.take(1, "gone")
    w.engine.delete_queue("gone")
    w.batch = w.engine.take_batch(1, "worker")
    w.settled = w.engine.take(1, "endless")[0]
    w.transaction = w.engine.transaction().__enter__()
    w.transaction.publish("jobs", "out.t")
    return w


def seen(w):
    """All that can be seen, but for what taking shows."""
    return seen_of(w.engine) | {
        "engine": w.engine.stats()["engine"],
        "stores": sorted(w.engine.stores),
        "graph": w.engine.to_mermaid(),
        "limits": {name: (queue.limit, queue.history_limit, queue.delivery_limit, queue.auto_delete, queue.dead_letter,
                          queue.held, queue.last_id) for name, queue in sorted(w.engine.queues.items())},
        "selectors": {id: (selector.name, repr(selector), selector.enabled, selector.credit, selector.available)
                      for id, selector in sorted(w.engine.selectors.items())},
    }


def live_on(w):
    """What both do afterwards, to the last delivery; what they were given."""
    w.now += 1
    taken = [(delivery.destination, delivery.delivery_count, message_seen(delivery.message))
             for delivery in w.engine.deliveries()]
    w.kept.ack()
    w.batch.ack()
    w.engine.publish_many("jobs", [("out.b",), ("down",), ("nobody's",)])
    w.engine.queues["held"].release()
    w.disabled.enable()
    for delivery in w.engine.deliveries():
        with delivery as message:
            taken.append((delivery.destination, delivery.delivery_count, message_seen(message)))
    taken.append((w.engine.create_queue().name, w.engine.create_selector("spill", when=always, do=discard).id))
    return taken


def nothing_changed(w):
    w.engine.check()
    twin = live()
    assert seen(twin) == seen(w), differences(seen(twin), seen(w))
    assert live_on(twin) == live_on(w)
    w.engine.check()
    assert seen(twin) == seen(w), differences(seen(twin), seen(w))
    twin.engine.close()
    twin.other.close()


LONG = "x" * 65_536

BEYOND = 2**63


def queue(name, **properties):
    return lambda w: w.engine.create_queue(name, **properties)


def selector(source="jobs", **properties):
    properties = {"when": always, "do": discard} | properties
    return lambda w: w.engine.create_selector(source, **properties)
