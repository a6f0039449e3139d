"""What became of a row that was sent: nothing more to do, refused, or to be sent later; and finding the row that is at fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class Refused(Exception):
    """This row cannot be sent, today or tomorrow: it counts an attempt."""


class Pressed(Exception):
    """There is no room for it now. It is tried again for ever, and counts no attempt."""


class Down(Exception):
    """The target cannot be reached: all waits."""


Outcome = Refused | Pressed | None
"""None: sent, and durable there."""
Row = Any
"""A row of the table, with names of its columns as attributes."""


class Target(Protocol):
    """What rows are sent to."""

    atomic: bool
    """Whether a call of `send` whose rows are all fine sends all of them or none."""

    def send(self, rows: Sequence[Row]) -> list[Outcome]:
        """Send the rows in order, and say what became of each. Raise `Down` if no more can be said of any."""

    def warn(self, rows: Sequence[Row], lease: float) -> None:
        """Log what about the queues of these rows lets a copy in twice."""

    def close(self) -> None:
        """End connections."""


def expires_ns(row: Row, props: dict[str, Any]) -> int | None:
    """When the message expires, by its `ttl`."""
    return None if props.get("ttl") is None else (row.created + props["ttl"]) * 1000


def by_halves(
    send_all: Callable[[list[Row]], Mapping[int, Outcome] | None], rows: Sequence[Row],
    held: set[tuple[str, str]] | None = None,
) -> list[Outcome]:
    """Send rows by a function that sends all or raises; where it raises, halves, until the row is found that it is about.

    The function may return what became of single rows, by id, that it learned about too late.

    Rows of a key behind one that was not sent stay behind it, and so do rows of a queue that is full: `held` has both.
    """
    held = set() if held is None else held
    outcomes: dict[int, Outcome] = {}

    def part(given: list[Row]) -> None:
        free = given if not held else [row for row in given if held.isdisjoint((("key", row.key), ("queue", row.queue)))]
        if len(free) < len(given):
            there = {row.id for row in free}
            outcomes.update((row.id, Pressed("it waits behind another row")) for row in given if row.id not in there)
        if not free:
            return
        try:
            learned = send_all(free) or {}
        except (Refused, Pressed) as error:
            divide(free, error)
        else:
            outcomes.update((row.id, learned.get(row.id)) for row in free)

    def divide(rows: list[Row], error: Refused | Pressed) -> None:
        if len(rows) > 1:
            part(rows[:len(rows) // 2])
            part(rows[len(rows) // 2:])
            return
        [row] = rows
        outcomes[row.id] = error
        if row.key is not None:
            held.add(("key", row.key))
        if isinstance(error, Pressed):
            held.add(("queue", row.queue))

    if held:
        part(list(rows))
    else:
        try:
            learned = send_all(list(rows)) or {}
        except (Refused, Pressed) as error:
            divide(list(rows), error)
        else:       # nearly always
            return [learned.get(row.id) for row in rows] if learned else [None] * len(rows)
    return [outcomes[row.id] for row in rows]
