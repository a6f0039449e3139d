"""The graph and its numbers, for the live page and for programs: counts, rates, and why a selector waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aiohttp import web

from xump.broker.http.call import Call, answer
from xump.broker.http.problems import Problem, asking
from xump.topology.picture import to_svg
from xump_ext.infinite import INFINITE

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.engine import Engine
    from xump.selector import Selector
    from xump.types import SelectorStats, Stats

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
    """All numbers that the live page shows."""
    call.only()
    with asking():
        stats = call.engine.stats()
        selectors = dict(call.engine.selectors)
        rates = call.http.rates_of(call.vhost)
        rates.look(stats)
        readable = {name for name in stats["queues"] if call.may("read", name)}
        queues = [
            {"name": name, "store": call.engine.queues[name].store.name, **counters,
             "rates": rates.by_queue.get(name, (0.0, 0.0)), "oldest": call.engine.queues[name].oldest}
            for name, counters in stats["queues"].items() if name in readable and name in call.engine.queues]
        return answer({
            "user": {"name": call.user.name, "may_configure": any(call.may("configure", name) for name in readable)},
            "now": time.time_ns(),
            "engine": stats["engine"],
            "queues": queues,
            "selectors": [
                {"id": id, **counters, "when": str(selectors[id].when), "do": str(selectors[id].do),
                 "why": why_idle(selectors[id], counters)}
                for id, counters in stats["selectors"].items() if counters["source"] in readable and id in selectors],
            "stores": [
                {"name": name, "size_bytes": store.size_bytes, "live_bytes": store.live_bytes}
                for name, store in call.engine.stores.items()],
            "connections": list(connections(call.broker)),
            "beside": [{"name": name, "numbers": dict(look())} for name, look in call.broker.beside.items()],
        })


def why_idle(selector: Selector, counters: SelectorStats) -> str | None:
    """Why a selector takes nothing now, in a sentence; None: nothing keeps it."""
    source = selector.source
    if not counters["enabled"]:
        return "disabled"
    if source.held:
        return f"queue {source.name} is held"
    if counters["blocked"]:
        return "its target has no room"
    if counters["available"] is not INFINITE and not counters["available"] and selector.credit is not INFINITE:
        return f"no credit left: {counters['outstanding']} messages are not answered yet"
    return None


def connections(broker: Broker) -> Iterator[dict[str, Any]]:
    """The clients of the AMQP face."""
    for connection in broker.connections:
        peer = connection.transport.get_extra_info("peername")
        yield {
            "peer": f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer),
            "user": None if connection.user is None else connection.user.name,
            "channels": len(connection.channels),
            "client": str(connection.client.get("product", "")) if connection.client else "",
        }


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
