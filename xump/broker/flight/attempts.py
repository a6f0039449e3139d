"""The attempts that clients stage, and those that win, as they describe them.

An attempt is staged in a queue of its own, `xump.staging/TARGET/RUN/PARTITION-ATTEMPT`, in whose map it is described.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from xump._arguments import COUNT_MAX
from xump.broker.flight.decisions import Key, as_key
from xump.broker.permissions import STAGING

if TYPE_CHECKING:
    from xump.queue import Queue

STAGED = "flight.staged"
"""The name in the map of a staged queue under which stands whose it is, and how many rows it has once it is sealed."""

RUN_CHARACTERS_MAX = 200
"""A run's name has at most so many."""

Run = tuple[str, str]
"""A target, and the name of a run for it."""


class Attempt:
    """The rows that one task stages."""

    def __init__(self, run: str, partition: int, attempt: int, target: str, key: Key | None) -> None:
        self.run, self.partition, self.attempt, self.target, self.key = run, partition, attempt, target, key
        self.name = f"{STAGING}{target}/{run}/{partition}-{attempt}"
        """The name of its queue."""
        self.incarnation = 0
        """Of its target: another queue of that name does not get it."""
        self.rows = 0
        """How many rows have come."""
        self.bytes = 0
        """How many bytes they take."""
        self.sealed = False
        """Whether all have come."""
        self.gone = False
        """Whether its run was decided without it."""

    @property
    def of(self) -> Run:
        """Its run."""
        return self.target, self.run

    @property
    def number(self) -> tuple[Run, int, int]:
        """No other attempt has this."""
        return self.of, self.partition, self.attempt

    def kept(self) -> bytes:
        """Its description in the map of its queue."""
        return json.dumps({
            "run": self.run, "partition": self.partition, "attempt": self.attempt, "target": self.target, "key": self.key,
            "incarnation": self.incarnation, "rows": self.rows if self.sealed else None, "bytes": self.bytes}).encode()

    @staticmethod
    def read(name: str, kept: bytes) -> Attempt:
        """From the map of a queue of this name."""
        found = json.loads(kept)
        made = Attempt(found["run"], found["partition"], found["attempt"], found["target"], as_key(found["key"]))
        made.name, made.incarnation = name, found.get("incarnation", 0)
        made.rows, made.sealed, made.bytes = found["rows"] or 0, found["rows"] is not None, found["bytes"]
        return made


def is_ours(queue: Queue) -> bool:
    """Whether staging has made the queue."""
    return queue.staged and STAGED in queue.meta


def run_of(options: dict[str, Any]) -> str:
    """The name of the run. Raises ValueError."""
    run = options.get("run")
    if not isinstance(run, str) or not 1 <= len(run) <= RUN_CHARACTERS_MAX or "/" in run:
        raise ValueError(f"run={run!r}: expected a name of 1 to {RUN_CHARACTERS_MAX} characters without a slash")
    return run


def attempt_of(options: dict[str, Any]) -> Attempt:
    """The attempt that a stream stages. Raises ValueError."""
    unknown = set(options) - {"run", "partition", "attempt", "target", "key"}
    if unknown:
        raise ValueError(f"an attempt has run, partition, attempt, target and perhaps key; got {', '.join(sorted(unknown))}")
    run, target = run_of(options), options.get("target")
    if not isinstance(target, str):
        raise ValueError(f"target={target!r}: expected the name of a queue")
    for name in ("partition", "attempt"):
        if type(options.get(name)) is not int or not 0 <= options[name] <= COUNT_MAX:
            raise ValueError(f"{name}={options.get(name)!r}: expected a number from 0 on")
    return Attempt(run, options["partition"], options["attempt"], target, as_key(options.get("key")))


def winners_of(options: dict[str, Any]) -> list[tuple[int, int, int]]:
    """(partition, attempt, rows) of each winner. Raises ValueError."""
    winners = options.get("winners")
    if not isinstance(winners, list) or not all(
            isinstance(one, list) and len(one) == 3 and all(type(number) is int and number >= 0 for number in one)
            for one in winners):
        raise ValueError(f"winners={winners!r}: expected a list of [partition, attempt, rows]")
    partitions = [one[0] for one in winners]
    if len(set(partitions)) != len(partitions):
        raise ValueError(f"winners={winners!r}: a partition has one winner")
    return [(one[0], one[1], one[2]) for one in winners]
