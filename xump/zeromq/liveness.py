"""Heartbeats for any number of peers, at O(1) a message: when each was heard of last, and when something was sent to it last.

Both lists are in the order of their moments, so that only their heads are looked at. A message that comes or goes only puts off
the next moment at which there is something to do, so that moment is kept, and found anew when it has come.

>>> alive = Liveness(interval=1.0, liveness=3)
>>> alive.add(b"worker", 10.0)
>>> alive.due()
11.0
>>> alive.silent(11.0), alive.expired(11.0)
([b'worker'], [])
>>> alive.due(), alive.expired(13.0)
(12.0, [b'worker'])
"""

from __future__ import annotations

from collections import OrderedDict

from xump.zeromq.limits import check_heartbeat


class Liveness:
    """The heartbeats of a server to its peers, and of the peers to it.

    Args:
        interval: Seconds between heartbeats.
        liveness: A peer is gone after so many intervals in which nothing was heard of it.
    """

    def __init__(self, interval: float, liveness: int) -> None:
        check_heartbeat(interval, liveness)
        self.interval = interval
        """Seconds between heartbeats."""
        self.patience = interval * liveness
        """After so many seconds of silence a peer is gone."""
        self._heard: OrderedDict[bytes, float] = OrderedDict()
        self._told: OrderedDict[bytes, float] = OrderedDict()
        self._due: float | None = None

    def __len__(self) -> int:
        return len(self._heard)

    def __contains__(self, peer: bytes) -> bool:
        return peer in self._heard

    def add(self, peer: bytes, now: float) -> None:
        """A peer has come."""
        self._heard[peer] = self._told[peer] = now
        self._heard.move_to_end(peer)
        self._told.move_to_end(peer)
        if self._due is None:
            self._due = self._first_due()       # else it is before what this peer adds

    def remove(self, peer: bytes) -> None:
        """A peer has gone."""
        del self._heard[peer], self._told[peer]

    def heard(self, peer: bytes, now: float) -> None:
        """Something came from a peer that is there."""
        self._heard[peer] = now
        self._heard.move_to_end(peer)

    def told(self, peer: bytes, now: float) -> None:
        """Something was sent to a peer that is there."""
        self._told[peer] = now
        self._told.move_to_end(peer)

    def due(self) -> float | None:
        """The next moment at which to look: nobody is silent or expired before; None: there are no peers."""
        return self._due

    def _first_due(self) -> float | None:
        if not self._heard:
            return None
        return min(next(iter(self._heard.values())) + self.patience, next(iter(self._told.values())) + self.interval)

    def expired(self, now: float) -> list[bytes]:
        """The peers that are gone: for too long nothing came from them. They stay in the lists until they are removed."""
        return self._before(self._heard, now - self.patience)

    def silent(self, now: float) -> list[bytes]:
        """The peers that need a heartbeat. They count as told from now on."""
        silent = self._before(self._told, now - self.interval)
        for peer in silent:
            self.told(peer, now)
        self._due = self._first_due()
        return silent

    @staticmethod
    def _before(moments: OrderedDict[bytes, float], limit: float) -> list[bytes]:
        found = []
        for peer, moment in moments.items():
            if moment > limit:
                break
            found.append(peer)
        return found

    def check(self) -> None:
        """Verify that both lists have the same peers, in the order of their moments."""
        first = self._first_due()
        if first is not None and (self._due is None or self._due > first):
            raise AssertionError(f"the next moment is {first}, and looked for at {self._due}")
        if self._heard.keys() != self._told.keys():
            raise AssertionError("a peer is heard of and never told anything, or the other way round")
        for moments in (list(self._heard.values()), list(self._told.values())):
            if moments != sorted(moments):
                raise AssertionError("the moments of peers are out of order")
