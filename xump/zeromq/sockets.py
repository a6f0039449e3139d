"""Sockets: opened with keys, and not for other machines by accident."""

from __future__ import annotations

import re
from dataclasses import dataclass

import zmq

from xump.zeromq.limits import FRAME_BYTES_MAX, HIGH_WATER_MESSAGES

_LOOPBACK = re.compile(r"inproc://.|ipc://.|tcp://(127\.\d+\.\d+\.\d+|localhost|\[::1\]):")


@dataclass(frozen=True, slots=True)
class Keys:
    """CURVE keys, as `zmq.curve_keypair()` makes them.

    Args:
        public, secret: The keys of this program.
        server: The public key of the server; None in a server.
    """

    public: bytes
    """The public key of this program."""
    secret: bytes
    """Its secret key."""
    server: bytes | None = None
    """The public key of the server that a client connects to."""

    def put(self, socket: zmq.Socket[bytes], *, serves: bool) -> None:
        """Let a socket use the keys, as the server of CURVE or as a client.

        Raises:
            ValueError: A client has no key of its server.
        """
        socket.curve_publickey, socket.curve_secretkey = self.public, self.secret
        if serves:
            socket.curve_server = True
        elif self.server is None:
            raise ValueError("a client needs the public key of its server: Keys(public, secret, server=...)")
        else:
            socket.curve_serverkey = self.server


def check_endpoint(endpoint: str) -> str:
    """The endpoint, if it is one; raises ValueError. libzmq would take a port above 65535 for another one."""
    transport, _, rest = endpoint.partition("://")
    if not transport or not rest:
        raise ValueError(f"{endpoint!r} is no endpoint; tcp://127.0.0.1:5555, ipc:///run/xump.sock and inproc://name are")
    port = rest.rpartition(":")[2]
    if transport == "tcp" and not (port == "*" or re.fullmatch(r"[0-9]{1,5}", port) and int(port) < 65536):
        raise ValueError(
            f"the port of {endpoint!r} is {port!r}, and must be a number below 65536; where a server binds, * is a free one")
    return endpoint


def bind(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, endpoint: str, keys: Keys | None = None, *, public: bool = False,
    identity: bytes | None = None,
) -> zmq.Socket[bytes]:
    """Open a socket that others connect to.

    Args:
        context: The context of the program.
        kind: The type of the socket.
        endpoint: `tcp://127.0.0.1:5555`, `ipc://PATH`, `inproc://NAME`.
        keys: CURVE keys; None: no encryption.
        identity: Under which peers that are ROUTER sockets know it; None: none.
        public: Whether other machines may come although there are no keys.

    Raises:
        ValueError: Other machines could come, and there are no keys.
        zmq.ZMQError: The endpoint is wrong, or in use.
    """
    check_endpoint(endpoint)
    if keys is None and not public and not _LOOPBACK.match(endpoint):
        raise ValueError(
            f"{endpoint} is open to other machines, and there are no CURVE keys. Give keys, bind to tcp://127.0.0.1, or allow it "
            "(public=True)")
    socket = context.socket(kind)
    socket.linger = 0
    socket.sndhwm = socket.rcvhwm = HIGH_WATER_MESSAGES
    socket.maxmsgsize = FRAME_BYTES_MAX
    try:
        if keys is not None:
            keys.put(socket, serves=True)
        if identity is not None:
            socket.routing_id = identity
        socket.bind(endpoint)
    except BaseException:
        socket.close()
        raise
    return socket


def connect(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, endpoint: str, keys: Keys | None = None, *, linger: int = 0,
) -> zmq.Socket[bytes]:
    """Open a socket that goes to a server. `linger`: how many milliseconds it may send after it was closed."""
    check_endpoint(endpoint)
    socket = context.socket(kind)
    socket.linger = linger
    socket.sndhwm = socket.rcvhwm = HIGH_WATER_MESSAGES
    try:
        if keys is not None:
            keys.put(socket, serves=False)
        socket.connect(endpoint)
    except BaseException:
        socket.close()
        raise
    return socket
