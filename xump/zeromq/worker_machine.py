"""A worker's side of PPP and MDP, as a machine without sockets: one for each connection.

A connection begins with READY. From then on both sides send heartbeats, also while the worker works. When nothing came from the
broker for some intervals, or it sent DISCONNECT, the connection is `over`: open a new socket, with a new machine.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from xump.zeromq.frames import PIRATE_HEARTBEAT, PIRATE_READY, WORKERS, Command, WorkerDialect, check_service
from xump.zeromq.limits import check_heartbeat

PROTOCOLS = ("mdp", "mdp2", "ppp")
"""Majordomo 0.1, Majordomo 0.2, Paranoid Pirate."""

Request = tuple[tuple[bytes, ...], list[bytes]]
"""The frames before the body of the request, and of its reply, which say who asks; and the frames of the body."""


class Over(enum.Enum):
    """Why a connection is over."""

    SILENT = "silent"
    """Nothing came from the broker for too long: try again after a pause."""
    SENT_AWAY = "sent away"
    """The broker wants the worker to begin anew: do, at once."""


class _Pirate:
    """How a worker speaks PPP."""

    def __init__(self) -> None:
        self.ready: tuple[bytes, ...] = (PIRATE_READY,)
        self.heartbeat: tuple[bytes, ...] = (PIRATE_HEARTBEAT,)
        self.disconnect: tuple[bytes, ...] | None = None
        self.reply_head: tuple[bytes, ...] = ()

    def read(self, frames: list[bytes]) -> Request | Command | None:
        if frames == [PIRATE_HEARTBEAT]:
            return Command.HEARTBEAT
        if frames in ([], [PIRATE_READY]):
            return None
        if b"" not in frames:
            return (), frames                   # who asks is opposite
        stack = frames.index(b"") + 1
        return (tuple(frames[:stack]), frames[stack:]) if stack < len(frames) else None


class _Majordomo:
    """How a worker speaks MDP."""

    def __init__(self, dialect: WorkerDialect, service: bytes) -> None:
        self._commands = dialect.commands
        self._before = list(dialect.before)
        self.ready = (*dialect.command(Command.READY), service)
        self.heartbeat = dialect.command(Command.HEARTBEAT)
        self.disconnect: tuple[bytes, ...] | None = dialect.command(Command.DISCONNECT)
        self.reply_head = dialect.command(Command.FINAL)

    def read(self, frames: list[bytes]) -> Request | Command | None:
        at = len(self._before)
        command = self._commands.get(frames[at]) if len(frames) > at and frames[:at] == self._before else None
        if command is Command.REQUEST and len(frames) >= at + 4 and not frames[at + 2]:
            return (frames[at + 1], b""), frames[at + 3:]
        if command in (Command.HEARTBEAT, Command.DISCONNECT) and len(frames) == at + 1:
            return command
        return None


class WorkerMachine:
    """One connection of a worker.

    Args:
        protocol: One of `PROTOCOLS`.
        service: The service, for Majordomo.
        send: Is called with the frames of a message for the broker.
        now: The moment, in seconds.
        interval, liveness: Seconds between heartbeats; after so many silent ones the broker is gone.
    """

    def __init__(
        self, protocol: str, service: bytes, send: Callable[[Sequence[bytes]], object], now: float, *, interval: float,
        liveness: int,
    ) -> None:
        check_heartbeat(interval, liveness)
        self._speaks = speaker(protocol, service)
        self._send = send
        self._interval = interval
        self._patience = interval * liveness
        self._heard = now
        self._busy: tuple[bytes, ...] | None = None
        self.over: Over | None = None
        """Why the connection is over; None: it is not."""
        self.heard = False
        """Whether anything came from the broker."""
        self.dropped = 0
        """Malformed messages, and requests while another is at work."""
        self._tell(self._speaks.ready, now)

    def handle(self, frames: list[bytes], now: float) -> Request | None:
        """A message came from the broker; returns the request, if it is one."""
        if self.over is not None:
            return None
        said = self._speaks.read(frames)
        if said is None:
            self.dropped += 1
            return None
        if said is Command.DISCONNECT:
            self.over = Over.SENT_AWAY
            return None
        self._heard, self.heard = now, True
        if not isinstance(said, tuple):
            return None
        if self._busy is not None:
            self.dropped += 1           # a broker gives one at a time
            return None
        self._busy = said[0]
        return said

    def reply(self, body: Sequence[bytes], now: float) -> None:
        """The request is done: send the reply. A connection that is over has nobody to send it to."""
        asker, self._busy = self._busy, None
        if asker is None:
            raise ValueError("there is no request to reply to")
        if self.over is None:
            self._tell((*self._speaks.reply_head, *asker, *body), now)

    def leave(self) -> None:
        """Tell the broker that the worker goes, if the protocol has a word for it."""
        if self.over is None and self._speaks.disconnect is not None:
            self._send(self._speaks.disconnect)
        self.over = self.over or Over.SENT_AWAY

    def due(self) -> float:
        """When `tick` has something to do."""
        return min(self._told + self._interval, self._heard + self._patience)

    def tick(self, now: float) -> None:
        """Send a heartbeat if nothing else was sent for an interval; see whether the broker is gone."""
        if self.over is None and now >= self._heard + self._patience:
            self.over = Over.SILENT
        if self.over is None and now >= self._told + self._interval:
            self._tell(self._speaks.heartbeat, now)

    def _tell(self, frames: Sequence[bytes], now: float) -> None:
        self._send(frames)
        self._told = now


def speaker(protocol: str, service: bytes) -> _Pirate | _Majordomo:
    """How a worker of a protocol speaks; raises ValueError."""
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol {protocol!r} is unknown; there are {', '.join(PROTOCOLS)}")
    if protocol == "ppp":
        return _Pirate()
    check_service(service)
    return _Majordomo(WORKERS[0 if protocol == "mdp" else 1], service)
