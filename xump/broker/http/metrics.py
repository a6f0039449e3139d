"""The numbers of all engines in the text format of Prometheus (version 0.0.4).

Names follow OpenTelemetry's conventions for messaging where it has one: a queue is a `messaging_destination_name`. With 10,000
queues there are 100,000 lines, so they are written here, not by a library of general purpose; the tests read them with
Prometheus' own parser. Queues are looked at a few at a time: no message waits for a scrape. So the lines of two queues may be
of two moments; those of one queue are of one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from aiohttp import web

from xump.broker.http.call import Call
from xump.errors import Closed, QueueNotFound, SelectorNotFound
from xump_ext.infinite import INFINITE

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.broker.vhost import Vhost

AT_ONCE = 100
"""So many queues or selectors are looked at before others have their turn."""

STATES = ("ready", "delayed", "outstanding", "history")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

QUEUE = (
    ("xump_queue_messages", "gauge", "Messages in the queue, by state."),
    ("xump_queue_entered_messages_total", "counter", "Messages that entered the queue."),
    ("xump_queue_settled_messages_total", "counter", "Processed messages that are gone."),
    ("xump_queue_deleted_messages_total", "counter", "Messages that were deleted or purged."),
    ("xump_queue_duplicate_messages_total", "counter", "Publishes that entered nothing, because they came twice."),
    ("xump_queue_dropped_messages_total", "counter", "Messages that were lost, by reason."),
    ("xump_queue_dead_lettered_messages_total", "counter", "Messages that went to a dead letter queue, by reason."),
    ("xump_queue_oldest_age_seconds", "gauge", "How long the oldest ready message has been in the queue."),
    ("xump_queue_offered_messages", "gauge", "Messages offered to programs and not taken yet."),
    ("xump_queue_held", "gauge", "Whether the queue is held: 1 or 0."),
)
SELECTOR = (
    ("xump_selector_served_messages_total", "counter", "Messages that the selector took."),
    ("xump_selector_copied_messages_total", "counter", "Messages that the selector copied."),
    ("xump_selector_dropped_copies_total", "counter", "Copies that their target could not take."),
    ("xump_selector_outstanding_messages", "gauge", "Messages that it took and that are not settled."),
    ("xump_selector_available_credit", "gauge", "How many more it may take; +Inf: any number."),
    ("xump_selector_blocked", "gauge", "Whether it waits for room in its target: 1 or 0."),
)
STORE = (
    ("xump_store_size_bytes", "gauge", "Bytes of the store's files."),
    ("xump_store_live_bytes", "gauge", "Bytes that the messages in the store take."),
    ("xump_store_sync_seconds", "summary", "Syncs to disk: how many, and how long they took."),
    ("xump_store_failed", "gauge", "Whether the store has failed: 1 or 0."),
)
CLIENTS = (
    ("xump_connections", "gauge", "Connections of AMQP clients."),
    ("xump_channels", "gauge", "Channels of AMQP clients."),
)

Families = dict[str, list[str]]


async def metrics(call: Call) -> web.Response:
    """The numbers of all virtual hosts that the user may enter."""
    call.only()
    families: Families = {name: [] for name, _, _ in (*CLIENTS, *QUEUE, *SELECTOR, *STORE)}
    for vhost in call.broker.vhosts.values():
        if call.user.may_enter(vhost.name):
            await _collect(vhost, families)
    _count_clients(call.broker, families)
    lines: list[str] = []
    for name, kind, told in (*CLIENTS, *QUEUE, *SELECTOR, *STORE):
        lines += (f"# HELP {name} {told}", f"# TYPE {name} {kind}", *families[name])
    lines += _beside(call.broker)
    return web.Response(body="\n".join([*lines, ""]).encode(), headers={"Content-Type": CONTENT_TYPE})


async def _collect(vhost: Vhost, families: Families) -> None:
    engine = vhost.engine
    host = f'vhost="{escaped(vhost.name)}"'
    await _each(list(engine.queues.values()), lambda queue: _queue(queue, host, families))
    await _each(list(engine.selectors.values()), lambda selector: _selector(selector, host, families))
    for name, store in engine.stores.items():
        if store.journal is not None:                   # RAM would have to count its messages one by one
            labels = f'{{{host},store="{escaped(name)}"}}'
            _add(families, labels, (("xump_store_size_bytes", store.size_bytes), ("xump_store_live_bytes", store.live_bytes),
                                    ("xump_store_failed", int(store.error is not None))))
            families["xump_store_sync_seconds"] += (f"xump_store_sync_seconds_sum{labels} {store.sync_seconds}",
                                                    f"xump_store_sync_seconds_count{labels} {store.syncs}")


async def _each(items: list[Any], look: Callable[[Any], None]) -> None:
    for at in range(0, len(items), AT_ONCE):
        for item in items[at:at + AT_ONCE]:
            try:
                look(item)
            except (QueueNotFound, SelectorNotFound, Closed):
                continue                                # it was deleted just now
        await asyncio.sleep(0)


def _add(families: Families, labels: str, values: Iterable[tuple[str, Any]]) -> None:
    for name, value in values:
        families[name].append(f"{name}{labels} {value}")


def _queue(queue: Any, host: str, families: Families) -> None:
    numbers = queue.counters()
    oldest = queue.oldest if numbers["ready"] else None
    inner = f'{host},messaging_destination_name="{escaped(queue.name)}"'
    labels = f"{{{inner}}}"
    families["xump_queue_messages"] += [
        f'xump_queue_messages{{{inner},state="{state}"}} {numbers[state]}' for state in STATES]
    _add(families, labels, (
        ("xump_queue_entered_messages_total", numbers["entered"]), ("xump_queue_settled_messages_total", numbers["settled"]),
        ("xump_queue_deleted_messages_total", numbers["deleted"]), ("xump_queue_duplicate_messages_total", numbers["duplicates"]),
        ("xump_queue_offered_messages", numbers["offered"]), ("xump_queue_held", int(numbers["held"])),
        ("xump_queue_oldest_age_seconds", 0 if oldest is None else max(0, time.time_ns() - oldest) / 1e9)))
    for name, reasons in (("xump_queue_dropped_messages_total", numbers["dropped"]),
                          ("xump_queue_dead_lettered_messages_total", numbers["dead_lettered"])):
        families[name] += [f'{name}{{{inner},reason="{reason}"}} {count}' for reason, count in reasons.items()]


def _selector(selector: Any, host: str, families: Families) -> None:
    numbers = selector.counters()
    name = "" if numbers["name"] is None else numbers["name"]
    labels = (f'{{{host},messaging_destination_name="{escaped(numbers["source"])}",selector="{selector.id}",'
              f'name="{escaped(name)}"}}')
    available = numbers["available"]
    _add(families, labels, (
        ("xump_selector_served_messages_total", numbers["served"]), ("xump_selector_copied_messages_total", numbers["copied"]),
        ("xump_selector_dropped_copies_total", numbers["dropped"]),
        ("xump_selector_outstanding_messages", numbers["outstanding"]),
        ("xump_selector_available_credit", "+Inf" if available is INFINITE else available),
        ("xump_selector_blocked", int(bool(numbers["blocked"])))))


def _count_clients(broker: Broker, families: Families) -> None:
    families["xump_connections"].append(f"xump_connections {len(broker.connections)}")
    families["xump_channels"].append(f"xump_channels {sum(len(one.channels) for one in broker.connections)}")


def _beside(broker: Broker) -> Iterator[str]:
    """What others show: gauges named after whose they are."""
    for whose, look in broker.beside.items():
        for number, value in look().items():
            name = re.sub(r"\W", "_", f"xump_{whose}_{number}", flags=re.ASCII)
            yield from (f"# HELP {name} {number} of {whose}.", f"# TYPE {name} gauge", f"{name} {value}")


def escaped(text: str) -> str:
    """A text as the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
