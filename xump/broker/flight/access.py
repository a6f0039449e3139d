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
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyarrow import flight

from xump.broker.addresses import is_loopback
from xump.broker.flight.problems import Refused, Unknown

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.broker.users import User

TOKENS_MAX = 1000
"""So many tokens are valid at once; the oldest ends first."""

USER_TOKENS_MAX = 100
"""So many of one user: logging in often ends the tokens of no other user."""

TOKEN_SECONDS = 86_400.0
"""How long a token is valid."""

MIDDLEWARE = "xump"
"""The name under which Flight hands the headers of a call on."""


class RequestHeaders(flight.ServerMiddleware):     # type: ignore[misc]
    """The headers of a call; and those of its answer."""

    def __init__(self, headers: Mapping[str, list[Any]]) -> None:
        self._headers = {name.lower(): values for name, values in headers.items()}
        self.answered: dict[str, str] = {}
        """The headers of the answer."""

    def get(self, name: str) -> str | None:
        """A header, or None."""
        values = self._headers.get(name)
        if not values:
            return None
        return values[0].decode(errors="replace") if isinstance(values[0], bytes) else str(values[0])

    def sending_headers(self) -> dict[str, str]:
        """The headers of the answer. Flight calls it."""
        return self.answered


class RequestHeadersFactory(flight.ServerMiddlewareFactory):       # type: ignore[misc]
    """Keeps the headers of each call; and answers a password with a token, as Flight's handshake wants it."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[Any]]) -> RequestHeaders:
        """A call begins. Flight calls it."""
        made = RequestHeaders(headers)
        if info.method == flight.FlightMethod.HANDSHAKE:
            token = self._access.token_for(made.get("authorization"))
            if token is None:
                raise flight.FlightUnauthenticatedError(UNKNOWN)
            made.answered["authorization"] = f"Bearer {token}"
        return made


class NoHandshake(flight.ServerAuthHandler):        # type: ignore[misc]
    """Flight lets a handshake through only if there is one of these. It checks nothing: `Access.user_of` does, in each call."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Nothing to do."""

    def is_valid(self, token: bytes) -> str:
        """Nothing to do."""
        return ""


UNKNOWN = "give a user and a password that the broker knows"


class Access:
    """Finds out who calls."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._tokens: dict[str, tuple[str, str, float]] = {}
        """By token: user, password, and until when it is valid. The password: a user who is gone from the file is out."""

    def token_for(self, given: str | None) -> str | None:
        """A token for a user and password, which each call checks again; None: none were given, or no user has them."""
        if given is None or not given.lower().startswith("basic "):
            return None
        name, password = credentials(given)
        if self._broker.users.authenticate(name, password, True) is None:       # whether from here, each call looks
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

    def user_of(self, context: flight.ServerCallContext) -> User:
        """The user who calls. Raises `Unknown`."""
        broker = self._broker
        here = is_here(context.peer())
        given = context.get_middleware(MIDDLEWARE).get("authorization")
        if given is None:
            user = broker.users.authenticate("guest", "guest", here) if broker.is_open else None
        else:
            user = broker.users.authenticate(*self._given(given), here)
        if user is None:
            raise Unknown(UNKNOWN)
        return user

    def _given(self, given: str) -> tuple[str, str]:
        scheme, _, rest = given.partition(" ")
        if scheme.lower() != "bearer":
            return credentials(given)
        with self._lock:
            name, password, until = self._tokens.get(rest, ("", "", 0.0))
        if time.monotonic() >= until:
            raise Unknown("this token is not valid, or not any more: log in again")
        return name, password


def vhost_of(context: flight.ServerCallContext) -> str:
    """The name of the virtual host that the call is for."""
    given = context.get_middleware(MIDDLEWARE).get("xump-vhost")
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


def host_and_port_of(peer: str) -> tuple[str, int]:
    """Host and port of a peer, as gRPC names it.

    >>> host_and_port_of("ipv6:%5B::1%5D:5000")
    ('::1', 5000)
    """
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0


def check(user: User, vhost: str, permission: str, name: str) -> None:
    """Raise `Refused` unless the user has this permission for the queue."""
    if not user.may_enter(vhost) or not user.may(vhost, permission, name):
        raise Refused(f"user {user.name!r} has no permission to {permission} {name!r} in the virtual host {vhost!r}")
