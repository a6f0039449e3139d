"""The frames of all protocols, one table each. The brokers' use of them stands elsewhere.

A ROUTER socket puts the peer's identity before what stands here. `""` is an empty frame.

    Simple Pirate       worker: READY, then ADDRESS… "" BODY…       client: ADDRESS… "" BODY…

    PPP (RFC 6)         READY       01                      worker to queue
                        HEARTBEAT   02                      both ways
                        REQUEST     ADDRESS… "" BODY…       queue to worker
                        REPLY       ADDRESS… "" BODY…       worker to queue

    MDP (RFC 7, 18)     REQUEST     CLIENT SERVICE BODY…            client to broker
                        PARTIAL     CLIENT SERVICE BODY…            broker to client, 0.2 only
                        FINAL       CLIENT SERVICE BODY…            broker to client
                        READY       WORKER SERVICE                  worker to broker
                        REQUEST     WORKER ADDRESS "" BODY…         broker to worker
                        PARTIAL     WORKER ADDRESS "" BODY…         worker to broker, 0.2 only
                        FINAL       WORKER ADDRESS "" BODY…         worker to broker: the REPLY of 0.1
                        HEARTBEAT   WORKER                          both ways
                        DISCONNECT  WORKER                          both ways

    FLP (RFC 10)        PING                                    client to server
                        PONG                                    server to client
                        REQUEST     CONTROL BODY…               client to server
                        REPLY       CONTROL REPLY…              server to client

ADDRESS… is a stack: an address for each ROUTER between a client and this socket, so none for a client that is connected to it. A
worker of PPP may also be asked by a program of its own, without addresses, and then with or without the empty frame behind them.
CLIENT and WORKER are what the peer's dialect puts first: the rows of `CLIENTS` and `WORKERS`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from xump.zeromq.limits import SERVICE_BYTES_MAX

PIRATE_READY = b"\x01"
PIRATE_HEARTBEAT = b"\x02"

MDPC01, MDPW01, MDPC02, MDPW02, MDPC0X, MDPW0X = b"MDPC01", b"MDPW01", b"MDPC02", b"MDPW02", b"MDPC0X", b"MDPW0X"

OK, NOT_FOUND, NOT_IMPLEMENTED = b"200", b"404", b"501"
"""The answers of MMI (RFC 8)."""

ACCEPTED, PENDING, UNKNOWN, REFUSED = b"200", b"300", b"400", b"500"
"""The answers of Titanic (RFC 9)."""

PING, PONG = b"PING", b"PONG"
"""Of Freelance (RFC 10)."""

FRAMES_MAX = 60_000
"""A message with more frames is none of these protocols': packing counts frames in 16 bits."""


BODY_FRAMES_MAX = FRAMES_MAX - 16
"""Of a request or a reply: what stands before it has fewer than the rest, in each of these protocols."""


def check_body(frames: Sequence[bytes], what: str) -> None:
    """Check the body of a request or a reply before it goes out.

    Raises:
        ValueError, TypeError: It has no frames, or too many, or one that is not bytes.
    """
    if not 0 < len(frames) <= BODY_FRAMES_MAX:
        raise ValueError(
            f"a {what} has {len(frames)} frames, and must have 1 to {BODY_FRAMES_MAX:,}, of which one may be empty: b\"\"")
    for frame in frames:
        if not isinstance(frame, bytes):
            raise TypeError(f"a frame of a {what} must be bytes, got {frame!r}")


def check_service(name: bytes) -> None:
    """Check the name of a service.

    Raises:
        ValueError, TypeError: It is empty, or too long, or not bytes.
    """
    if not isinstance(name, bytes):
        raise TypeError(f"the name of a service must be bytes, got {name!r}")
    if not 0 < len(name) <= SERVICE_BYTES_MAX:
        raise ValueError(f"the name of a service has 1 to {SERVICE_BYTES_MAX} bytes, this one has {len(name)}")


Answer = bytes | Sequence[bytes]
"""The result of a worker's or a server's function: the frames of a reply, or one."""


def reply_frames(answer: Answer) -> list[bytes]:
    """The frames of a reply that a function has returned.

    Raises:
        ValueError, TypeError: It is no reply.
    """
    frames = [answer] if isinstance(answer, bytes) else None if isinstance(answer, str) else list(answer)
    if frames is None:
        raise TypeError(f"a function must return bytes, or a list of them, got {answer!r}")
    check_body(frames, "reply")
    return frames


class Command(enum.IntEnum):
    """The commands between a Majordomo worker and its broker, in any dialect."""

    READY = 1
    """The worker is there, for one service."""
    REQUEST = 2
    """The broker hands out a request."""
    PARTIAL = 3
    """A part of a reply; more follow."""
    FINAL = 4
    """The last part of a reply, or all of it."""
    HEARTBEAT = 5
    """The peer is alive."""
    DISCONNECT = 6
    """The peer goes, or sends away."""


@dataclass(frozen=True, slots=True, eq=False)
class ClientDialect:
    """How a client speaks Majordomo."""

    number: int
    """The number of the dialect that is kept with each request, also on Titanic's disk."""
    before: tuple[bytes, ...]
    """The frames before the command, the empty one among them."""
    request: bytes | None
    """The command of a request; None: there are no commands."""
    partial: bytes | None
    """The command of a part of a reply; None: the client takes one reply only."""
    final: bytes | None
    """The command of the last reply."""
    names_service: bool
    """Whether replies name the service."""

    def reply(self, code: bytes | None, service: bytes) -> tuple[bytes, ...]:
        """The frames of a reply that stand before its body."""
        return (*self.before, *(() if code is None else (code,)), *((service,) if self.names_service else ()))


CLIENTS = (
    ClientDialect(0, (b"", MDPC01), None, None, None, True),                        # RFC 7
    ClientDialect(1, (MDPC02,), b"\x01", b"\x02", b"\x03", True),                   # RFC 18
    ClientDialect(2, (b"", MDPC02), b"\x01", b"\x02", b"\x03", True),               # RFC 18 from a REQ socket
    ClientDialect(3, (b"", MDPC02), b"\x02", b"\x03", b"\x04", False),              # majortomo
    ClientDialect(5, (b"", MDPC0X), None, b"\x02", b"\x02", True),                  # libmdp: all parts are REPORTs
)
TITANIC = ClientDialect(4, (), None, None, None, False)
"""Titanic, which is a client of services itself. Its address is the UUID of the request; it takes one reply."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkerDialect:
    """How a worker speaks Majordomo."""

    before: tuple[bytes, ...]
    """The frames before the command, the empty one among them."""
    codes: dict[Command, bytes]
    """The frame of each command."""
    commands: dict[bytes, Command]
    """The command of each frame."""

    def command(self, command: Command) -> tuple[bytes, ...]:
        """The frames that begin a command."""
        return (*self.before, self.codes[command])


def _worker(before: tuple[bytes, ...], commands: tuple[Command, ...]) -> WorkerDialect:
    codes = {command: bytes([at]) for at, command in enumerate(commands, start=1)}
    return WorkerDialect(before, codes, {code: command for command, code in codes.items()})


_V01 = (Command.READY, Command.REQUEST, Command.FINAL, Command.HEARTBEAT, Command.DISCONNECT)

WORKERS = (
    _worker((b"", MDPW01), _V01),                   # RFC 7
    _worker((MDPW02,), tuple(Command)),             # RFC 18
    _worker((b"", MDPW02), tuple(Command)),         # majortomo
    _worker((b"", MDPW0X), _V01),                   # libmdp
)
