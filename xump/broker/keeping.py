"""Durable exchanges, bindings and arguments of queues, which outlive the process in the maps of the store and its queues.

A binding stands in the map of the queue that it leads to, so it goes with the queue in one step; exchanges, and bindings between
them, stand in the map of the store. An exchange has a serial, drawn when it is declared, which its bindings name: a binding of an
exchange that is gone, or of an earlier one of that name, counts for nothing and is dropped when the store is read.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass

from xump.broker.errors import precondition
from xump.broker.exchanges import Exchange
from xump.broker.tables import Table, Typed, decode_table, encode_table, text
from xump.durability.awaiting_broker import BROKER_QUEUE
from xump_ext.log.meta import MAP_BYTES_MAX

QUEUE = BROKER_QUEUE
EXCHANGE = "amqp.exchange/"
BINDING = "amqp.binding/"
SERIAL_BYTES = 8
LENGTH = struct.Struct(">I")
AROUND = -1
"""The level of a table that has the arguments of a client in it: those may nest as deep as in a method."""

Map = MutableMapping[str, bytes]


@dataclass
class Kept:
    """A binding as it is kept."""

    name: str
    """Its name in the map."""
    source: str
    """The exchange that it is from."""
    serial: bytes
    """The serial of that exchange."""
    key: str
    """The binding key."""
    arguments: Table
    """Its arguments."""
    exchange: str | None
    """The exchange that it leads to; None: the queue that the map belongs to."""


def new_serial() -> bytes:
    """The serial of an exchange that is declared now."""
    return os.urandom(SERIAL_BYTES)


def queue_map(auto_delete: bool, arguments: Table) -> dict[str, bytes]:
    """The entries that the map of a queue has from the start. Raises `ProtocolError` 406 if the arguments are too long."""
    value = bytes([auto_delete]) + _fields(arguments)
    _check_size("arguments of a durable queue", QUEUE, value)
    return {QUEUE: value}


def read_queue(meta: Map) -> tuple[bool, Table]:
    """auto_delete and arguments of a queue; of one that no client declared, none."""
    kept = meta.get(QUEUE)
    return (False, {}) if kept is None else (bool(kept[0]), decode_table(kept[1:]))


def keep_exchange(meta: Map, exchange: Exchange) -> None:
    """Write an exchange into the map of the store."""
    about: Table = {"type": text(exchange.type), "auto_delete": Typed("t", exchange.auto_delete),
                    "internal": Typed("t", exchange.internal), "arguments": Typed("F", exchange.arguments)}
    keep(meta, EXCHANGE + exchange.name, exchange.serial + _fields(about))


def read_exchanges(meta: Map) -> Iterator[Exchange]:
    """The exchanges in the map of the store."""
    for name, kept in meta.items():
        if name.startswith(EXCHANGE):
            about = decode_table(kept[SERIAL_BYTES:], AROUND)
            yield Exchange(
                name.removeprefix(EXCHANGE), about["type"].value.decode(), True, about["auto_delete"].value,
                about["internal"].value, about["arguments"].value, serial=kept[:SERIAL_BYTES])


def names_of(meta: Map, exchanges: set[str]) -> list[str]:
    """The names in the map of the store that go with these exchanges: they, and the bindings that lead to them from others."""
    bindings = [one.name for one in read_bindings(meta) if one.exchange in exchanges]
    return bindings + [EXCHANGE + name for name in exchanges if EXCHANGE + name in meta]


def binding(source: Exchange, key: str, arguments: Table, exchange: str | None) -> tuple[str, bytes]:
    """The name of a binding in a map, and what is kept of it."""
    about: Table = {"source": text(source.name), "serial": Typed("x", source.serial), "key": text(key),
                    "arguments": Typed("F", dict(sorted(arguments.items())))}
    if exchange is not None:
        about["exchange"] = text(exchange)
    kept = _fields(about)
    return BINDING + hashlib.sha256(kept).hexdigest()[:32], kept


def read_bindings(meta: Map) -> Iterator[Kept]:
    """The bindings in a map."""
    for name, kept in list(meta.items()):
        if name.startswith(BINDING):
            about = decode_table(kept, AROUND)
            exchange = about.get("exchange")
            yield Kept(name, about["source"].value.decode(), about["serial"].value, about["key"].value.decode(),
                       about["arguments"].value, None if exchange is None else exchange.value.decode())


def keep(meta: Map, name: str, value: bytes) -> None:
    """Write into a map. Raises `ProtocolError` 406 if no map has room for so much, or this one has none any more: other channels
    of the client have nothing to do with that, so it is not 506, which ends them all."""
    _check_size("a durable exchange or binding, with its arguments,", name, value)
    try:
        meta[name] = value
    except ValueError:
        raise precondition(
            "no room for one more: the durable exchanges of a virtual host together, and the durable bindings of a queue, may "
            f"have {MAP_BYTES_MAX} bytes; bind by patterns, or declare some as not durable") from None


def _check_size(what: str, name: str, value: bytes) -> None:
    size = len(name.encode()) + len(value)
    if size > MAP_BYTES_MAX:
        raise precondition(f"{what} may have {MAP_BYTES_MAX} bytes, got {size}")


def _fields(table: Table) -> bytes:
    return encode_table(table)[LENGTH.size:]
