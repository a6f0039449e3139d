"""The connections of clients, as sockets of the broker's own process: Flight neither says which there are, nor ends one."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from xump.broker.limits import Limits

Peer = tuple[str, int]
"""Host and port of a client."""


class Connections:
    """Knows since when clients have made no call."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._called: dict[Peer, float] = {}        # when the last call began or ended, monotonic
        self._seen: dict[Peer, float] = {}          # clients that have made none yet: since when

    def called(self, peer: Peer, now: float) -> None:
        """A call of a known user begins, or ends."""
        self._called[peer] = now

    def too_long(self, there: Iterable[Peer], calling: set[Peer], now: float) -> set[Peer]:
        """Of the clients that are there, those whose connections end: they have made no call for too long, or are too many."""
        there = set(there)
        for known in (self._called, self._seen):
            for peer in [peer for peer in list(known) if peer not in there]:
                known.pop(peer, None)
        ends = set()
        silent: list[tuple[bool, float, Peer]] = []
        for peer in there - calling:
            called = self._called.get(peer)
            since = self._seen.setdefault(peer, now) if called is None else called
            if now - since >= (self._limits.handshake_seconds if called is None else self._limits.flight_idle_seconds):
                ends.add(peer)
            else:
                silent.append((called is not None, since, peer))        # strangers first, those that came first
        more = len(there) - len(ends) - self._limits.flight_connections_max
        return ends.union(peer for _, _, peer in sorted(silent)[:max(more, 0)])


def peers(port: int) -> list[Peer]:
    """The clients that are connected with our port."""
    return [theirs for _, theirs in _connected(port)]


def shut(port: int, wanted: set[Peer] | None) -> None:
    """End the connections of these clients, or of all, with our port."""
    for found, theirs in _connected(port):
        if wanted is None or theirs in wanted:
            try:
                found.shutdown(socket.SHUT_RDWR)
            except OSError:             # closed meanwhile
                continue


def _connected(port: int) -> Iterator[tuple[socket.socket, Peer]]:
    for number in _numbers():
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with _borrowed(number) as found:
                if found.type == socket.SOCK_STREAM and found.family in (socket.AF_INET, socket.AF_INET6):
                    ours, theirs = found.getsockname(), found.getpeername()
                    if ours[1] == port:
                        yield found, (plain(theirs[0]), theirs[1])
        except OSError:             # closed meanwhile, or not connected
            continue


@contextmanager
def _borrowed(number: int) -> Iterator[socket.socket]:
    """A socket by its descriptor, which stays open. A copy would need another one, and there may be none left."""
    found = socket.socket(fileno=number)
    try:
        yield found
    finally:
        found.detach()


def _numbers() -> Iterable[int]:
    """The descriptors that are open; all that there can be, if there is none left to list them."""
    try:
        return [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        return range(os.sysconf("SC_OPEN_MAX"))


def plain(host: str) -> str:
    """An IPv4 address that IPv6 wraps, as IPv4 writes it."""
    return host.removeprefix("::ffff:")


def host_and_port_of(peer: str) -> Peer:
    """Host and port of a peer, as gRPC names it.

    >>> host_and_port_of("ipv6:%5B::1%5D:5000")
    ('::1', 5000)
    """
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0
