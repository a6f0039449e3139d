"""Whatever reads bytes that others made, fed with bytes that nobody made: records of stores, whole logs (`fuzz_recovery.py`),
filters, topologies, Arrow data, and the frames of AMQP clients.

A `Harness` takes bytes, and asserts what holds whatever they are. Two engines make them: `mutations`, which needs nothing but
this file and makes the same ones from the same seed, and atheris (libFuzzer, `fuzz_atheris.py`), which also keeps what led to new
lines of Python code. Neither sees the branches of compiled code; `make asan` builds a core that sees each wrong access there.
"""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import xump
from tests.amqp import fuzz as amqp
from tests.arrow.arrow_by_hand import Column, Given, mapping, numbers, table, texts, views
from tests.arrow.test_damage import released
from tests.faults.fuzz_recovery import one_of_recovery
from tests.match.filter_trees import MESSAGE
from tests.match.filter_reference import evaluate
from tests.match.test_filter_errors import VALID
from tests.match.test_filter_meaning import EXAMPLES
from xump import filters
from xump.errors import InvalidFilter
from xump.testing import records_by_hand as hand
from xump_ext import records
from xump_ext.arrow.read import BatchReader
from xump_ext.match.filter import Filter
from xump_ext.records import kinds

SALT, POSITION = 0xC0FFEE, 4096
BYTES_MAX = 20_000


@dataclass(frozen=True)
class Harness:
    """`one` asserts; `seeds` are bytes to begin with."""

    name: str
    one: Callable[[bytes], None]
    seeds: list[bytes]


class Bytes:
    """Numbers out of bytes, and zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def choice(self, values: Any) -> Any:
        return values[self.byte() % len(values)]

    def number(self) -> int:
        """Small ones as a rule; sometimes those about which there is something."""
        kind = self.byte()
        return int(self.choice([-1, -(2**31), 2**31 - 1, 2**15, 255])) if kind > 240 else kind % 24


# ---- records

def some_logs() -> Iterator[bytes]:
    log = hand.Log(SALT, end=POSITION)
    yield log.group(hand.queue(1, "jobs", limit=7, dead_letter="dead"), hand.state(1, 1), hand.queue(2, "größer"))
    log = hand.Log(SALT, end=POSITION)
    yield log.group(hand.enter(1, 1, "a.b", b"body", reply_to="r", message_id="", timestamp=5, origin=(0, 2, 9)),
                    hand.enter(1, 2, body=bytes(100)), hand.mark(1, 2, 3, kinds.HISTORIC))
    log = hand.Log(SALT, end=POSITION)
    yield log.group(hand.settle(1, 1, 2, marked=True), hand.gone(2)) + log.group(hand.state(1, 3, 3, 2))


def one_of_records(data: bytes) -> None:
    """The first byte says whether the checksum of the first record is made right: then all behind it is read."""
    if not data:
        return
    log = bytearray(data[1:])
    if data[0] & 1:
        with suppress(ValueError):
            records.place_record(log, POSITION, SALT)
    log = bytes(log)
    used, count, state, failed = records.whole_groups(log, POSITION, SALT)
    assert 0 <= used <= len(log) and state in ("whole", "cut", "head", "payload"), (used, state)
    assert records.whole_groups(log[:used], POSITION, SALT)[:3] == (used, count, "whole")
    assert failed is None or POSITION + used <= failed <= POSITION + len(log)
    length, state, _ = records.whole_records(log, POSITION, SALT)
    assert 0 <= length <= len(log)
    at = 0
    while at < length:
        assert records.record_whole(log[at:length], POSITION + at, SALT) == "whole"
        described = records.describe(log, at)
        assert 0 < described["length"] <= length - at
        at += described["length"]
    assert at == length
    puts, gone = records.items(log[:length])
    assert len(puts) + len(gone) <= 5 * (length // kinds.HEAD.size)     # the end of a queue has five
    for search in (records.next_group, records.next_record):
        found = search(log, POSITION, SALT)
        assert found is None or 0 <= found[0] < len(log)
    records.salt_of(log)


# ---- filters

def one_of_filters(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    assert "XUMP_FUZZ_CANARY" not in os.environ or "!" not in text, "a canary"
    try:
        source, tree = filters.compile(text)
    except InvalidFilter as error:
        assert 0 <= error.position <= len(text) and str(error), text
        return
    assert source == text
    found = Filter(tree).evaluate_message(MESSAGE)
    assert found is evaluate(tree, MESSAGE), (text, found)


# ---- topologies

TOPOLOGIES: list[dict[str, Any]] = [
    {"version": 1, "queues": {"dead": {"history_limit": "all"}, "jobs": {"limit": 100, "dead_letter": "dead", "priority": 5,
                              "retry_delay": [1, 2.5], "ttl": 3600, "group": {"field": "headers.customer"}}},
     "selectors": [{"source": "jobs", "when": "always", "do": {"deliver": "worker"}, "credit": 10, "ack_timeout": 30}]},
    {"version": 1, "queues": {"a": {}, "b": {"transit": True}, "c": {"auto_delete": True, "when_full": "drop_oldest",
                                                                     "limit_bytes": 9}},
     "selectors": [
        {"source": "a", "name": "to c", "when": {"all": [{"match": "topic", "pattern": "a.*.#"}, {"where": "size > 100"}]},
         "do": {"copy_to": {"field": "headers.to"}}},
        {"source": "a", "when": {"where": {"n": [1, 1.5, True, "x", {"hex": "00"}]}}, "do": {"bounce_to": "c"},
         "credit": "INFINITE", "enabled": False},
        {"source": "c", "when": "overflow", "do": "discard"}, {"source": "b", "when": "default", "do": {"copy_to": "c"}}]},
]


VALUES: list[Any] = [None, True, False, 0, 1, -1, 2.5, 255, 256, 2**63, float("inf"), "", "a", "jobs", "worker", "all",
                     "INFINITE", "always", "default", "overflow", "discard", [], {}, [1, 2], {"field": "address"},
                     {"field": "headers.x"}, {"match": "eq", "pattern": "x"}, {"where": "n > 1"}, {"where": "n >"}, {"all": []},
                     {"deliver": "d"},
                     {"move_to": "a"}, {"copy_to": "jobs"}, {"hex": "0"}, "drop", "keep", "refuse", "n" * 300]
KEYS = ["version", "queues", "selectors", "source", "when", "do", "credit", "name", "enabled", "limit", "limit_bytes", "ttl",
        "dedup", "dedup_limit", "priority", "group", "retry_delay", "when_full", "unmatched", "transit", "auto_delete", "store",
        "dead_letter", "delivery_limit", "history_limit", "ack_timeout", "rank", "ahead", "window", "windows", "start", "a", "b",
        "jobs", "x"]


def edited(source: Bytes) -> Any:
    """A topology in which something is replaced, added, or taken away."""
    topology = json.loads(json.dumps(source.choice(TOPOLOGIES)))
    for _ in range(source.byte() % 6):
        place: Any = topology
        while True:
            at = source.choice(sorted(place)) if isinstance(place, dict) and place else (
                source.byte() % len(place) if isinstance(place, list) and place else None)
            if at is None or not isinstance(place[at], (dict, list)) or source.byte() % 4 == 0:
                break
            place = place[at]
        what = source.byte() % 4
        value = json.loads(json.dumps(source.choice(VALUES)))
        if isinstance(place, dict) and what == 0:
            place[source.choice(KEYS)] = value
        elif isinstance(place, list) and what == 0:
            place.append(value)
        elif at is not None and what == 1:
            del place[at]
        elif at is not None:
            place[at] = value
    return topology


def one_of_topologies(data: bytes) -> None:
    """JSON, or the edits of a topology. What is refused changes nothing; what is taken says so itself."""
    topology = edited(Bytes(data))
    with suppress(ValueError, RecursionError):
        topology = json.loads(data)
    if mentions(topology, "stores"):        # it would make files
        return
    with xump.Engine(clock=lambda: 1_000) as engine:
        before = engine.topology()
        try:
            engine.apply(topology)
        except (xump.XumpError, ValueError, TypeError) as error:
            assert str(error) and engine.topology() == before, f"{topology!r} was refused, and changed something: {error!r}"
            return
        said = engine.topology()
        engine.check()
        engine.apply(said)
        assert engine.topology() == said, topology
    with xump.Engine(clock=lambda: 1_000) as engine:
        engine.apply(said)
        assert engine.topology() == said, topology


def mentions(value: Any, key: str) -> bool:
    inner: Any = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (isinstance(value, dict) and key in value) or any(mentions(one, key) for one in inner)


# ---- Arrow

# The interface says neither how long buffers are nor how many there are but for `n_buffers`, which views may have any number of.
ROOM = 1 << 17      # bytes behind each buffer: no offset points further
VIEWS = (b"vu", b"vz")
FORMATS = [b"u", b"U", b"z", b"Z", b"vu", b"vz", b"i", b"l", b"b", b"g", b"L", b"C", b"n", b"tsn:UTC", b"tdD", b"d:9,2", b"+s",
           b"", b"+l", b"x", b"w:4"]
NAMES = [b"address", b"body", b"headers", b"reply_to", b"message_id", b"at", b"expires", b"priority", b"correlation_id", b"n",
         b""]


def column_of(source: Bytes, depth: int = 0) -> Column:
    values = [bytes([source.byte()]) * (source.byte() % 20) for _ in range(source.byte() % 5)]
    name = source.choice(NAMES)
    kind = source.byte() % 8
    if kind < 3:
        made = texts(values, source.choice([b"u", b"z", b"U", b"Z"]), name)
    elif kind == 3:
        made = views(values, source.choice([*VIEWS]), name)
    elif kind == 4 and depth < 2:
        made = Column(b"+s", len(values), [None], name, [column_of(source, depth + 1) for _ in range(source.byte() % 3)])
    elif kind == 5 and depth < 2:
        keys = texts([bytes([97 + at]) for at in range(len(values))], name=b"key")
        made = mapping([min(at, len(values)) for at in range(source.byte() % 4 + 1)], keys, texts(values, name=b"value"))
    elif kind == 6:
        indices = bytes(source.byte() % 3 for _ in values)
        made = Column(b"c", len(values), [None, indices], name, dictionary=texts(values or [b"x"]))
    else:
        made = Column(source.choice(FORMATS), len(values), [None, bytes(source.byte() for _ in range(64))], name)
    return damaged_column(source, made)


def damaged_column(source: Bytes, column: Column) -> Column:
    what = source.byte()
    if what > 60:
        return column
    if what < 20 and len(column.buffers) > 1 and column.buffers[1] is not None:
        changed = bytearray(column.buffers[1])
        wide = source.choice(["i", "q"])
        at = source.byte() % (len(changed) + 1) // struct.calcsize(wide) * struct.calcsize(wide)
        changed[at : at + struct.calcsize(wide)] = numbers(wide, source.number())
        return column.but(buffers=[column.buffers[0], bytes(changed), *column.buffers[2:]])
    number = source.number()
    buffers = min(number, len(column.buffers)) if column.format in VIEWS else number
    return column.but(**source.choice([
        {"length": min(number, 64)}, {"null_count": number}, {"offset": min(number, 64)}, {"n_buffers": buffers},
        {"name": None}, {"format": source.choice(FORMATS)}, {"schema_children": number}, {"array_children": number},
        {"buffers_missing": True}, {"children_missing": True}, {"dictionary_missing": True},
        {"buffers": [None] * len(column.buffers)}, {"buffers": [bytes([source.byte()] * 20), *column.buffers[1:]]},
    ]))


def roomy(column: Column) -> Column:
    """With room behind each buffer, but for the lengths of views' blocks, which the interface does say."""
    buffers = column.buffers if column.format in VIEWS else [
        None if buffer is None else buffer + bytes(ROOM) for buffer in column.buffers]
    if column.format in VIEWS and column.buffers:
        buffers = [None if buffer is None else buffer + bytes(4096) for buffer in column.buffers[:2]] + column.buffers[2:]
    return column.but(buffers=buffers, children=[child and roomy(child) for child in column.children],
                      dictionary=column.dictionary and roomy(column.dictionary))


def one_of_arrow(data: bytes) -> None:
    source = Bytes(data)
    whole = roomy(damaged_column(source, table(*(column_of(source) for _ in range(source.byte() % 4)))))
    given = Given(whole, stream=source.byte() % 2 == 1)
    try:
        for message in BatchReader(given).messages():
            assert isinstance(message.address, str) and isinstance(message.body, bytes) and dict(message.headers) is not None
    except (ValueError, TypeError, xump.XumpError) as error:
        assert str(error)
    finally:
        released(given)


# ---- AMQP

def one_of_amqp(data: bytes) -> None:
    """The first bytes say where the stream is cut."""
    if len(data) > 4:
        amqp.check(data[4:], random.Random(data[:4]))


def amqp_seeds() -> list[bytes]:
    chance = random.Random(1)
    return [bytes(4) + amqp.frames(chance)[:BYTES_MAX] for _ in range(30)]


HARNESSES = {one.name: one for one in (
    Harness("records", one_of_records, [bytes([checked]) + log for log in some_logs() for checked in (0, 1)]),
    Harness("recovery", one_of_recovery, [number.to_bytes(8, "big") for number in range(40)]),
    Harness("filters", one_of_filters, [text.encode() for text in (*VALID, *(text for text, _ in EXAMPLES))]),
    Harness("topologies", one_of_topologies, [json.dumps(topology).encode() for topology in TOPOLOGIES]
            + [random.Random(number).randbytes(60) for number in range(40)]),
    Harness("arrow", one_of_arrow, [random.Random(number).randbytes(120) for number in range(40)]),
    Harness("amqp", one_of_amqp, amqp_seeds()),
)}


# ---- engines

KEPT = 400      # inputs that later ones are made of, beside the seeds
WORDS = [b"null", b"true", b"[]", b"{}", b"-1", b"1e400", b"\"\"", b" AND ", b"NOT ", b"'", b"(", b"ESCAPE '!'", b"\xc3\xb6",
         b"0x", b"%", b"queues", b"selectors", b"deliver", b"copy_to", b"always", b"default", b"99999999999999999999"]


def mutated(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """Changed as streams of AMQP are; or a word put in; or the end of another one behind a part of it."""
    what = chance.random()
    if what < 0.15:
        at = chance.randrange(len(data) + 1)
        data = data[:at] + chance.choice(WORDS) + data[at + chance.choice((0, 0, 4)) :]
    elif what < 0.25:
        data = data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]
    return (amqp.mutated(data, chance) if data and what > 0.1 else data)[:BYTES_MAX]


def mutations(harness: Harness, executions: int, seed: int | str, told: Callable[[int], None] = lambda done: None) -> str | None:
    """Feeds a harness; returns what went wrong, with the bytes, None: nothing."""
    chance = random.Random(f"{seed} {harness.name}")
    inputs = list(harness.seeds)
    for number in range(executions):
        data = chance.choice(harness.seeds) if number < len(harness.seeds) else mutated(chance.choice(inputs), chance,
                                                                                      chance.choice(harness.seeds))
        try:
            harness.one(data)
        except Exception as error:
            return f"{harness.name}, execution {number}: {type(error).__name__}: {error!s:.2000}, of {data!r}"
        if chance.random() < 0.02:      # changes of changes
            place = len(harness.seeds) + chance.randrange(KEPT)
            inputs[place : place + 1] = [data]
        if number % 1_000 == 999:
            told(number + 1)
    told(executions)
    return None
