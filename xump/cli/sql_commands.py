"""The options of `xump sql`. Their work is done in `xump.sql.commands`, which needs the extra `sql`."""

from __future__ import annotations

import argparse
from typing import Any

from xump.cli.exit import CommandError

EPILOG = """\
URL is that of SQLAlchemy: postgresql+psycopg://user@host/database, or sqlite:///file.db. MODULE is a module of Python with an
object of the class xump.sql.Tasks, or MODULE:NAME if it has several. SIGTERM and Ctrl-C end a command when its work is done.

examples:
    xump sql init postgresql+psycopg://localhost/shop                                create the tables that are missing
    xump sql relay postgresql+psycopg://localhost/shop amqp://localhost              send the messages of the outbox
    xump sql worker shop.tasks --concurrency 8                                       run tasks
    xump sql cleaner shop.tasks                                                      see to tasks whose worker died
    xump sql scaler shop.tasks --maximum 8                                           start and end workers as the load asks
"""


INIT = "Create the tables of xump.sql that are missing. Tables that are there stay as they are."
RELAY = "Send the rows of the outbox to a broker, each when its transaction is committed, and delete what was sent."
WORKER = "Run tasks of a module, until SIGTERM or Ctrl-C. Start as many workers as you like, on any hosts."
CLEANER = "Give the tasks of dead workers to others, and find tasks that were overlooked. Run at least one beside the workers."
SCALER = "Start and end worker processes on this host as the load asks."


def add_commands(commands: Any, form: Any) -> None:
    """Add the command and its own commands to the parser."""
    sql = commands.add_parser("sql", help="relays and workers beside an SQL database", epilog=EPILOG, formatter_class=form,
                              description="Create the tables of xump.sql, send what is in an outbox, run tasks.")
    each = sql.add_subparsers(title="commands", metavar="COMMAND", required=True)
    sql.set_defaults(parser=sql)

    init = each.add_parser("init", help="create the tables that are missing", description=INIT)
    relay = each.add_parser("relay", help="send the messages of the outbox", description=RELAY)
    worker = each.add_parser("worker", help="run tasks", description=WORKER)
    cleaner = each.add_parser("cleaner", help="see to tasks that were overlooked or whose worker died", description=CLEANER)
    scaler = each.add_parser("scaler", help="start and end workers as the load asks", description=SCALER)
    for one in (init, relay):
        one.add_argument("url", metavar="URL", help="the database, as SQLAlchemy names it: sqlite:///file.db, "
                                                    "postgresql+psycopg://user@host/database")
        one.add_argument("--prefix", default="xump_", help="the prefix of the names of the tables; default: xump_")
        one.add_argument("--schema", help="the schema of the tables")
    relay.add_argument("target", metavar="TARGET",
                       help="a broker: amqp://user:password@host/vhost, or http://host:port of a Xump broker")
    relay.add_argument("--order", choices=("key", "all", "none"), default="key",
                       help="which rows are sent in order: those of each key, all, or none; as in the Outbox(order=...) of the "
                            "programs that publish; default: key")
    relay.add_argument("--batch", type=int, default=2000, help="how many rows are sent at once; default: 2000")
    for one in (worker, cleaner, scaler):
        one.add_argument("module", metavar="MODULE",
                         help="the module with your xump.sql.Tasks, such as shop.tasks; MODULE:NAME if it has several")
    for one, whose in ((worker, ""), (scaler, " in each worker")):
        one.add_argument("--concurrency", type=int, default=1, help=f"how many tasks run at once{whose}; default: 1")
    worker.add_argument("--lane", action="append",
                        help="run tasks of this lane only; may be given again; default: the lanes of all tasks of the module")
    scaler.add_argument("--minimum", metavar="N", type=int, default=1, help="run at least N workers; default: 1")
    scaler.add_argument("--maximum", metavar="N", type=int, required=True, help="run at most N workers")
    scaler.add_argument("--drain", type=float, default=60.0,
                        help="seconds until a worker that does not end is killed; default: 60")
    cleaner.add_argument("--interval", type=float, default=60.0, help="seconds from one look to the next; default: 60")
    for name, one in (("init", init), ("relay", relay), ("worker", worker), ("cleaner", cleaner), ("scaler", scaler)):
        one.set_defaults(command=_run, parser=one, sql_command=name)


def _run(options: argparse.Namespace) -> int:
    import importlib

    try:
        # By its name: `xump` has no need of SQLAlchemy, which is an extra.
        commands = importlib.import_module("xump.sql.commands")
    except ImportError as error:
        missing = error.name or error
        raise CommandError(f"xump sql needs {missing}, which is not installed: pip install 'xump[sql]'") from None
    return int(commands.run(options))
