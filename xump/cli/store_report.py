"""Prints the results of the commands for stores: progress, damage, tables, messages."""

from __future__ import annotations

import codecs
import datetime
import json
import shutil
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from xump._header_json import encoded
from xump.topology.graph import printable, shortened
from xump_ext.amqp import envelope as _envelope  # noqa: F401  it registers the reader of what AMQP clients published
from xump_ext.message.headers import annex_name

if TYPE_CHECKING:
    from xump_ext.message.message import Message
    from xump_ext.store import Remains, Report

BAR = 30
"""The width of the bar, in characters."""

PATIENCE_SECONDS = 1.0
"""A command that takes no longer shows no bar."""

STEP_SECONDS = 0.1
"""The bar is drawn again after this time."""

COLUMNS_MAX = 160
"""The width of a line, if there is no terminal that has one."""

BODY_CHARS_MIN = 20
WORD_CHARS_MAX = 40
STATE_CHARS = len("delayed")
"""No state of a message in a store that nobody has open is longer: none is outstanding."""
HEADERS_CHARS_MAX = 60
BOUNCED = ("xump_reason", "xump_bounced_from", "xump_detail", "xump_original_address")
"""The headers of dead letters, which say why they are there. A line shows them first."""
BOUNCED_CHARS_MAX = 100
MAP_CHARS_MAX = 100
"""So much of a value of a map is shown."""


class Progress:
    """A progress bar on standard error, if that is a terminal and the command takes long. It vanishes at the end.

    Stores call it with the number of bytes done, and of all bytes; others say what their numbers count.
    """

    def __init__(self, verb: str, path: str, unit: str | None = None) -> None:
        self._unit = unit
        self._text = f"{verb} {shortened(path, 40)}"
        self._again = time.monotonic() + PATIENCE_SECONDS
        self._shown = False

    def __call__(self, done: int, all: int) -> None:
        if not sys.stderr.isatty() or time.monotonic() < self._again:
            return
        self._again, self._shown = time.monotonic() + STEP_SECONDS, True
        share = done / all if all else 1.0
        bar = "█" * round(share * BAR)
        whole = size_text(all) if self._unit is None else f"{all:,} {self._unit}"
        print(f"\r{self._text} {bar:·<{BAR}} {share:4.0%} of {whole}", end="\x1b[K", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def counted(number: int, what: str) -> str:
    """A number and a noun, in the plural where it belongs.

    >>> counted(1, "record"), counted(1000, "record")
    ('1 record', '1,000 records')
    """
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def is_or_are(number: int) -> str:
    """The verb for so many things."""
    return "is" if number == 1 else "are"


def size_text(size: float) -> str:
    """A number of bytes, in the unit that suits it.

    >>> size_text(0), size_text(1023), size_text(1536), size_text(5 << 30)
    ('0 B', '1,023 B', '1.5 KiB', '5.0 GiB')
    """
    if size < 1024:
        return f"{size:,.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:,.1f} TiB"


def show_damage(report: Report) -> None:
    """Print a line for each damage: where it is and what it is, by queue and message; damage outside of queues comes last."""
    for damage in sorted(report.damage, key=lambda damage: (not damage.queue, damage.queue, damage.id)):
        where = []
        if damage.queue:
            name = report.queues.get(damage.queue)
            where.append(f"queue number {damage.queue}" if name is None else f"queue {name!r}")
        if damage.id:
            where.append(f"message {damage.id}")
        size = f" ({counted(damage.bytes, 'byte')})" if damage.bytes else ""
        print(f"  {', '.join(where) or 'the store'}: {damage.what}{size}")


def show_remains(report: Report, repaired: bool = False) -> None:
    """Print what is left of each queue that may have lost messages, a line each; then the notes of the report."""
    complete = 0
    for number, left in sorted(report.remains.items()):
        if left.lost == 0 and not left.doubtful:
            complete += 1
        else:
            name = repr(left.name) if number in report.queues else f"number {number}"
            print(f"  queue {name}: {remains_text(left, repaired)}")
    if complete:
        others = "other " * (complete < len(report.remains))
        print(f"  {counted(complete, others + 'queue')} {'has' if complete == 1 else 'have'} all messages")
    for note in report.notes:
        print(f"  {note}")


def remains_text(left: Remains, repaired: bool) -> str:
    """One sentence that says how much of a damaged queue is whole.

    >>> from xump_ext.store import Remains
    >>> remains_text(Remains("jobs", 4012, 4011, 0, 988, True), False)
    '4,012 messages are whole: 1 ready, 4,011 in the history; 988 are lost'
    >>> remains_text(Remains("jobs", 7, 0, 1, 2, False), True)
    '7 messages are whole: 7 ready (of which 1 may have been settled or handed out: marked as redelivered), 0 in the history; at \
least 2 are lost'
    """
    doubtful = ""
    if left.doubtful:
        marked = "marked" if repaired else "repair marks them"
        doubtful = f" (of which {left.doubtful:,} may have been settled or handed out: {marked} as redelivered)"
    whole = f"{counted(left.messages, 'message')} {is_or_are(left.messages)} whole"
    lost = f"{'' if left.exact else 'at least '}{left.lost or 0:,} {is_or_are(left.lost or 0)} lost"
    if left.lost is None:
        lost = "the number of lost messages is unknown, because the queue's counters are lost too"
    return f"{whole}: {left.messages - left.history:,} ready{doubtful}, {left.history:,} in the history; {lost}"


def show_compacted(path: str, before: int, after: int) -> None:
    """Print the size of a store before and after it was compacted."""
    saved = f", {size_text(before - after)} less" if after < before else ""
    print(f"{path}: {size_text(before)} before, {size_text(after)} after{saved}.")


def show_stats(stats: Mapping[str, Any]) -> None:
    """Print the size of a store, a table of its queues, and what is in their maps."""
    size, live, queues = stats["file_bytes"], stats["live_bytes"], stats["queues"]
    share = f" ({min(1.0, live / size):.1%})" if size else ""
    print(f"{stats['path']}: a store of type {stats['type']}, {counted(len(queues), 'queue')}; {size_text(size)} on the disk, "
          f"of which {size_text(live)}{share} is live")
    if queues:
        show_queues(queues)
    maps = {"of the store": stats["meta"], **{f"of queue {name!r}": numbers["meta"] for name, numbers in queues.items()}}
    for whose, meta in maps.items():
        if meta:
            print(f"\nmap {whose}")
        for name, value in meta.items():
            text = f"base64 {value['base64']}" if isinstance(value, dict) else value
            print(f"  {shortened(_word(name), WORD_CHARS_MAX)}  {shortened(body_text(text.encode()), MAP_CHARS_MAX)}".rstrip())


def map_as_json(meta: Mapping[str, bytes]) -> dict[str, Any]:
    """The map of a queue or store: values that are text as such, others as {"base64": …}."""
    return {name: _json_body(value) for name, value in sorted(meta.items())}


def show_queues(queues: Mapping[str, Any]) -> None:
    """Print the table of queues."""
    rows = [("queue", "ready", "delayed", "history", "bytes", "last id", "properties")]
    rows += [(printable(name), f"{numbers['ready']:,}", f"{numbers['delayed']:,}", f"{numbers['history']:,}",
              size_text(numbers["bytes"]), f"{numbers['last_id']:,}", properties(numbers)) for name, numbers in queues.items()]
    totals = [sum(numbers[key] for numbers in queues.values()) for key in ("ready", "delayed", "history", "bytes")]
    rows.append(("", f"{totals[0]:,}", f"{totals[1]:,}", f"{totals[2]:,}", size_text(totals[3]), "", ""))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    print()
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:6], widths[1:6], strict=True)), row[6]]
        print("  ".join(cells).rstrip())


def properties(numbers: Mapping[str, Any]) -> str:
    """The properties of a queue that differ from the default."""
    said = []
    if numbers["limit"] is not None:
        said.append(f"limit {numbers['limit']:,}")
    if numbers["history_limit"] != 0:
        kept = numbers["history_limit"]
        said.append("keeps all history" if kept is None else f"keeps {kept:,}")
    if numbers["dead_letter"] is not None:
        said.append(f"dead letters to {printable(numbers['dead_letter'])!r}")
    if numbers["rewriter"] is not None:
        name = numbers["rewriter"] if isinstance(numbers["rewriter"], str) else numbers["rewriter"][0]
        said.append(f"rewritten by {printable(name)}")
    if numbers["delivery_limit"] is not None:
        said.append(f"delivered at most {numbers['delivery_limit']:,} times")
    if numbers["retry_delay"] is not None:
        said.append(f"retries after {', '.join(map(str, numbers['retry_delay']))} s")
    if numbers["limit_bytes"] is not None:
        said.append(f"limit {size_text(numbers['limit_bytes'])} of bodies")
    if numbers["when_full"] != "refuse":
        said.append("drops the oldest when full" if numbers["when_full"] == "drop_oldest" else "drops to fit")
    if numbers["ttl"] is not None:
        said.append(f"ttl {numbers['ttl']} s")
    if numbers["priority"] is not None:
        said.append(f"priority up to {numbers['priority']}")
    if numbers["group"] is not None:
        said.append(f"one at a time by {printable(numbers['group'])}")
    if numbers["dedup"] is not None:
        said.append(f"no duplicates within {numbers['dedup']} s and {numbers['dedup_limit']:,} messages")
    if numbers["unmatched"] == "keep":
        said.append("keeps the unmatched")
    if numbers["auto_delete"]:
        said.append("deletes itself")
    if numbers["entering"]:
        said.append(f"{numbers['entering']:,} entering")
    if numbers["adopted_by"] is not None:
        said.append(f"staged, adopted by {printable(numbers['adopted_by'])!r}")
    elif numbers["staged"]:
        said.append("staged")
    return ", ".join(said)


# ---- messages

def time_text(nanoseconds: int) -> str:
    """A time in UTC, to the millisecond, in the format that --start accepts.

    >>> time_text(1_700_000_000_123_456_789)
    '2023-11-14T22:13:20.123Z'
    """
    try:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=nanoseconds // 1000)   # noqa: DTZ001 - UTC
    except OverflowError:
        return f"{nanoseconds} ns"
    return f"{moment.isoformat(timespec='milliseconds')}Z"


def line_of_message(message: Message, state: str, until: int | None) -> str:
    """A message as a line. `until`: when a delayed one is due. The body is cut to the width of the terminal, but not below 20
    characters."""
    bounced = [(name, message.headers[name]) for name in BOUNCED if name in message.headers]
    others = [(name, value) for name, value in message.headers.items() if name not in BOUNCED]
    line = f"{message.id:>8}  {state:<{STATE_CHARS}}  {time_text(message.timestamp)}  {_word(message.address)}"
    line += f"  {size_text(len(message.body))}"
    if until is not None:
        line += f"  until={time_text(until)}"
    if message.expires is not None:
        line += f"  expires={time_text(message.expires)}"
    if message.priority:
        line += f"  priority={message.priority}"
    for name in ("correlation_id", "reply_to", "message_id"):
        text = getattr(message, name)
        if text is not None:
            line += f"  {name}={shortened(_word(text), WORD_CHARS_MAX)}"
    if message.annex is not None:
        kind, data = message.annex
        line += f"  annex={_word(annex_name(kind) or str(kind))} {size_text(len(data))}"
    for headers, chars in ((bounced, BOUNCED_CHARS_MAX), (others, HEADERS_CHARS_MAX)):
        text = " ".join(f"{_word(name)}={_value(value)}" for name, value in headers)
        line += f"  {shortened(text, chars)}" if text else ""
    chars = max(BODY_CHARS_MIN, shutil.get_terminal_size((COLUMNS_MAX, 0)).columns - len(line) - 2)
    return f"{line}  {shortened(body_text(message.body[:4 * chars + 4]), chars)}".rstrip()


def _word(text: str) -> str:
    """The text as it is, or in quotes if it has spaces or the like, or is empty."""
    return text if text and text.isprintable() and not any(c in " \"'=" for c in text) else repr(text)


def _value(value: Any) -> str:
    return _word(value) if isinstance(value, str) else repr(value)


def body_text(body: bytes) -> str:
    """A body as text if it is text, else as bytes. The last character may be cut off in the middle.

    >>> body_text(b"cat.png"), body_text(bytes([0, 255])), body_text("é".encode()[:1])
    ('cat.png', "b'\\\\x00\\\\xff'", "b'\\\\xc3'")
    """
    for cut in range(min(4, len(body)) or 1):
        try:
            text = body[: len(body) - cut].decode()
        except UnicodeDecodeError:
            continue
        if text or not body:
            return text if all(c.isprintable() or c in "\t\r\n" for c in text) else repr(body)
    return repr(body)


def json_of_message(message: Message, state: str, until: int | None) -> dict[str, Any]:
    """The whole message; `until`: when a delayed one is due, in POSIX nanoseconds. Values that JSON lacks are dicts:
    {"base64": …} for bytes, also as the body, and {"float": "nan"}."""
    return {
        "id": message.id, "state": state, "until": until, "timestamp": message.timestamp, "time": time_text(message.timestamp),
        "address": message.address,
        "headers": {name: encoded(value) for name, value in message.headers.items()}, "reply_to": message.reply_to,
        "message_id": message.message_id, "correlation_id": message.correlation_id, "expires": message.expires,
        "priority": message.priority, "destination": message.destination, "hops": message.hops,
        "annex": None if message.annex is None else {"kind": message.annex[0], **encoded(message.annex[1])},
        "body": _json_body(message.body),
    }


def _json_body(body: bytes) -> Any:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return encoded(body)


def print_json(value: Any, indent: int | None = None) -> None:
    """Print a value as JSON. JSON's own escapes stand for what another encoding than UTF-8 has not."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(json.dumps(value, ensure_ascii=codecs.lookup(encoding).name != "utf-8", indent=indent))
