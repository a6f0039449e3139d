"""Which URLs the broker may call: whoever may subscribe a webhook could otherwise reach what only the broker's machine can.

A host is looked up once, and the connection goes to an address that was checked then: a name cannot point elsewhere a moment
later. Redirects are not followed.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from xump.broker.http.problems import Problem

SECONDS = 10.0
"""How long a target may take to answer."""

ANSWER_BYTES_MAX = 64 << 10
"""So much of an answer is read."""


WRAPPING = (ipaddress.ip_network("::/96"), ipaddress.ip_network("64:ff9b::/96"))
"""IPv6 addresses that end with one of IPv4, beside those that `ipaddress` knows: an old form, and NAT64 (RFC 6052)."""


class Forbidden(OSError):
    """A target that may not be called."""


class PublicOnly(AbstractResolver):
    """Looks up hosts, and leaves out addresses that the internet does not reach."""

    def __init__(self) -> None:
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[ResolveResult]:
        """The public addresses of a host. Raises `Forbidden` if it has none."""
        found = [one for one in await self._resolver.resolve(host, port, family) if is_public(one["host"])]
        if not found:
            raise Forbidden(errno.EACCES, f"{host} has no address that the internet reaches")
        return found

    async def close(self) -> None:
        """End."""
        await self._resolver.close()


def is_public(address: str) -> bool:
    """Whether the internet reaches this address.

    >>> [is_public(one) for one in ("93.184.215.14", "127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:10.0.0.1")]
    [True, False, False, False, False, False]
    >>> [is_public(one) for one in ("64:ff9b::7f00:1", "64:ff9b::5db8:d70e", "::127.0.0.1", "2002:7f00:1::")]
    [False, True, False, False]
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo and found.teredo[1])
        if not inner and any(found in network for network in WRAPPING):
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner:
            found = inner
    return found.is_global and not found.is_multicast


def checked_url(text: object, private: bool) -> str:
    """A URL that may be called, as far as it says itself. Raises `Problem` 400 or 403."""
    try:
        url = URL(text if isinstance(text, str) else "")
        host = url.host                                 # is decoded only now
    except ValueError as error:
        raise Problem(400, f"{text!r} is no URL: {error}") from None
    if url.scheme not in ("http", "https") or not host or url.user is not None or url.fragment:
        raise Problem(400, f"expected an http or https URL with a host, without user and fragment, got {text!r}")
    if not private and not _may_be_public(host):
        raise Problem(403, f"{host} is an address that the internet does not reach; "
                           "the broker calls such only with private_targets=True (--private-targets)")
    return str(url)


def check_target(url: str, private: bool) -> None:
    """Raise `Forbidden` for an address that may not be called, whatever was allowed when somebody subscribed. A name is looked up
    later, by `PublicOnly`, which is not asked for addresses."""
    host = URL(url).host or ""
    if not private and not _may_be_public(host):
        raise Forbidden(errno.EACCES, f"{host} is an address that the internet does not reach")


def _may_be_public(host: str) -> bool:
    """Whether the host is a public address, or a name, which is looked up later. Old spellings of addresses are addresses."""
    if host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        return is_public(host)
    except ValueError:
        pass
    try:
        return is_public(socket.inet_ntoa(socket.inet_aton(host)))         # 127.1, 0x7f000001, 2130706433
    except OSError:
        return True


def session(private: bool) -> aiohttp.ClientSession:
    """The session that calls targets."""
    options: dict[str, Any] = {} if private else {"resolver": PublicOnly()}
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, limit_per_host=32, **options), timeout=aiohttp.ClientTimeout(total=SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, auto_decompress=False)


async def beginning(response: aiohttp.ClientResponse) -> bytes:
    """The beginning of an answer's body: a target does not decide how much the broker reads."""
    return await response.content.read(ANSWER_BYTES_MAX)
