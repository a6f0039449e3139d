"""The graph and its numbers, for the live page and for programs: counts, rates, and why a selector waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from xump.broker.http.call import Call, answer, number
from xump.broker.http.connections import connections
from xump.broker.http.problems import Problem, asking
from xump.topology.picture import to_svg
from xump_ext.infinite import INFINITE

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.selector import Selector
    from xump.types import SelectorStats, Stats, WindowStats

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

    def look(self, stats: Stats) -> None:
        """The counts as they are now."""
        then, before = self._then
        now = time.monotonic()
        if now - then < RATE_SECONDS and before:
            return
        counts = {name: (queue["entered"], _gone(queue)) for name, queue in stats["queues"].items()}
        self.by_queue = {
            name: ((came - before[name][0]) / (now - then), (went - before[name][1]) / (now - then))
            for name, (came, went) in counts.items() if name in before}
        self._then = now, counts


def _gone(queue: Any) -> int:
    return int(queue["settled"] + queue["deleted"] + sum(queue["dropped"].values()))


async def overview(call: Call) -> web.Response:
    """All numbers that the live page shows. `limit`: of so many queues, selectors and connections, those with most to say."""
    call.only("limit")
    limit = call.parameter("limit", number)
    with asking():
        stats = call.engine.stats()
        rates = call.http.rates_of(call.vhost)
        rates.look(stats)
        queues = list(_queues(call, stats, rates))
        selectors = list(_selectors(call, stats, {queue["name"] for queue in queues}))
        may_configure = any(queue["may_configure"] for queue in queues)
        clients = list(connections(call, may_configure))
        return answer({
            "user": {"name": call.user.name, "may_configure": may_configure},
            "now": time.time_ns(),
            "engine": stats["engine"],
            "queues": _most(queues, limit, lambda queue: (sum(queue["rates"]), queue["ready"])),
            "selectors": _most(selectors, limit, lambda selector: (selector["why"] is not None, selector["served"])),
            "stores": [
                {"name": name, "size_bytes": store.size_bytes, "live_bytes": store.live_bytes}
                for name, store in call.engine.stores.items()],
            "connections": _most(clients, limit, lambda client: (len(client["waits"]), len(client["windows"]))),
            "totals": {"queues": len(queues), "selectors": len(selectors), "connections": len(clients)},
            "beside": [{"name": name, "numbers": dict(look())} for name, look in call.broker.beside.items()],
        })


def _queues(call: Call, stats: Stats, rates: Rates) -> Iterator[dict[str, Any]]:
    for name, counters in stats["queues"].items():
        queue = call.engine.queues.get(name)
        if queue is not None and call.may("read", name):
            yield {"name": name, "store": queue.store.name, **counters, "rates": rates.by_queue.get(name, (0.0, 0.0)),
                   "oldest": queue.oldest, "may_configure": call.may("configure", name), "may_write": call.may("write", name)}


def _selectors(call: Call, stats: Stats, readable: set[str]) -> Iterator[dict[str, Any]]:
    for id, counters in stats["selectors"].items():
        selector = call.engine.selectors.get(id)
        if selector is not None and counters["source"] in readable:
            yield {"id": id, **counters, "when": str(selector.when), "do": str(selector.do),
                   "why": why_idle(selector, counters, stats["windows"])}


def _most(found: list[dict[str, Any]], limit: int | None, say: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
    """At most so many, in their order: those that have most to say."""
    if limit is None or len(found) <= limit:
        return found
    places = sorted(range(len(found)), key=lambda place: say(found[place]), reverse=True)[:limit]
    return [found[place] for place in sorted(places)]


def why_idle(selector: Selector, counters: SelectorStats, windows: Mapping[str, WindowStats]) -> str | None:
    """Why a selector takes nothing now, in a sentence; None: nothing keeps it."""
    source, ahead = selector.source, counters["ahead"]
    window = windows.get(counters["window"] or "")
    if not counters["enabled"]:
        return "disabled"
    if source.held:
        return f"queue {source.name} is held"
    if window is not None and not window["available"]:
        return f"no credit left in the window that it shares: {unanswered(window['outstanding'])}"
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
    for name in engine.queues:
        call.check("read", name)
    with asking():
        rates = call.http.rates_of(call.vhost)
        rates.look(engine.stats())
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
