"""A freelance server: the machine over a socket, and your function in threads."""

from __future__ import annotations

import socket as os_socket
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import zmq

from xump.zeromq.frames import Answer, reply_frames
from xump.zeromq.freelance.machine import NAME, Freelance
from xump.zeromq.messages import messages
from xump.zeromq.pair import Pair
from xump.zeromq.server import Server
from xump.zeromq.sockets import Keys

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump_ext.engine.delivery import Delivery


class FreelanceServer(Server):
    """A server for clients of all three models.

    Args:
        endpoint: Where to bind. Clients of RFC 10 must connect to this very text, unless `identity` says another.
        function: Gets the frames of a request, and returns the frames of its reply, or one. If it raises, `run` does.
        identity: The endpoint that clients connect to, if it is not the one to bind.
        threads: How many requests are at work at once.
        engine, keys, public, context, clock, pair: As for `MajordomoBroker`.
        options: As for `Freelance`: `numbered`, `name`, `request_ttl`.

    Raises:
        ValueError: As for `MajordomoBroker`; it has a name instead of a prefix.
    """

    def __init__(
        self, endpoint: str, function: Callable[[list[bytes]], Answer], *, identity: str | None = None, threads: int = 1,
        engine: Engine | None = None, keys: Keys | None = None, public: bool = False, context: zmq.Context[Any] | None = None,
        clock: Callable[[], float] = time.monotonic, pair: Pair | None = None, **options: Any,
    ) -> None:
        super().__init__(context, clock, engine)
        if threads < 1:
            raise ValueError(f"threads is {threads}, and must be at least 1")
        self._take_name("name", options.get("name", NAME))
        while True:
            _endpoint = _with_port(endpoint)
            try:
                _socket = self._open(_endpoint, keys, public, identity=(identity or _endpoint).encode())
                break
            except zmq.ZMQError as error:       # another program may have taken the port that was free
                if _endpoint == endpoint or error.errno != zmq.EADDRINUSE:
                    raise
        self._function = function
        self._threads = threads
        self._hands: ThreadPoolExecutor
        self._done: deque[tuple[Delivery, Future[Answer]]] = deque()
        with self._closing():
            self.machine = Freelance(self.engine, messages(_socket).send, self._start, at_once=threads, **options)
            """The protocol."""
        self._serve(self.machine, {_socket: self.machine.handle}, pair)

    def run(self) -> None:
        """Serve until `stop` is called.

        Raises:
            Exception: The function raised it.
        """
        with ThreadPoolExecutor(self._threads, "xump-freelance") as self._hands:
            super().run()

    def _start(self, delivery: Delivery, body: list[bytes]) -> None:
        def _done(work: Future[Answer]) -> None:
            self._done.append((delivery, work))
            self.wake()

        self._hands.submit(self._function, body).add_done_callback(_done)

    def _before_pump(self) -> None:
        while self._done:
            delivery, work = self._done.popleft()
            self.machine.reply(delivery, reply_frames(work.result()))


def _with_port(endpoint: str) -> str:
    """The endpoint with a free port instead of `*`: a socket must have its identity before it is bound."""
    if not (endpoint.startswith("tcp://") and endpoint.endswith(":*")):
        return endpoint
    host = endpoint[len("tcp://"):-len(":*")]
    family = os_socket.AF_INET6 if host.startswith("[") else os_socket.AF_INET
    with os_socket.create_server(("" if host == "*" else host.strip("[]"), 0), family=family) as probe:
        return f"tcp://{host}:{probe.getsockname()[1]}"
