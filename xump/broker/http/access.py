"""Permission to call: passwords, and requests that another web page makes with the reader's browser.

Without a file of users every client on this machine is `guest`, without a password. A browser on this machine may show a page of
anybody, and that page could send requests here, too. So a request from a browser must come from a page of this server (`Origin`,
`Sec-Fetch-Site`), and the name that it called the server by (`Host`) must be an address, `localhost` or the name that the server
was given: a name that somebody lets point to this machine does not count. With a file of users it may be called by any name: a
browser gives no password to a page of another one.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

from xump.broker.addresses import is_loopback
from xump.broker.http.problems import Problem

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.broker.users import User

SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""


async def user_of(request: web.Request, broker: Broker, names: frozenset[str]) -> User:
    """The user of this request. Raises `Problem` 401 or 403. `names` are the hosts that the server is known by."""
    if broker.is_open:
        check_host(request, names)
    check_origin(request)
    here = is_loopback(request.remote or "")
    name, password = credentials(request)
    if name is None:
        user = broker.users.authenticate("guest", "guest", here) if broker.is_open else None
    elif broker.users.was_right(name, password):
        user = broker.users.authenticate(name, password, here)
    else:
        user = await broker.web_passwords.check(
            lambda users: users.authenticate(name, password, here), lambda: request.transport is not None)
    if user is None:
        raise Problem(401, "give a user and a password that the broker knows", WWW_Authenticate='Basic realm="xump"')
    return user


def credentials(request: web.Request) -> tuple[str | None, str]:
    """User and password; (None, ""): none were given."""
    given = request.headers.get("Authorization")
    if given is None:
        return None, ""
    scheme, _, encoded = given.partition(" ")
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        name, colon, password = "", "", ""
    if scheme.lower() != "basic" or not colon:
        raise Problem(401, "expected `Authorization: Basic` with base64 of USER:PASSWORD", WWW_Authenticate='Basic realm="xump"')
    return name, password


def check_host(request: web.Request, names: frozenset[str]) -> None:
    """Refuse names that others let point here."""
    try:
        host = _host_in(request.host)
    except ValueError as error:
        raise Problem(400, f"the header Host is {request.host!r}: {error}") from None
    if host not in names and host != "localhost" and not _is_address(host):
        raise Problem(403, f"this server is not called {host!r}; call it by its address")


@lru_cache(256)
def _host_in(given: str) -> str:
    return urlsplit(f"//{given}").hostname or ""


@lru_cache(256)
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def check_origin(request: web.Request) -> None:
    """Refuse what a page of another server sends."""
    if request.method in SAFE:
        return
    origin = request.headers.get("Origin")
    if origin is None:
        crossed = request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none")
    else:
        try:
            crossed = urlsplit(origin).netloc != request.host
        except ValueError:
            crossed = True
    if crossed:
        raise Problem(403, f"a page of {origin or 'another server'} may not send requests here")


def check(user: User, vhost: str, permission: str, name: str) -> None:
    """Raise `Problem` 403 unless the user has this permission for the queue."""
    if not user.may_enter(vhost) or not user.may(vhost, permission, name):
        raise Problem(403, f"user {user.name!r} has no permission to {permission} {name!r} in the virtual host {vhost!r}")
