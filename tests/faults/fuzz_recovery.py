"""Logs whose records are whole and have right checksums, and which say what no engine would have written.

They are what an engine did write, with numbers that are others, and with records that are missing, doubled, cut, or in another
order. A store refuses such a log with `StoreCorrupt`, or opens with what the log says: then it works like any other. `check`
finds that times are not in order; all other laws hold.
"""

from __future__ import annotations

import faulthandler
import functools
import random
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import xump
from tests.durability.log_in_memory import LOGS, SALT
from xump import INFINITE, Delivery, RewriterNotFound, StoreCorrupt, XumpError, always, copy_to, deliver, field, match, move_to
from xump.errors import InvariantError
from xump.testing import records_by_hand as hand
from xump_ext import records
from xump_ext.records import kinds

LONGEST = 60            # seconds: one log takes milliseconds
NUMBERS = [0, 1, 2, 3, 5, 255, 256, 65535, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**63 - 1, 1000, 10**18]
KINDS = [kinds.ENTER, kinds.SETTLE, kinds.MARK, kinds.STATE, kinds.SEEN, kinds.GONE, kinds.FORGET, kinds.QUEUE, kinds.META,
         kinds.ADOPT]
LATER = 10**13          # nanoseconds
Records = list[hand.Record]
xump.register_rewriter("fuzz", lambda message, death: message)


# ---- what an engine writes

@contextmanager
def some_engine(now: Callable[[], int], **store: Any) -> Iterator[xump.Engine]:
    engine = xump.Engine(clock=now)
    try:
        engine.create_store("s", path="fuzz", durability="none", **store)
        yield engine
    finally:
        with suppress(XumpError):       # the store may have failed, as is told when it does
            engine.close()
        LOGS.pop("fuzz", None)


def make_graph(engine: xump.Engine) -> None:
    """Every property that a log keeps."""
    with engine.building():
        engine.create_queue("a", store="s", history_limit=None, dead_letter="d", delivery_limit=3, dedup=1.0, priority=3)
        engine.create_queue("b", store="s", limit=50, retry_delay=[0.5, 1.0], ttl=50.0)
        engine.create_queue("d", store="s", history_limit=5, limit_bytes=10_000, when_full="drop_oldest", dead_letter="b",
                            rewriter=("fuzz", "x"))
        engine.create_queue("r")
        engine.create_queue("g", store="s", group=field("address"), auto_delete=True)
        engine.create_queue("staged", store="s", staged=True)
        engine.create_queue("to adopt", store="s", staged=True)
        engine.create_selector("a", when=match("eq", "to b"), do=move_to("b"), credit=5)
        engine.create_selector("a", when=match("eq", "to r"), do=move_to("r"), credit=INFINITE)
        engine.create_selector("a", when=match("eq", "to d"), do=copy_to("d"))
        for queue in "abg":
            engine.create_selector(queue, when=always, do=deliver("w"), credit=10)


def use(engine: xump.Engine, chance: random.Random, wait: Callable[[int], None]) -> None:
    for number in range(30):
        wait(chance.randrange(10**6))
        given: dict[str, Any] = {}
        for name, value in (("delay", chance.random()), ("message_id", f"m{chance.randrange(5)}"), ("ttl", 10 * chance.random()),
                            ("priority", 2), ("headers", {"n": number, "text": "ö"}), ("reply_to", "r"),
                            ("correlation_id", "c")):
            if chance.random() < 0.2:
                given[name] = value
        with suppress(XumpError):
            engine.publish(chance.choice("aaabdg"), chance.choice(["to b", "to r", "to d", "x"]), bytes(chance.randrange(60)),
                           **given)
        if chance.random() < 0.5:
            settle(engine.take(2), chance)
        if chance.random() < 0.1:
            engine.queues["a"].meta[f"k{number}"] = bytes(number)
        if chance.random() < 0.1:
            engine.publish("staged", "s", b"1")
        if chance.random() < 0.1:
            engine.publish("to adopt", "s", b"1")
    engine.adopt("d", [("to adopt", engine.queues["to adopt"].ready)], meta={"imported": b"1"})


def settle(deliveries: list[Delivery], chance: random.Random) -> None:
    for delivery in deliveries:
        chance.choice([delivery.ack, delivery.ack, delivery.nack, delivery.reject])()


@functools.cache
def written() -> list[Records]:
    """The logs of some engines, before they close, and closed."""
    return [log for seed in range(6) for log in logs_of(seed)]


def logs_of(seed: int) -> Iterator[Records]:
    time = [1_000]

    def wait(nanoseconds: int) -> None:
        time[0] += nanoseconds
    with some_engine(lambda: time[0], type="log shelf") as engine:
        make_graph(engine)
        use(engine, random.Random(seed), wait)
        engine.sync()
        groups = LOGS["fuzz"][0]
        yield list(records_of(b"".join(groups)))
        engine.close()
        yield list(records_of(b"".join(groups)))


def records_of(log: bytes) -> Iterator[hand.Record]:
    """All but the heads of groups."""
    at = 0
    while at < len(log):
        length = records.describe(log, at)["length"]
        record = hand.unpacked(log[at : at + length])
        if record[0] != kinds.GROUP:
            yield record
        at += length


# ---- what it would not write

def edited(log: Records, chance: random.Random) -> Records:
    log = list(log)
    for _ in range(chance.choice([1, 1, 1, 2, 3, 6])):
        if not log:
            break
        at, what = chance.randrange(len(log)), chance.random()
        if what < 0.08:
            del log[at]
        elif what < 0.16:
            log.insert(chance.randrange(len(log)), log[at])
        elif what < 0.24:
            other = chance.randrange(len(log))
            log[at], log[other] = log[other], log[at]
        else:
            log[at] = edited_record(log[at], chance)
    return log


def edited_record(record: hand.Record, chance: random.Random) -> hand.Record:
    kind, flags, queue, id, fixed, payload = record
    what = chance.random()
    if what < 0.12:
        flags ^= 1 << chance.randrange(8)
    elif what < 0.24:
        queue = chance.choice([*range(8), 99, 2**32 - 1])
    elif what < 0.40:
        id = chance.choice([*NUMBERS, *range(40)])
    elif what < 0.80:
        fixed = with_a_number(fixed, chance)
    elif what < 0.88:
        payload = with_a_number(payload, chance)
    elif what < 0.94:
        fixed = fixed[: 8 * chance.randrange(len(fixed) // 8 + 1)]
    else:
        kind = chance.choice(KINDS)
    return kind, flags, queue, id, fixed, payload


def with_a_number(data: bytes, chance: random.Random) -> bytes:
    """A number of one, two, four or eight bytes is another."""
    size = chance.choice([1, 2, 4, 8])
    if len(data) < size:
        return data
    at = chance.randrange(len(data) // size) * size
    number = chance.choice([*NUMBERS, chance.randrange(256), chance.getrandbits(64)]) & (256**size - 1)
    return data[:at] + number.to_bytes(size, "little") + data[at + size :]


def bytes_of(log: Records) -> bytes:
    """One group of all that have the length that their kind has. The others are no records, as `one_of_records` tests."""
    position, parts = kinds.HEAD.size + 24, []
    for record in log:
        with suppress(struct.error):    # too short to hold its checksum
            data = hand.packed(record, position, SALT)
            if records.record_whole(data, position, SALT) == "whole":
                parts.append(data)
                position += len(data)
    head = kinds.GROUP, 0, 0, 1, struct.pack("<QQQ", len(parts), position, 0), b""
    return hand.packed(head, 0, SALT) + b"".join(parts)


# ---- the harness

def one_of_recovery(data: bytes) -> None:
    """The bytes seed the edits. Stores that find their records by key get what such a store keeps of the log."""
    chance = random.Random(data)
    log = bytes_of(edited(chance.choice(written()), chance))
    by_key = chance.random() < 0.3
    LOGS["fuzz"] = [dict(kept_by_key(log)), 0] if by_key else [[log], 1]
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    try:
        with warnings.catch_warnings(action="ignore"):
            opened(chance, "key shelf" if by_key else "log shelf")
    finally:
        faulthandler.cancel_dump_traceback_later()


def kept_by_key(log: bytes) -> Iterator[tuple[bytes, bytes]]:
    puts, gone = records.items(log)
    for key, record in puts:
        if not any(first <= key <= last for first, last in gone):
            yield bytes(key), bytes(record)


def opened(chance: random.Random, store: str) -> None:
    time = [10**12]
    try:
        with some_engine(lambda: time[0], type=store) as engine:
            hold_laws(engine)
            look(engine)
            work(engine, chance, time)
    except (StoreCorrupt, RewriterNotFound) as error:
        assert "fuzz" in str(error) or "'s'" in str(error), error


def hold_laws(engine: xump.Engine) -> None:
    try:
        engine.check()
    except InvariantError as error:
        assert "its timestamp" in str(error), error


def look(engine: xump.Engine) -> None:
    for queue in engine.queues.values():
        for state in ("ready", "history"):
            for message in queue.browse(state=state):
                assert isinstance(message.address, str) and isinstance(message.body, bytes)
        assert dict(queue.meta) is not None
    engine.stats()
    engine.topology()


def work(engine: xump.Engine, chance: random.Random, time: list[int]) -> None:
    with engine.building():
        for queue in list(engine.queues.values()):
            if not queue.transit and not queue.staged:
                engine.create_selector(queue, when=always, do=deliver("w"), credit=3)
    for name in list(engine.queues):
        if name in engine.queues and engine.queues[name].entering:      # one that is empty then goes
            engine.enter(name, 2)
    for _ in range(5):
        settle(engine.take(3), chance)
    time[0] += LATER
    engine.tick()
    with suppress(XumpError):       # there may be no number or id left, or no room
        engine.create_queue("new", store="s")
    for queue in list(engine.queues):
        with suppress(XumpError):
            engine.publish(queue, "x", b"1")
    hold_laws(engine)
