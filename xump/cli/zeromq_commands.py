"""The options of `xump zeromq`. The work of its commands is done in `xump.zeromq.commands`, which needs the extra `zeromq`."""

from __future__ import annotations

import argparse
from typing import Any

from xump.cli.exit import CommandError

EPILOG = """\
When it is ready, each command prints one line. SIGTERM and Ctrl-C end it. Endpoints are those of ZeroMQ: tcp://127.0.0.1:5555,
tcp://127.0.0.1:* (a free port, which the line names), ipc:///run/xump.sock.

Without keys only this machine may come: an endpoint that is open to others is refused. Make keys (CURVE) with
zmq.auth.create_certificates(FOLDER, NAME), and give a server its NAME.key_secret, a worker its own and the server's NAME.key.

examples:
    xump zeromq majordomo tcp://127.0.0.1:5555
    xump zeromq majordomo tcp://127.0.0.1:5555 --titanic /var/lib/titanic.xump
    xump zeromq worker tcp://127.0.0.1:5555 upper -- tr a-z A-Z
    xump zeromq paranoid-pirate tcp://127.0.0.1:5555 tcp://127.0.0.1:5556
    xump zeromq worker tcp://127.0.0.1:5556 any --protocol ppp -- tr a-z A-Z
    xump zeromq freelance tcp://127.0.0.1:5557 -- tr a-z A-Z
    xump zeromq majordomo tcp://127.0.0.1:5555 --binary-star tcp://127.0.0.1:5556 --role primary
    xump zeromq majordomo tcp://127.0.0.1:5556 --binary-star tcp://127.0.0.1:5555 --role backup
    xump zeromq worker tcp://127.0.0.1:5555,tcp://127.0.0.1:5556 upper -- tr a-z A-Z
    xump zeromq majordomo 'tcp://*:5555' --certificate broker.key_secret
"""

ENDPOINT = "where to bind, such as tcp://127.0.0.1:5555"


class _SystemParser(argparse.ArgumentParser):
    """A parser whose command behind `--` may be left out.

    argparse takes arguments that may be missing for missing as soon as an option stands before them.
    """

    may_lack_command = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse what stands before `--`; what follows is the command."""
        given = list(args or ())
        if not self.may_lack_command or "--" not in given:
            return super().parse_known_args(given, namespace)
        at = given.index("--")
        found, rest = super().parse_known_args(given[:at], namespace)
        assert found is not None
        found.words = given[at + 1:]
        return found, rest


def add_commands(commands: Any, form: Any) -> None:
    """Add them to the parser."""
    parser = commands.add_parser(
        "zeromq", help="run the reliable systems of the ZeroMQ guide: Majordomo, Pirates, Freelance", epilog=EPILOG,
        formatter_class=form, description="Run the reliable systems of the ZeroMQ guide: brokers, and workers for them.")
    systems = parser.add_subparsers(title="systems", metavar="SYSTEM", required=True, parser_class=_SystemParser)

    majordomo = _add(systems, "majordomo", form, "a Majordomo broker, for clients and workers of MDP 0.1 and 0.2")
    majordomo.add_argument("endpoint", metavar="ENDPOINT", help=ENDPOINT)
    _add_heartbeat(majordomo)
    _add_ttl(majordomo, "300")
    majordomo.add_argument(
        "--titanic", metavar="PATH", help="have Titanic's services, with their requests in a ring store at PATH")
    _add_server(majordomo)
    for name, what in (("simple-pirate", "a queue for REQ clients and REQ workers"),
                       ("paranoid-pirate", "a queue with heartbeats (PPP), for REQ clients and DEALER workers")):
        pirate = _add(systems, name, form, what)
        pirate.add_argument("frontend", metavar="FRONTEND", help="where to bind for clients")
        pirate.add_argument("backend", metavar="BACKEND", help="where to bind for workers")
        if name == "paranoid-pirate":
            _add_heartbeat(pirate)
        _add_ttl(pirate, "never")
        _add_server(pirate)
    freelance = _add(systems, "freelance", form, "a server without a broker, that runs a command for each request")
    freelance.add_argument("endpoint", metavar="ENDPOINT", help=ENDPOINT)
    freelance.add_argument("--identity", metavar="ENDPOINT", help="the endpoint of clients (RFC 10); default: where it is bound")
    freelance.add_argument("--threads", metavar="N", type=int, default=1, help="answer N requests at once; default: 1")
    freelance.add_argument("--numbered", action="store_true", help="requests of REQ clients begin with a number, to be echoed")
    _add_server(freelance)
    _add_words(freelance, "; default: the answer is the request")
    worker = _add(systems, "worker", form, "a worker that runs a command for each request")
    worker.add_argument(
        "endpoint", metavar="ENDPOINT", help="the broker, or the backend of a Pirate queue; of a pair both, with a comma between")
    worker.add_argument("service", metavar="SERVICE", help="the name of the service; a Pirate queue does not ask for it")
    worker.add_argument("--protocol", choices=("mdp", "mdp2", "ppp"), default="mdp2", help="default: mdp2, Majordomo 0.2")
    worker.add_argument("--certificate", metavar="FILE", help="the keys of the worker: NAME.key_secret")
    worker.add_argument("--server-certificate", metavar="FILE", help="the public key of the broker: NAME.key")
    _add_heartbeat(worker)
    _add_words(worker)


def _add(systems: Any, name: str, form: Any, what: str) -> Any:
    parser = systems.add_parser(name, help=what, description=f"Run {what}.", epilog=EPILOG, formatter_class=form)
    parser.set_defaults(command=_run, parser=parser, system=name)
    return parser


def _add_words(parser: Any, default: str | None = None) -> None:
    parser.may_lack_command = default is not None
    parser.add_argument(
        "words", metavar="-- COMMAND", nargs="+" if default is None else "*",
        help=f"gets the body on standard input; its output is the answer{default or ''}")


def _add_heartbeat(parser: Any) -> None:
    parser.add_argument("--heartbeat", metavar="SECONDS", type=float, help="between heartbeats; default: 2.5, of a Pirate 1")
    parser.add_argument(
        "--liveness", metavar="N", type=int, help="a peer is gone after N silent intervals; default: 4, of a Pirate 3")


def _add_ttl(parser: Any, default: str) -> None:
    parser.add_argument(
        "--request-ttl", metavar="SECONDS", type=float, help=f"drop requests that no worker took within this; default: {default}")


def _add_server(parser: Any) -> None:
    parser.add_argument("--certificate", metavar="FILE", help="the keys of the server, for CURVE: NAME.key_secret")
    parser.add_argument("--insecure", action="store_true", help="let other machines in without keys")
    parser.add_argument(
        "--binary-star", metavar="PEER",
        help="be one of a pair: PEER is the endpoint of the other server; with --link, the link of the other server")
    parser.add_argument("--role", choices=("primary", "backup"), help="in the pair")
    parser.add_argument(
        "--link", metavar="ENDPOINT", help="where this server tells its peer that it is there, and how, best in a network of its "
        "own; default: 10,000 ports above the server's")
    parser.add_argument("--link-heartbeat", metavar="SECONDS", type=float, help="between states, on both sides; default: 1")
    parser.add_argument("--peer-certificate", metavar="FILE", help="the public key of the peer: NAME.key")


def _run(options: argparse.Namespace) -> int:
    import importlib

    try:
        # By its name: `xump` has no need of it, which is an extra.
        commands = importlib.import_module("xump.zeromq.commands")
    except ImportError as error:
        missing = error.name or error
        raise CommandError(f"the systems of ZeroMQ need {missing}, which is not installed: pip install 'xump[zeromq]'") from None
    return int(commands.run(options))
