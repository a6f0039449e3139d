"""Sockets: opened with keys, and not for other machines by accident."""

from __future__ import annotations

import os
import re
import socket as os_socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass

import zmq

from xump.zeromq.limits import FRAME_BYTES_MAX, HIGH_WATER_MESSAGES

_LOOPBACK = re.compile(r"inproc://.+|ipc://.+|tcp://(127\.[0-9]+\.[0-9]+\.[0-9]+|localhost|\[::1\]):([0-9]+|\*)", re.DOTALL)
"""All of an endpoint, not its beginning: libzmq binds `tcp://127.0.0.1:1;0.0.0.0:5555` to what stands behind the semicolon."""

_KEY = re.compile(rb"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


def check_key(key: bytes, name: str) -> None:
    """Check a CURVE key as text (Z85); raises ValueError or TypeError, which do not say the key: it may be a secret."""
    if not isinstance(key, bytes):
        raise TypeError(f"the {name} key must be bytes, got {type(key).__name__}")
    if not _KEY.fullmatch(key):
        raise ValueError(f"the {name} key must be 40 characters of Z85, as zmq.curve_keypair() makes them; got {len(key)} bytes")


@dataclass(frozen=True, slots=True)
class Keys:
    """CURVE keys, as `zmq.curve_keypair()` makes them.

    Args:
        public, secret: The keys of this program.
        server: The public key of the server; None in a server.

    Raises:
        ValueError, TypeError: One of them is no key, or two do not belong together.
    """

    public: bytes
    """The public key of this program."""
    secret: bytes
    """Its secret key."""
    server: bytes | None = None
    """The public key of the server that a client connects to."""

    def __post_init__(self) -> None:
        for name, key in (("public", self.public), ("secret", self.secret), ("server", self.server)):
            if key is not None:
                check_key(key, name)
        if zmq.curve_public(self.secret) != self.public:
            raise ValueError(f"the public key {self.public!r} does not belong to the secret one")

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
        endpoint: `tcp://127.0.0.1:5555`, `tcp://[::1]:5555`, `ipc://PATH`, `inproc://NAME`.
        keys: CURVE keys; None: no encryption.
        identity: Under which peers that are ROUTER sockets know it; None: none.
        public: Whether other machines may come although there are no keys.

    Raises:
        ValueError: Other machines could come, and there are no keys; or the path is that of a file.
        zmq.ZMQError: The endpoint is wrong, or in use.
    """
    check_endpoint(endpoint)
    _check_path(endpoint)
    if keys is None and not public and not _LOOPBACK.fullmatch(endpoint):
        raise ValueError(
            f"{endpoint} is open to other machines, and there are no CURVE keys. Give keys, bind to tcp://127.0.0.1, or allow it "
            "(public=True; on the command line --insecure)")
    socket = context.socket(kind)
    socket.linger = 0
    socket.sndhwm = socket.rcvhwm = HIGH_WATER_MESSAGES
    socket.maxmsgsize = FRAME_BYTES_MAX
    socket.ipv6 = _is_ipv6(endpoint)
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
    context: zmq.Context[zmq.Socket[bytes]], kind: int, endpoint: str, keys: Keys | None = None, *, more: Sequence[str] = (),
    linger: int = 0, immediate: bool = False,
) -> zmq.Socket[bytes]:
    """Open a socket that goes to a server.

    Args:
        context: The context of the program.
        kind: The type of the socket.
        endpoint: The server.
        keys: CURVE keys, with the server's public key; None: no encryption.
        more: Other servers, to which the socket goes, too.
        linger: How many milliseconds it may send after it was closed.
        immediate: Whether it takes nothing while it has no connection.
    """
    endpoints = [check_endpoint(one) for one in (endpoint, *more)]
    socket = context.socket(kind)
    socket.linger, socket.immediate = linger, immediate
    socket.sndhwm = socket.rcvhwm = HIGH_WATER_MESSAGES
    # Not always: with IPv6 the name `localhost` would be its address there, where servers of this package do not listen.
    socket.ipv6 = any(map(_is_ipv6, endpoints))
    try:
        if keys is not None:
            keys.put(socket, serves=False)
        for one in endpoints:
            socket.connect(one)
    except BaseException:
        socket.close()
        raise
    return socket


def _is_ipv6(endpoint: str) -> bool:
    return endpoint.startswith("tcp://[")


def _check_path(endpoint: str) -> None:
    """Raise if the path of an `ipc://` endpoint is not free. libzmq would delete what is there, and a server that listens there
    would go on, and never be asked again."""
    path = endpoint.removeprefix("ipc://")
    if path == endpoint or path == "*" or path.startswith("@"):        # no path; one that libzmq makes; one of the kernel's
        return
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise ValueError(f"{path} is a file, and no socket: {endpoint} would delete it")
        with os_socket.socket(os_socket.AF_UNIX) as probe:
            probe.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return                              # nothing, or what a server that is gone has left
    raise zmq.ZMQError(zmq.EADDRINUSE, f"Address already in use: a server listens at {endpoint}")
