"""The calls that are no streams: their names, and what each does. A call has a JSON object, and so has its answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from xump._arguments import COUNT_MAX, ID_MAX
from xump.broker.flight.browse import readable
from xump.broker.permissions import as_dict, is_kept_to_itself, needed, needed_beside_queues, topology_of
from xump.broker.purging import is_large, purge_in_thread
from xump.broker.queues import is_stored
from xump.errors import QueueNotFound, StoreNotFound
from xump_ext.arrow.browse import id_marks

if TYPE_CHECKING:
    from xump.broker.flight.calls import Call
    from xump.queue import Queue

Options = dict[str, Any]
Action = Callable[["Call", Options], Any]

PARTS_MAX = 10_000
"""A queue is divided into so many parts at most."""
MARKS_A_PART = 64
"""So exactly are the parts equal: to a 64th of one."""

SYNC_SECONDS = 20.0
"""So long a call waits for the disk; then it says so, and the client asks again."""


def ping(call: Call, options: Options) -> Any:
    """Whether the broker is there, and knows the user."""
    only(options)
    return {"vhost": call.vhost.name, "user": call.user.name}


def clock(call: Call, options: Options) -> Any:
    """The engine's clock, in POSIX nanoseconds."""
    only(options)
    return {"now": call.engine._now()}


def queues(call: Call, options: Options) -> Any:
    """The queues that the user may read, with their counts."""
    only(options)
    return [{"name": queue.name, "store": queue.store.name, "ready": queue.ready, "delayed": queue.delayed,
             "outstanding": queue.outstanding, "history": queue.history, "entering": queue.entering}
            for queue in call.queues() if call.may("read", queue.name)]


def create_queue(call: Call, options: Options) -> Any:
    """Create a queue, with the properties that a topology has; one that is there already with these is left as it is."""
    only(options, "name", "properties")
    name, properties = text(options, "name"), options.get("properties", {})
    apply(call, {"topology": {"version": 1, "queues": {name: properties}}})
    return {"name": name}


def delete_queue(call: Call, options: Options) -> Any:
    """Delete a queue with its messages."""
    only(options, "name")
    name = text(options, "name")
    call.check("configure", name)
    queue = call.engine.queues.get(name)
    if queue is not None and is_large(queue):
        with suppress(QueueNotFound):       # another client was faster
            purge_in_thread(queue)
    deleted = call.engine.delete_queue(name)
    call.durable()
    return {"deleted": deleted}


def lease(call: Call, options: Options) -> Any:
    """Have a queue last so many seconds from now on, unless this is asked again: then it is deleted with its messages."""
    only(options, "name", "seconds")
    call.listener.leases_of(call.vhost).renew(call.queue("configure", text(options, "name")), options.get("seconds"))
    call.durable()
    return {}


def purge(call: Call, options: Options) -> Any:
    """Delete the ready and delayed messages of a queue; `upto`: those up to that id."""
    only(options, "name", "upto")
    purged = purge_in_thread(call.queue("configure", text(options, "name")), number(options, "upto", ID_MAX))
    call.durable()
    return {"purged": purged}


def apply(call: Call, options: Options) -> Any:
    """Create what a topology has. The user must be allowed to configure its queues and windows, and to write where its selectors
    lead, to queues and destinations. The operator of the broker opens stores."""
    only(options, "topology")
    given = options.get("topology")
    if not isinstance(given, dict):
        raise ValueError(f"topology={given!r}: expected an object")
    for name in as_dict(given.get("stores")):
        if name not in call.engine.stores:
            raise StoreNotFound(f"no store {name!r}: the operator of the broker opens stores")
    for permission, name in needed(given, list(call.engine.queues)):
        call.check(permission, name)
    for permission, name in needed_beside_queues(given):
        call.check_destination(permission, name)
    call.engine.apply(given)
    call.durable()
    return {}


def topology(call: Call, options: Options) -> Any:
    """The stores, queues and selectors, as a topology file has them."""
    only(options)
    for queue in call.queues():
        if not is_kept_to_itself(queue.name):
            call.check("read", queue.name)
    return topology_of(call.vhost)


def stats(call: Call, options: Options) -> Any:
    """The counters and gauges of the queues that the user may read, of their selectors, and of the windows that the user may
    configure."""
    only(options)
    found = call.engine.stats()
    readable_queues = {name: one for name, one in found["queues"].items() if call.may("read", name)}
    windows = {name: one for name, one in found["windows"].items() if call.user.may(call.vhost.name, "configure", name)}
    return {"engine": found["engine"], "queues": readable_queues, "windows": windows,
            "selectors": {str(id): one for id, one in found["selectors"].items() if one["source"] in readable_queues}}


def sync(call: Call, options: Options) -> Any:
    """Wait until all that was done before is on the disk; `queue`: one that is to be there, and that the user may write to."""
    only(options, "queue")
    if "queue" in options:
        call.queue("write", text(options, "queue"))
    call.engine.sync(timeout=SYNC_SECONDS)
    return {}


def target(call: Call, options: Options) -> Any:
    """A queue as a writer sees it."""
    only(options, "queue")
    queue = call.queue("write", text(options, "queue"))
    return {"store": queue.store.name, "is_transit": queue.transit, "is_durable": is_stored(queue), "durable_elsewhere": any(
        is_stored(one) and one.store.name != queue.store.name for one in below(call, queue))}


def below(call: Call, queue: Queue) -> list[Queue]:
    """The queues to which selectors lead from it, on any way but those that messages name."""
    ways = [(one.source.name, one.do.queue) for one in list(call.engine.selectors.values()) if isinstance(one.do.queue, str)]
    found = {queue.name}
    while more := {target for source, target in ways if source in found} - found:
        found |= more
    queues = (call.engine.queues.get(name) for name in sorted(found - {queue.name}))
    return [one for one in queues if one is not None]


def offsets(call: Call, options: Options) -> Any:
    """A queue as a reader by id sees it."""
    only(options, "queue")
    queue = call.queue("read", text(options, "queue"))
    return {
        "incarnation": queue.incarnation, "first_id": first_id(call, options), "last_id": queue.last_id,
        "durable_id": queue.durable_id if is_stored(queue) else queue.last_id, "stable_id": queue.stable_id,
        "readable_id": readable(queue), "is_transit": queue.transit, "consumers": consumers(call, queue.name)}


def first_id(call: Call, options: Options) -> int:
    """The id of the oldest message; 0: there is none."""
    oldest = next(iter(call.engine.queues[options["queue"]].browse(limit=1)), None)
    return 0 if oldest is None else oldest.id


def consumers(call: Call, name: str) -> int:
    """How many selectors take messages out of the queue."""
    return sum(one.source.name == name and one.enabled and one.do.verb != "copy" for one in list(call.engine.selectors.values()))


def plan(call: Call, options: Options) -> Any:
    """Divide the messages from one id to another into parts with about as many messages each."""
    only(options, "queue", "partitions", "start", "end")
    queue = call.queue("read", text(options, "queue"))
    parts = number(options, "partitions", PARTS_MAX)
    if not parts:
        raise ValueError(f"partitions={parts}: expected 1 to {PARTS_MAX}")
    incarnation, end = queue.incarnation, readable(queue)
    first = max(number(options, "start", ID_MAX) or 1, 1)
    given = number(options, "end", ID_MAX)
    last = end if given is None else min(given, end)
    if first > last:
        return {"incarnation": incarnation, "parts": [], "rows": 0}
    kept = queue.ready + queue.delayed + queue.outstanding + queue.history
    every = max(1, min(kept, last - first + 1) // (parts * MARKS_A_PART))
    count, marks = id_marks(call.engine, queue, first, last, every)
    firsts = [marks[len(marks) * part // parts] for part in range(parts)] if marks else []
    firsts = [first, *sorted({one for one in firsts if one > marks[0]})] if firsts else []
    lasts = [*(one - 1 for one in firsts[1:]), last]
    return {"incarnation": incarnation, "rows": count, "parts": list(zip(firsts, lasts, strict=True)) if firsts else []}


def ack(call: Call, options: Options) -> Any:
    """Ack messages of a stream that takes; answers when that is durable."""
    only(options, "session", "ids")
    done = call.listener.sessions.of(options.get("session"), call).answer("ack", ids_of(options))
    call.durable()
    return {"acked": done}


def nack(call: Call, options: Options) -> Any:
    """Give messages back that a stream has taken."""
    only(options, "session", "ids")
    done = call.listener.sessions.of(options.get("session"), call).answer("nack", ids_of(options))
    call.durable()
    return {"nacked": done}


def stage(call: Call, options: Options) -> Any:
    """Whether an attempt may be staged, or its version was committed before: then with so many rows."""
    only(options, "run", "partition", "attempt", "target", "key")
    call.check("write", str(options.get("target")))
    _, decision = call.listener.staging_of(call.vhost).stage(options)
    return {"committed": decision is not None, "rows": 0 if decision is None else decision.rows}


def commit(call: Call, options: Options) -> Any:
    """Let the winners of a run enter, whole, once."""
    only(options, "run", "target", "winners", "key")
    call.check("write", str(options.get("target")))
    return call.listener.staging_of(call.vhost).commit(options, call.check_open)


def abort(call: Call, options: Options) -> Any:
    """Drop a run, unless it was committed before."""
    only(options, "run", "target")
    call.check("write", str(options.get("target")))
    return call.listener.staging_of(call.vhost).abort(options, call.check_open)


ACTIONS: dict[str, Action] = {
    action.__name__: action
    for action in (ping, clock, queues, create_queue, delete_queue, lease, purge, apply, topology, stats, sync, target, offsets,
                   plan, ack, nack, stage, commit, abort)
}
"""All actions by name."""

STAGING = frozenset({"stage", "commit", "abort"})
"""Those of clients that stage."""


def answer(call: Call, name: str, options: Options) -> bytes:
    """Do what an action says; the answer as JSON. Raises ValueError if there is no such action."""
    action = ACTIONS.get(name)
    if action is None:
        raise ValueError(f"no action {name!r}; there are {', '.join(ACTIONS)}")
    return json.dumps(action(call, options), default=str).encode()


# ---- what an action is given

def only(options: Options, *names: str) -> None:
    """Raise ValueError if there are other options than these."""
    for name in options:
        if name not in names:
            raise ValueError(f"no option {name!r} here; there are {', '.join(names) or 'none'}")


def text(options: Options, name: str) -> str:
    """A text. Raises ValueError."""
    given = options.get(name)
    if not isinstance(given, str):
        raise ValueError(f"{name}={given!r}: expected a text")
    return given


def number(options: Options, name: str, most: int) -> int | None:
    """A whole number from 0 on, or None. Raises ValueError."""
    given = options.get(name)
    if given is not None and (type(given) is not int or not 0 <= given <= most):
        raise ValueError(f"{name}={given!r}: expected a whole number from 0 to {most}")
    return given


def ids_of(options: Options) -> list[Any]:
    """Ids. Raises ValueError."""
    given = options.get("ids")
    if not isinstance(given, list) or len(given) > COUNT_MAX:
        raise ValueError("ids: expected a list")
    return given
