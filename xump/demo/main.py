"""The command `xump demo`: replays the flights in RAM; through a store, with a process killed half way; through a broker; or
as dataframes of Spark."""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from xump.cli.store_report import counted, size_text
from xump.demo.durable import clear, numbered, recover, run_and_kill, wrong_at_the_end
from xump.demo.errors import DemoError, MissingExtra, Unwritable
from xump.demo.flights import FLIGHTS, MISSING_EXTRA, data_folder, read_airlines, read_flights
from xump.demo.replay import build, news, run
from xump.engine import Engine
from xump.errors import XumpError
from xump.store_types import factory_of

EPILOG = """\
examples:
    xump demo                                      everything, into ./xump-demo
    xump demo --messages 10000 --output /tmp/demo  a part of it, elsewhere
    xump demo --store lmdb                         the queues on disk; a kill -9 in between, and nothing is lost
    xump demo --store ring && xump stats xump-demo/flights.ring
    xump demo --broker                             through a broker, to clients of RabbitMQ, one of which is killed
    xump demo --spark                              as dataframes of Spark, one of whose workers is killed; needs xump[spark], Java
"""

STORES = ("ram", "lmdb", "ring")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo with the arguments of a command line.

    Returns the exit status: 1 when a book does not balance, 2 when the extra is not installed or the output cannot be written.
    """
    options = _options(argv)
    try:
        folder = data_folder()
        if importlib.util.find_spec("rich") is None:
            raise MissingExtra(MISSING_EXTRA.format("the package rich"))
        make_folder(Path(options.output))       # before the work, which would be in vain
        if options.broker:
            return _over_broker(options, folder)
        if options.spark:
            return _over_spark(options, folder)
        return _in_ram(options, folder) if options.store == "ram" else _killed_half_way(options, folder)
    except DemoError as error:
        print(f"xump: {error}", file=sys.stderr)
        return 2


def make_folder(folder: Path) -> None:
    """Makes the folder for the files, and a file in it for a moment. Raises `Unwritable`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Unwritable(f"{folder} cannot be written: {error.strerror}") from None


def _in_ram(options: argparse.Namespace, folder: Path) -> int:
    from xump.demo import report as demo_report

    with Engine(dead_letter="dead") as engine:
        replay = build(engine)
        screen = demo_report.Screen(options.quiet)
        with screen.progress(options.messages) as tell:
            run(replay, read_flights(folder), options.messages, tell)
        engine.check()
        return demo_report.report(replay, read_airlines(folder), Path(options.output), screen)


def _killed_half_way(options: argparse.Namespace, folder: Path) -> int:
    """Raises `Unwritable`, `ProcessEnded`."""
    from xump.demo import report as demo_report

    kind, total, screen = options.store, options.messages, demo_report.Screen(options.quiet)
    path = str(Path(options.output) / f"flights.{kind}")
    factory: Any = factory_of(kind)
    clear(factory, path)
    try:
        with ExitStack() as stack:
            with screen.progress(total) as tell:
                killed = run_and_kill(kind, path, total, tell)
                replay, recovery = recover(kind, path, killed)
                engine = stack.enter_context(replay.engine)
                for worker in replay.workers:
                    worker.hears = recovery.hears
                tell(replay.published, news(replay))
                run(replay, numbered(read_flights(folder), replay.published + 1), total, tell)
            engine.sync()
            engine.check()
            after = demo_report.AfterKill(demo_report.rows_of(recovery), wrong_at_the_end(replay, recovery))
            status = demo_report.report(replay, read_airlines(folder), Path(options.output), screen, after)
        report = factory.check(path)
    except (XumpError, OSError) as error:
        raise Unwritable(f"{path}: {error}") from error
    if not options.quiet:
        state = "DAMAGED" if report.damage else "whole"
        print(f"{path} is {state}: {counted(report.records, 'record')}, {size_text(report.bytes)}; try: xump stats {path}")
    return status or int(bool(report.damage))


def _over_broker(options: argparse.Namespace, folder: Path) -> int:
    from xump.demo import over_broker, report as demo_report

    for name in ("pika", "aio_pika", "aiohttp", "pamqp", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise MissingExtra(MISSING_EXTRA.replace("[demo]", "[demo,broker]").format(f"the package {name}"))
    screen, output = demo_report.Screen(options.quiet), Path(options.output)
    total = over_broker.FLIGHTS if options.messages is None else options.messages
    with screen.progress(total) as tell:
        outcome = over_broker.run(folder, total, output, tell, screen.show)
    return demo_report.report_broker(outcome, output, screen)


def _over_spark(options: argparse.Namespace, folder: Path) -> int:
    from xump.demo import over_spark, report as demo_report

    if importlib.util.find_spec("pyarrow") is None or importlib.util.find_spec("pamqp") is None:
        print(over_spark.MISSING.format("the extra broker"))
        return 0
    if (why := over_spark.missing()) is not None:
        print(why)
        return 0
    screen, output = demo_report.Screen(options.quiet), Path(options.output)
    return demo_report.report_spark(over_spark.run(folder, options.messages, output, screen.show), screen)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="xump demo", description="Replay a year of flights out of New York through one engine.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=_count, metavar="N",
                        help=f"how many flights, up to {FLIGHTS:,} (default: all; with --broker: 30,000)")
    parser.add_argument("--store", choices=STORES, default="ram",
                        help="where the queues are (default: ram); lmdb and ring: on disk, and the demo kills its process half "
                             "way and recovers")
    parser.add_argument("--broker", action="store_true",
                        help="through a broker process instead, to clients that are pika's and aio-pika's; one is killed")
    parser.add_argument("--spark", action="store_true",
                        help="as dataframes of Spark into a broker, and back; a worker of Spark is killed")
    parser.add_argument("--output", default="xump-demo", metavar="DIR",
                        help="folder for the pictures and the report (default: ./xump-demo)")
    parser.add_argument("--quiet", action="store_true", help="print the last line only")
    options = parser.parse_args(argv)
    if options.messages is None and not options.broker:
        options.messages = FLIGHTS
    return options


def _count(text: str) -> int:
    """A number, with commas at its thousands or not."""
    plain = text.replace(",", "") if re.fullmatch(r"[0-9]{1,3}(,[0-9]{3})+", text) else text
    if not re.fullmatch(r"[0-9]{1,9}", plain) or not 1 <= int(plain) <= FLIGHTS:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {FLIGHTS:,}, got {text!r}")
    return int(plain)


if __name__ == "__main__":
    raise SystemExit(main())
