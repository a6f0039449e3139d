"""The work of `xump sql`: creates tables, and runs relays, workers, cleaners and scalers until it is told to end."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from xump.cli.exit import CommandError, ExitCode
from xump.cli.signals import on_signals
from xump.sql.errors import SqlError
from xump.sql.outbox import Outbox
from xump.sql.schema import check, configure_sqlite, init
from xump.sql.tables import tables
from xump.sql.tasks import Tasks


def run(options: argparse.Namespace) -> int:
    """Carry out one of the commands; returns the exit code."""
    try:
        commands = {"init": _init, "relay": _relay, "worker": _worker, "cleaner": _cleaner, "scaler": _scaler}
        return commands[options.sql_command](options)
    except (SqlError, SQLAlchemyError, ValueError) as error:
        raise CommandError(str(error).partition("\n")[0], ExitCode.PROBLEM_FOUND) from error


def _database(url: str) -> Any:
    try:
        engine = create_engine(url)
    except ArgumentError as error:
        raise CommandError(
            f"{error}: write a URL such as sqlite:///file.db, or postgresql+psycopg://user@host/database") from error
    except ModuleNotFoundError as error:
        raise CommandError(f"the driver of {make_url(url).drivername}:// is not installed: {error}; for PostgreSQL it is "
                           "postgresql+psycopg://, pip install 'xump[sql]'") from error
    if engine.dialect.is_async:
        raise CommandError(f"{make_url(url).drivername}:// is for asyncio, and this command waits without: leave the driver out, "
                           "or, for PostgreSQL, say postgresql+psycopg://")
    return configure_sqlite(engine) if engine.dialect.name == "sqlite" else engine


def _init(options: argparse.Namespace) -> int:
    made = tables(options.schema, options.prefix)
    init(_database(options.url), made)
    print(f"The tables {made.version.fullname} ... are there.")
    return ExitCode.OK


def _relay(options: argparse.Namespace) -> int:
    made, engine = tables(options.schema, options.prefix), _database(options.url)
    check(engine, made)
    outbox = Outbox(tables=made, order=None if options.order == "none" else options.order)
    relay = outbox.relay(options.target, engine=engine, batch=options.batch)
    _until_told(relay)
    print(f"The relay has sent {relay.sent} rows.")
    return ExitCode.OK


def _worker(options: argparse.Namespace) -> int:
    tasks = _tasks(options.module)
    worker = tasks.worker(concurrency=options.concurrency, lanes=options.lane)
    _until_told(worker)
    print(f"The worker has finished {worker.finished} tasks; {worker.failed} attempts failed.")
    return ExitCode.OK


def _cleaner(options: argparse.Namespace) -> int:
    _until_told(_tasks(options.module).cleaner(interval=options.interval))
    return ExitCode.OK


def _scaler(options: argparse.Namespace) -> int:
    worker = [sys.executable, "-m", "xump", "sql", "worker", options.module, "--concurrency", str(options.concurrency)]
    _until_told(_tasks(options.module).scaler(worker, minimum=options.minimum, maximum=options.maximum, drain=options.drain))
    return ExitCode.OK


def _tasks(name: str) -> Tasks:
    module_name, _, wanted = name.partition(":")
    if not module_name or module_name.startswith("."):
        raise CommandError(f"{name!r} is no module that can be imported from here; name one such as shop.tasks")
    sys.path.insert(0, os.getcwd())         # as `python -m` has it
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise CommandError(f"{error}: name a module that can be imported from here, such as shop.tasks") from error
    found = {each: value for each, value in vars(module).items() if isinstance(value, Tasks) and wanted in ("", each)}
    if len({id(value) for value in found.values()}) != 1:
        said = ", ".join(sorted(found)) or "none"
        raise CommandError(f"{module_name} must have one object of xump.sql.Tasks, or be given as MODULE:NAME; found: {said}")
    tasks = next(iter(found.values()))
    check(tasks.engine, tasks.tables)
    return tasks


def _until_told(loop: Any) -> None:
    with on_signals(loop.stop):
        print("Ready.", flush=True)
        loop.run()
