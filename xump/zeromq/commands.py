"""The work of `xump zeromq`: opens a broker or a worker, says that it is ready, and serves until a signal ends it."""

from __future__ import annotations

import argparse
import subprocess
from contextlib import closing
from typing import Any

import zmq
import zmq.auth

from xump.cli.exit import CommandError, ExitCode
from xump.cli.signals import on_signals
from xump.errors import XumpError
from xump.zeromq.binary_star import SplitBrain
from xump.zeromq.freelance import FreelanceServer
from xump.zeromq.majordomo.machine import ServiceRule
from xump.zeromq.pair import Pair, link_of
from xump.zeromq.server import MajordomoBroker, PirateBroker, Server
from xump.zeromq.sockets import Keys, check_key
from xump.zeromq.worker import Worker


class Failed(Exception):
    """The command of a worker ended with an error."""


def run(options: argparse.Namespace) -> int:
    """Run a system until SIGTERM or Ctrl-C."""
    try:
        return _worker(options) if options.system == "worker" else _server(options)
    except (zmq.ZMQError, ValueError, OSError, XumpError) as error:         # the store's among them
        raise CommandError(f"{options.system} cannot run: {error}") from None


def _server(options: argparse.Namespace) -> int:
    common: dict[str, Any] = {
        "keys": _keys(options.certificate, None), "public": options.insecure, "pair": _pair(options), **_heartbeat(options)}
    server: Server
    if options.system == "majordomo":
        rule = ServiceRule() if options.request_ttl is None else ServiceRule(request_ttl=options.request_ttl)
        server = MajordomoBroker(options.endpoint, rule=rule, titanic=options.titanic, **common)
    elif options.system == "freelance":
        server = FreelanceServer(
            options.endpoint, lambda body: _answer(options.words, b"".join(body)) if options.words else body,
            identity=options.identity,
            threads=options.threads, numbered=options.numbered, **common)
    else:
        server = PirateBroker(
            options.frontend, options.backend, paranoid=options.system == "paranoid-pirate", request_ttl=options.request_ttl,
            **common)
    with server, server.engine, on_signals(server.stop):
        print(f"xump: {options.system} is ready at {' and '.join(server.endpoints)}", flush=True)
        if server.star is not None:
            server.star.changed = lambda state: print(f"xump: {options.system} is {state.name.lower()}", flush=True)
        try:
            server.run()
        except (Failed, OSError) as error:
            raise CommandError(f"the server ends: {error}", ExitCode.PROBLEM_FOUND) from None
        except SplitBrain as error:
            raise CommandError(f"{options.system} ends: {error}", ExitCode.PROBLEM_FOUND) from None
    return ExitCode.OK


def _worker(options: argparse.Namespace) -> int:
    worker = Worker(
        options.endpoint.split(","), options.service.encode(), protocol=options.protocol,
        keys=_keys(options.certificate, options.server_certificate), **_heartbeat(options))
    with closing(worker), on_signals(worker.stop):
        print(f"xump: worker of {options.service} is ready for {options.endpoint}", flush=True)
        try:
            worker.run(lambda body: _answer(options.words, b"".join(body)))
        except (Failed, OSError) as error:
            raise CommandError(f"the worker has left its broker: {error}", ExitCode.PROBLEM_FOUND) from None
    return ExitCode.OK


def _answer(words: list[str], body: bytes) -> bytes:
    done = subprocess.run(words, input=body, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise Failed(f"{words[0]} ended with exit code {done.returncode}")
    return done.stdout


def _pair(options: argparse.Namespace) -> Pair | None:
    if options.binary_star is None:
        if options.role is not None or options.link is not None or options.peer_certificate is not None:
            raise CommandError("--role, --link and --peer-certificate go with --binary-star PEER")
        return None
    if options.role is None:
        raise CommandError("--binary-star PEER needs --role primary or backup")
    link, peer = options.link, options.binary_star
    if link is None:
        try:
            link, peer = link_of(options.frontend if "frontend" in options else options.endpoint), link_of(peer)
        except ValueError as error:
            raise CommandError(f"--binary-star PEER without --link: {error}, and let PEER be that of the other server") from None
    keys = None if options.peer_certificate is None else _keys(options.certificate, options.peer_certificate)
    given = {} if options.link_heartbeat is None else {"heartbeat": options.link_heartbeat}
    return Pair(options.role, link, peer, keys=keys, public=options.insecure, **given)


def _heartbeat(options: argparse.Namespace) -> dict[str, Any]:
    """The options that were given of --heartbeat and --liveness; the rest are the system's own."""
    given = {name: getattr(options, name, None) for name in ("heartbeat", "liveness")}
    return {name: value for name, value in given.items() if value is not None}


def _keys(own: str | None, server: str | None) -> Keys | None:
    """The keys of files that `zmq.auth.create_certificates` wrote."""
    if own is None:
        if server is not None:
            raise CommandError("the certificate of another needs --certificate, your own keys")
        return None
    public, secret = _certificate(own)
    if secret is None:
        raise CommandError(f"{own} has no secret key; give the file NAME.key_secret")
    server_key = None if server is None else _certificate(server)[0]
    try:
        return Keys(public, secret, server_key)
    except ValueError as error:
        raise CommandError(f"{own}: {error}") from None


def _certificate(path: str) -> tuple[bytes, bytes | None]:
    try:
        public, secret = zmq.auth.load_certificate(path)
        check_key(public, "public")
        if secret is not None:
            check_key(secret, "secret")
        return public, secret
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read as a CURVE certificate: {error}") from None
