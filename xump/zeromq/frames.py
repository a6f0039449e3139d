"""The frames of all protocols, one table each. What a broker does with them stands elsewhere.

A ROUTER socket puts the peer's identity before what stands here. `""` is an empty frame.

    Simple Pirate       worker: READY, then ADDRESS "" BODY…        client: "" BODY…

    PPP (RFC 6)         READY       01                      worker to queue
                        HEARTBEAT   02                      both ways
                        REQUEST     ADDRESS "" BODY…        queue to worker
                        REPLY       ADDRESS "" BODY…        worker to queue

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

CLIENT and WORKER are what the peer's dialect puts first: the rows of `CLIENTS` and `WORKERS`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

PIRATE_READY = b"\x01"
PIRATE_HEARTBEAT = b"\x02"

MDPC01, MDPW01, MDPC02, MDPW02 = b"MDPC01", b"MDPW01", b"MDPC02", b"MDPW02"

OK, NOT_FOUND, NOT_IMPLEMENTED = b"200", b"404", b"501"
"""The answers of MMI (RFC 8)."""

ACCEPTED, PENDING, UNKNOWN, REFUSED = b"200", b"300", b"400", b"500"
"""The answers of Titanic (RFC 9)."""

PING, PONG = b"PING", b"PONG"
"""Of Freelance (RFC 10)."""

FRAMES_MAX = 60_000
"""A message with more frames is none of these protocols': packing counts frames in 16 bits."""


class Command(enum.IntEnum):
    """What a Majordomo worker and its broker say to each other, whatever the dialect."""

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
    """Its row in `CLIENTS`, which is kept with each request."""
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
)
