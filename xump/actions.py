"""What a selector does with the messages that it selects: immutable values.

COPY leaves the message where it is, the others consume it. A target or destination is a name or a `field` of the
message. Values are checked when they are made, whoever makes them. How actions are carried out belongs to `xump_ext.route.routing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Union

from xump._names import name_of
from xump._value import Inert
from xump.conditions import check_field, check_made
from xump_ext.engine.handles import QueueHandle

FIELDS = ("address", "reply_to", "destination")


class Verb(NamedTuple):
    """What is to be known of an action, beside the code that carries it out."""

    consuming: bool
    """Whether it takes the message; else the message stays, and others may take it."""
    credited: bool
    """Whether it spends credit."""
    queue: bool | None
    """Whether it puts messages into a queue; None: either way."""
    destination: bool
    """Whether it names a destination."""


VERBS = {
    "copy": Verb(consuming=False, credited=False, queue=True, destination=False),
    "move": Verb(consuming=True, credited=True, queue=True, destination=False),
    "deliver": Verb(consuming=True, credited=True, queue=None, destination=True),
    "bounce": Verb(consuming=True, credited=True, queue=True, destination=False),
    "discard": Verb(consuming=True, credited=False, queue=False, destination=False),
}
"""A new action is a row here, one in `xump_ext.state.constants`, and its code in `xump_ext.route`."""


@dataclass(frozen=True)
class Field:
    """A part of the envelope that names a target or destination; see `field`."""

    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check_field(self.name, FIELDS))

    def __repr__(self) -> str:
        return f"field({self.name!r})"


Name = Union[str, Field]


def field(name: str) -> Field:
    """Let the message name the target: `"address"`, `"reply_to"`, `"destination"` or `"headers.NAME"`.

    A field that is absent, is no text, is empty or (for a queue) names no queue makes the selector not match that message.

    >>> move_to(field("reply_to"))
    move_to(field('reply_to'))
    """
    return Field(name)


@dataclass(frozen=True)
class Action(Inert):
    """The root of all actions: `verb` is copy, move, deliver, bounce or discard. A queue given as such is kept by its name."""

    verb: str
    queue: Name | None = None
    destination: Name | None = None
    # The queue itself, if one was given: `create_selector` refuses one that is not in its engine. No part of the value: no field.
    _given: ClassVar[QueueHandle | None] = None

    def __post_init__(self) -> None:
        """Raises TypeError and ValueError for what no selector can do."""
        verb, queue, destination = self.verb, self.queue, self.destination
        if verb not in VERBS:
            raise ValueError(f"unknown verb {verb!r}; allowed are {', '.join(VERBS)}")
        if isinstance(queue, QueueHandle):
            object.__setattr__(self, "_given", queue)
        row = VERBS[verb]
        if row.queue is False and queue is not None:
            raise ValueError(f"{verb} has no target queue, got {queue!r}")
        if not row.destination and destination is not None:
            raise ValueError(f"{verb} has no destination, got {destination!r}; deliver has")
        object.__setattr__(self, "verb", str.__str__(verb))
        if row.queue or queue is not None:
            object.__setattr__(self, "queue", _name(queue, "target queue"))
        if row.destination:
            object.__setattr__(self, "destination", _name(destination, "destination"))

    def __reduce__(self) -> tuple[type[Action], tuple[object, ...]]:
        return type(self), (self.verb, self.queue, self.destination)

    @property
    def consuming(self) -> bool:
        """Whether the message is taken; COPY alone leaves it."""
        return VERBS[self.verb].consuming

    @property
    def credited(self) -> bool:
        """Whether taking spends credit: COPY and DISCARD do not."""
        return VERBS[self.verb].credited

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
        check_made(value)
        return value
    if isinstance(value, QueueHandle):
        value = value.name
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a name, a Queue or field(...), got {type(value).__name__}")
    return name_of(value, what)


def copy_to(queue: Any) -> Action:
    """COPY into a queue: costs no credit, waits for nobody, happens once per queue and run."""
    return Action("copy", queue)


def move_to(queue: Any) -> Action:
    """MOVE into a queue: the message stays outstanding in its source until what it became is settled."""
    return Action("move", queue)


def deliver(destination: Any, queue: Any = None) -> Action:
    """DELIVER to the application under a destination name, or MOVE into `queue` with the destination stamped on."""
    return Action("deliver", queue, destination)


def bounce_to(queue: Any) -> Action:
    """MOVE with the envelope mangled: the address becomes the reply address, and headers say where it came from."""
    return Action("bounce", queue)


discard = Action("discard")
"""Settle the message at once. Needs no credit."""
