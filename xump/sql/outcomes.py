"""The outcome of a row that was sent: nothing more to do, refused, or to be sent later; and finding the row that is at fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol


class Refused(Exception):
    """This row cannot be sent, today or tomorrow: it counts an attempt."""


class Pressed(Exception):
    """There is no room in its queue now: the queue's rows wait. It is tried again for ever, and counts no attempt."""


class Untried(Pressed):
    """It waits behind another row, or was not sent since the target went away: that says nothing about its queue."""


class Later(Exception):
    """The target cannot delay it: it is sent when it is due, and its key waits. It counts no attempt."""


class Down(Exception):
    """The target cannot be reached: all waits."""


Outcome = Refused | Pressed | Later | None
"""None: sent, and durable there."""
Row = Any
"""A row of the table, with names of its columns as attributes."""


class Target(Protocol):
    """A target that rows are sent to. `warn` and `close` may be left out."""

    atomic: bool
    """Whether a call of `send` whose rows are all fine sends all of them or none."""

    def send(self, rows: Sequence[Row]) -> list[Outcome]:
        """Send the rows in order, and say what became of each. Raise `Down` if nothing is known of any."""

    def warn(self, rows: Sequence[Row], lease: float) -> None:
        """Log what about the queues of these rows lets a copy in twice."""

    def close(self) -> None:
        """End connections."""


def delay_of(row: Row) -> float | None:
    """In how many seconds it may be taken from its queue; None: at once.

    Hosts may have other times than the database, so no time of day goes from one to the other.
    """
    return None if row.at is None or row.at <= row.now else float(row.at - row.now) / 1e6


def ttl_of(row: Row, props: dict[str, Any]) -> float | None:
    """For how many seconds it is worth something, from when it may be taken; None: for ever."""
    if "ttl" not in props:
        return None
    return float(max(0, row.created + props["ttl"] - max(row.now, row.at or 0))) / 1e6


def until_down(groups: Iterable[list[Row]], send_group: Callable[[list[Row]], list[Outcome]]) -> list[list[Outcome]]:
    """Send groups of rows one after the other. If the target goes away, what was sent counts as sent, and the rest waits.

    Raises:
        Down: It could not be reached for the first group.
    """
    outcomes: list[list[Outcome]] = []
    down: Down | None = None
    for group in groups:
        if down is None:
            try:
                outcomes.append(send_group(group))
                continue
            except Down as error:
                if not outcomes:
                    raise
                down = error
        outcomes.append([Untried(str(down))] * len(group))
    return outcomes


def by_halves(
    send_all: Callable[[list[Row]], Mapping[int, Outcome] | None], rows: Sequence[Row],
    held: set[tuple[str, str]] | None = None,
) -> list[Outcome]:
    """Send rows by a function that sends all or raises; where it raises, halves, until the row is found that it is about.

    The function may return what became of single rows, by id, that it learned about too late.

    Rows of a key behind one that was not sent stay behind it, and so do rows of a queue that is full: `held` has both. If the
    target goes away between two parts, what was sent counts as sent, and the rest waits.

    Raises:
        Down: The target could not be reached for the first part.
    """
    held = set() if held is None else held
    outcomes: dict[int, Outcome] = {}
    down: list[Down] = []

    def part(given: list[Row]) -> None:
        if down:
            outcomes.update((row.id, Untried(str(down[0]))) for row in given)
            return
        free = given if not held else [row for row in given if held.isdisjoint((("key", row.key), ("queue", row.queue)))]
        if len(free) < len(given):
            there = {row.id for row in free}
            outcomes.update((row.id, Untried("it waits behind another row")) for row in given if row.id not in there)
        if not free:
            return
        try:
            learned = send_all(free) or {}
        except (Refused, Pressed) as error:
            divide(free, error)
        except Down as error:
            if not outcomes:
                raise
            down.append(error)
            part(free)
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
