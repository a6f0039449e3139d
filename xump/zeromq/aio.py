"""Clients for asyncio: any number of requests at once, each with time limit, retries and a match that cannot be wrong.

Neither REQ nor Majordomo numbers its requests, so a reply says nothing of the request that it is for. Here each request that is
out has a socket of its own, and with it an address of its own at the broker, whichever that is. Sockets are used again; one whose
request was not answered in time is closed, and a late reply goes with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import zmq
import zmq.asyncio

from xump._arguments import check_count
from xump.errors import RequestTimeout
from xump.zeromq.frames import check_body
from xump.zeromq.limits import IN_FLIGHT_MAX, RETRIES, RETRIES_MAX, TIMEOUT_SECONDS, check_timeout
from xump.zeromq.majordomo.client import Reply, dialect_of, request_frames
from xump.zeromq.sockets import Keys, check_endpoint, connect

Taking = Callable[[list[bytes]], "list[bytes] | None"]
"""Gets the messages that come for a request; returns the body once it is complete."""

IN_FLIGHT = 100
"""Requests that are out at once, unless told otherwise. libzmq allows 1023 sockets a context."""


class _Asking:
    """Sockets, one for each request that is out.

    Args:
        endpoints: The servers; after a try without a reply the request goes to the next one.
        timeout: Seconds for each try.
        retries: How many tries follow the first.
        in_flight: How many requests are out at once; more wait.
        keys: CURVE keys, with the server's public key.
    """

    _kind = zmq.REQ

    def __init__(
        self, *endpoints: str, timeout: float = TIMEOUT_SECONDS, retries: int = RETRIES, in_flight: int = IN_FLIGHT,
        keys: Keys | None = None,
    ) -> None:
        if not endpoints:
            raise ValueError("a client needs at least one endpoint, such as tcp://127.0.0.1:5555")
        check_timeout(timeout)
        check_count("retries", retries, 0, RETRIES_MAX)
        check_count("in_flight", in_flight, 1, IN_FLIGHT_MAX)
        self._endpoints = tuple(map(check_endpoint, endpoints))
        self._timeout, self._tries, self._keys = timeout, retries + 1, keys
        self._at = 0
        self._context = zmq.asyncio.Context()
        self._context.max_sockets = max(1023, in_flight + 16)
        self._idle: list[tuple[int, zmq.asyncio.Socket]] = []
        self._room = asyncio.Semaphore(in_flight)

    async def _ask(self, frames: Sequence[bytes], taking: Callable[[], Taking], what: str) -> list[bytes]:
        async with self._room:
            if self._context.closed:
                raise ValueError("the client is closed")
            for _ in range(self._tries):
                at, socket = self._socket()
                answered = False
                try:
                    async with asyncio.timeout(self._timeout):
                        await socket.send_multipart(frames)
                        take = taking()
                        while (body := take(await socket.recv_multipart())) is None:
                            pass
                        answered = True
                        return body
                except asyncio.CancelledError:
                    # pyzmq cancels what waits for a socket that is closed.
                    task = asyncio.current_task()
                    if not self._context.closed or task is None or task.cancelling():
                        raise
                    raise RequestTimeout(f"the client was closed before the reply of {what} came") from None
                except TimeoutError:
                    if at == self._at:
                        self._at = (at + 1) % len(self._endpoints)
                finally:
                    if answered and at == self._at:
                        self._idle.append((at, socket))
                    else:
                        socket.close()
        raise RequestTimeout(f"no reply from {what} within {self._tries} tries of {self._timeout} seconds")

    def _socket(self) -> tuple[int, zmq.asyncio.Socket]:
        while self._idle:
            at, socket = self._idle.pop()
            if at == self._at:
                return at, socket
            socket.close()              # it goes to a server that did not answer
        context = cast("zmq.Context[zmq.Socket[bytes]]", self._context)
        return self._at, cast("zmq.asyncio.Socket", connect(context, self._kind, self._endpoints[self._at], self._keys))

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all sockets. Requests that are out end with RequestTimeout."""
        for _, socket in self._idle:            # the context knows its sockets by weak references only
            socket.close()
        self._idle.clear()
        self._context.destroy(linger=0)


class LazyPirate(_Asking):
    """A Lazy Pirate for asyncio, for any server that answers REQ.

    Args:
        endpoints, timeout, retries, keys: As for `xump.zeromq.LazyPirate`.
        in_flight: How many requests are out at once; more wait.
    """

    async def request(self, *body: bytes) -> list[bytes]:
        """Ask, and return the frames of the reply.

        Raises:
            RequestTimeout: No try was answered.
        """
        check_body(body, "request")
        return await self._ask(body, lambda: list, ", ".join(self._endpoints))


class Client(_Asking):
    """Asks services of a Majordomo broker, any number at once.

    Args:
        endpoints, timeout, retries, keys: As for `xump.zeromq.Client`.
        in_flight: How many requests are out at once; more wait.
        version: Of the protocol: "0.2" or "0.1".
    """

    _kind = zmq.DEALER

    def __init__(self, *endpoints: str, version: str = "0.2", **options: Any) -> None:
        super().__init__(*endpoints, **options)
        self._dialect = dialect_of(version)

    async def request(self, service: bytes, *body: bytes) -> list[bytes]:
        """Ask a service, and return the frames of the reply: those of all its parts, in order.

        Raises:
            RequestTimeout: No try was answered.
        """
        def _taking() -> Taking:
            reply = Reply(self._dialect, service)
            return lambda frames: reply.frames if reply.add(frames) else None

        frames = request_frames(self._dialect, service, body)
        return await self._ask(frames, _taking, f"service {service!r} at {', '.join(self._endpoints)}")
