"""A worker for Paranoid Pirate and Majordomo brokers: your function gets requests, and the worker does the rest.

The function runs in a thread of its own, so that heartbeats go on while it works. If the broker falls silent the worker opens a
new socket after a pause, which doubles up to half a minute; if the broker sends it away, at once. If the function raises, the
worker tells the broker that it leaves, so that the request goes to another worker, and `run` raises the error.
"""

from __future__ import annotations

import socket as os_socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import zmq

from xump.zeromq.limits import (
    BACK_OFF_SECONDS,
    BACK_OFF_SECONDS_MAX,
    HEARTBEAT_SECONDS,
    LIVENESS,
    PIRATE_HEARTBEAT_SECONDS,
    PIRATE_LIVENESS,
)
from xump.zeromq.sockets import Keys, connect, receive
from xump.zeromq.worker_machine import Over, WorkerMachine, speaker

LEAVING_MS = 100
"""So long the last word may take to go out after the socket was closed."""

Answer = bytes | Sequence[bytes]


class Worker:
    """A worker of a service.

    Args:
        endpoint: The broker; of a Pirate queue, its backend.
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
        self, endpoint: str, service: bytes = b"", *, protocol: str = "mdp2", heartbeat: float | None = None,
        liveness: int | None = None, back_off: tuple[float, float] = (BACK_OFF_SECONDS, BACK_OFF_SECONDS_MAX),
        keys: Keys | None = None, context: zmq.Context[Any] | None = None, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        speaker(protocol, service)                  # raises for a wrong protocol or service
        _pirate = protocol == "ppp"
        self._endpoint, self._service, self._protocol, self._keys = endpoint, service, protocol, keys
        self._interval = heartbeat if heartbeat is not None else PIRATE_HEARTBEAT_SECONDS if _pirate else HEARTBEAT_SECONDS
        self._liveness = liveness if liveness is not None else PIRATE_LIVENESS if _pirate else LIVENESS
        self._back_off = back_off
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
            Exception: What the function raised. The worker has left its broker.
        """
        pause, longest = self._back_off
        with ThreadPoolExecutor(1, "xump-worker") as hands:
            while not self._stopping:
                machine = self._connected(function, hands)
                if machine.heard or machine.over is not Over.SILENT:
                    pause = self._back_off[0]
                if machine.over is Over.SILENT and not self._stopping:
                    self._pause(pause)
                    pause = min(2 * pause, longest)

    def stop(self) -> None:
        """End `run`, from any thread, when the request that is at work is done."""
        self._stopping = True
        self._ring()

    def close(self) -> None:
        """Free what `run` used. Call it after `run` has ended."""
        self._bell.close()
        self._ear.close()

    def _connected(self, function: Callable[[list[bytes]], Answer], hands: ThreadPoolExecutor) -> WorkerMachine:
        """Serve over one connection until it is over, or `stop`; returns its machine."""
        socket = connect(self._context, zmq.DEALER, self._endpoint, self._keys, linger=LEAVING_MS)
        self.connections += 1
        work: Future[Answer] | None = None
        try:
            machine = WorkerMachine(
                self._protocol, self._service, socket.send_multipart, self._clock(), interval=self._interval,
                liveness=self._liveness)
            poller = zmq.Poller()
            poller.register(socket, zmq.POLLIN)
            poller.register(self._ear.fileno(), zmq.POLLIN)
            try:
                while machine.over is None and not (self._stopping and work is None):
                    poller.poll(max(0, int((machine.due() - self._clock()) * 1000) + 1))
                    self._listen()
                    if work is not None and work.done():
                        machine.reply(_frames(work.result()), self._clock())
                        work = None
                    request = _next(socket, machine, self._clock())
                    if request is not None:
                        work = hands.submit(function, request)
                        work.add_done_callback(self._ring)
                    machine.tick(self._clock())
            finally:
                machine.leave()
            if work is not None:
                work.result()           # the broker has given its request to another; an error is an error all the same
            return machine
        finally:
            socket.close()

    def _ring(self, work: object = None) -> None:
        try:
            self._bell.send(b"!")
        except BlockingIOError:
            return                      # it is full of rings already

    def _listen(self) -> None:
        try:
            while self._ear.recv(4096):
                pass
        except BlockingIOError:
            return

    def _pause(self, seconds: float) -> None:
        poller = zmq.Poller()
        poller.register(self._ear.fileno(), zmq.POLLIN)
        poller.poll(int(seconds * 1000))
        self._listen()


def _next(socket: zmq.Socket[bytes], machine: WorkerMachine, now: float) -> list[bytes] | None:
    """The body of the next request, if there is one; what comes before it is heard."""
    while True:
        try:
            frames = receive(socket, zmq.NOBLOCK)
        except zmq.Again:
            return None
        request = machine.handle(frames, now)
        if request is not None:
            return request[1]


def _frames(answer: Answer) -> list[bytes]:
    return [answer] if isinstance(answer, bytes) else list(answer)
