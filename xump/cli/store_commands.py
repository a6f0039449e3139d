"""The commands of `xump` for stores on disk: check, stats, browse, repair, compact.

To find the type of the store at a path, the commands ask each type (`Backend.recognises`). The first three commands change no
byte on the disk: they open the store by `Backend.view`. `xump.cli.store_report` prints the results.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from xump._queue_properties import QUEUE_DEFAULTS
from xump.cli import remote_commands
from xump.cli.exit import CommandError, ExitCode
from xump.cli.remote import is_url, process_of
from xump.cli.store_report import (
    Progress,
    counted,
    is_or_are,
    json_of_message,
    line_of_message,
    map_as_json,
    print_json,
    show_compacted,
    show_damage,
    show_remains,
    show_stats,
    size_text,
)
from xump.durability.viewing import viewing
from xump.errors import StoreLocked, StoreNotFound, XumpError
from xump.queue import STATES
from xump.store_types import factory_of, file_bytes, store_types, types_of

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue

NAMES_MAX = 4
"""How many names of files an error shows, of a folder that is not a store."""

REPAIR_EPILOG = """\
The command moves damaged records, byte for byte, into a file beside the store, PATH.quarantine-1, and reports each of them. All
other records stay. Damage may hide that a message was settled (acked, rejected or dropped) or handed out: such a message is ready
again, marked as redelivered. A store without damage is not changed. Make a copy first if you can.

examples:
    xump check orders.xump                  see what is damaged
    xump repair orders.xump                 take it out, so that the store opens again
"""

BROWSE_EPILOG = """\
Prints a line for each message: id, state, time, address, size of the body, what it says of itself (below), headers, and the
beginning of the body. Nothing is consumed, and no byte of the store changes. While a process has the store open, that process is
asked, if it is `xump serve --http`. If your own program has the store open, call queue.browse() or queue.browse_batch() in it.

The state is one of
    ready       it waits; messages that were outstanding (unacknowledged) when the store was closed are ready again
    outstanding it was taken and not acknowledged; of a running broker only
    delayed     it is not due yet: `until` says when it is, or when it expires, if that is earlier
    history     it was processed, and the queue keeps it
Then, if the message has them: expires=TIME (from then on it is not delivered), priority=N (0 to 255), correlation_id=TEXT (which
joins a reply to its request), reply_to=ADDRESS, message_id=TEXT.

examples:
    xump browse orders.xump jobs                                oldest message first
    xump browse orders.xump jobs --reverse --limit 20           the newest twenty
    xump browse orders.xump jobs --where "size > 500"           a filter; docs/filters.md explains the language
    xump browse orders.xump jobs --start 2026-03-01T09:00       everything since nine o'clock
    xump browse orders.xump jobs --state delayed                what is not due yet, and until when
    xump browse orders.xump jobs --start 170 --limit 1 --json   the whole of one message
"""

STATS_EPILOG = """\
Prints for each queue how many messages are ready, delayed (not due yet) and in the history (processed and kept), the bytes that
they take, the last id, and the properties that differ from the default. Prints for the store the size of its files, and how much
of that is live (still needed). Much that is not live is given back by `xump compact`. No byte of the store changes.

Counters that begin anew when a store is opened (duplicates, late replies) are in engine.stats() of the process that has it open.
If `xump serve --http` has the store open, this command asks that broker, and prints all of its queues, with the rates in messages
a second.

examples:
    xump stats orders.xump
    xump stats http://127.0.0.1:8080
    xump stats orders.xump --json | jq '.queues.jobs.ready'
"""

COMPACT_EPILOG = """\
The command writes the live (still needed) records to a new store beside the old one, which then takes its place. The disk needs
room for both. A crash leaves the old store or the new one.

When to use it: `xump stats PATH` says how much of a store is live. A `ring` store in use gives segments back by itself. An `lmdb`
store does not: what its messages leave is used again for new ones, and the file keeps its size. So compact it when little of it
is live and you want the space for something else.

examples:
    xump stats orders.xump                  how much is live
    xump compact orders.xump
"""


def add_commands(commands: Any, form: Any) -> None:
    """Add the commands for stores to the command line."""
    for name, command, says, epilog in (
        ("stats", _stats, "list the queues of a store on disk, or of a running broker", STATS_EPILOG),
        ("browse", _browse, "print the messages of a queue in a store on disk, or of a running broker", BROWSE_EPILOG),
        ("repair", _repair, "take damaged records out of a store on disk", REPAIR_EPILOG),
        ("compact", _compact, "make a store on disk as small as its messages", COMPACT_EPILOG),
    ):
        parser = commands.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.", epilog=epilog,
                                     formatter_class=form)
        parser.add_argument("path", metavar="PATH", help="the store: the path that your program gave to create_store" + (
            ", or the URL of a running broker" if name in ("stats", "browse") else ""))
        if name == "browse":
            _add_browsing(parser)
        if name in ("stats", "browse"):
            what = "an object for each message, one a line" if name == "browse" else "an object"
            parser.add_argument("--json", action="store_true", help=f"print JSON, for programs: {what}")
        add_type(parser)
        parser.set_defaults(command=command, parser=parser)


def add_type(parser: argparse.ArgumentParser) -> None:
    """Add the option `--type`."""
    parser.add_argument("--type", metavar="TYPE",
                        help="the type of the store, such as lmdb or ring; default: recognised from the files")


def _add_browsing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", help="the name of the queue")
    parser.add_argument("--where", metavar="FILTER", help="only messages that this filter selects")
    parser.add_argument("--limit", metavar="N", type=_count, help="at most N messages; default: all")
    parser.add_argument("--start", metavar="START", type=_start, default="head",
                        help="where to start: head (the default), current (the first message that was not routed yet), an id, "
                             "or a date and time (local time, unless it has a time zone)")
    parser.add_argument("--state", choices=STATES, help="only messages in this state; default: all")
    parser.add_argument("--reverse", action="store_true", help="go down from START, the newest message first")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"must be a number of messages, got {text!r}")
    return int(text)


def _start(text: str) -> Any:
    if text in ("head", "current"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return datetime.datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"must be head, current, an id, or a date and time such as 2026-03-01T09:00, got {text!r}") from None


# ---- the type of the store at a path

def type_of(path: str, given: str | None, also: str = "") -> str:
    """The type of the store at a path. Raises `CommandError`; `also`: what else is not there, for the error."""
    if given is not None:
        return _checked_type(given)
    if not os.path.exists(path):
        raise CommandError(f"{path} does not exist", ExitCode.PROBLEM_FOUND)
    with plainly(path):
        found, failed = types_of(path)
        if not found:
            raise CommandError("; ".join([no_store(path, also), *failed]), ExitCode.PROBLEM_FOUND)
    if len(found) > 1:
        raise CommandError(f"{path} may be a store of type {' or '.join(found)}; say which: --type {found[0]}")
    return found[0]


def _checked_type(type: str) -> str:
    try:
        factory = factory_of(type)
    except StoreNotFound as error:
        raise CommandError(str(error)) from None
    except ImportError as error:
        raise CommandError(f"stores of type {type!r} cannot be loaded: {error}") from None
    if not hasattr(factory, "check"):
        raise CommandError(f"stores of type {type!r} are not on disk")
    return type


def no_store(path: str, also: str = "") -> str:
    """One sentence that describes a path without a store."""
    asked = ", ".join(type for type in store_types() if type != "ram")
    other = f"no store of the types that are installed ({asked}){also}; if it is one, give its type: --type TYPE"
    if not os.path.isdir(path):
        if os.path.isfile(path) and os.path.getsize(path) == 0:
            return f"{path} is an empty file: it was cut to nothing, or never written"
        return f"{path} is {other}"
    names = sorted(os.listdir(path))
    if not names:
        return f"{path} is an empty directory"
    shown = ", ".join(names[:NAMES_MAX]) + ", …" * (len(names) > NAMES_MAX)
    return f"{path} is a directory with {shown} in it, and {other}"


@contextmanager
def plainly(path: str, looking: bool = False) -> Iterator[None]:
    """Turn the errors of stores and of the system into a `CommandError`, which has no traceback."""
    try:
        yield
    except BrokenPipeError:
        raise
    except StoreLocked as error:
        hint = "; while it runs, ask it: engine.stats(), engine.check(), queue.browse()" if looking else ""
        raise CommandError(f"{error}{hint}", ExitCode.PROBLEM_FOUND) from None
    except XumpError as error:
        raise CommandError(getattr(error, "strerror", None) or str(error), ExitCode.PROBLEM_FOUND) from None
    except OSError as error:
        raise CommandError(f"{error.filename or path}: {error.strerror or error}", ExitCode.PROBLEM_FOUND) from None


# ---- the commands

def _store_class(type: str) -> Any:
    """The class of a type of stores, for its class methods `check`, `repair` and `compact`."""
    return factory_of(type)


def check(path: str, type: str) -> int:
    """Read the whole store, and print what is damaged. Returns the exit code."""
    with plainly(path, looking=True), Progress("checking", path) as progress:
        report = _store_class(type).check(path, progress)
    if report.damage:
        lost = f"; at least {counted(report.lost, 'record')} {is_or_are(report.lost)} lost" if report.lost else ""
        print(f"{path} is damaged: {counted(len(report.damage), 'fault')}, beside {counted(report.records, 'record')} that "
              f"{is_or_are(report.records)} whole{lost}.")
        show_damage(report)
        show_remains(report)
        repair = f"xump repair {shlex.quote(path)}"
        if all(damage.harmless for damage in report.damage):
            print(f"Nothing is lost. Opening the store repairs it, and so does: {repair}")
        else:
            print(f"To take out the damaged records and keep the others: {repair}")
    else:
        print(f"{path} is whole: a store of type {type}, {counted(report.records, 'record')}, {size_text(report.bytes)}.")
    if report.cut:
        print(f"There is a torn tail of {counted(report.cut, 'byte')}: a crash interrupted a write. That is no damage, and "
              "opening the store cuts it off.")
    return ExitCode.PROBLEM_FOUND if report.damage else ExitCode.OK


def _repair(options: argparse.Namespace) -> int:
    path, type = options.path, type_of(options.path, options.type)
    with plainly(path), Progress("repairing", path) as progress:
        report = _store_class(type).repair(path, progress)
    if not report.damage:
        print(f"{path} is whole: there is nothing to repair, and nothing was changed.")
        return ExitCode.OK
    with plainly(path), Progress("checking", path) as progress:
        again = _store_class(type).check(path, progress)
    print(f"{path} was damaged, and is repaired: {counted(len(report.damage), 'fault')}.")
    show_damage(report)
    if report.quarantine is not None:
        print(f"The damaged records are in {report.quarantine}")
    show_remains(report, repaired=True)
    if again.damage:
        print(f"There is still damage: {again.damage[0].what}")
        return ExitCode.PROBLEM_FOUND
    print(f"Checked again, the store is whole: {counted(again.records, 'record')}, {size_text(again.bytes)}.")
    return ExitCode.OK


def _compact(options: argparse.Namespace) -> int:
    path, type = options.path, type_of(options.path, options.type)
    before = file_bytes(path)
    with plainly(path), Progress("compacting", path) as progress:
        _store_class(type).compact(path, progress)
    show_compacted(path, before, file_bytes(path))
    return ExitCode.OK


def _browse(options: argparse.Namespace) -> int:
    if options.where is not None:
        _check_filter(options.where)
    if (url := _broker_of(options.path)) is not None:
        return remote_commands.browse(url, options)
    path, type = options.path, type_of(options.path, options.type)
    with _viewed(path, type) as engine:
        queue = _queue(engine, path, options.queue)
        try:
            found = queue._browse_detailed(options.start, options.state, options.where, options.limit, options.reverse)
        except ValueError as error:
            raise CommandError(f"--start: {error}") from None
        for message, state, until in found:
            if options.json:
                print_json(json_of_message(message, state, until))
            else:
                print(line_of_message(message, state, until))
        return _warned(engine, path)


def _broker_of(path: str) -> str | None:
    """Whom to ask instead of the files: a broker that is named by its URL, or the one that has the store open."""
    return path if is_url(path) else process_of(path)


def _check_filter(text: str) -> None:
    from xump import filters

    try:
        filters.compile(text)
    except ValueError as error:
        raise CommandError(f"--where: {error}") from None


def _queue(engine: Engine, path: str, name: str) -> Queue:
    if name not in engine.queues:
        there = ", ".join(map(repr, engine.queues)) or "none"
        raise CommandError(f"{path} has no queue {name!r}; its queues: {there}", ExitCode.PROBLEM_FOUND)
    return engine.queues[name]


def _stats(options: argparse.Namespace) -> int:
    from xump_ext.engine.stores import queue_bytes

    if (url := _broker_of(options.path)) is not None:
        return remote_commands.stats(url, options)
    path, type = options.path, type_of(options.path, options.type)
    with _viewed(path, type) as engine:
        queues = {name: _numbers(queue, queue_bytes(queue)) for name, queue in engine.queues.items()}
        meta = map_as_json(engine.stores[path].meta)
        status = _warned(engine, path)
    live = sum(numbers["bytes"] for numbers in queues.values())
    stats = {"path": path, "type": type, "file_bytes": file_bytes(path), "live_bytes": live, "meta": meta, "queues": queues}
    if options.json:
        print_json(stats, indent=1)
    else:
        show_stats(stats)
    return status


def _numbers(queue: Queue, size: int) -> dict[str, Any]:
    properties: dict[str, Any] = {name: getattr(queue, name) for name in QUEUE_DEFAULTS if name != "store"}
    if queue.group is not None:
        properties["group"] = queue.group.name
    return {"ready": queue.ready, "delayed": queue.delayed, "history": queue.history, "bytes": size, "last_id": queue.last_id,
            **properties, "entering": queue.entering, "adopted_by": queue.adopted_by, "meta": map_as_json(queue.meta)}


@contextmanager
def _viewed(path: str, type: str) -> Iterator[Engine]:
    """A context manager that gives an engine with the queues of the store; nothing on the disk changes."""
    size = file_bytes(path)
    with plainly(path, looking=True), ExitStack() as stack:
        with Progress("reading", path) as progress:
            try:
                engine = stack.enter_context(viewing(path, type, lambda read: progress(min(read, size), size)))
            except NotImplementedError as error:
                raise CommandError(str(error)) from None
        yield engine


def _warned(engine: Engine, path: str) -> int:
    """Warn if the store is damaged, so that records were left out. Returns the exit code."""
    damage = engine.stores[path].backend.damage
    if not damage:
        return ExitCode.OK
    sys.stdout.flush()
    print(f"xump: {path} is damaged, and damaged records are left out: {counted(len(damage), 'fault')}, of which the first is: "
          f"{damage[0].what}; to see them all: xump check {shlex.quote(path)}", file=sys.stderr)
    return ExitCode.PROBLEM_FOUND
