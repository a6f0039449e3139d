"""Binary Star: of two servers one is active; if it goes, the other one takes over, when clients ask it to.

    state       hears of its peer                                   a client asks
                PRIMARY     BACKUP      ACTIVE      PASSIVE         peer alive      peer silent: a vote
    PRIMARY     -           ACTIVE      PASSIVE     -               no              ACTIVE, yes
    BACKUP      -           -           PASSIVE     -               no              no
    ACTIVE      -           -           split       -               yes             yes
    PASSIVE     ACTIVE      ACTIVE      -           split           no              ACTIVE, yes

A server starts as PRIMARY or BACKUP and says its state to its peer, over a link of their own, at every heartbeat and at every
change. A peer is silent if nothing came from it for two heartbeats; at the start it is given as long. So a server becomes active
only if its peer says that it is not, or if the peer is silent *and* clients, which do not reach it either, have come here.

If the link is cut while clients reach both servers, two may be active. When they hear of each other that is a *split*: both end,
so that a person, or whatever starts them again, brings them into order. A server that stood still for so long that its peer may
have taken over ends before it says anything.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from xump.zeromq.limits import STAR_EXPIRY_BEATS, STAR_HEARTBEAT_SECONDS, check_heartbeat


class SplitBrain(Exception):
    """Both servers of a pair are, or may be, active. This one must end."""


class Star(enum.IntEnum):
    """The state of a server, as it is said on the link: a digit."""

    PRIMARY = 1
    """It has just started, and is the one that should be active."""
    BACKUP = 2
    """It has just started, and waits to hear of an active peer."""
    ACTIVE = 3
    """It serves clients."""
    PASSIVE = 4
    """Its peer serves clients."""


class Event(enum.Enum):
    """An event that changes the state of a server."""

    PEER_PRIMARY = 1
    """The peer has just started, as the primary."""
    PEER_BACKUP = 2
    """The peer has just started, as the backup."""
    PEER_ACTIVE = 3
    """The peer serves clients."""
    PEER_PASSIVE = 4
    """The peer takes this server for the active one."""
    REQUEST = 5
    """A client asks, and the peer is alive."""
    VOTE = 6
    """A client asks, and the peer is silent."""


TABLE: dict[tuple[Star, Event], Star | None] = {
    (Star.PRIMARY, Event.PEER_BACKUP): Star.ACTIVE,
    (Star.PRIMARY, Event.PEER_ACTIVE): Star.PASSIVE,
    (Star.PRIMARY, Event.VOTE): Star.ACTIVE,
    (Star.BACKUP, Event.PEER_ACTIVE): Star.PASSIVE,
    (Star.ACTIVE, Event.PEER_ACTIVE): None,
    (Star.PASSIVE, Event.PEER_PRIMARY): Star.ACTIVE,
    (Star.PASSIVE, Event.PEER_BACKUP): Star.ACTIVE,
    (Star.PASSIVE, Event.PEER_PASSIVE): None,
    (Star.PASSIVE, Event.VOTE): Star.ACTIVE,
}
"""The state after an event; None: a split. An event that is not here changes nothing."""

ROLES = {"primary": Star.PRIMARY, "backup": Star.BACKUP}
_SAID = {b"%d" % state: event for state, event in zip(Star, Event, strict=False)}


class BinaryStar:
    """One server of a pair, as a machine without sockets.

    Args:
        role: "primary" or "backup".
        tell: Is called with the digit of its state, for the peer.
        now: The moment, in seconds.
        heartbeat: Seconds between what it says. The same in both servers.
        activate: Is called before it becomes active; if it returns False, the server does not.

    >>> said = []
    >>> primary = BinaryStar("primary", said.append, 0.0)
    >>> primary.admits(0.0), primary.state.name
    (False, 'PRIMARY')
    >>> primary.peer_said(b"2", 0.5)
    >>> primary.admits(0.5), primary.state.name, said
    (True, 'ACTIVE', [b'1', b'3'])
    """

    def __init__(
        self, role: str, tell: Callable[[bytes], object], now: float, *, heartbeat: float = STAR_HEARTBEAT_SECONDS,
        activate: Callable[[], bool] = lambda: True,
    ) -> None:
        if role not in ROLES:
            raise ValueError(f"the role is {role!r}, and must be {' or '.join(ROLES)}")
        check_heartbeat(heartbeat, STAR_EXPIRY_BEATS)
        self.state = ROLES[role]
        """The state that it is in."""
        self.changed: Callable[[Star], object] | None = None
        """Is called with each new state."""
        self.ignored = 0
        """Messages that came over the link and were no states."""
        self._tell = tell
        self._activate = activate
        self._interval = heartbeat
        self._expiry = heartbeat * STAR_EXPIRY_BEATS
        self._heard = now
        self._beat(now)

    @property
    def active(self) -> bool:
        """Whether it serves clients."""
        return self.state is Star.ACTIVE

    def peer_said(self, digit: bytes, now: float) -> None:
        """Something came over the link.

        Raises:
            SplitBrain: Both are active, or both are passive, or this one stood still.
        """
        self._see_that_time_went_on(now)
        event = _SAID.get(digit)
        if event is None:
            self.ignored += 1
            return
        self._heard = now
        self._happens(event, now)

    def admits(self, now: float) -> bool:
        """A client asks; returns whether it is served.

        Raises:
            SplitBrain: This server stood still, and its peer may be active.
        """
        self._see_that_time_went_on(now)
        self._happens(Event.VOTE if now >= self._heard + self._expiry else Event.REQUEST, now)
        return self.active

    def due(self) -> float:
        """When `tick` has something to do."""
        return self._told + self._interval

    def tick(self, now: float) -> None:
        """Say the state, if a heartbeat is due.

        Raises:
            SplitBrain: This server stood still, and its peer may be active.
        """
        self._see_that_time_went_on(now)
        if now >= self.due():
            self._beat(now)

    def _happens(self, event: Event, now: float) -> None:
        after = TABLE.get((self.state, event), self.state)
        if after is None:
            raise SplitBrain(f"this server is {self.state.name.lower()}, and so is its peer; both end, to be started again")
        if after is self.state or after is Star.ACTIVE and not self._activate():
            return
        self.state = after
        self._beat(now)
        if self.changed is not None:
            self.changed(after)

    def _see_that_time_went_on(self, now: float) -> None:
        # A peer that was silent before may have been dead for long: then this server is the only one, and goes on.
        if self.active and now - self._told >= self._expiry and self._told - self._heard < self._expiry:
            raise SplitBrain(f"this server was active and stood still for {now - self._told:.1f} seconds; its peer may be active")

    def _beat(self, now: float) -> None:
        self._told = now
        self._tell(b"%d" % self.state)
