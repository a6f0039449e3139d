"""The graph and its numbers, for the live page and for programs: counts, rates, and why a selector waits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from xump.broker.http.call import Call, answer, number
from xump.broker.http.connections import connections
from xump.broker.http.problems import Problem, asking
from xump.errors import Closed
from xump.topology.picture import to_svg
from xump_ext.infinite import INFINITE

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.selector import Selector

AT_ONCE = 200
"""So many queues or selectors are looked at before others have their turn."""

DRAWN_MAX = 400
"""A graph with more queues and selectors is not drawn: nobody could read it."""

RATE_SECONDS = 1.0
"""Rates are means over at least so long."""


class Rates:
    """How many messages a second enter each queue and leave it, from the counts of two moments."""

    def __init__(self) -> None:
        self._then: tuple[float, dict[str, tuple[int, int]]] = (time.monotonic(), {})
        self.by_queue: dict[str, tuple[float, float]] = {}
        """By queue: messages a second that came, and that went."""

    def look(self, counts: dict[str, tuple[int, int]]) -> None:
        """The counts as they are now: how many came into each queue, and went."""
        then, before = self._then
        now = time.monotonic()
        if now - then < RATE_SECONDS and before:
            return
        self.by_queue = {
            name: ((came - before[name][0]) / (now - then), (went - before[name][1]) / (now - then))
            for name, (came, went) in counts.items() if name in before}
        self._then = now, counts


def came_and_went(counters: Mapping[str, Any]) -> tuple[int, int]:
    """How many messages came into a queue so far, and went."""
    return counters["entered"], counters["settled"] + counters["deleted"] + sum(counters["dropped"].values())


async def overview(call: Call) -> web.Response:
    """All numbers that the live page shows. `limit`: of so many queues, selectors and connections, those with most to say."""
    call.only("limit")
    limit = call.parameter("limit", number)
    engine, rates = call.engine, call.http.rates_of(call.vhost)
    with asking():
        counts: dict[str, tuple[int, int]] = {}
        queues = [found async for found in _each(engine.queues, lambda queue: _queue(call, queue, counts))]
        rates.look(counts)
        readable = {queue["name"] for queue in queues}
        selectors = [found async for found in _each(engine.selectors, lambda selector: _selector(selector, readable))]
        may_configure = any(queue["may_configure"] for queue in queues)
        clients = list(connections(call, may_configure))
        found = {
            "user": {"name": call.user.name, "may_configure": may_configure},
            "now": time.time_ns(),
            "engine": engine._counters(),
            "queues": queues, "selectors": selectors, "connections": clients,
            "totals": {"queues": len(queues), "selectors": len(selectors), "connections": len(clients)},
            "stores": [
                {"name": name, "size_bytes": store.size_bytes, "live_bytes": store.live_bytes}
                for name, store in engine.stores.items() if store.journal is not None],
            "beside": [{"name": name, "numbers": dict(look())} for name, look in call.broker.beside.items()],
        }
    return web.Response(text=await asyncio.to_thread(_written, found, rates.by_queue, limit), content_type="application/json")


async def _each(found: Mapping[Any, Any], look: Callable[[Any], dict[str, Any] | None]) -> AsyncIterator[dict[str, Any]]:
    """The description of all queues or selectors. After a few of them others have their turn."""
    for place, key in enumerate(list(found)):
        if place % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        try:
            said = look(found[key])
        except (KeyError, Closed):                      # it was deleted just now
            continue
        if said is not None:
            yield said


def _queue(call: Call, queue: Queue, counts: dict[str, tuple[int, int]]) -> dict[str, Any] | None:
    name, counters = queue.name, queue.counters()
    counts[name] = came_and_went(counters)
    if not call.may("read", name):
        return None
    return {"name": name, "store": queue.store.name, **counters, "oldest": queue.oldest if counters["ready"] else None,
            "may_configure": call.may("configure", name), "may_write": call.may("write", name)}


def _selector(selector: Selector, readable: set[str]) -> dict[str, Any] | None:
    if selector.source.name not in readable:
        return None
    counters = selector.counters()
    return {"id": selector.id, **counters, "when": str(selector.when), "do": str(selector.do),
            "why": why_idle(selector, counters)}


def _written(found: dict[str, Any], rates: Mapping[str, tuple[float, float]], limit: int | None) -> str:
    """As JSON. In a thread, since it takes long for very many queues."""
    for queue in found["queues"]:
        queue["rates"] = rates.get(queue["name"], (0.0, 0.0))
    if limit is not None:
        for name, say in MOST.items():
            found[name] = _most(found[name], limit, say)
    return json.dumps(found, default=str)


MOST: dict[str, Callable[[dict[str, Any]], Any]] = {
    "queues": lambda queue: (sum(queue["rates"]), queue["ready"]),
    "selectors": lambda selector: (selector["why"] is not None, selector["served"]),
    "connections": lambda client: (len(client["waits"]), len(client["windows"])),
}
"""Which of them have most to say."""


def _most(found: list[dict[str, Any]], limit: int, say: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
    """At most so many, in their order."""
    if len(found) <= limit:
        return found
    places = sorted(range(len(found)), key=lambda place: say(found[place]), reverse=True)[:limit]
    return [found[place] for place in sorted(places)]


def why_idle(selector: Selector, counters: Mapping[str, Any]) -> str | None:
    """Why a selector takes nothing now, in a sentence; None: nothing keeps it."""
    source, ahead, window = selector.source, counters["ahead"], selector.window
    if not counters["enabled"]:
        return "disabled"
    if source.held:
        return f"queue {source.name} is held"
    if window is not None and not window.available:
        return f"no credit left in the window that it shares: {unanswered(window.outstanding)}"
    if counters["blocked"]:
        return "its target has no room"
    if counters["available"] is not INFINITE and not counters["available"] and selector.credit is not INFINITE:
        return f"no credit left: {unanswered(counters['outstanding'])}"
    if ahead is not None and counters["offered"] >= ahead:
        return f"its program has not taken yet what is offered to it, {counters['offered']:,}"
    return None


def unanswered(count: int) -> str:
    """How many messages are not answered, in words."""
    return "1 message is not answered yet" if count == 1 else f"{count:,} messages are not answered yet"


async def graph(call: Call) -> web.Response:
    """The graph as a picture."""
    call.only()
    engine = call.engine
    size = len(engine.queues) + len(engine.selectors)
    if size > DRAWN_MAX:
        raise Problem(413, f"the graph has {size} queues and selectors; one of more than {DRAWN_MAX} is not drawn")
    call.check_reads_all()
    with asking():
        rates = call.http.rates_of(call.vhost)
        rates.look({name: came_and_went(counters) for name, counters in engine.stats()["queues"].items()})
        notes = {name: [f"{came:.0f}/s in, {went:.0f}/s out"] for name, (came, went) in rates.by_queue.items() if came or went}
        drawn = await asyncio.to_thread(_drawn, engine, notes)
    return web.Response(text=drawn, content_type="image/svg+xml")


def _drawn(engine: Engine, notes: dict[str, list[str]]) -> str:
    return to_svg(engine, notes=notes)


async def health(call: Call) -> web.Response:
    """Whether the engine works: 503 if it is closed, or one of its stores has failed."""
    call.only()
    failed = [name for name, store in call.engine.stores.items() if store.error is not None]
    if call.engine.closed or failed:
        raise Problem(503, "the engine is closed" if call.engine.closed else f"stores that failed: {', '.join(failed)}")
    return answer({"status": "ok"})
