"""The Majordomo client: one request at a time, with time limit, retries and fresh sockets, as the Lazy Pirate has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq

from xump.zeromq.frames import CLIENTS, ClientDialect, check_body, check_service
from xump.zeromq.lazy_pirate import Asking

VERSIONS = {"0.1": CLIENTS[0], "0.2": CLIENTS[1]}
"""Which dialect a client of ours speaks."""


def dialect_of(version: str) -> ClientDialect:
    """The dialect of a version; raises ValueError."""
    if version not in VERSIONS:
        raise ValueError(f"version {version!r} of Majordomo is unknown; there are {', '.join(VERSIONS)}")
    return VERSIONS[version]


def request_frames(dialect: ClientDialect, service: bytes, body: Sequence[bytes]) -> list[bytes]:
    """The frames of a request; raises ValueError or TypeError if it is none."""
    check_body(body, "request")
    check_service(service)
    return [*dialect.before, *(() if dialect.request is None else (dialect.request,)), service, *body]


class Reply:
    """Collects the parts of one reply."""

    def __init__(self, dialect: ClientDialect, service: bytes) -> None:
        self.frames: list[bytes] = []
        """The frames of the body, all parts in a row."""
        self._final = dialect.reply(dialect.final, service)
        self._partial = None if dialect.partial is None else dialect.reply(dialect.partial, service)

    def add(self, frames: Sequence[bytes]) -> bool:
        """A message came; returns whether the reply is complete. A message that is no reply to this request is ignored."""
        head = tuple(frames[: len(self._final)])
        if head in (self._final, self._partial):
            self.frames += frames[len(self._final):]
        return head == self._final


class Client(Asking):
    """Asks services of a Majordomo broker.

    Args:
        endpoints, timeout, retries, keys, context: As for `xump.zeromq.LazyPirate`.
        version: Of the protocol: "0.2", or "0.1" for brokers that know no other.
    """

    _kind = zmq.DEALER

    def __init__(self, *endpoints: str, version: str = "0.2", **options: Any) -> None:
        super().__init__(*endpoints, **options)
        self._dialect = dialect_of(version)
        self._reply: Reply | None = None
        self._service = b""

    def request(self, service: bytes, *body: bytes) -> list[bytes]:
        """Ask a service, and return the frames of the reply: those of all its parts, in order.

        Raises:
            RequestTimeout: No try was answered.
        """
        frames = request_frames(self._dialect, service, body)
        self._service = service
        self._reply = None
        return self._ask(frames, f"service {service!r} at {', '.join(self._endpoints)}")

    def _replied(self, frames: list[bytes], request: Sequence[bytes]) -> list[bytes] | None:
        if self._reply is None:
            self._reply = Reply(self._dialect, self._service)
        return self._reply.frames if self._reply.add(frames) else None

    def close(self) -> None:
        """Close the socket, and forget the parts that came. The next request opens another."""
        self._reply = None
        super().close()
