"""Permissions of calls: the users, passwords and permissions of AMQP.

A client sends `authorization: Basic ...` with each call, as over HTTP, or asks for a token once, as Flight's
`authenticate_basic_token` does, and sends `authorization: Bearer TOKEN`. Without a file of users whoever is on this machine is
`guest`. The header `xump-vhost` names the virtual host, in percent-encoding; without it, it is `/`.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyarrow import flight

from xump.broker.addresses import is_loopback
from xump.broker.flight.connections import host_and_port_of
from xump.broker.flight.problems import Refused, Unknown

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.broker.users import User

TOKENS_MAX = 1000
"""So many tokens are valid at once; the oldest ends first."""

USER_TOKENS_MAX = 100
"""So many of one user: logging in often ends the tokens of no other user."""

CHECKS_MAX, CHECKS_WAITING_MAX = 2, 16
"""So many passwords that were not right before are checked at once, which takes tens of milliseconds and 16 MiB each; and so many
wait for that. One more is told to try later."""

TOKEN_SECONDS = 86_400.0
"""How long a token is valid."""

UNKNOWN = "give a user and a password that the broker knows"


class Access:
    """Finds out who calls."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._tokens: dict[str, tuple[str, str, float]] = {}
        """By token: user, password, and until when it is valid. The password: a user who is gone from the file is out."""
        self._checks = threading.Semaphore(CHECKS_MAX)
        self._checking = 0

    def token_for(self, given: str | None) -> str | None:
        """A token for a user and password, which each call checks again; None: none were given, or no user has them. Raises
        `Unknown` for what is no user and password."""
        if given is None or not given.lower().startswith("basic "):
            return None
        name, password = credentials(given)
        if self._authenticate(name, password, True) is None:        # whether from here, each call looks
            return None
        token = secrets.token_urlsafe(24)
        with self._lock:
            own = [token for token, (user, _, _) in self._tokens.items() if user == name]
            if len(own) >= USER_TOKENS_MAX:
                del self._tokens[own[0]]
            self._tokens[token] = (name, password, time.monotonic() + TOKEN_SECONDS)
            if len(self._tokens) > TOKENS_MAX:
                del self._tokens[next(iter(self._tokens))]
        return token

    def user_of(self, given: str | None, here: bool) -> User:
        """The user who calls, by the header `authorization`; `here`: from this machine. Raises `Unknown`."""
        broker = self._broker
        if given is None:
            user = broker.users.authenticate("guest", "guest", here) if broker.is_open else None
        else:
            user = self._authenticate(*self._given(given), here)
        if user is None:
            raise Unknown(UNKNOWN)
        return user

    def _authenticate(self, name: str, password: str, here: bool) -> User | None:
        users = self._broker.users
        if users.was_right(name, password):
            return users.authenticate(name, password, here)
        with self._in_line():
            return users.authenticate(name, password, here)

    @contextmanager
    def _in_line(self) -> Iterator[None]:
        """A block that checks a password. Raises `FlightUnavailableError` if too many wait for that."""
        with self._lock:
            if self._checking >= CHECKS_MAX + CHECKS_WAITING_MAX:
                raise flight.FlightUnavailableError(
                    f"{self._checking} passwords wait to be checked, which is the limit: try again later")
            self._checking += 1
        try:
            with self._checks:
                yield
        finally:
            with self._lock:
                self._checking -= 1

    def _given(self, given: str) -> tuple[str, str]:
        scheme, _, rest = given.partition(" ")
        if scheme.lower() != "bearer":
            return credentials(given)
        with self._lock:
            name, password, until = self._tokens.get(rest, ("", "", 0.0))
        if time.monotonic() >= until:
            raise Unknown("this token is not valid, or not any more: log in again")
        return name, password


def vhost_of(given: str | None) -> str:
    """The name of the virtual host that the call is for, by the header `xump-vhost`."""
    return "/" if given is None else unquote(given)


def credentials(given: str) -> tuple[str, str]:
    """User and password of `Basic ...`. Raises `Unknown`."""
    scheme, _, encoded = given.partition(" ")
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if scheme.lower() != "basic" or not colon:
        raise Unknown("expected `authorization: Basic` with base64 of USER:PASSWORD, or `Bearer` with a token")
    return name, password


def is_here(peer: str) -> bool:
    """Whether a peer, as gRPC names it, is on this machine.

    >>> is_here("ipv4:127.0.0.1:5000"), is_here("ipv6:%5B::1%5D:5000"), is_here("ipv4:10.0.0.1:5000")
    (True, True, False)
    """
    return is_loopback(host_and_port_of(peer)[0])


def check(user: User, vhost: str, permission: str, name: str) -> None:
    """Raise `Refused` unless the user has this permission for the queue."""
    if not user.may_enter(vhost) or not user.may(vhost, permission, name):
        raise Refused(f"user {user.name!r} has no permission to {permission} {name!r} in the virtual host {vhost!r}")
