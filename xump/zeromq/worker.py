"""A worker for Paranoid Pirate and Majordomo brokers: your function gets requests, and the worker does the rest.

The function runs in a thread of its own, so that heartbeats go on while it works. If the broker falls silent the worker opens a
new socket after a pause, which doubles up to half a minute. If the broker sends it away, it does so at once; if it is sent away
with the first word again and again, as where the name of its service is reserved, it pauses, too. If the function raises, the
worker tells the broker that it leaves, so that the request goes to another worker, and `run` raises the error.

A worker of a pair of brokers is known to both, so that the one that takes over has it at once. It does one request after the
other.
"""

from __future__ import annotations

import socket as os_socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from typing import Any

import zmq

from xump.zeromq.frames import Answer, reply_frames
from xump.zeromq.limits import (
    BACK_OFF_SECONDS,
    BACK_OFF_SECONDS_MAX,
    HEARTBEAT_SECONDS,
    LIVENESS,
    PIRATE_HEARTBEAT_SECONDS,
    PIRATE_LIVENESS,
    check_heartbeat,
)
from xump.zeromq.messages import Messages, messages
from xump.zeromq.sockets import Keys, check_endpoint, connect
from xump.zeromq.worker_machine import Over, WorkerMachine, speaker

LEAVING_MS = 100
"""So long the last word may take to go out after the socket was closed."""


class Worker:
    """A worker of a service.

    Args:
        endpoint: The broker; of a Pirate queue, its backend. Or several, such as both of a pair: it is there for each of them.
        service: The name of the service; a Pirate queue has none.
        protocol: "mdp2" (Majordomo 0.2), "mdp" (0.1), "ppp" (Paranoid Pirate).
        heartbeat: Seconds between heartbeats. None: what the protocol's broker has by default.
        liveness: After so many silent intervals the broker is gone.
        back_off: Seconds of the first pause, and of the longest.
        keys: CURVE keys, with the broker's public key.
        context: The context of the program; None: the global one.
        clock: Seconds, for heartbeats.
    """

    def __init__(
        self, endpoint: str | Sequence[str], service: bytes = b"", *, protocol: str = "mdp2", heartbeat: float | None = None,
        liveness: int | None = None, back_off: tuple[float, float] = (BACK_OFF_SECONDS, BACK_OFF_SECONDS_MAX),
        keys: Keys | None = None, context: zmq.Context[Any] | None = None, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        speaker(protocol, service)                  # raises for a wrong protocol or service
        _pirate = protocol == "ppp"
        _interval = heartbeat if heartbeat is not None else PIRATE_HEARTBEAT_SECONDS if _pirate else HEARTBEAT_SECONDS
        _liveness = liveness if liveness is not None else PIRATE_LIVENESS if _pirate else LIVENESS
        check_heartbeat(_interval, _liveness)
        if not 0 < back_off[0] <= back_off[1] < inf:
            raise ValueError(f"back_off is {back_off}; allowed are two times of more than 0 seconds, the longest last")
        _endpoints = [check_endpoint(one) for one in ([endpoint] if isinstance(endpoint, str) else endpoint)]
        if not _endpoints:
            raise ValueError("a worker needs at least one endpoint, such as tcp://127.0.0.1:5555")

        def _machine(send: Callable[[Sequence[bytes]], object], now: float) -> WorkerMachine:
            return WorkerMachine(protocol, service, send, now, interval=_interval, liveness=_liveness)

        self._keys = keys
        self._lines = [_Line(one, _machine, back_off) for one in _endpoints]
        self._context: zmq.Context[Any] = context or zmq.Context.instance()
        self._clock = clock
        self._stopping = False
        self._bell, self._ear = os_socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self.connections = 0
        """How many times it connected."""

    def run(self, function: Callable[[list[bytes]], Answer]) -> None:
        """Serve until `stop`. `function` gets the frames of a request and returns the frames of its reply, or one.

        Raises:
            Exception: The function raised it. The worker has left its brokers.
        """
        with ThreadPoolExecutor(1, "xump-worker") as hands:
            try:
                while not self._stopping or any(line.work is not None for line in self._lines):
                    self._wait()
                    for line in self._lines:
                        self._serve(line, function, hands)
            finally:
                for line in self._lines:
                    line.close()

    def _wait(self) -> None:
        """Until a message comes, or a moment, or work is done, or `stop`."""
        poller = zmq.Poller()
        poller.register(self._ear.fileno(), zmq.POLLIN)
        now, due = self._clock(), float("inf")
        for line in self._lines:
            if line.socket is not None:
                poller.register(line.socket, zmq.POLLIN)
            if line.work is None or line.socket is not None:
                due = min(due, line.due)
        poller.poll(None if due == float("inf") else max(0, int((due - now) * 1000) + 1))
        try:
            while self._ear.recv(4096):
                pass
        except BlockingIOError:
            return

    def _serve(self, line: _Line, function: Callable[[list[bytes]], Answer], hands: ThreadPoolExecutor) -> None:
        """Do what there is to do for one broker."""
        now = self._clock()
        if line.work is not None and line.work.done():
            work, line.work = line.work, None
            line.reply(reply_frames(work.result()), now)     # an error is an error, also if the broker has gone meanwhile
        if line.socket is None and line.work is None and now >= line.due and not self._stopping:
            line.open(self._context, self._keys, now)
            self.connections += 1
        if line.socket is not None:
            request = line.next(now)
            if request is not None and not self._stopping:      # else it goes to another worker when this one leaves
                line.work = hands.submit(function, request)
                line.work.add_done_callback(self._ring)
            line.tick(self._clock())

    def stop(self) -> None:
        """End `run`, from any thread, when the request that is at work is done."""
        self._stopping = True
        self._ring()

    def close(self) -> None:
        """Free what `run` used. Call it after `run` has ended."""
        self._bell.close()
        self._ear.close()

    def _ring(self, work: object = None) -> None:
        if self._bell.fileno() < 0:         # closed: `run` has ended
            return
        try:
            self._bell.send(b"!")
        except BlockingIOError:
            return                      # it is full of rings already


class _Line:
    """A worker's connection to one broker, now and again."""

    def __init__(self, endpoint: str, machine: Callable[[Callable[[Sequence[bytes]], object], float], WorkerMachine],
                 back_off: tuple[float, float]) -> None:
        self.work: Future[Answer] | None = None
        """How to call the function for this broker."""
        self.socket: zmq.Socket[bytes] | None = None
        """None: the connection is over, and the next one begins when it is due."""
        self.due = 0.0
        """When there is something to do."""
        self._endpoint, self._new_machine = endpoint, machine
        self._first_pause, self._longest_pause = back_off
        self._pause = back_off[0]
        self._refused = False           # the broker's first word was to send it away, and most likely it will be again
        self._messages: Messages
        self._machine: WorkerMachine

    def open(self, context: zmq.Context[Any], keys: Keys | None, now: float) -> None:
        """Connect, and say READY."""
        self.socket = connect(context, zmq.DEALER, self._endpoint, keys, linger=LEAVING_MS)
        self._messages = messages(self.socket)
        self._machine = self._new_machine(self._messages.send, now)
        self.due = self._machine.due()

    def next(self, now: float) -> list[bytes] | None:
        """The body of the next request, if there is one; what comes before it is heard."""
        while (frames := self._messages.receive()) is not None:
            request = self._machine.handle(frames, now)
            if request is not None:
                return request[1]
        return None

    def reply(self, body: list[bytes], now: float) -> None:
        """The function is done. If the connection is over, the broker has given the request to another."""
        if self.socket is not None:
            self._machine.reply(body, now)

    def tick(self, now: float) -> None:
        """Send a heartbeat if it is due; end the connection if it is over."""
        self._machine.tick(now)
        self.due = self._machine.due()
        over = self._machine.over
        if over is None:
            return
        if self._machine.heard:
            self._pause, self._refused = self._first_pause, False
        self.due = now
        if over is Over.SILENT or self._refused:
            self.due += self._pause
            self._pause = min(2 * self._pause, self._longest_pause)
        self._refused = over is Over.SENT_AWAY and not self._machine.heard
        self.close()

    def close(self) -> None:
        """Tell the broker that the worker goes, and close the socket."""
        if self.socket is not None:
            self._machine.leave()
            self.socket.close()
            self.socket = None
