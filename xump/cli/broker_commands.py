"""The options of `xump serve` and `xump users`. `xump.broker` carries them out, and needs the extra `broker`."""

from __future__ import annotations

import argparse
from typing import Any

from xump.cli.exit import CommandError

SERVE_EPILOG = """\
When it is ready, the command prints one line that says where it listens. SIGTERM and Ctrl-C end it: consumers are cancelled,
their acks are waited for, what is durable is written and confirmed, and clients are told. A second one ends the wait for acks.
SIGHUP reads the file of users again; without --users it ends the command, too, unless `nohup` started it. Virtual hosts that the
file has beside / keep their durable queues at PATH.NAME.

examples:
    xump serve                                     on 127.0.0.1:5672, all in memory; user guest, password guest
    xump serve --store ring --path broker.xump     durable queues keep their messages on disk
    xump serve network.toml --amqp 127.0.0.1:0     with the queues of a topology, on a port that is free

A topology may have the options in a table; those of the command line go first:

    [broker]
    http = "127.0.0.1:8080"
    store = "ring"
    path = "broker.xump"

more examples:
    xump serve --http 127.0.0.1:8080               with a page that shows what happens, and HTTP for curl
    xump serve --flight 127.0.0.1:8815             with Arrow Flight, for dataframes and Spark
    xump serve --amqp 0.0.0.0:5671 --certificate server.pem --key server.key --users users.toml
"""

USERS_EPILOG = """\
The command asks for a password, or reads it from standard input, and prints an entry that holds its hash (scrypt). Change the
entry by hand: `configure`, `write` and `read` are regular expressions for the names of queues and exchanges.

examples:
    xump users anna >> users.toml
"""


def add_commands(commands: Any, form: Any) -> None:
    """Add both to the parser."""
    serve = commands.add_parser(
        "serve", help="run a broker for clients of AMQP 0-9-1", description="Run a broker for clients of AMQP 0-9-1.",
        epilog=SERVE_EPILOG, formatter_class=form)
    serve.add_argument("topology", metavar="TOPOLOGY.toml", nargs="?", help="queues and selectors that are there from the start")
    serve.add_argument(
        "--amqp", metavar="HOST:PORT", help="default: 127.0.0.1:5672; port 0: a free one")
    serve.add_argument("--http", metavar="HOST:PORT", help="listen for HTTP, too: the live page, /metrics, webhooks")
    serve.add_argument("--flight", metavar="HOST:PORT", help="listen for Arrow Flight, too: many messages as columns")
    serve.add_argument("--staging-bytes", metavar="N", type=int, help="how much may be staged over Flight; default: 16 GiB")
    serve.add_argument(
        "--staging-seconds", metavar="S", type=float,
        help="drop staged messages when their client has given no sign for S seconds; default: 86400")
    serve.add_argument(
        "--memory-bytes", metavar="N", type=int, help="publishers wait while messages take more; default: 2/5 of the memory")
    serve.add_argument(
        "--ack-timeout", metavar="S", type=int, help="when stopping, wait S seconds for acks of deliveries; default: 5")
    serve.add_argument(
        "--busy-poll", metavar="US", type=int,
        help="stay awake for US microseconds after a client has sent something; default: 50, on one processor 0")
    serve.add_argument("--private-targets", action="store_true", default=None, help="let webhooks call private addresses, too")
    serve.add_argument("--store", choices=("ram", "ring", "lmdb"),
                       help="where durable queues keep their messages; ring and lmdb: on disk, at --path; default: ram, so that "
                            "nothing outlives the broker")
    serve.add_argument("--path", metavar="PATH", help="the file (ring) or directory (lmdb) of the store; created if missing")
    serve.add_argument("--users", metavar="FILE", help="the users that may log in, as TOML or JSON; `xump users` makes entries; "
                                                       "default: guest, password guest")
    serve.add_argument("--certificate", metavar="FILE", help="the certificate of the server, for TLS (PEM)")
    serve.add_argument("--key", metavar="FILE", help="the key of that certificate, if it is in another file")
    serve.add_argument("--client-ca", metavar="FILE", help="let clients log in by a certificate of this CA (EXTERNAL)")
    serve.add_argument("--insecure", action="store_true", default=None, help="let other machines in without TLS and users")
    serve.add_argument("--product", help="the name that clients are told; default: Xump; some clients do more for RabbitMQ")
    serve.set_defaults(command=_serve, parser=serve)

    users = commands.add_parser("users", help="make an entry for a file of users", epilog=USERS_EPILOG, formatter_class=form,
                                description="Make an entry for a file of users, which `xump serve --users` reads.")
    users.add_argument("name", metavar="NAME", help="the name of the user")
    users.set_defaults(command=_users, parser=users)


def _serve(options: argparse.Namespace) -> int:
    return int(_of_broker().serve(options))


def _users(options: argparse.Namespace) -> int:
    return int(_of_broker().users(options))


def _of_broker() -> Any:
    import importlib

    try:
        # By its name: `xump` has no need of the broker, which is an extra.
        return importlib.import_module("xump.broker.serve")
    except ImportError as error:
        missing = error.name or error
        raise CommandError(f"the broker needs {missing}, which is not installed: pip install 'xump[broker]'") from None
