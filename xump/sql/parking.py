"""Keys that wait behind a row that cannot be sent: their rows are parked, so that a poll does not see them."""

from __future__ import annotations

from sqlalchemy import Connection, or_, select, update

from xump.sql.tables import Tables


def release_keys(connection: Connection, made: Tables, keys: set[str]) -> None:
    """Unpark the rows of keys that no row holds back any more."""
    if not keys:
        return
    table = made.outbox
    other = table.alias()
    held = select(other.c.key).where(other.c.key.in_(keys), other.c.parked,
                                     or_(other.c.dead_at.is_not(None), other.c.retry_at.is_not(None)))
    free = keys - set(connection.execute(held).scalars())
    if free:
        connection.execute(update(table).where(table.c.key.in_(free), table.c.parked).values(parked=False))
