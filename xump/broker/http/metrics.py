"""The numbers of all engines in the text format of Prometheus (version 0.0.4).

Labels are OpenTelemetry's attributes for messaging, where it has one: a queue is a `messaging_destination_name`, and the reason
why it lost a message an `error_type`; `target_info` has what is the same everywhere. Its metrics for messaging are those of
clients, so the broker's own have names of their own.

With 10,000 queues there are 160,000 lines, so they are written here, not by a library of general purpose; the tests read them
with Prometheus' own parser. No message waits for a scrape: a few queues are looked at, and a few lines sent, at a time, between
which others have their turn. So the lines of two queues may be of two moments; those of one queue are of one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from xump import __version__
from xump.broker.http.call import Call, in_time
from xump.broker.patience import in_steps
from xump.errors import Closed
from xump_ext.infinite import INFINITE

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.queue import Queue
    from xump.selector import Selector

AT_ONCE = 200
"""So many queues or selectors are looked at before others have their turn."""

PIECE_BYTES = 256 << 10
"""About so much of the answer is sent before others have their turn."""

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
    ("target_info", "gauge", "What all the numbers are of."),
    ("xump_connections", "gauge", "Connections of AMQP clients."),
    ("xump_channels", "gauge", "Channels of AMQP clients."),
    ("xump_confirmed_publishes_total", "counter", "Publishes of AMQP clients that were confirmed."),
    ("xump_refused_publishes_total", "counter", "Publishes of AMQP clients that were refused by a confirm."),
    ("xump_unconfirmed_publishes", "gauge", "Publishes of AMQP clients that wait to be durable."),
)

Families = dict[str, list[str]]
"""Lines by the name of their family, which must stand together."""


async def metrics(call: Call) -> web.StreamResponse:
    """The numbers of all virtual hosts that the user may enter, and there of the queues that the user may read."""
    call.only()
    pieces: dict[str, list[bytes]] = {
        name: [f"# HELP {name} {told}\n# TYPE {name} {kind}\n".encode()]
        for name, kind, told in (*CLIENTS, *QUEUE, *SELECTOR, *STORE)}
    _gather(pieces, _clients(call.broker))
    for vhost in call.broker.vhosts.values():
        if call.user.may_enter(vhost.name):
            await in_steps(vhost.engine, _collect, Call(call.http, call.request, call.user, vhost), pieces)
    _gather(pieces, {"": list(_beside(call.broker))})
    return await _sent(call.request, [piece for family in pieces.values() for piece in family])


async def _sent(request: web.Request, pieces: list[bytes]) -> web.StreamResponse:
    """Send them, about `PIECE_BYTES` at a time: ten megabytes at once hold the loop for 20 ms."""
    response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
    response.content_length = sum(map(len, pieces))
    async with in_time(request, response.content_length):
        await response.prepare(request)
        waiting: list[bytes] = []
        size = 0
        for piece in pieces:
            waiting.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                await response.write(b"".join(waiting))
                await asyncio.sleep(0)          # `write` by itself waits only for a client that reads slowly
                waiting.clear()
                size = 0
        await response.write(b"".join(waiting))
    return response


async def _collect(call: Call, pieces: dict[str, list[bytes]]) -> None:
    """The queues of a virtual host that the user may read."""
    engine = call.engine
    host = f'vhost="{escaped(call.vhost.name)}"'
    reads_all = call.user.may_all(call.vhost.name, "read")

    def queue(found: Queue, families: Families) -> None:
        """Look at a queue."""
        if reads_all or call.may("read", found.name):
            _queue(found, host, families)

    def selector(found: Selector, families: Families) -> None:
        """Look at a selector."""
        if reads_all or call.may("read", found.source.name):
            _selector(found, host, families)

    await _each(engine.queues, queue, pieces)
    await _each(engine.selectors, selector, pieces)
    families: Families = {}
    for name, store in list(engine.stores.items()):
        if store.journal is not None:                   # RAM would have to count its messages one by one
            labels = f'{{{host},store="{escaped(name)}"}}'
            _add(families, labels, (("xump_store_size_bytes", store.size_bytes), ("xump_store_live_bytes", store.live_bytes),
                                    ("xump_store_failed", int(store.error is not None))))
            families["xump_store_sync_seconds"] = [f"xump_store_sync_seconds_sum{labels} {store.sync_seconds}",
                                                   f"xump_store_sync_seconds_count{labels} {store.syncs}"]
            _gather(pieces, families)
            families = {}


async def _each(found: Mapping[Any, Any], look: Callable[[Any, Families], None], pieces: dict[str, list[bytes]]) -> None:
    """Look at all queues or selectors, a few at a time. Their names are all that is listed at once."""
    keys = list(found)
    for at in range(0, len(keys), AT_ONCE):
        families: Families = {}
        for key in keys[at:at + AT_ONCE]:
            try:
                look(found[key], families)
            except (KeyError, Closed):                  # it was deleted just now
                continue
        _gather(pieces, families)
        await asyncio.sleep(0)


def _gather(pieces: dict[str, list[bytes]], families: Families) -> None:
    """Put lines to the others of their family: as one piece, since a hundred thousand texts cost the loop a long collection."""
    for name, lines in families.items():
        if lines:
            pieces.setdefault(name, []).append("\n".join([*lines, ""]).encode())


def _add(families: Families, labels: str, values: Iterable[tuple[str, Any]]) -> None:
    for name, value in values:
        families.setdefault(name, []).append(f"{name}{labels} {value}")


def _queue(queue: Any, host: str, families: Families) -> None:
    numbers = queue.counters()
    oldest = queue.oldest if numbers["ready"] else None
    inner = f'{host},messaging_destination_name="{escaped(queue.name)}"'
    labels = f"{{{inner}}}"
    families.setdefault("xump_queue_messages", []).extend(
        f'xump_queue_messages{{{inner},state="{state}"}} {numbers[state]}' for state in STATES)
    _add(families, labels, (
        ("xump_queue_entered_messages_total", numbers["entered"]), ("xump_queue_settled_messages_total", numbers["settled"]),
        ("xump_queue_deleted_messages_total", numbers["deleted"]), ("xump_queue_duplicate_messages_total", numbers["duplicates"]),
        ("xump_queue_offered_messages", numbers["offered"]), ("xump_queue_held", int(numbers["held"])),
        ("xump_queue_oldest_age_seconds", 0 if oldest is None else max(0, time.time_ns() - oldest) / 1e9)))
    for name, reasons in (("xump_queue_dropped_messages_total", numbers["dropped"]),
                          ("xump_queue_dead_lettered_messages_total", numbers["dead_lettered"])):
        families.setdefault(name, []).extend(
            f'{name}{{{inner},error_type="{reason}"}} {count}' for reason, count in reasons.items())


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


def _clients(broker: Broker) -> Families:
    families: Families = {}
    channels = [channel for connection in broker.connections for channel in connection.channels.values()]
    _add(families, f'{{service_name="xump",service_version="{__version__}",messaging_system="xump"}}', (("target_info", 1),))
    _add(families, "", (
        ("xump_connections", len(broker.connections)), ("xump_channels", len(channels)),
        ("xump_confirmed_publishes_total", broker.confirmed), ("xump_refused_publishes_total", broker.refused),
        ("xump_unconfirmed_publishes", sum(one.unconfirmed for one in channels))))
    return families


def _beside(broker: Broker) -> Iterator[str]:
    """The figures of others: gauges named after whose they are."""
    for whose, look in broker.beside.items():
        for number, value in look().items():
            name = re.sub(r"\W", "_", f"xump_{whose}_{number}", flags=re.ASCII)
            yield from (f"# HELP {name} {number} of {whose}.", f"# TYPE {name} gauge", f"{name} {value}")


def escaped(text: str) -> str:
    """A text as the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
