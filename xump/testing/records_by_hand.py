"""Records as `xump_ext/records/kinds.pxd` draws them, made with `struct` alone: the twin of what the core writes.

    log = Log(salt=7)
    log.group(queue(1, "jobs"), enter(1, 1, body=b"x"), settle(1, 1))       # bytes of a whole group; `log.end` goes on
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from xump_ext.records import crc
from xump_ext.records.kinds import (
    ADOPT,
    AUTO_DELETE,
    ENTER,
    EXACT,
    FORGET,
    GONE,
    GROUP,
    HEAD,
    MAGIC,
    MARK,
    MARKED,
    META,
    NO_TEXT,
    QUEUE,
    RARE,
    REASONS_STORED,
    SEEN,
    SETTLE,
    STATE,
    TIMED,
    UNLIMITED,
)

NEVER = 2**63 - 1
Record = tuple[int, int, int, int, bytes, bytes]
"""kind, flags, queue, id, what its head has behind the first 32 bytes, payload."""


def queue(number: int, name: str, limit: int | None = None, history_limit: int | None = 0, auto_delete: bool = False,
          dead_letter: str | None = None, delivery_limit: int = 0, incarnation: int = 1, *, limit_bytes: int | None = None,
          ttl: int = NEVER, dedup: int = NEVER, dedup_limit: int = 100_000, dedup_key: tuple[int, int] = (0, 0),
          retry_delays: tuple[int, ...] = (), group: str | None = None, priority: int = 0, options: int = 0) -> Record:
    """Times in nanoseconds."""
    texts = [None if text is None else text.encode() for text in (name, dead_letter, group)]
    limits = (UNLIMITED if limit is None else limit for limit in (limit, history_limit, limit_bytes))
    fixed = struct.pack("<QQQQqqQQQIIIHHHBBI", *limits, incarnation, ttl, dedup, dedup_limit, *dedup_key, delivery_limit,
                        len(retry_delays), 0, *map(_size, texts), priority, options, 0)
    fixed += struct.pack(f"<{len(retry_delays)}q", *retry_delays) + b"".join(text or b"" for text in texts)
    return QUEUE, AUTO_DELETE if auto_delete else 0, number, 0, fixed + bytes(-(HEAD.size + len(fixed)) % 8), b""


def _size(text: bytes | None) -> int:
    return NO_TEXT if text is None else len(text)


def gone(number: int) -> Record:
    return GONE, 0, number, 0, b"", b""


def state(number: int, next_id: int, frontier: int = 1, handed: int = 0, timestamp: int = 0, settled: int = 0, deleted: int = 0,
          dropped: tuple[int, ...] = (0,) * REASONS_STORED, dead_lettered: tuple[int, ...] = (0,) * REASONS_STORED,
          closing: int = 0) -> Record:
    return STATE, EXACT if closing else 0, number, next_id, struct.pack(
        f"<QQqQQ{REASONS_STORED}Q{REASONS_STORED}QII", frontier, handed, timestamp, settled, deleted, *dropped, *dead_lettered,
        closing, 0), b""


def enter(number: int, id: int, address: str = "", body: bytes = b"", headers: bytes = b"", header_count: int = 0,
          reply_to: str | None = None, message_id: str | None = None, destination: str | None = None, timestamp: int = 0,
          origin: tuple[int, int, int] = (0, 0, 0), delivery_count: int = 0, hops: int = 0, flags: int = 0, *,
          expires: int = NEVER, due: int = NEVER, correlation_id: str | None = None, priority: int = 0,
          annex: tuple[int, bytes] = (0, b"")) -> Record:
    """`origin`: (store, queue, id)."""
    texts = [None if text is None else text.encode() for text in (reply_to, message_id, destination)]
    answers = None if correlation_id is None else correlation_id.encode()
    payload = address.encode() + b"".join(text or b"" for text in [*texts, answers]) + annex[1] + headers + body
    payload += bytes(-len(payload) % 8)
    fixed = struct.pack("<qIIIIHHHH", timestamp, 0, len(body), len(headers), header_count, delivery_count, hops,
                        len(address.encode()), 0)
    if any(origin) or texts != [None] * 3:
        flags |= RARE
        fixed += struct.pack("<QIIHHHH", *origin[::-1], *map(_size, texts), 0)
    if (expires, due, answers, priority, annex) != (NEVER, NEVER, None, 0, (0, b"")):
        flags |= TIMED
        fixed += struct.pack("<qqIHHB7x", expires, due, len(annex[1]), annex[0], _size(answers), priority)
    return ENTER, flags, number, id, fixed, payload


def mark(number: int, id: int, delivery_count: int = 0, flags: int = 0, due: int = NEVER, closing: int = 0) -> Record:
    return MARK, flags, number, id, struct.pack("<IIq", delivery_count, closing, due), b""


def seen(number: int, id: int, hash: tuple[int, int], time: int = 0) -> Record:
    return SEEN, 0, number, id, struct.pack("<QQq", *hash, time), b""


def forget(number: int, id: int) -> Record:
    return FORGET, 0, number, id, b"", b""


def meta(number: int, id: int, items: Mapping[str, bytes]) -> Record:
    """`number`: of the queue; 0: of the store. `id`: the number of the map."""
    data = b"".join(struct.pack("<II", len(name.encode()), len(value)) + name.encode() + value for name, value in items.items())
    return META, 0, number, id, struct.pack("<II", len(items), len(data)) + data + bytes(-len(data) % 8), b""


def adopt(number: int, id: int, adoptions: Sequence[Sequence[int]], first_id: int = 0) -> Record:
    """`number`: of the queue that has adopted. `adoptions`: of each the numbers of its staged queues."""
    data = b"".join(struct.pack("<II", staged, at == 0) for queues in adoptions for at, staged in enumerate(queues))
    return ADOPT, 0, number, id, struct.pack("<QII", first_id, len(data) // 8, 0) + data, b""


def settle(number: int, id: int, count: int = 1, marked: bool = False) -> Record:
    return SETTLE, MARKED if marked else 0, number, id, struct.pack("<Q", count), b""


def packed(record: Record, position: int, salt: int) -> bytes:
    kind, flags, number, id, fixed, payload = record
    if kind == ENTER:
        fixed = fixed[:8] + struct.pack("<I", crc(payload, salt)) + fixed[12:]
    head = struct.pack("<HBBIIQQ", MAGIC, kind, flags, HEAD.size + len(fixed) + len(payload), number, position, id) + fixed
    return struct.pack("<I", crc(head, salt)) + head + payload


class Log:
    """Groups, one behind the other."""

    def __init__(self, salt: int, end: int = 0) -> None:
        self.salt = salt
        self.end = end
        self.groups = 0
        self.synced = 0

    def group(self, *records: Record) -> bytes:
        """The next group."""
        at, parts = self.end + HEAD.size + 24, []
        for record in records:
            parts.append(packed(record, at, self.salt))
            at += len(parts[-1])
        self.groups += 1
        group = GROUP, 0, 0, self.groups, struct.pack("<QQQ", len(records), at - self.end, self.synced), b""
        data = packed(group, self.end, self.salt) + b"".join(parts)
        self.end = at
        return data


class Batch(bytes):
    """A group as `Backend.write` gets it: a buffer, and what the core says of it."""

    position: int
    number: int
    records: int


def batch(log: Log, *records: Record) -> Batch:
    """The next group."""
    position = log.end
    made = Batch(log.group(*records))
    made.position, made.number, made.records = position, log.groups, len(records)
    return made


def unpacked(record: bytes) -> Record:
    """The meaning of a record in a log, to be written once more."""
    kind, flags, length, number, _, id = struct.unpack_from("<6xBBIIQQ", record)
    fixed = length if kind != ENTER else HEAD.size + 56 if flags & RARE else HEAD.size + 32
    return kind, flags, number, id, record[HEAD.size:fixed], record[fixed:]
