"""Lazy Pirate: a client that asks again. Each try has a time limit and, after the first, a fresh socket.

A REQ socket whose request was lost can only be closed. With it goes a reply that comes late, so that it cannot be taken for the
reply to a later request. A service behind such clients may do a request twice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import zmq

from xump._arguments import check_count
from xump.errors import RequestTimeout
from xump.zeromq.frames import check_body
from xump.zeromq.limits import RETRIES, RETRIES_MAX, TIMEOUT_SECONDS, check_timeout
from xump.zeromq.messages import Messages, messages
from xump.zeromq.sockets import Keys, check_endpoint, connect


class Asking:
    """The common part of clients with one request at a time. Subclasses say what stands around a body.

    Args:
        endpoints: The servers; after a try without a reply the next one is asked.
        timeout: Seconds for each try.
        retries: How many tries follow the first.
        keys: CURVE keys, with the server's public key.
        context: The context of the program; None: the global one.
    """

    _kind: int = zmq.REQ

    def __init__(
        self, *endpoints: str, timeout: float = TIMEOUT_SECONDS, retries: int = RETRIES, keys: Keys | None = None,
        context: zmq.Context[Any] | None = None,
    ) -> None:
        if not endpoints:
            raise ValueError("a client needs at least one endpoint, such as tcp://127.0.0.1:5555")
        check_timeout(timeout)
        check_count("retries", retries, 0, RETRIES_MAX)
        self._endpoints = tuple(map(check_endpoint, endpoints))
        self._at = 0
        self._timeout_ms = max(1, int(timeout * 1000))
        self._tries = retries + 1
        self._keys = keys
        self._context: zmq.Context[Any] = context or zmq.Context.instance()
        self._socket: zmq.Socket[bytes] | None = None
        self._messages: Messages
        self.tries = 0
        """How many tries there were, of all requests."""

    def _ask(self, frames: Sequence[bytes], what: str) -> list[bytes]:
        """Send, and wait for the reply that `_replied` accepts."""
        for _ in range(self._tries):
            self.tries += 1
            if self._socket is None:
                self._socket = connect(self._context, self._kind, self._endpoints[self._at], self._keys)
                self._socket.rcvtimeo = self._timeout_ms
                self._messages = messages(self._socket)
            try:
                reply = self._try(self._socket, frames)
                if reply is not None:
                    return reply
            except BaseException:
                self.close()            # a request is out: this socket is of no use for the next
                raise
            self.close()
            self._at = (self._at + 1) % len(self._endpoints)
        raise RequestTimeout(f"no reply from {what} within {self._tries} tries of {self._timeout_ms / 1000} seconds")

    def _try(self, socket: zmq.Socket[bytes], frames: Sequence[bytes]) -> list[bytes] | None:
        """Send, and wait for the reply; None: it did not come in time."""
        end, shortened = time.monotonic() + self._timeout_ms / 1000, False
        self._messages.send(frames)
        while (message := self._messages.receive(wait=True)) is not None:
            reply = self._replied(message, frames)
            if reply is not None:
                if shortened:
                    socket.rcvtimeo = self._timeout_ms
                return reply
            # The limit is that of the whole try: a server that goes on saying something must not hold up its client.
            left = end - time.monotonic()
            if left <= 0:
                return None
            socket.rcvtimeo, shortened = max(1, int(left * 1000)), True
        return None

    def _replied(self, frames: list[bytes], request: Sequence[bytes]) -> list[bytes] | None:
        """The body of a reply; None: this is not all of it, wait on."""
        return frames

    def close(self) -> None:
        """Close the socket. The next request opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Client(Asking):
    """A Lazy Pirate over a REQ socket: for any server that answers REQ.

    Args:
        endpoints, timeout, retries, keys, context: The servers, which are asked in turn; seconds for each try; how many tries
            follow the first; CURVE keys; the context of the program.

    >>> client = Client("tcp://127.0.0.1:9", timeout=0.01, retries=1)
    >>> with client:
    ...     client.request(b"hello")
    Traceback (most recent call last):
    xump.errors.RequestTimeout: no reply from tcp://127.0.0.1:9 within 2 tries of 0.01 seconds
    """

    def request(self, *body: bytes) -> list[bytes]:
        """Ask, and return the frames of the reply.

        Raises:
            RequestTimeout: No try was answered.
        """
        check_body(body, "request")
        return self._ask(body, ", ".join(self._endpoints))
