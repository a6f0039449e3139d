"""The commands of `xump` that ask a running broker: publish, consume, requeue, top; and stats, browse and graph of a URL."""

from __future__ import annotations

import argparse
import base64
import json
import math
import re
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from xump.cli.answers import OVERVIEW, PUBLISHED, REQUEUED, TOPOLOGY
from xump.cli.consuming import consume
from xump.cli.exit import CommandError, ExitCode
from xump.cli.remote import Remote, add_broker, message_of
from xump.cli.store_report import counted, json_of_message, line_of_message, print_json
from xump.cli.streams import INPUT, reading
from xump.topology.graph import printable

LINES = "application/x-ndjson"
CHUNK_BYTES = 256 << 10
LINES_AT_ONCE = 1000
"""So many messages enter in one request, and all of them or none."""
MESSAGE_BYTES_MAX = 64 << 20
"""The broker takes no longer request, so a line without an end is not gathered beyond it."""

PUBLISH_EPILOG = """\
Each line of standard input becomes a message; when the command ends, all of them are in the queue, and on disk if the queue is
in a store on disk. With --json a line is a JSON object with address, body (or body_base64),
headers, reply_to, message_id, correlation_id, expires, priority, as `xump consume` prints it.
The queue must be there: a topology has it, a client declares it, or `curl -X PUT -d '{}' http://127.0.0.1:8080/queues/jobs`.

examples:
    echo cat.png | xump publish jobs --address image.resize
    xump publish jobs --whole --header width=80 < cat.png
    tail -f access.log | xump publish log --address web
"""

CONSUME_EPILOG = """\
Without a command each message is printed, a JSON object a line, and acked. With a command, that runs for each message: it gets
the body on standard input. In its environment are XUMP_QUEUE, XUMP_ID, XUMP_ADDRESS, XUMP_DELIVERY_COUNT, and XUMP_HEADER_size
for a header `size`. Exit status 0 acks the message. Any other status returns it: it comes again as the queue's retry_delay says,
and after its delivery_limit it is dead-lettered. SIGTERM and Ctrl-C end `xump consume` and its commands, and the messages return.
If it is killed, they come again when their leases end: in a minute.

examples:
    xump consume jobs -- convert - -resize 80 /tmp/small.png
    xump consume jobs --parallel 4 -- ./work.sh
    xump consume jobs --count 10 --wait 0          print ten messages, or those that are there
"""

REQUEUE_EPILOG = """\
examples:
    xump requeue dead                       each message goes back into the queue that it came from
    xump requeue dead --to jobs --limit 10  ten of them, into jobs
"""

TOP_EPILOG = """\
Shows every second how many messages each queue has, what comes and goes, and which selectors wait and why. Ctrl-C ends it.

examples:
    xump top
    xump top --broker http://anna:secret@broker.example:8080
    xump top --once                         print it once, for a script
"""


def add_commands(commands: Any, form: Any) -> None:
    """Add the commands to the command line."""
    publish = _add(commands, form, "publish", _publish, "publish lines into a queue of a running broker", PUBLISH_EPILOG)
    publish.add_argument("queue", metavar="QUEUE", type=_queue, help="the name of the queue")
    publish.add_argument("--address", metavar="TEXT", help="the address of the messages (routing key); default: empty")
    publish.add_argument("--header", metavar="NAME=VALUE", action="append", default=[], type=_header,
                         help="a header of each message; a VALUE such as 80, 1.5 or true becomes a number or a boolean")
    publish.add_argument("--priority", metavar="N", type=_priority, help="0 to 255")
    publish.add_argument("--ttl", metavar="SECONDS", type=_seconds, help="expire after SECONDS")
    publish.add_argument("--delay", metavar="SECONDS", type=_seconds, help="deliver after SECONDS")
    form_of_input = publish.add_mutually_exclusive_group()
    form_of_input.add_argument("--whole", action="store_true", help="all of standard input is one message")
    form_of_input.add_argument("--json", action="store_true", help="each line is a message in JSON")

    consume = _add(commands, form, "consume", _consume, "run a command for each message of a queue", CONSUME_EPILOG)
    consume.add_argument("queue", metavar="QUEUE", type=_queue, help="the name of the queue")
    consume.add_argument("words", metavar="-- COMMAND", nargs="*", help="the command to run for each message; default: print it")
    consume.add_argument("--count", metavar="N", type=_positive, help="end after N messages; default: never")
    consume.add_argument("--parallel", metavar="N", type=_positive, default=1, help="run N commands at once; default: 1")
    consume.add_argument("--wait", metavar="SECONDS", type=_seconds,
                         help="end when no message has come for SECONDS; default: wait for ever")

    requeue = _add(commands, form, "requeue", _requeue, "publish dead letters where they came from", REQUEUE_EPILOG)
    requeue.add_argument("queue", metavar="QUEUE", type=_queue, help="the queue of dead letters")
    requeue.add_argument("--to", metavar="QUEUE", type=_queue, help="where they go; default: where each came from")
    requeue.add_argument("--limit", metavar="N", type=_positive, help="requeue at most N messages; default: all that are ready")

    top = _add(commands, form, "top", _top, "watch the queues of a running broker", TOP_EPILOG)
    top.add_argument("--once", action="store_true", help="print it once, and end")
    top.add_argument("--seconds", metavar="N", type=_pause, default=1.0, help="how often it is shown; default: 1")


def _add(commands: Any, form: Any, name: str, command: Any, says: str, epilog: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=says, description=f"{says[0].upper()}{says[1:]}.", epilog=epilog, formatter_class=form)
    add_broker(parser)
    parser.set_defaults(command=command, parser=parser)
    return parser


def _seconds(text: str) -> float:
    return _number(text, 0.0)


def _pause(text: str) -> float:
    return _number(text, 0.01)


def _number(text: str, least: float) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not least <= found < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, {least:g} or more, got {text!r}")
    return found


def _queue(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must be the name of a queue, got an empty text")
    return text


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text!r}")
    return int(text)


def _priority(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 255:
        raise argparse.ArgumentTypeError(f"must be 0 to 255, got {text!r}")
    return int(text)


def _header(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}")
    try:
        given = json.loads(value, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return name, value
    return name, given if isinstance(given, int | float | bool) and math.isfinite(given) else value


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is none of JSON's numbers")


# ---- publish

def _publish(options: argparse.Namespace) -> int:
    if options.json and (options.address is not None or options.header or options.priority is not None):
        raise CommandError("--json: each line has its own address, headers and priority; leave these options out")
    count = lines = 0
    with Remote(options.broker) as broker:
        try:
            for bodies in _whole() if options.whole else _lines():
                text = b"\n".join(bodies) if options.json else "\n".join(_line(body, options) for body in bodies).encode()
                answer = broker.ask(
                    "POST", "queues", options.queue, body=text, kind=LINES, ttl=options.ttl, delay=options.delay,
                    like=PUBLISHED)
                count += len(answer["ids"])
                lines += len(bodies)
        except CommandError as error:
            before = f"; {_said(count)} before that" if count else ""
            raise CommandError(f"{_renumbered(str(error), lines)}{before}", error.code) from None
    print(f"{_said(count)} into {printable(options.queue)}", file=sys.stderr)
    return ExitCode.OK


def _renumbered(said: str, before: int) -> str:
    """An error of the broker, which counts the lines of a request, with the number of the line in all of the input."""
    return re.sub(r"(?<=: line )\d+(?=: )", lambda found: str(before + int(found[0])), said, count=1)


def _said(count: int) -> str:
    return f"published {counted(count, 'message')}"


def _line(body: bytes, options: argparse.Namespace) -> str:
    """A message as a line of JSON."""
    try:
        content = {"body": body.decode()}
    except UnicodeDecodeError:
        content = {"body_base64": base64.b64encode(body).decode()}
    about = {"address": options.address or "", "headers": dict(options.header), "priority": options.priority}
    return json.dumps({**about, **content})


def _input() -> bytes:
    """As many bytes of standard input as are there, at most CHUNK_BYTES; none at its end."""
    with reading(INPUT):
        found: bytes = sys.stdin.buffer.read1(CHUNK_BYTES)      # type: ignore[union-attr]
        return found


def _whole() -> Iterator[list[bytes]]:
    """All that comes, as one message."""
    message = bytearray()
    while chunk := _input():
        message += chunk
        _check_size(len(message), "standard input")
    yield [bytes(message)]


def _lines() -> Iterator[list[bytes]]:
    """The lines, as many at once as are there: what trickles in is not held back."""
    rest = bytearray()              # a line as far as it has come
    asked = False
    while chunk := _input():
        *lines, end = chunk.split(b"\n")
        if lines:
            lines[0] = bytes(rest) + lines[0]
            rest.clear()
        rest += end
        for at in range(0, len(lines), LINES_AT_ONCE):
            yield lines[at:at + LINES_AT_ONCE]
            asked = True
        _check_size(len(rest), "a line")
    if rest or not asked:           # a broker or a queue that is not there is said also if no line came
        yield [bytes(rest)] if rest else []


def _check_size(size: int, name: str) -> None:
    if size > MESSAGE_BYTES_MAX:
        raise CommandError(f"{name} has more than {MESSAGE_BYTES_MAX >> 20} MiB: no message can be so long")


# ---- consume, requeue

def _consume(options: argparse.Namespace) -> int:
    return consume(options)


def _requeue(options: argparse.Namespace) -> int:
    with Remote(options.broker) as broker:
        moved = broker.ask("POST", "queues", options.queue, "requeue", to=options.to, limit=options.limit, like=REQUEUED)
    print(f"requeued {counted(moved['requeued'], 'message')}")
    return ExitCode.OK


# ---- stats, browse, graph, top

GIVEN = "give the URL where it is"
"""Where commands have the URL in the place of a file."""


def browse(url: str, options: argparse.Namespace) -> int:
    """`xump browse` of a broker."""
    start = options.start if isinstance(options.start, int | str) else options.start.isoformat()
    with Remote(url, GIVEN) as broker:
        for shown in broker.browse(options.queue, start, options.state, options.where, options.limit, options.reverse):
            message: Any = message_of(shown)
            if options.json:
                print_json(json_of_message(message, shown["state"], shown["until"]))
            else:
                print(line_of_message(message, shown["state"], shown["until"]))
    return ExitCode.OK


def stats(url: str, options: argparse.Namespace) -> int:
    """`xump stats` of a broker."""
    with Remote(url, GIVEN) as broker:
        found = broker.ask("GET", "overview", like=OVERVIEW)
    if options.json:
        print_json(found, indent=1)
        return ExitCode.OK
    from xump.cli.top import table

    print(f"{url}: " + ", ".join(counted(len(found[f"{what}s"]), what) for what in ("queue", "selector", "connection")))
    print(table(found))
    return ExitCode.OK


def topology(url: str) -> Any:
    """The topology of a broker."""
    with Remote(url, GIVEN) as broker:
        return broker.ask("GET", "topology", like=TOPOLOGY)


def _top(options: argparse.Namespace) -> int:
    from xump.cli.top import watch

    with Remote(options.broker) as broker:
        watch(lambda: broker.ask("GET", "overview", like=OVERVIEW), broker.url, options.once, options.seconds)
    return ExitCode.OK
