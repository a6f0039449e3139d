"""A server as one of a pair: the Binary Star's machine beside the server's own, and its link.

    PUB, bound at `link` -- the peer's SUB          SUB, connected to `peer` -- the peer's PUB

The link should be a network of its own: while it is cut neither server can tell a dead peer from one that it does not hear.
Workers are served in every state, so that they are known to both servers. Clients are served by the active one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zmq

from xump.zeromq.binary_star import BinaryStar
from xump.zeromq.limits import STAR_HEARTBEAT_SECONDS
from xump.zeromq.sockets import Keys, bind, connect

if TYPE_CHECKING:
    from xump.zeromq.server import Machine


@dataclass(frozen=True, slots=True)
class Pair:
    """A server's knowledge of its pair.

    Args:
        role: "primary" or "backup".
        link: Where this server says its state: an endpoint to bind.
        peer: The `link` of the other server.
        heartbeat: Seconds between states. The same in both servers.
        keys: CURVE keys for the link, with the public key of the peer as `server`; None: it is not encrypted.
        public: Whether other machines may listen although there are no keys.
    """

    role: str
    """Whether this server is the one that should be active."""
    link: str
    """Where it says its state."""
    peer: str
    """Where the other one does."""
    heartbeat: float = STAR_HEARTBEAT_SECONDS
    """Seconds between states."""
    keys: Keys | None = None
    """CURVE keys."""
    public: bool = False
    """Whether other machines may listen although there are no keys."""

    def __post_init__(self) -> None:
        if self.link == self.peer:
            raise ValueError(f"a server cannot be its own peer, and both links are {self.link}")


LINK_PORTS = 10_000
"""So many ports above its own is the link of a server that says no other, or below, where there are none."""


def link_of(endpoint: str) -> str:
    """Where a server at an endpoint has its link if it says nothing else: at a port, or a path, that follows from its own.

    Raises:
        ValueError: None follows from it.

    >>> link_of("tcp://127.0.0.1:5555"), link_of("tcp://127.0.0.1:60000"), link_of("ipc:///run/broker")
    ('tcp://127.0.0.1:15555', 'tcp://127.0.0.1:50000', 'ipc:///run/broker.link')
    """
    if endpoint.startswith("ipc://"):
        return endpoint + ".link"
    host, _, port = endpoint.rpartition(":")
    if not host.startswith("tcp://") or not (port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"no link follows from the endpoint {endpoint!r}: give one of its own, such as tcp://127.0.0.1:15555")
    return f"{host}:{int(port) + (LINK_PORTS if int(port) + LINK_PORTS < 65536 else -LINK_PORTS)}"


class Paired:
    """A machine and its Binary Star, as one machine. The sockets of the link are open when this is made.

    Args:
        machine: The server's own.
        pair: The other server, and the link to it.
        context, clock: Those of the server.
        activate: Is called before the server becomes active; if it returns False, the server does not.
    """

    def __init__(
        self, machine: Machine, pair: Pair, context: zmq.Context[Any], clock: Callable[[], float], activate: Callable[[], bool],
    ) -> None:
        self._machine = machine
        self.sockets: list[zmq.Socket[bytes]] = []
        """The ends of the link: for what is said, and for what is heard."""
        _said = bind(context, zmq.PUB, pair.link, pair.keys, public=pair.public)
        self.sockets.append(_said)
        try:
            self.heard = connect(context, zmq.SUB, pair.peer, pair.keys)
            """Where the peer is heard."""
            self.sockets.append(self.heard)
            self.heard.subscribe(b"")
            self.star = BinaryStar(pair.role, _said.send, clock(), heartbeat=pair.heartbeat, activate=activate)
            """The state."""
        except BaseException:
            self.close()
            raise

    def from_peer(self, frames: list[bytes], now: float) -> None:
        """A message came over the link."""
        self.star.peer_said(frames[0] if len(frames) == 1 else b"", now)

    def pump(self, now: float) -> None:
        """Hand out requests."""
        self._machine.pump(now)

    def due(self) -> float:
        """When `tick` has something to do."""
        due = self._machine.due()
        return self.star.due() if due is None else min(due, self.star.due())

    def tick(self, now: float) -> None:
        """Do what is due."""
        self.star.tick(now)
        due = self._machine.due()
        if due is not None and now >= due:
            self._machine.tick(now)

    def close(self) -> None:
        """Close the link."""
        for socket in self.sockets:
            socket.close()
