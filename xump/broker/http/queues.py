"""Queues over HTTP: publish into them, look at them, hold, purge, and send dead letters back."""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

import xump.aio
from xump.broker import purging
from xump.broker.http import cloudevents, messages
from xump.broker.http.call import Call, answer, number, one_of, seconds
from xump.broker.http.letters import as_before, came_from
from xump.broker.http.messages import LINES, read_headers, read_lines, shown
from xump.broker.http.problems import Problem, asking
from xump.broker.permissions import needed, topology_of
from xump.topology import schema
from xump.types import HeaderValue, State
from xump_ext.engine.taking import put_back

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue
    from xump_ext.engine.delivery import Delivery
    from xump_ext.message.message import Message

HEADERS = "Xump-Headers"
"""The request header with the headers of the message, a JSON object."""

PUBLISHED: dict[str, Callable[[str], Any]] = {
    "address": str, "reply_to": str, "message_id": str, "correlation_id": str, "delay": seconds, "at": number,
    "ttl": seconds, "priority": number,
}
"""Parameters of a publish, and how they are read."""

Publish = Callable[[], list[int]]
"""Publishes what a request brings, and returns the ids."""

PAGE_MAX = 1000
"""So many messages are shown at once."""

MOVED_AT_ONCE = 100
"""So many messages go back in one transaction; then others have their turn."""


async def publish(call: Call) -> web.Response:
    """Publish a message, messages as lines of JSON, or events; answers when they are durable."""
    name = call.name()
    call.check("write", name)
    call.only(*PUBLISHED)
    call.check_memory()
    body = await call.body()
    options = {key: value for key, parse in PUBLISHED.items() if (value := call.parameter(key, parse)) is not None}
    address = options.pop("address", None)
    mode = cloudevents.mode_of(call.request.headers)
    if call.request.content_type == LINES:
        publish = _of_lines(call.engine, name, address, body, options)
    elif mode is None:
        publish = _of_one(call.engine, name, address or "", body, headers_of(call.request), options)
    else:
        publish = _of_events(call.engine, name, address, cloudevents.events_in(mode, call.request.headers, body), options)
    ids = await call.done(publish)
    if call.engine.pressed:             # who publishes more waits until the stores have caught up
        with asking():
            await xump.aio.relieved(call.engine)
    return answer({"ids": ids}, 201)


def _of_one(
    engine: Engine, name: str, address: str, body: bytes, headers: dict[str, HeaderValue], options: dict[str, Any]
) -> Publish:
    return lambda: [engine.publish(name, address, body, headers, **options)]


def _of_lines(engine: Engine, name: str, address: str | None, body: bytes, options: dict[str, Any]) -> Publish:
    """A message a line: all enter, or none does."""
    if address is not None:
        raise Problem(400, "address is of one message; in a body of lines each line has its own")
    lines = read_lines(body)
    return lambda: list(engine.publish_many(name, lines, **options))


def _of_events(
    engine: Engine, name: str, address: str | None, events: list[cloudevents.Event], options: dict[str, Any]
) -> Publish:
    message_id = options.pop("message_id", None)
    if message_id is not None and len(events) != 1:
        raise Problem(400, "message_id is of one message; a batch of events has the ids of its events")
    if len(events) == 1:
        kind, body, headers, known_as = events[0]
        options["message_id"] = message_id or known_as
        return _of_one(engine, name, kind if address is None else address, body, headers, options)
    reply_to = options.pop("reply_to", None)
    rows = [(kind if address is None else address, body, headers, reply_to, known_as)
            for kind, body, headers, known_as in events]
    return lambda: list(engine.publish_many(name, rows, **options))


def headers_of(request: web.Request) -> dict[str, HeaderValue]:
    """The headers of the message; its type among them, unless it is what curl says without being told to."""
    kind = request.headers.get("Content-Type")
    found: dict[str, HeaderValue] = {}
    if kind is not None and kind not in ("application/x-www-form-urlencoded", "application/octet-stream"):
        found[cloudevents.CONTENT_TYPE] = kind
    given = request.headers.get(HEADERS)
    if given is None:
        return found
    try:
        named = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"{HEADERS} is not JSON: {error}") from None
    if not isinstance(named, dict):
        raise Problem(400, f"{HEADERS} must be a JSON object, got {type(named).__name__}")
    found.update(read_headers(named))
    return found


async def listed(call: Call) -> web.Response:
    """The queues that the user may read, with their counts."""
    call.only()
    with asking():
        return answer([
            {"name": name, "store": queue.store.name, "ready": queue.ready, "delayed": queue.delayed,
             "outstanding": queue.outstanding, "history": queue.history, "held": queue.held}
            for name, queue in call.engine.queues.items() if call.may("read", name)])


async def create(call: Call) -> web.Response:
    """Create a queue, with the properties that a topology has; one that is there already with these is left as it is."""
    name = call.name()
    call.only()
    described = {"version": 1, "queues": {name: await call.json()}}
    for permission, other in needed(described, []):
        call.check(permission, other)

    def make() -> None:
        """Unless it is there."""
        if name in call.engine.queues:
            call.engine.apply(described)            # raises if its properties are others; looks at the whole graph
            return
        found = schema.read(described)
        if found.faults:
            raise Problem(400, "; ".join(found.faults))
        call.engine.create_queue(name, **found.queues[name].properties)

    await call.done(make)
    return answer({"name": name}, 201)


async def delete(call: Call) -> web.Response:
    """Delete a queue with its messages."""
    call.check("configure", call.name())
    call.only()
    queue = call.engine.queues.get(call.name())
    if queue is None:
        return answer({"deleted": False})
    if purging.is_large(queue):
        with asking():
            await purging.purge(queue)
    return answer({"deleted": await call.done(lambda: call.engine.delete_queue(queue))})


async def browse(call: Call) -> web.Response:
    """Messages of a queue, without consuming them."""
    queue = call.queue("read")
    call.only("start", "limit", "state", "where", "reverse")
    start = call.parameter("start", _start)
    state = call.parameter("state", one_of("ready", "delayed", "outstanding", "history"))
    limit = call.parameter("limit", number)
    limit = min(100 if limit is None else limit, PAGE_MAX)
    reverse = call.parameter("reverse", one_of("true", "false")) == "true"
    where = call.request.query.get("where")
    with asking():
        found = queue._browse_detailed(start or "head", state, where or None, limit, reverse)  # type: ignore[arg-type]
        return web.Response(text=await asyncio.to_thread(_page, found), content_type="application/json")


def _page(found: Iterable[tuple[Message, State, int | None]]) -> str:
    """As JSON. In a thread, since it may pass over millions, and write many bytes."""
    page, size = [], 0
    for message, state, until in found:
        page.append({**shown(message), "state": state, "until": until})
        size += len(message.body)
        if size >= messages.BODIES_BYTES_MAX:
            break
    return json.dumps(page, default=str)


def _start(text: str) -> int | str | datetime.datetime:
    if text in ("head", "current"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("expected head, current, an id, or a date and time with its zone") from None


async def look(call: Call) -> web.Response:
    """One message of a queue."""
    queue = call.queue("read")
    call.only()
    try:
        id = number(call.name("id"))
    except ValueError as error:
        raise Problem(400, f"a message's id: {error}") from None
    with asking():
        message = queue.fetch(id)
    if message is None:
        raise Problem(404, f"queue {queue.name!r} has no message {id}")
    return answer(shown(message))


async def hold(call: Call) -> web.Response:
    """Hold a queue: it routes and delivers nothing until it is released."""
    queue = call.queue("configure")
    call.only()
    await call.done(queue.hold)
    return answer({"held": True})


async def release(call: Call) -> web.Response:
    """Release a queue that is held."""
    queue = call.queue("configure")
    call.only()
    await call.done(queue.release)
    return answer({"held": False})


async def purge(call: Call) -> web.Response:
    """Delete the ready and the delayed messages of a queue."""
    queue = call.queue("configure")
    call.only()
    with asking():
        purged = await purging.purge(queue)
        await xump.aio.durable(call.engine)
    return answer({"purged": purged})


async def requeue(call: Call) -> web.Response:
    """Publish dead letters into the queues that they came from, or into another one."""
    queue = call.queue("configure")
    call.check("read", queue.name)          # `to` may be a queue that the user reads
    call.only("to", "limit")
    to = call.request.query.get("to")
    left = call.parameter("limit", number)
    left = queue.ready if left is None else min(left, queue.ready)
    if to is None:
        await asyncio.to_thread(_check_all, call, queue, left)
    else:
        _check_target(call, to)
    moved = 0
    try:
        with asking():
            while moved < left and (count := await call.done(
                    partial(_requeue_some, call, queue.name, to, min(MOVED_AT_ONCE, left - moved)))):
                moved += count
    except Problem as problem:
        before = f"; {moved} went back before that" if moved else ""
        raise Problem(problem.status, f"{problem}{before}") from None
    return answer({"requeued": moved})


def _requeue_some(call: Call, name: str, to: str | None, count: int) -> int:
    """All of them go back, or none does."""
    engine = call.engine
    taken: list[Delivery] = []
    try:
        with engine.transaction() as tx:
            while len(taken) < count and (delivery := engine.get(name)) is not None:
                taken.append(delivery)
                target = to if to is not None else _came_from(delivery.message)
                call.check("write", target)
                tx.publish(target, as_before(delivery.message))
                tx.ack(delivery)
    except BaseException:
        put_back(engine, taken)
        raise
    return len(taken)


def _check_all(call: Call, queue: Queue, count: int) -> None:
    """Raise `Problem` unless so many may go back, before some of them have gone."""
    known: set[str] = set()
    with asking():
        for message, _, _ in queue._browse_detailed("head", "ready", None, count, False):
            target = _came_from(message)
            if target not in known:
                _check_target(call, target)
                known.add(target)


def _check_target(call: Call, target: str) -> None:
    call.check("write", target)
    if target not in call.engine.queues:
        raise Problem(404, f"no queue {target!r} in the virtual host {call.vhost.name!r}: name another one with `to`")


def _came_from(message: Message) -> str:
    found = came_from(message)
    if found is None:
        raise Problem(400, f"message {message.id} does not say where it came from: name a queue with `to`")
    return found


async def topology(call: Call) -> web.Response:
    """The stores, queues and selectors, as a topology file has them."""
    call.only()
    call.check_reads_all()
    with asking():
        return answer(topology_of(call.vhost))
