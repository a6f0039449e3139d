"""Reads the description of a topology: a plain dict, or a TOML file, of stores, queues and selectors.

    version = 1

    [stores.orders]                 # the type of the store, "ram" if it is left out, and the options of that type
    type = "ram"

    [queues.jobs]                   # a property that is left out has its default value
    store = "orders"
    limit = 100_000
    history_limit = 1_000           # "all": no limit
    dead_letter = "dead"
    retry_delay = [1, 10, 60]       # seconds
    group = {field = "headers.customer"}

    [windows.workers]               # a window that selectors share: those that say window = "workers"
    credit = 100

    [[selectors]]                   # source, when and do are required; `xump.topology.codec` explains their values
    source = "jobs"
    when = {match = "eq", pattern = "audit"}
    do = {copy_to = "log"}

Reading does not stop at the first mistake (a *fault*): it collects them all, as sentences. `xump.topology.network` finds what a
description lacks or contradicts, and applies it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field as dataclass_field
from difflib import get_close_matches
from typing import Any

from xump._arguments import COUNT_MAX, check_count
from xump._queue_properties import QUEUE_DEFAULTS, TOPOLOGY_PROPERTIES
from xump.actions import Action
from xump.conditions import Condition
from xump.errors import XumpError
from xump.store_types import factory_of, wrong_options
from xump.topology.codec import (
    decode_ack_timeout,
    decode_action,
    decode_condition,
    decode_credit,
    decode_group,
    decode_whole,
    decode_window,
    encode_option,
    shown,
)
from xump_ext.infinite import Infinite

VERSION = 1

SELECTOR_KEYS = ("source", "when", "do", "credit", "enabled", "ack_timeout", "rank", "ahead", "window", "name")
ALL_HISTORY = "all"
BROKER_OPTIONS: dict[str, type] = {
    "amqp": str, "http": str, "flight": str, "store": str, "path": str, "users": str, "certificate": str, "key": str,
    "client_ca": str, "product": str, "memory_bytes": int, "ack_timeout": int, "staging_bytes": int, "busy_poll": int,
    "private_targets": bool, "insecure": bool,
}
"""The options of `xump serve` that the table `broker` may have, and their types."""
KINDS: dict[type, str] = {str: "a text", int: "a whole number", bool: "true or false"}


@dataclass(frozen=True)
class StoreItem:
    """A store that is described."""

    name: str
    """Its name."""
    type: str
    """Its type."""
    options: dict[str, Any]
    """The options for `create_store`."""


@dataclass(frozen=True)
class QueueItem:
    """A queue that is described."""

    name: str
    """Its name."""
    properties: dict[str, Any]
    """All its properties, for `create_queue`."""


@dataclass(frozen=True)
class SelectorItem:
    """A selector that is described."""

    position: int
    """Its place in the list, from 1."""
    source: str
    """The name of the queue that it takes messages from."""
    when: Condition
    """Its condition."""
    do: Action
    """Its action."""
    credit: int | Infinite
    """Its credit."""
    enabled: bool
    """Whether it is enabled."""
    ack_timeout: float | None
    """In how many seconds a delivery must be answered, or None."""
    rank: int
    """Its rank."""
    ahead: int | None
    """How many messages it offers ahead at most, or None."""
    window: str | None
    """The name of the window that it shares, or None."""
    name: str | None
    """Its name, or None."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Its properties without name and place: equal for two selectors that are alike."""
        return self.source, self.when, self.do, self.credit, self.enabled, self.ack_timeout, self.rank, self.ahead, self.window

    def __str__(self) -> str:
        return selector_title(self.position, self.name)


def selector_title(position: int, name: object) -> str:
    """The words for a selector in a sentence."""
    return f"selector {position}" + ("" if name is None else f" ({name!r})")


@dataclass
class Description:
    """A description that was read."""

    stores: dict[str, StoreItem] = dataclass_field(default_factory=dict)
    """The stores by name."""
    queues: dict[str, QueueItem] = dataclass_field(default_factory=dict)
    """The queues by name."""
    windows: dict[str, int] = dataclass_field(default_factory=dict)
    """The credit of each window that selectors share, by its name."""
    selectors: list[SelectorItem] = dataclass_field(default_factory=list)
    """The selectors that could be read, in order."""
    faults: list[str] = dataclass_field(default_factory=list)
    """The mistakes, as sentences."""


def read(mapping: Mapping[str, Any]) -> Description:
    """Read a description. Opens no store; imports the module of each type of store, to know its options."""
    description = Description()
    try:
        _read(description, mapping)
    except RecursionError:
        description.faults.append("the topology nests tables and lists too deeply to be read")
    return description


def _read(description: Description, mapping: Mapping[str, Any]) -> None:
    if not isinstance(mapping, Mapping):
        description.faults.append(f"a topology is a table (a dict), got {type(mapping).__name__}")
        return
    if mapping.get("version") != VERSION or isinstance(mapping.get("version"), bool):
        said = f"version is {shown(mapping['version'])}" if "version" in mapping else "version is missing"
        description.faults.append(f"{said}; this Xump reads version = {VERSION}")
        return
    description.faults += _unknown("the topology", mapping, ("version", "stores", "queues", "windows", "selectors", "broker"))
    _read_broker(description, mapping.get("broker", {}))
    for name, table in _tables(description, "store", mapping.get("stores", {})):
        _read_store(description, name, table)
    for name, table in _tables(description, "queue", mapping.get("queues", {})):
        _read_queue(description, name, table)
    for name, table in _tables(description, "window", mapping.get("windows", {})):
        _read_window(description, name, table)
    _read_selectors(description, mapping.get("selectors", []))


def _read_broker(description: Description, table: object) -> None:
    """The part for `xump serve`; an engine has no use for it."""
    if not isinstance(table, Mapping):
        description.faults.append(f"broker must be a table, got {type(table).__name__}")
        return
    description.faults += _unknown("broker", table, BROKER_OPTIONS)
    for name, value in table.items():
        if name in BROKER_OPTIONS and type(value) is not BROKER_OPTIONS[name]:
            description.faults.append(
                f"broker: {name} must be {KINDS[BROKER_OPTIONS[name]]}, got {type(value).__name__}")


def _tables(description: Description, what: str, tables: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(tables, Mapping):
        description.faults.append(f"{what}s must be a table of tables, got {type(tables).__name__}")
        return
    for name, table in tables.items():
        if not isinstance(name, str) or not name:
            description.faults.append(f"{what} {name!r}: a {what} is named by a text that is not empty")
        elif not isinstance(table, Mapping):
            description.faults.append(f"{what} {name!r} must be a table, got {type(table).__name__}")
        else:
            yield name, table


def _read_store(description: Description, name: str, table: Mapping[str, Any]) -> None:
    kind = table.get("type", "ram")
    options = {option: value for option, value in table.items() if option != "type"}
    item = description.stores[name] = StoreItem(name, kind, options)
    if not isinstance(kind, str):
        description.faults.append(f"store {name!r}: type must be a text, got {type(kind).__name__}")
        return
    if name == "ram" and (kind, options) != ("ram", {}):
        description.faults.append("store 'ram' is always there, of type 'ram', without options; choose another name for this one")
        return
    try:
        encode_option(options)
        wrong: object = wrong_options(factory_of(item.type), name, options)
    except (XumpError, ImportError, TypeError, ValueError) as error:
        wrong = error
    if wrong is not None:
        description.faults.append(f"store {name!r} of type {kind!r}: {wrong}")


def _read_queue(description: Description, name: str, table: Mapping[str, Any]) -> None:
    description.faults += _unknown(f"queue {name!r}", table, TOPOLOGY_PROPERTIES)
    properties = QUEUE_DEFAULTS | {key: value for key, value in table.items() if key in TOPOLOGY_PROPERTIES}
    history = properties["history_limit"]
    if isinstance(history, str):
        properties["history_limit"] = None if history == ALL_HISTORY else 0
        if history != ALL_HISTORY:
            description.faults.append(f'queue {name!r}: history_limit = {history!r}: allowed are a number and "all"')
    if not isinstance(properties["store"], str):
        description.faults.append(f"queue {name!r}: store must be the name of a store, got {type(properties['store']).__name__}")
        properties["store"] = "ram"
    if properties["group"] is not None:
        try:
            properties["group"] = decode_group(properties["group"])
        except (XumpError, TypeError, ValueError) as error:
            description.faults.append(f"queue {name!r}: {error}")
            properties["group"] = None
    description.queues[name] = QueueItem(name, properties)


def _read_window(description: Description, name: str, table: Mapping[str, Any]) -> None:
    description.faults += _unknown(f"window {name!r}", table, ("credit",))
    try:
        check_count("credit", table.get("credit"), 0, COUNT_MAX, "a whole number")
        description.windows[name] = table["credit"]
    except (TypeError, ValueError) as error:
        description.faults.append(f"window {name!r}: {error}")


def _read_selectors(description: Description, selectors: object) -> None:
    if not isinstance(selectors, (list, tuple)):
        description.faults.append(f"selectors must be a list of tables, got {type(selectors).__name__}")
        return
    named: dict[str, int] = {}
    for position, table in enumerate(selectors, 1):
        if not isinstance(table, Mapping):
            description.faults.append(f"selector {position} must be a table, got {type(table).__name__}")
            continue
        name = table.get("name")
        title = selector_title(position, name)
        faults = [*_unknown(title, table, SELECTOR_KEYS, _START), *_selector_faults(title, table, name)]
        if isinstance(name, str) and named.setdefault(name, position) != position:
            faults.append(f"{title} has the name of selector {named[name]}; give it another name")
        parts: dict[str, Any] = {}
        for key, decode, value in (("when", decode_condition, table.get("when")), ("do", decode_action, table.get("do")),
                                   ("credit", decode_credit, table.get("credit", 1)),
                                   ("ack_timeout", decode_ack_timeout, table.get("ack_timeout")),
                                   ("rank", decode_whole, table.get("rank", 0)), ("ahead", decode_whole, table.get("ahead")),
                                   ("window", decode_window, table.get("window"))):
            if key not in ("when", "do") or key in table:
                try:
                    parts[key] = decode(value)
                except (XumpError, TypeError, ValueError) as error:
                    faults.append(f"{title}: {error}")
        if not faults:
            enabled = table.get("enabled", True)
            description.selectors.append(SelectorItem(position, table["source"], enabled=enabled, name=name, **parts))
        description.faults += faults


_START = {"start": "a replay happens once, and is not part of a topology: create that selector in the program"}


def _selector_faults(title: str, table: Mapping[str, Any], name: object) -> Iterator[str]:
    for key in ("source", "when", "do"):
        if key not in table:
            yield f"{title} has no {key}"
    if "source" in table and not isinstance(table["source"], str):
        yield f"{title}: source must be the name of a queue, got {type(table['source']).__name__}"
    if not isinstance(table.get("enabled", True), bool):
        yield f"{title}: enabled must be true or false, got {type(table['enabled']).__name__}"
    if name is not None and (not isinstance(name, str) or not name):
        yield f"{title}: a name is a text that is not empty"


def _unknown(
    title: str, table: Mapping[str, Any], allowed: Mapping[str, Any] | tuple[str, ...], why: Mapping[str, str] | None = None
) -> list[str]:
    """A sentence for each unknown key, with the one that is most like it; `why` has the words for some keys."""
    sentences = []
    for key in table:
        if key not in allowed:
            like = get_close_matches(key, allowed, 1) if isinstance(key, str) else []
            meant = f" (did you mean {like[0]!r}?)" if like else ""
            sentences.append(
                f"{title} has an unknown key {key!r}{meant}; {(why or {}).get(key) or 'allowed are ' + ', '.join(allowed)}")
    return sentences
