"""Sharing an outbox between relays: each leases some of the slots, and what it sends it may delete only while it has the lease.

A relay writes down when it was seen last. Those that were seen within a lease share the slots evenly: one that has more than its
share lets go, one that has less takes what is free or over.
"""

from __future__ import annotations

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update

from xump.sql.moments import Now
from xump.sql.tables import SLOTS, Tables


class Slots:
    """The leases of one relay."""

    def __init__(self, made: Tables, owner: str, lease: int) -> None:
        self._tables, self.owner, self.lease = made, owner, lease
        self.mine: list[int] = []
        """The slots that were ours when they were last shared."""

    def renew(self, connection: Connection) -> None:
        """Renew what is still ours, and take nothing."""
        slot = self._tables.slot
        connection.execute(update(slot).where(slot.c.owner == self.owner, slot.c.until > Now()).values(until=Now() + self.lease))
        self._seen(connection)

    def share(self, connection: Connection) -> list[int]:
        """Renew, let go, take: returns the slots that are ours now."""
        slot, relay = self._tables.slot, self._tables.relay
        self._seen(connection)
        connection.execute(delete(relay).where(relay.c.seen < Now() - self.lease))
        others = connection.execute(select(func.count()).select_from(relay)).scalar_one()
        share = -(-SLOTS // max(1, others))
        ours = and_(slot.c.owner == self.owner, slot.c.until > Now())
        kept = list(connection.execute(select(slot.c.slot).where(ours).order_by(slot.c.slot).with_for_update()).scalars())
        if len(kept) > share:
            connection.execute(update(slot).where(slot.c.slot.in_(kept[share:]), ours).values(owner=None, until=0))
            kept = kept[:share]
        taken: list[int] = []
        if len(kept) < share:
            free = (select(slot.c.slot).where(or_(slot.c.owner.is_(None), slot.c.until <= Now()))
                    .order_by(slot.c.slot).limit(share - len(kept)).with_for_update(skip_locked=True))
            taken = list(connection.execute(free).scalars())
        if kept or taken:
            # The fence counts owners, not renewals.
            connection.execute(update(slot).where(slot.c.slot.in_(kept)).values(until=Now() + self.lease))
            connection.execute(update(slot).where(slot.c.slot.in_(taken))
                               .values(owner=self.owner, until=Now() + self.lease, fence=slot.c.fence + 1))
        self.mine = sorted(kept + taken)
        return self.mine

    def _seen(self, connection: Connection) -> None:
        relay = self._tables.relay
        done = connection.execute(update(relay).where(relay.c.owner == self.owner).values(seen=Now()))
        if not done.rowcount:
            connection.execute(insert(relay).values(owner=self.owner, seen=Now()))

    def leave(self, connection: Connection) -> None:
        """Let all go, so that others need not wait for the lease."""
        slot, relay = self._tables.slot, self._tables.relay
        connection.execute(update(slot).where(slot.c.owner == self.owner).values(owner=None, until=0))
        connection.execute(delete(relay).where(relay.c.owner == self.owner))
        self.mine = []
