"""The answers of a broker to a client over Flight, and its errors."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyarrow import flight

from xump import errors
from xump.errors import XumpError


class BrokerUnreachable(XumpError, ConnectionError):
    """The broker is not there, or does not answer."""


class BrokerFailed(XumpError, RuntimeError):
    """The broker has a defect; its log says more."""


class AccessRefused(XumpError, PermissionError):
    """The user, or the password, is not known to the broker; or the user may not do this."""


class Published(NamedTuple):
    """The rows that were published."""

    rows: int
    """How many rows."""
    first_id: int
    """The id of the first one; 0: it is not known, or there is none."""
    last_id: int
    """The id of the last one. Between both may be ids of others."""

    def plus(self, other: Published) -> Published:
        """Both together.

        >>> Published(2, 1, 2).plus(Published(1, 5, 5))
        Published(rows=3, first_id=1, last_id=5)
        """
        return Published(self.rows + other.rows, self.first_id or other.first_id, max(self.last_id, other.last_id))

    def answer(self) -> dict[str, int]:
        """As a broker says it, in the answer to a batch and in the details of an error."""
        return {"rows": self.rows, "first": self.first_id, "last": self.last_id}

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Published:
        """Read an answer, or the details of an error: those of one that came before its stream began have no rows."""
        return cls(answer.get("rows", 0), answer.get("first", 0), answer.get("last", 0))


NOTHING = Published(0, 0, 0)
"""No rows."""


class Offsets(NamedTuple):
    """A queue as a reader by id sees it."""

    incarnation: int
    """Which queue of this name it is: ids of another one mean nothing here."""
    first_id: int
    """The id of the oldest message; 0: there is none."""
    last_id: int
    """The id that was issued last."""
    durable_id: int
    """Ids up to this one are durable; in RAM, all."""
    stable_id: int
    """A reader that stops here sees what was committed whole, or not at all."""
    is_transit: bool
    """Whether the queue keeps nothing, and issues no ids."""
    consumers: int
    """How many selectors take messages out of it."""

    @property
    def readable_id(self) -> int:
        """The last id that `browse` shows."""
        return min(self.durable_id, self.stable_id)


class Target(NamedTuple):
    """A queue as a writer sees it."""

    is_transit: bool
    """Whether the queue keeps nothing, so that nothing can be committed into it."""
    is_durable: bool
    """Whether the queue is in a store on disk."""
    durable_elsewhere: bool
    """Whether selectors lead from it to durable queues in other stores: what a crash repeats comes to those twice."""
    store: str
    """The name of its store."""


class Plan(NamedTuple):
    """A queue, divided into parts."""

    parts: list[tuple[int, int]]
    """(first id, last id) of each part."""
    incarnation: int
    """Which queue of this name it is."""
    rows: int
    """How many messages there are."""


class Staged(NamedTuple):
    """The rows that an attempt has staged."""

    run: str
    """The run."""
    partition: int
    """Which part of it."""
    attempt: int
    """Which try at that part."""
    rows: int
    """How many rows."""
    committed: bool
    """Whether its version was committed before: then nothing was sent."""


class Committed(NamedTuple):
    """The result of a commit."""

    rows: int
    """How many rows were committed."""
    again: bool
    """Whether they had been committed before."""
    entered: bool
    """Whether all are in the target; else they enter as soon as it has room."""
    warning: str | None
    """A warning, or None."""


THEIRS: dict[str, type[Exception]] = {"Refused": AccessRefused, "Unknown": AccessRefused, "Gone": BrokerUnreachable,
                                      "Defect": BrokerFailed}
"""The classes as which errors of the broker's own are raised."""


def raised(error: Any, endpoint: str) -> Exception:
    """The error to raise for one of Flight's."""
    told = details(error)
    if told is not None:
        kind = THEIRS.get(told["error"]) or getattr(errors, told["error"], None) or getattr(builtins, told["error"], None)
        made = kind(told["text"]) if isinstance(kind, type) and issubclass(kind, Exception) else BrokerFailed(told["text"])
        made.published = Published.read(told)           # type: ignore[attr-defined]
        return made
    said = str(error).split(". Detail:")[0].split(". gRPC client debug context")[0]
    if isinstance(error, (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError)):
        return BrokerUnreachable(f"the broker at {endpoint} does not answer: {said}")
    if isinstance(error, (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError)):
        return AccessRefused(said)
    if isinstance(error, flight.FlightError):
        return BrokerFailed(f"the broker at {endpoint} failed: {said}")
    return error if isinstance(error, Exception) else BrokerFailed(said)


def details(error: Any) -> dict[str, Any] | None:
    """The broker's description of an error, or None."""
    given = getattr(error, "extra_info", None)
    if not given:
        return None
    try:
        told = json.loads(bytes(given))
    except ValueError:
        return None
    return told if isinstance(told, dict) and {"error", "text"} <= set(told) else None
