"""The commands `xump serve` and `xump users`."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import logging
import signal
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import xump
from xump._names import name_of
from xump._parsing import toml_of
from xump.broker.broker import Broker
from xump.broker.busy_poll import served
from xump.broker.limits import Limits
from xump.broker.users import BadUsers, Users, hash_password, read_users
from xump.broker.vhost import HOP_LIMIT
from xump.cli.exit import CommandError, ExitCode
from xump.cli.remote import SIDECAR
from xump.cli.streams import INPUT, reading
from xump.errors import XumpError
from xump.topology.schema import BROKER_OPTIONS


def serve(options: argparse.Namespace) -> int:
    """Run a broker until SIGTERM or Ctrl-C."""
    topology = _topology(options.topology)
    _complete(options, {} if topology is None else topology.get("broker", {}))
    if options.store != "ram" and options.path is None:
        raise CommandError(f"--store {options.store} needs --path, where it lies on disk")
    if options.store == "ram" and options.path is not None:
        raise CommandError("--path needs --store ring or --store lmdb: without one the broker keeps everything in memory")
    try:
        users, names = (None, [MAIN]) if options.users is None else read_users(options.users)
        limits = _limits(options)
        with _logged(), ExitStack() as stack:
            engines = {name: stack.enter_context(xump.Engine(hop_limit=HOP_LIMIT)) for name in dict.fromkeys([MAIN, *names])}
            _fill(engines, topology, options)
            with asyncio.Runner(loop_factory=loop_factory(options.certificate is not None)) as runner:
                return runner.run(_serve(engines, users, limits, options))
    except BadUsers as error:           # it speaks of the file, not of arguments
        raise CommandError(str(error)) from None
    except (XumpError, OSError, ValueError) as error:
        said = str(error)
        for argument, option in OPTIONS.items():
            said = said.replace(argument, option)
        raise CommandError(said) from None


def _fill(engines: dict[str, xump.Engine], topology: dict[str, Any] | None, options: argparse.Namespace) -> None:
    """Open the stores, and create what the topology describes."""
    try:
        for name, engine in engines.items():
            if options.store != "ram":
                engine.create_store(STORE, options.store, path=path_of(options.path, name))
            if topology is not None and name == MAIN:
                engine.apply(topology)
    except (XumpError, OSError, ValueError) as error:
        raise CommandError(str(error), ExitCode.PROBLEM_FOUND) from None


def loop_factory(secure: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The function that makes the loop of the process: uvloop, if it is installed, since a message is there and back in a tenth
    less time. None: asyncio, as for TLS (`secure`), of which uvloop has one of its own."""
    if secure:
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


OPTIONS = {"`flight_certificate`": "--certificate", "`tls`": "--certificate", "`users`": "--users", "insecure=True": "--insecure",
           "busy_poll": "--busy-poll", "memory_bytes": "--memory-bytes", "staging_bytes": "--staging-bytes",
           "staging_seconds": "--staging-seconds"}
"""The options of the command in place of the arguments of `Broker` that its errors name."""


def path_of(path: str, vhost: str) -> str:
    """Where the store of a virtual host lies: that of `/` at the path itself, the others beside it."""
    return path if vhost == MAIN else f"{path}.{quote(vhost, safe='')}"


MAIN = "/"
"""The virtual host that is always there; a topology is for it."""

STORE = "broker"
"""The name of the store for durable queues."""


DEFAULTS = {"amqp": "127.0.0.1:5672", "store": "ram", "product": "Xump", "ack_timeout": 5, "private_targets": False,
            "insecure": False, "busy_poll": served()}
"""Options that neither the command line nor the topology gives."""


def _complete(options: argparse.Namespace, table: Any) -> None:
    """The options that the command line does not give are those of the topology's table, if that is well-formed."""
    given = {name: value for name, value in table.items() if type(value) is BROKER_OPTIONS.get(name)} if isinstance(
        table, dict) else {}        # `apply` says what is wrong with it
    for name, value in {**DEFAULTS, **given}.items():
        if getattr(options, name) is None:
            setattr(options, name, value)


def _topology(name: str | None) -> dict[str, Any] | None:
    if name is None:
        return None
    with reading(name):
        raw = Path(name).read_bytes()
    try:
        return toml_of(raw)
    except ValueError as error:
        raise CommandError(f"{name} is not TOML: {error}", ExitCode.PROBLEM_FOUND) from None


async def _serve(
    engines: dict[str, xump.Engine], users: Users | None, limits: Limits, options: argparse.Namespace
) -> int:
    loop = asyncio.get_running_loop()
    store = "ram" if options.store == "ram" else STORE
    broker = Broker(
        engines, options.amqp, store=store, users=users, tls=_tls(options), insecure=options.insecure, product=options.product,
        http=options.http, private_targets=options.private_targets, flight=options.flight, limits=limits,
        flight_certificate=_pem(options) if options.flight is not None else None,
        busy_poll=options.busy_poll)
    ending, hurry = asyncio.Event(), asyncio.Event()

    def asked() -> None:
        """To end; again: at once."""
        (hurry if ending.is_set() else ending).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
    if options.users is not None:
        loop.add_signal_handler(signal.SIGHUP, _read_again, broker, options.users)
    elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:     # else it is to outlive its terminal, as `nohup` has it
        loop.add_signal_handler(signal.SIGHUP, asked)
    async with broker:
        host, port = broker.address
        web = "" if broker.http is None else f", HTTP on {broker.http.url}"
        with _told(options.path, None if broker.http is None else broker.http.url):
            fly = "" if broker.flight is None else f", Flight on {broker.flight.url}"
            print(f"xump serve: AMQP on {host}:{port}{web}{fly}", flush=True)
            await ending.wait()
            await broker.stop(ack_timeout=options.ack_timeout, hurry=hurry)
    return ExitCode.OK


@contextmanager
def _logged() -> Iterator[None]:
    """A block whose warnings and errors are written to stderr."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("xump")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextmanager
def _told(path: str | None, url: str | None) -> Iterator[None]:
    """Beside the store a file says where this process answers, so that `xump stats PATH` can ask it."""
    if path is None or url is None:
        yield
        return
    file = Path(path + SIDECAR)
    file.write_text(url)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _read_again(broker: Broker, path: str) -> None:
    """The users have changed; if the file is wrong, those of before stay."""
    try:
        users, vhosts = read_users(path)
        broker.change_users(users)
        new = [name for name in vhosts if name not in broker.vhosts]
        if new:
            names = ", ".join(map(repr, new))
            print(f"xump serve: virtual hosts that are new come with the next start: {names}", file=sys.stderr, flush=True)
    except (BadUsers, OSError) as error:
        print(f"xump serve: the users stay as they were: {error}", file=sys.stderr, flush=True)


def _tls(options: argparse.Namespace) -> ssl.SSLContext | None:
    if options.certificate is None:
        if options.client_ca is not None:
            raise CommandError("--client-ca needs --certificate")
        return None
    for path in (options.certificate, options.key, options.client_ca):
        if path is not None and not Path(path).is_file():
            raise CommandError(f"there is no file {path!r}: --certificate, --key and --client-ca name files in PEM")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(options.certificate, options.key)
    if options.client_ca is not None:
        context.load_verify_locations(options.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _limits(options: argparse.Namespace) -> Limits:
    if options.ack_timeout < 0:
        raise CommandError(f"--ack-timeout must be at least 0, got {options.ack_timeout}")
    given = {name: getattr(options, name) for name in ("memory_bytes", "staging_bytes", "staging_seconds")}
    return Limits(**{name: value for name, value in given.items() if value is not None})


def _pem(options: argparse.Namespace) -> tuple[bytes, bytes] | None:
    """Certificates and key as Flight takes them."""
    if options.certificate is None:
        return None
    return Path(options.certificate).read_bytes(), Path(options.key or options.certificate).read_bytes()


def users(options: argparse.Namespace) -> int:
    """Print an entry for a file of users."""
    try:
        name = name_of(options.name, "the name of a user")
    except ValueError as error:
        raise CommandError(f"{error}; choose another one") from None
    if ":" in name:
        raise CommandError(f"the name of a user has no colon, where HTTP and Flight take the password to begin, got {name!r}")
    if sys.stdin.isatty():
        password = getpass.getpass(f"password of {options.name}: ")
    else:
        password = _password()
    if not password:
        raise CommandError("the password is empty")
    if "\0" in password:
        raise CommandError("the password has a NUL, which AMQP puts between name and password; choose another one")
    name = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08X}" for c in name)
    print(f'[users."{name}"]\npassword = "{hash_password(password)}"\n')
    print(f'[users."{name}".vhosts."/"]\nconfigure = ".*"\nwrite = ".*"\nread = ".*"')
    return ExitCode.OK


def _password() -> str:
    with reading(INPUT):
        line: bytes = sys.stdin.buffer.readline()
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise CommandError("the password is not text in UTF-8, as clients send it; choose another one") from None
