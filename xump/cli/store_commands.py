"""The commands of `xump` for stores on disk: check, stats, browse, repair, compact.

What a path is, the store types are asked (`Backend.recognises`). The first three only look: they open the store by
`Backend.view`, and no byte on the disk changes. Here is what the commands do; how their results look is in `xump.cli.store_report`.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xump.cli.exit import FINE, WRONG, Trouble
from xump.cli.store_report import (
    Progress,
    counted,
    is_or_are,
    json_of_message,
    line_of_message,
    print_json,
    show_compacted,
    show_damage,
    show_remains,
    show_stats,
    size_text,
)
from xump.durability.viewing import viewing
from xump.errors import StoreLocked, StoreNotFound, XumpError
from xump.store_types import factory_of, store_types

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue

NAMES_MAX = 4
"""Of a folder that is no store, to be told."""

REPAIR_EPILOG = """\
What is damaged goes byte for byte into a file beside the store, PATH.quarantine-1, and is reported record by record; all that is
whole stays. Damage may hide that a message was settled, or handed out: such a message is ready again, marked as redelivered. A
store without damage is not changed. Take a copy first if you can.

examples:
    xump check orders.xump                  what is wrong?
    xump repair orders.xump                 the store opens again
"""

BROWSE_EPILOG = """\
A line for each message: id, time, address, size of the body, headers, the beginning of the body. Nothing is consumed, and no byte
of the store changes; while a process owns it, ask that one (queue.browse()). What was outstanding when the store was closed is
ready again.

examples:
    xump browse orders.xump jobs                                the oldest first
    xump browse orders.xump jobs --reverse --limit 20           the newest twenty
    xump browse orders.xump jobs --where "size > 500"           docs/filters.md has the language
    xump browse orders.xump jobs --start 2026-03-01T09:00       everything since nine
    xump browse orders.xump jobs --start 170 --limit 1 --json   one message, whole
"""

STATS_EPILOG = """\
By queue: messages that are ready and in the history, the bytes that they take, the id issued last, and properties that are not as
usual; of the store: the size of its files, and how much of that is live. No byte of it changes.

examples:
    xump stats orders.xump
    xump stats orders.xump --json | jq '.queues.jobs.ready'
"""

COMPACT_EPILOG = """\
What is live is written anew beside the store, and then takes its place: that needs room for a second one. A crash leaves the old
one or the new one. Stores give space back by themselves, too, as they are used.

examples:
    xump compact orders.xump
"""


def add_commands(commands: Any, form: Any) -> None:
    """To the command line."""
    for name, command, says, epilog in (
        ("stats", _stats, "say what is in a store on disk", STATS_EPILOG),
        ("browse", _browse, "show the messages of a queue in a store on disk", BROWSE_EPILOG),
        ("repair", _repair, "take what is damaged out of a store on disk", REPAIR_EPILOG),
        ("compact", _compact, "give space that a store on disk does not need back to the system", COMPACT_EPILOG),
    ):
        parser = commands.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.", epilog=epilog,
                                     formatter_class=form)
        parser.add_argument("path", metavar="PATH", help="the store: the path that create_store was given")
        if name == "browse":
            _add_browsing(parser)
        if name in ("stats", "browse"):
            each = ": a line for each message" if name == "browse" else ""
            parser.add_argument("--json", action="store_true", help=f"for programs{each}")
        add_type(parser)
        parser.set_defaults(command=command, parser=parser)


def add_type(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--type", metavar="TYPE", help="the type of the store, as lmdb or ring; default: what it looks like")


def _add_browsing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", help="its name")
    parser.add_argument("--where", metavar="FILTER", help="those that the filter selects")
    parser.add_argument("--limit", metavar="N", type=_count, help="at most so many (default: all)")
    parser.add_argument("--start", metavar="START", type=_start, default="head",
                        help="head (the default), current (the first that was not routed yet), an id, or a date and time: local, "
                             "unless it says its zone")
    parser.add_argument("--state", choices=("ready", "outstanding", "history"), help="default: all")
    parser.add_argument("--reverse", action="store_true", help="down from START, the newest first")


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
            f"must be head, current, an id, or a date and time as 2026-03-01T09:00, got {text!r}") from None


# ---- what a path is

def types_of(path: str) -> tuple[list[str], list[str]]:
    """The store types that recognise it; and, as sentences, those that could not be asked."""
    found, silent = [], []
    types = store_types()
    for type in types:
        try:
            factory = factory_of(type)
        except ImportError as error:
            silent.append(f"stores of type {type!r} cannot be loaded: {error}")
            continue
        own = getattr(factory, "type", type)
        if own != type and own in types:        # another name for that one
            continue
        recognises = getattr(factory, "recognises", None)
        if recognises is not None and recognises(path):
            found.append(type)
    return found, silent


def type_of(path: str, given: str | None, also: str = "") -> str:
    """The type of the store at a path. Raises `Trouble`; `also`: what else it is not."""
    if given is not None:
        return _checked_type(given)
    if not os.path.exists(path):
        raise Trouble(f"{path} does not exist", WRONG)
    with plainly(path):
        found, silent = types_of(path)
        if not found:
            raise Trouble("; ".join([no_store(path, also), *silent]), WRONG)
    if len(found) > 1:
        raise Trouble(f"{path} may be a store of type {' or '.join(found)}; say which: --type {found[0]}")
    return found[0]


def _checked_type(type: str) -> str:
    try:
        factory = factory_of(type)
    except StoreNotFound as error:
        raise Trouble(str(error)) from None
    except ImportError as error:
        raise Trouble(f"stores of type {type!r} cannot be loaded: {error}") from None
    if not hasattr(factory, "check"):
        raise Trouble(f"stores of type {type!r} are not on disk")
    return type


def no_store(path: str, also: str = "") -> str:
    """What else is at the path, as a sentence."""
    asked = ", ".join(type for type in store_types() if type != "ram")
    other = f"no store of the types that are installed ({asked}){also}; if you know better, say --type TYPE"
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
    """Whatever a store says, or the system, is told without a traceback."""
    try:
        yield
    except BrokenPipeError:
        raise
    except StoreLocked as error:
        hint = "; while it runs, ask it: engine.stats(), engine.check(), queue.browse()" if looking else ""
        raise Trouble(f"{error}{hint}", WRONG) from None
    except XumpError as error:
        raise Trouble(getattr(error, "strerror", None) or str(error), WRONG) from None
    except OSError as error:
        raise Trouble(f"{error.filename or path}: {error.strerror or error}", WRONG) from None


# ---- the commands

def _tools(type: str) -> Any:
    """What has the classmethods of a store: its factory."""
    return factory_of(type)


def check(path: str, type: str) -> int:
    """Reads the whole store, and says what is wrong."""
    with plainly(path, looking=True), Progress("checking", path) as progress:
        report = _tools(type).check(path, progress)
    if report.damage:
        lost = f"; at least {counted(report.lost, 'record')} {is_or_are(report.lost)} lost" if report.lost else ""
        print(f"{path} is damaged: {counted(len(report.damage), 'fault')}, beside {counted(report.records, 'record')} that "
              f"{is_or_are(report.records)} whole{lost}.")
        show_damage(report)
        show_remains(report)
        repair = f"xump repair {shlex.quote(path)}"
        if all(damage.harmless for damage in report.damage):
            print(f"Nothing is lost, and opening the store mends it; so does: {repair}")
        else:
            print(f"To take out what is damaged, and go on with the rest: {repair}")
    else:
        print(f"{path} is whole: a store of type {type}, {counted(report.records, 'record')}, {size_text(report.bytes)}.")
    if report.cut:
        print(f"{counted(report.cut, 'byte')} of a torn tail, which was being written in a crash: that is no damage, and opening "
              "the store cuts it off.")
    return WRONG if report.damage else FINE


def _repair(options: argparse.Namespace) -> int:
    path, type = options.path, type_of(options.path, options.type)
    with plainly(path), Progress("repairing", path) as progress:
        report = _tools(type).repair(path, progress)
    if not report.damage:
        print(f"{path} is whole: there is nothing to repair, and nothing was changed.")
        return FINE
    with plainly(path), Progress("checking", path) as progress:
        again = _tools(type).check(path, progress)
    print(f"{path} was damaged, and is repaired: {counted(len(report.damage), 'fault')}.")
    show_damage(report)
    if report.quarantine is not None:
        print(f"What is damaged was put into {report.quarantine}")
    show_remains(report, repaired=True)
    if again.damage:
        print(f"There is still something wrong: {again.damage[0].what}")
        return WRONG
    print(f"Checked again, the store is whole: {counted(again.records, 'record')}, {size_text(again.bytes)}.")
    return FINE


def _compact(options: argparse.Namespace) -> int:
    path, type = options.path, type_of(options.path, options.type)
    before = file_bytes(path)
    with plainly(path), Progress("compacting", path) as progress:
        report = _tools(type).compact(path, progress)
    show_compacted(path, before, file_bytes(path), report)
    return FINE


def _browse(options: argparse.Namespace) -> int:
    if options.where is not None:
        _check_filter(options.where)
    path, type = options.path, type_of(options.path, options.type)
    with _viewed(path, type) as engine:
        queue = _queue(engine, path, options.queue)
        try:
            messages = queue.browse(options.start, state=options.state, where=options.where, limit=options.limit,
                                    reverse=options.reverse)
        except ValueError as error:
            raise Trouble(f"--start: {error}") from None
        for message in messages:
            if options.json:
                print_json(json_of_message(message))
            else:
                print(line_of_message(message))
        return _warned(engine, path)


def _check_filter(text: str) -> None:
    from xump import filters

    try:
        filters.compile(text)
    except ValueError as error:
        raise Trouble(f"--where: {error}") from None


def _queue(engine: Engine, path: str, name: str) -> Queue:
    if name not in engine.queues:
        there = ", ".join(map(repr, engine.queues)) or "none"
        raise Trouble(f"{path} has no queue {name!r}; its queues: {there}", WRONG)
    return engine.queues[name]


def _stats(options: argparse.Namespace) -> int:
    from xump_ext.engine.stores import queue_bytes

    path, type = options.path, type_of(options.path, options.type)
    with _viewed(path, type) as engine:
        queues = {name: _numbers(queue, queue_bytes(queue)) for name, queue in engine.queues.items()}
        status = _warned(engine, path)
    live = sum(numbers["bytes"] for numbers in queues.values())
    stats = {"path": path, "type": type, "file_bytes": file_bytes(path), "live_bytes": live, "queues": queues}
    if options.json:
        print_json(stats, indent=1)
    else:
        show_stats(stats)
    return status


def _numbers(queue: Queue, size: int) -> dict[str, Any]:
    properties = ("limit", "history_limit", "auto_delete", "dead_letter", "delivery_limit")
    return {"ready": queue.ready, "history": queue.history, "bytes": size, "last_id": queue.last_id,
            **{name: getattr(queue, name) for name in properties}}


@contextmanager
def _viewed(path: str, type: str) -> Iterator[Engine]:
    """The store, to look at."""
    size = file_bytes(path)
    with plainly(path, looking=True), ExitStack() as stack:
        with Progress("reading", path) as progress:
            try:
                engine = stack.enter_context(viewing(path, type, lambda read: progress(min(read, size), size)))
            except NotImplementedError as error:
                raise Trouble(str(error)) from None
        yield engine


def _warned(engine: Engine, path: str) -> int:
    """The exit status, after a word about what was left out, if anything was."""
    damage = engine.stores[path].backend.damage
    if not damage:
        return FINE
    sys.stdout.flush()
    print(f"xump: {path} is damaged, and this is only what is whole: {counted(len(damage), 'fault')}, of which the first is: "
          f"{damage[0].what}; to see them all: xump check {shlex.quote(path)}", file=sys.stderr)
    return WRONG


def file_bytes(path: str) -> int:
    """Of the file, or of all files in the directory."""
    if os.path.isdir(path):
        return sum(file.stat().st_size for file in Path(path).iterdir() if file.is_file())
    return os.path.getsize(path) if os.path.exists(path) else 0
