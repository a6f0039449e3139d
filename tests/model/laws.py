"""The laws, verified by walking over everything."""

from tests.model.entries import READY
from tests.model import bounds, due
from tests.model.order import everywhere, holds_its_key, key_of, may_take
from tests.model.routing import is_routable, may_act
from tests.model.windows import line_of
from xump.actions import Field
from xump.errors import InvariantError


def check(engine):
    """Verifies the laws by walking over everything."""
    for queue in engine.queues.values():
        check_queue(engine, queue)
        for entry in queue.entries:
            check_entry(engine, entry)
    for selector in engine.selectors.values():
        check_credit(engine, selector)
    for entry in engine.offers:
        require(entry.state in ("bound", "outstanding") and entry.delivery is None, "Links", f"{entry} is offered")
    for delivery in engine.taken:
        require(delivery.entry.delivery is delivery, "Links", f"{delivery.entry} was taken")
    for window in engine.windows.values():
        require(window.outstanding <= max(window.credit, window.lowered_at), "Credit", f"window {window.name!r}")
    check_keys(engine)
    check_time(engine)
    if not engine.depth:
        check_quiet(engine)


def check_queue(engine, queue):
    where = f"queue {queue.name!r}"
    require(engine.queues.get(queue.name) is queue, "Links", where)
    gone = queue.settled + queue.deleted + sum(queue.dropped.values())
    require(queue.entered == queue.ready + queue.delayed + queue.outstanding + queue.history + gone, "Conservation", where)
    require(queue.entered == queue.next_id - 1, "Recount", f"{where}: ids are issued one by one")
    ids = [e.id for e in queue.entries]
    require(ids == sorted(set(ids)) and all(1 <= id < queue.next_id for id in ids), "Order", f"{where}: ids ascend")
    for older, newer in zip(queue.entries, queue.entries[1:], strict=False):
        require(older.sequence < newer.sequence, "Order", f"{where}: entries ascend")
        require(older.message.timestamp <= newer.message.timestamp, "Order", f"{where}: timestamps do not descend")
    history = [e for e in queue.entries if e.state == "history"]
    require(sorted(queue.processed, key=lambda e: e.id) == history, "Recount", f"{where}: its history")
    require(queue.history_limit is None or len(history) <= queue.history_limit, "Recount", f"{where}: history_limit")
    if queue.transit:
        require(queue.held or engine.depth or not queue.ready, "Quiet", f"{where} keeps nothing")
    if queue.staged:
        require(queue.held and queue.ready == len(queue.entries) and not queue.selectors, "Links", f"{where} is staged")
    for adoption in queue.adoptions:
        living = [q for q in adoption.queues if engine.queues.get(q.name) is q and q.entries]
        living = [q for q in living if q.staged and q.store == queue.store]
        require(living and living == adoption.queues, "Links", f"{where}: what it has adopted")
    for role in ("default", "overflow"):
        require(sum(s.role == role and s.enabled for s in queue.selectors) <= 1, "Links", f"{where}: one {role} selector")
    require(len(set(queue.waiting_list)) == len(queue.waiting_list), "Links", f"{where}: its waiting list")
    living = all(engine.selectors.get(selector.id) is selector for selector in queue.waiting_list)
    require(living, "Links", f"{where}: its waiting list has living selectors")


def check_entry(engine, entry):
    require(entry.state in (*READY, "delayed", "outstanding", "history"), "Recount", f"{entry} has a known state")
    holder = entry.selector
    if entry.by_hand:
        held = entry.state == "outstanding" and entry.delivery is not None
        require(held and holder is None, "Links", f"{entry} was taken by hand")
    elif entry.state in ("bound", "outstanding"):
        require(engine.selectors.get(holder.id) is holder and holder.source is entry.queue, "Links", f"{entry} has a holder")
        require(holder.infinite == (entry.state == "bound"), "Credit", f"{entry} and its credit")
    else:
        require(holder is None and entry.child is None and entry.delivery is None, "Links", f"{entry} is held by nobody")
    if entry.state == "outstanding":
        forms = [entry.child is not None, entry in engine.offers, entry.delivery is not None]
        require(sum(forms) == 1, "Links", f"{entry} was moved, or is offered, or was taken")
    if entry.child is not None:
        child = entry.child
        require(child.parent is entry and child in child.queue.entries, "Links", f"{entry} and its child {child}")
    if entry.parent is not None:
        parent = entry.parent
        require(parent.child is entry and parent.state == "outstanding", "Links", f"{entry} and its parent {parent}")
        require(parent in parent.queue.entries and entry.state != "history", "Links", f"{entry} is not yet paid for")


def check_keys(engine):
    """Of a key at most one is taken, apart from what overflow selectors took."""
    for queue in engine.queues.values():
        keys = [key_of(e) for e in queue.entries if holds_its_key(e) and key_of(e) is not None]
        require(len(set(keys)) == len(keys), "Order", f"queue {queue.name!r}: one of a key is taken, not {keys}")


def check_time(engine):
    """Nothing that is due is left undone; what is delayed has a time to come."""
    for time, what, entry in due.everything(engine):
        require(time > engine.time, "Quiet", f"the {what} of {entry} was due at {time}, it is {engine.time}")
    for queue in engine.queues.values():
        for entry in queue.entries:
            require(entry.answer_by is None or entry.delivery is not None, "Links", f"{entry} has a deadline")
            require(not entry.retrying or entry.state == "delayed", "Recount", f"{entry} is tried again later")


def check_credit(engine, selector):
    where = f"selector {selector.id}"
    require(engine.queues.get(selector.source.name) is selector.source, "Links", f"{where}: its source")
    target = selector.do.queue
    require(target is None or isinstance(target, Field) or target in engine.queues, "Links", f"{where}: its target")
    require(selector.ahead is None or selector.offered <= selector.ahead, "Credit", f"{where}: ahead")
    if selector.infinite:
        require(selector.outstanding == 0, "Credit", f"{where}: INFINITE leaves nothing outstanding")
    else:
        require(selector.available >= 0, "Credit", f"{where}: available")
        require(selector.credit == selector.available + selector.outstanding, "Credit", where)


def check_quiet(engine):
    """No step is left. Asked in other words: asking `_step` itself would join lines."""
    for entry in everywhere(engine, "unrouted"):
        require(not is_routable(entry), "Quiet", f"{entry} can be routed")
    for queue in engine.queues.values():
        require(bounds.surplus_of(engine, queue) is None, "Quiet", f"queue {queue.name!r} holds more than it may")
    for entry in everywhere(engine, "waiting"):
        able = [s for s in entry.queue.selectors if may_take(s, entry) and s.is_able and not entry.queue.held]
        parked = entry.parked and not entry.queue.held and any(may_act(engine, s, entry) for s in entry.hits)
        require(not parked, "Quiet", f"{entry} can be routed")
        for selector in able:
            target = line_of(selector, entry.message)
            require(target is not None and selector in target.waiting_list, "Quiet", f"{entry} can be taken by {selector.id}")


def require(holds, law, where):
    if not holds:
        raise InvariantError(f"{law}: {where}")
