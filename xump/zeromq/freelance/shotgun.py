"""The second model of Freelance: all servers are asked at once, and the first answer counts.

Each server has a socket of its own, which takes a request only while it is connected: a server that was away does not find what
was asked meanwhile. Requests are numbered, so that a late answer is not taken for that of the next request.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import zmq

from xump.errors import RequestTimeout
from xump.zeromq.frames import check_body
from xump.zeromq.limits import check_timeout
from xump.zeromq.messages import messages
from xump.zeromq.sockets import Keys, connect


class Shotgun:
    """Asks all servers at once. They must echo the number: `FreelanceServer(numbered=True)`, or the guide's.

    Args:
        endpoints: The servers.
        timeout: Seconds until a request is given up.
        keys: CURVE keys, with the public key that all servers have.
        context: The context of the program; None: the global one.
    """

    def __init__(
        self, *endpoints: str, timeout: float = 2.5, keys: Keys | None = None, context: zmq.Context[Any] | None = None,
    ) -> None:
        check_timeout(timeout)
        if not endpoints:
            raise ValueError("a client needs at least one endpoint, such as tcp://127.0.0.1:5555")
        self._timeout, self._numbers = timeout, itertools.count(1)
        self._what = ", ".join(endpoints)
        self._sockets: list[zmq.Socket[bytes]] = []
        try:
            for endpoint in endpoints:
                self._sockets.append(connect(context or zmq.Context.instance(), zmq.DEALER, endpoint, keys, immediate=True))
        except BaseException:
            self.close()
            raise
        self._messages = {socket: messages(socket) for socket in self._sockets}

    def request(self, *body: bytes) -> list[bytes]:
        """Ask, and return the frames of the first answer.

        Raises:
            RequestTimeout: No server answered.
        """
        check_body(body, "request")
        number, end = b"%d" % next(self._numbers), time.monotonic() + self._timeout
        poller = zmq.Poller()
        for socket in self._sockets:
            poller.register(socket, zmq.POLLIN | zmq.POLLOUT)
        while (left := end - time.monotonic()) > 0:
            for socket, events in poller.poll(max(1, int(left * 1000))):
                # A server may have gone since poll saw it, and there may never be another connection: a send must not wait.
                if events & zmq.POLLOUT and self._messages[socket].send([b"", number, *body]):
                    poller.register(socket, zmq.POLLIN)
                if events & zmq.POLLIN:
                    frames = self._messages[socket].receive()
                    if frames is not None and len(frames) > 2 and not frames[0] and frames[1] == number:
                        return frames[2:]
        raise RequestTimeout(f"no reply from any of {self._what} within {self._timeout} seconds")

    def close(self) -> None:
        """Close the sockets."""
        for socket in self._sockets:
            socket.close()

    def __enter__(self) -> Shotgun:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
