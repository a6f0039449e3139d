"""What a selector does with the messages that it selects: immutable values.

COPY leaves the message where it is, the others consume it. A target or destination is a name or a `field` of the
message. How actions are carried out belongs to `xump_ext.routing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from xump.conditions import check_field
from xump.inert import Inert
from xump.names import name_of
from xump_ext.faces import QueueFace

FIELDS = ("address", "reply_to", "destination")


@dataclass(frozen=True)
class Field:
    """A part of the envelope that names a target or destination; see `field`."""

    name: str

    def __repr__(self) -> str:
        return f"field({self.name!r})"


Name = Union[str, Field]


def field(name: str) -> Field:
    """Let the message name the target: `"address"`, `"reply_to"`, `"destination"` or `"headers.NAME"`.

    A field that is absent, is no text, is empty or (for a queue) names no queue makes the selector not match that message.

    >>> move_to(field("reply_to"))
    move_to(field('reply_to'))
    """
    return Field(check_field(name, FIELDS))


@dataclass(frozen=True)
class Action(Inert):
    """The root of all actions: `verb` is copy, move, deliver, bounce or discard."""

    verb: str
    queue: Name | None = None
    destination: Name | None = None

    @property
    def consuming(self) -> bool:
        """Whether the message is taken; COPY alone leaves it."""
        return self.verb != "copy"

    def __repr__(self) -> str:
        if self.verb == "discard":
            return "discard"
        if self.verb != "deliver":
            return f"{self.verb}_to({self.queue!r})"
        queue = "" if self.queue is None else f", queue={self.queue!r}"
        return f"deliver({self.destination!r}{queue})"


def _name(value: object, what: str) -> Name:
    """The name of a queue, a queue itself, or a field; anything else is an error that says so."""
    if isinstance(value, Field):
        return value
    if isinstance(value, QueueFace):
        return value.name
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a name, a Queue or field(...), got {type(value).__name__}")
    return name_of(value, what)


def copy_to(queue: object) -> Action:
    """COPY into a queue: costs no credit, waits for nobody, happens once per queue and run."""
    return Action("copy", _name(queue, "target queue"))


def move_to(queue: object) -> Action:
    """MOVE into a queue: the message stays outstanding in its source until what it became is settled."""
    return Action("move", _name(queue, "target queue"))


def deliver(destination: object, queue: object | None = None) -> Action:
    """DELIVER to the application under a destination name, or MOVE into `queue` with the destination stamped on."""
    return Action("deliver", None if queue is None else _name(queue, "target queue"), _name(destination, "destination"))


def bounce_to(queue: object) -> Action:
    """MOVE with the envelope mangled: the address becomes the reply address, and headers say where it came from."""
    return Action("bounce", _name(queue, "target queue"))


discard = Action("discard")
"""Settle the message at once. Needs no credit."""
