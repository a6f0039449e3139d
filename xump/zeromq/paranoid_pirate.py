"""Paranoid Pirate (RFC 6): a queue between REQ clients and DEALER workers, with heartbeats both ways.

A worker's first message is READY. From then on the queue sends it a heartbeat whenever it has sent nothing for an interval, busy
or not, and forgets it when nothing came for some intervals: its request goes to the next worker. Messages of a worker that the
queue does not know are ignored, so that the worker sees a dead queue and says READY again. A worker that has a request and
says what is neither a heartbeat nor its reply is forgotten, too: it takes its request for done, and would be busy for ever.
"""

from __future__ import annotations

from xump.engine import Engine
from xump.zeromq.frames import FRAMES_MAX, PIRATE_HEARTBEAT, PIRATE_READY
from xump.zeromq.limits import PIRATE_HEARTBEAT_SECONDS, PIRATE_LIVENESS
from xump.zeromq.liveness import Liveness
from xump.zeromq.pack import PackWorker
from xump.zeromq.simple_pirate import NAME, Send, SimplePirate


class ParanoidPirate(SimplePirate):
    """The queue of the Paranoid Pirate, as a machine without sockets.

    Args:
        engine, to_client, to_worker, name, request_ttl: As for `SimplePirate`.
        heartbeat: Seconds between heartbeats.
        liveness: After so many intervals of silence a worker is gone.
    """

    def __init__(
        self, engine: Engine, to_client: Send, to_worker: Send, *, name: str = NAME, request_ttl: float | None = None,
        heartbeat: float = PIRATE_HEARTBEAT_SECONDS, liveness: int = PIRATE_LIVENESS,
    ) -> None:
        super().__init__(engine, to_client, to_worker, name=name, request_ttl=request_ttl)
        self._alive = Liveness(heartbeat, liveness)

    _envelope = ()

    def from_worker(self, frames: list[bytes], now: float) -> None:
        """A message came from a worker: IDENTITY READY, IDENTITY HEARTBEAT, or IDENTITY ADDRESS… "" BODY…"""
        identity = frames[0]
        known = identity in self._workers
        if len(frames) == 2 and frames[1] == PIRATE_READY:
            if known:
                self._forget(identity)          # the worker has started anew
            self._join(identity)
            if identity in self._workers:
                self._alive.add(identity, now)
        elif known and (frames[1:] == [PIRATE_HEARTBEAT] or len(frames) <= FRAMES_MAX and self._replied(identity, frames[1:])):
            self._alive.heard(identity, now)
        else:
            self.dropped += 1
            if known and self._workers[identity].delivery is not None:
                self._forget(identity)

    def due(self) -> float | None:
        """When a heartbeat is due, or a worker is gone; None: there are no workers."""
        return self._alive.due()

    def tick(self, now: float) -> None:
        """Forget the workers that are gone, and send heartbeats to the others."""
        super().tick(now)
        for identity in self._alive.expired(now):
            self._forget(identity)
        for identity in self._alive.silent(now):
            self._to_worker([identity, PIRATE_HEARTBEAT])

    def _forget(self, identity: bytes, *, redispatch: bool = True) -> None:
        self._alive.remove(identity)
        super()._forget(identity, redispatch=redispatch)

    def _handed(self, worker: PackWorker, now: float) -> None:
        self._alive.told(worker.identity, now)

    def check(self) -> None:
        """Verify that the machine, its pack, its heartbeats and the engine agree."""
        super().check()
        self._alive.check()
        if len(self._alive) != len(self._workers):
            raise AssertionError(f"there are {len(self._workers)} workers, and heartbeats for {len(self._alive)}")
