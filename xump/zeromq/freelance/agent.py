"""RFC 10's client, as a machine without sockets: it knows which servers are alive, and numbers its requests.

A server is alive once anything has come from it, and until nothing came for its time to live. It is pinged when nothing came for
a while. A request goes to the live server that was asked longest ago. When its server dies, or its try is over time, it goes to
the next one; without a live server it waits for one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import inf

from xump.zeromq.frames import PING, PONG
from xump.zeromq.limits import FREELANCE_PING_SECONDS, FREELANCE_TIMEOUT_SECONDS, FREELANCE_TTL_SECONDS


class _Server:
    def __init__(self, endpoint: bytes, now: float) -> None:
        self.endpoint = endpoint
        self.ping_at = now
        self.expires = now                  # not alive before it has said something


class _Request:
    def __init__(self, body: Sequence[bytes], done: Callable[[list[bytes] | None], object], tries: int, due: float) -> None:
        self.body, self.done = list(body), done
        self.tries, self.due = tries, due
        self.server: _Server | None = None


class Agent:
    """The client.

    Args:
        endpoints: The servers.
        send: Is called with the frames of a message, the endpoint of its server first. It returns False if there is no
            connection.
        now: The moment, in seconds.
        ping: Seconds after which a server that says nothing is pinged.
        ttl: Seconds after which it is dead.
        timeout: Seconds for each try of a request.
        tries: How many there are.
    """

    def __init__(
        self, endpoints: Sequence[bytes], send: Callable[[Sequence[bytes]], object], now: float, *,
        ping: float = FREELANCE_PING_SECONDS, ttl: float = FREELANCE_TTL_SECONDS, timeout: float = FREELANCE_TIMEOUT_SECONDS,
        tries: int = 2,
    ) -> None:
        if not endpoints or not 0 < ping < ttl < inf or not 0 < timeout < inf or tries < 1:
            raise ValueError(
                f"got {len(endpoints)} endpoints, ping {ping}, ttl {ttl}, timeout {timeout}, tries {tries}; allowed are one or "
                "more endpoints, a ping that is less than the ttl, more than 0 seconds, and one or more tries")
        self._send = send
        self._ping, self._ttl, self._timeout, self._tries = ping, ttl, timeout, tries
        self._servers = {endpoint: _Server(endpoint, now) for endpoint in endpoints}      # the one asked longest ago first
        self._requests: dict[bytes, _Request] = {}
        self._waiting: dict[bytes, None] = {}
        self._numbers = itertools.count(1)

    def alive(self, now: float) -> list[bytes]:
        """The endpoints of the servers that are alive, the one that is asked next first."""
        return [server.endpoint for server in self._servers.values() if now < server.expires]

    def request(self, body: Sequence[bytes], done: Callable[[list[bytes] | None], object], now: float) -> None:
        """Ask. `done` is called once, with the frames of the reply, or with None if there is none."""
        number = b"%d" % next(self._numbers)
        self._requests[number] = _Request(body, done, self._tries, now + self._timeout)
        self._ask(number, now)

    def handle(self, frames: Sequence[bytes], now: float) -> None:
        """A message came, the endpoint of its server first."""
        server = self._servers.get(frames[0])
        if server is None or len(frames) < 2:
            return
        server.expires, server.ping_at = now + self._ttl, now + self._ping
        if frames[1] != PONG and (request := self._requests.pop(frames[1], None)) is not None:
            request.done(list(frames[2:]))      # also from a server that was asked before: the number says for which request
        waiting, self._waiting = self._waiting, {}
        for number in waiting:
            self._ask(number, now)

    def due(self) -> float:
        """When `tick` has something to do."""
        moments = [server.ping_at for server in self._servers.values()]
        for request in self._requests.values():
            moments.append(request.due)
            if request.server is not None:
                moments.append(request.server.expires)
        return min(moments)

    def tick(self, now: float) -> None:
        """Ping the silent servers; ask the next one for requests whose server is dead, or too slow; give up the others."""
        for server in self._servers.values():
            if now >= server.ping_at:
                reached = self._send([server.endpoint, PING])
                server.ping_at = now + (self._ping if reached is not False else min(self._ping, 0.05))
        for number, request in list(self._requests.items()):
            if now >= request.due:
                request.tries -= 1
                request.due = now + self._timeout
                if not request.tries:
                    del self._requests[number]
                    request.done(None)
                    continue
            elif request.server is None or now < request.server.expires:
                continue
            self._ask(number, now)
        self._waiting = {number: None for number in self._waiting if number in self._requests}

    def _ask(self, number: bytes, now: float) -> None:
        request = self._requests.get(number)
        if request is None:
            return
        request.server = None
        for server in list(self._servers.values()):
            if now < server.expires and self._send([server.endpoint, number, *request.body]) is not False:
                request.server = server
                self._servers[server.endpoint] = self._servers.pop(server.endpoint)
                return
        self._waiting[number] = None
