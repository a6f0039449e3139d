"""The third model of Freelance (RFC 10): a thread keeps in touch with all servers, and any thread may ask."""

from __future__ import annotations

import socket as os_socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import zmq

from xump.errors import RequestTimeout
from xump.zeromq.frames import check_body
from xump.zeromq.freelance.agent import Agent
from xump.zeromq.messages import messages
from xump.zeromq.sockets import Keys, connect


class Addressed:
    """Asks the live server that was asked longest ago.

    Args:
        endpoints: The servers; each has its endpoint as its identity.
        keys: CURVE keys, with the public key that all servers have.
        context: The context of the program; None: the global one.
        clock: Seconds, for pings and time limits.
        options: As for `Agent`: `ping`, `ttl`, `timeout`, `tries`.
    """

    def __init__(
        self, *endpoints: str, keys: Keys | None = None, context: zmq.Context[Any] | None = None,
        clock: Callable[[], float] = time.monotonic, **options: Any,
    ) -> None:
        if not endpoints:
            raise ValueError("a client needs at least one endpoint, such as tcp://127.0.0.1:5555")
        self._what, self._clock = ", ".join(endpoints), clock
        self._asked: deque[tuple[tuple[bytes, ...], Future[list[bytes]]]] = deque()
        self._closing, self._coming = False, threading.Lock()
        self._socket = connect(context or zmq.Context.instance(), zmq.ROUTER, endpoints[0], keys, more=endpoints[1:])
        try:
            self._socket.router_mandatory = True            # so that a send says that there is no connection
            self._messages = messages(self._socket)
            self._agent = Agent([endpoint.encode() for endpoint in endpoints], self._messages.send, clock(), **options)
        except BaseException:
            self._socket.close()
            raise
        self._bell, self._ear = os_socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="xump-freelance-client")
        self._thread.start()

    def submit(self, *body: bytes) -> Future[list[bytes]]:
        """Ask, and return a future of the frames of the reply; in asyncio, `await asyncio.wrap_future(client.submit(…))`."""
        check_body(body, "request")         # here: in the thread it would end all requests
        future: Future[list[bytes]] = Future()
        with self._coming:                  # so that the thread, when it ends, ends all that came
            if self._closing:
                raise ValueError("the client is closed")
            self._asked.append((body, future))
            self._ring()
        return future

    def request(self, *body: bytes) -> list[bytes]:
        """Ask, and return the frames of the reply.

        Raises:
            RequestTimeout: No try was answered.
        """
        return self.submit(*body).result()

    def close(self) -> None:
        """End the thread, and close the socket. Requests that are out end with RequestTimeout."""
        with self._coming:
            if not self._closing:
                self._closing = True
                self._ring()
        self._thread.join()
        self._bell.close()                  # not before: it may be rung until then

    def __enter__(self) -> Addressed:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ring(self) -> None:
        try:
            self._bell.send(b"!")
        except BlockingIOError:
            return                          # it is full of rings already

    def _run(self) -> None:
        out: set[Future[list[bytes]]] = set()
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._ear.fileno(), zmq.POLLIN)
        while not self._closing:
            poller.poll(max(0, int((self._agent.due() - self._clock()) * 1000) + 1))
            self._listen()
            while self._asked:
                body, future = self._asked.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                out.add(future)
                future.add_done_callback(out.discard)
                self._agent.request(body, self._settling(future), self._clock())
            self._read()
            self._agent.tick(self._clock())
        waiting = [future for _, future in self._asked if future.set_running_or_notify_cancel()]
        for future in [*out, *waiting]:
            future.set_exception(RequestTimeout(f"the client of {self._what} was closed before the reply came"))
        self._socket.close()
        self._ear.close()

    def _settling(self, future: Future[list[bytes]]) -> Callable[[list[bytes] | None], None]:
        def _settle(reply: list[bytes] | None) -> None:
            if reply is None:
                future.set_exception(RequestTimeout(f"no reply from {self._what}: each try was over its time"))
            else:
                future.set_result(reply)
        return _settle

    def _listen(self) -> None:
        try:
            while self._ear.recv(4096):
                pass
        except BlockingIOError:
            return

    def _read(self) -> None:
        while (frames := self._messages.receive()) is not None:
            self._agent.handle(frames, self._clock())
