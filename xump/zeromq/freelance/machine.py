"""The server of all three models, as a machine without sockets.

    one at a time    "" BODY…                   "" REPLY…
    shotgun          "" NUMBER BODY…            "" NUMBER REPLY…        if the server is told that requests are numbered
    addressed        CONTROL BODY…              CONTROL REPLY…          CONTROL is not empty: the client's own number
                     PING                       PONG

Requests wait in a queue. A selector hands out as many as may be at work at once: that is its credit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xump import always, deliver
from xump.errors import QueueFull
from xump.zeromq.frames import FRAMES_MAX, PING, PONG
from xump.zeromq.limits import REQUEST_BYTES_MAX, REQUEST_TTL_SECONDS, WAITING_BYTES_MAX, WAITING_MAX
from xump_ext.zeromq.packing import pack, unpack

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump_ext.engine.delivery import Delivery

Send = Callable[[Sequence[bytes]], object]


NAME = "freelance"
"""Of the queue of requests, unless another one is given."""


class Freelance:
    """The server.

    Args:
        engine: Where the requests wait.
        send: Is called with the frames of a message for a client, its identity first.
        start: Is called with a request and its body; call `reply` with it later.
        numbered: Whether requests of REQ clients begin with a number, as those of the shotgun do.
        at_once: How many requests may be at work.
        name: The name of the queue; it is created if it does not exist.
        request_ttl: Seconds after which a request that waits is dropped.
    """

    def __init__(
        self, engine: Engine, send: Send, start: Callable[[Delivery, list[bytes]], object], *, numbered: bool = False,
        at_once: int = 1, name: str = NAME, request_ttl: float | None = REQUEST_TTL_SECONDS,
    ) -> None:
        self.engine = engine
        """Where the requests wait."""
        self.admits: Callable[[], bool] | None = None
        """Says whether a request of a client is let in; None: each is. A server of a pair that is not active lets none in."""
        self.refused = 0
        """Requests that were not let in."""
        self.dropped = 0
        """Malformed messages, and requests for which there was no room."""
        self._send, self._start, self._numbered = send, start, numbered
        self._destination = f"zeromq/{name}"
        self.queue = engine.create_queue(
            name, unmatched="keep", ttl=request_ttl, limit=WAITING_MAX, limit_bytes=WAITING_BYTES_MAX)
        """The requests."""
        engine.create_selector(self.queue, name=name, when=always, do=deliver(self._destination), credit=at_once)

    def handle(self, frames: Sequence[bytes], now: float) -> None:
        """A message came, the identity of its sender first. It may be anything."""
        if len(frames) == 2 and frames[1] == PING:
            if self.admits is None or self.admits():
                self._send([frames[0], PONG])           # a server that would not serve is not there
            return
        head = 3 if self._numbered and len(frames) > 1 and not frames[1] else 2
        if not head < len(frames) <= FRAMES_MAX:
            self.dropped += 1
            return
        if self.admits is not None and not self.admits():
            self.refused += 1
            return
        packed = pack(head, frames)
        if len(packed) > REQUEST_BYTES_MAX:
            self.dropped += 1
            return
        try:
            self.engine.publish(self.queue, "", packed)
        except QueueFull:
            self.dropped += 1

    def pump(self, now: float) -> None:
        """Start the requests for which there is room."""
        for delivery in self.engine.deliveries(self._destination):
            head, frames = unpack(delivery.body)
            self._start(delivery, frames[head:])

    def reply(self, delivery: Delivery, body: Sequence[bytes]) -> None:
        """A request is done."""
        head, frames = unpack(delivery.body)
        delivery.ack()
        self._send([*frames[:head], *body])

    def due(self) -> float | None:
        """When `tick` has something to do; None: never."""
        return None

    def tick(self, now: float) -> None:
        """Do what is due."""
        self.engine.tick()
