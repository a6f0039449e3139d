"""Actions: what a selector does with the messages that its condition selects. Immutable values.

COPY leaves the message where it is; all other actions consume it. A target or destination is a name, or a `field` of the
message. An action checks its parts when it is created, however it is created. `xump_ext.route.routing` carries actions out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Union

from xump._names import name_of
from xump._value import Value, described
from xump.conditions import check_field, check_made
from xump_ext.engine.handles import QueueHandle

if TYPE_CHECKING:
    from xump.types import Destination, Target, TargetField

FIELDS = ("address", "reply_to", "destination")


class Verb(NamedTuple):
    """The properties of a kind of action, apart from the code that carries it out."""

    consuming: bool
    """Whether it takes the message. If not, the message stays, and other selectors may take it."""
    credited: bool
    """Whether it uses credit."""
    queue: bool | None
    """Whether it puts messages into a queue; None: it may."""
    destination: bool
    """Whether it names a destination."""


VERBS = {
    "copy": Verb(consuming=False, credited=False, queue=True, destination=False),
    "move": Verb(consuming=True, credited=True, queue=True, destination=False),
    "deliver": Verb(consuming=True, credited=True, queue=None, destination=True),
    "bounce": Verb(consuming=True, credited=True, queue=True, destination=False),
    "discard": Verb(consuming=True, credited=False, queue=False, destination=False),
}
"""To add an action, add a row here and in `xump_ext.state.constants`, and its code in `xump_ext.route`."""


@dataclass(frozen=True)
class Field:
    """A part of the message that names a target or destination. Created by `field`. Compare with `==`.

    >>> move_to(field("reply_to")).queue == field("reply_to")
    True
    """

    name: str
    """`"address"`, `"reply_to"`, `"destination"` or `"headers.NAME"`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check_field(self.name, FIELDS))

    def __repr__(self) -> str:
        return f"field({self.name!r})"


Name = Union[str, Field]


def field(name: TargetField) -> Field:
    """Let each message name the target or destination, so that one selector routes to any number of queues.

    Args:
        name: The part of the message that has the name: `"address"`, `"reply_to"`, `"destination"` or `"headers.NAME"`.

    Returns:
        A value to give to an action instead of a name.

    Raises:
        InvalidPattern: There is no such field.
        TypeError: `name` is not a str.

    The selector does not match a message whose field is absent, empty or not text, or (for a target) names no queue.

    >>> move_to(field("reply_to"))
    move_to(field('reply_to'))
    """
    return Field(name)


@dataclass(frozen=True)
class Action(Value):
    """An action: what a selector does with a message. Compare with `==`.

    Created by `copy_to`, `move_to`, `deliver` and `bounce_to`; `discard` is one. A `Queue` as the target is kept by its name.

    >>> from xump import Engine, always, move_to
    >>> with Engine() as engine:
    ...     source, target = engine.create_queue("source"), engine.create_queue("target")
    ...     selector = engine.create_selector("source", when=always, do=move_to("target"))
    ...     selector.do == move_to(target), selector.do.verb, selector.do.queue
    (True, 'move', 'target')
    """

    verb: str
    """`"copy"`, `"move"`, `"deliver"`, `"bounce"` or `"discard"`."""
    queue: Name | None = None
    """The target queue: its name, or the field that names it; None if there is none."""
    destination: Name | None = None
    """The destination of deliveries: a name, or the field that names it; None if there is none."""
    # The queue itself, if one was given: `create_selector` refuses a queue of another engine. It is no part of the value.
    _given: ClassVar[QueueHandle | None] = None

    if TYPE_CHECKING:       # it accepts more than it keeps

        def __init__(self, verb: str, queue: Target | None = None, destination: Destination | None = None) -> None: ...

    def __post_init__(self) -> None:
        """Raises TypeError and ValueError for a combination that no selector can carry out."""
        verb, queue, destination = self.verb, self.queue, self.destination
        if not isinstance(verb, str) or verb not in VERBS:
            raise ValueError(f"unknown verb {verb!r}; allowed are {', '.join(VERBS)}")
        if isinstance(queue, QueueHandle):
            object.__setattr__(self, "_given", queue)
        row = VERBS[verb]
        if row.queue is False and queue is not None:
            raise ValueError(f"{verb} has no target queue, got {queue!r}")
        if not row.destination and destination is not None:
            raise ValueError(f"{verb} has no destination, got {destination!r}; only deliver has one")
        if type(verb) is not str:
            object.__setattr__(self, "verb", str.__str__(verb))
        if row.queue or queue is not None:
            name = _name(queue, "target queue")
            if name is not queue:
                object.__setattr__(self, "queue", name)
        if row.destination:
            object.__setattr__(self, "destination", _name(destination, "destination"))

    def __reduce__(self) -> tuple[type[Action], tuple[object, ...]]:
        return type(self), (self.verb, self.queue, self.destination)

    @property
    def consuming(self) -> bool:
        """Whether the action takes the message out of its queue. Only COPY leaves it there."""
        return VERBS[self.verb].consuming

    @property
    def credited(self) -> bool:
        """Whether taking a message uses credit. COPY and DISCARD use none."""
        return VERBS[self.verb].credited

    def __repr__(self) -> str:
        if self.verb == "discard":
            return "discard"
        if self.verb != "deliver":
            return f"{self.verb}_to({self.queue!r})"
        queue = "" if self.queue is None else f", queue={self.queue!r}"
        return f"deliver({self.destination!r}{queue})"


def _name(value: object, what: str) -> Name:
    """A name or a field as an action keeps it. Raises TypeError and ValueError for anything but a name, a queue or a field."""
    if isinstance(value, Field):
        check_made(value)
        return value
    if isinstance(value, QueueHandle):
        value = value.name
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a name, a Queue or field(...), got {type(value).__name__}")
    return name_of(value, what)


def copy_to(queue: Target) -> Action:
    """COPY: put a copy of the message into a queue, and leave the message where it is.

    Args:
        queue: The target: the name of a queue, a `Queue`, or `field(...)` if the message names it.

    Returns:
        An action for `Engine.create_selector(do=...)`.

    Raises:
        TypeError, ValueError: `queue` is none of these, or is empty or too long.

    A copy uses no credit and never waits. If the target is full, its overflow selector takes the copy, else its dead letter
    queue; else the copy is dropped and counted. A queue gets at most one copy of a message in a run, also if several selectors
    copy into it.

    >>> copy_to("audit")
    copy_to('audit')
    """
    return Action("copy", queue)


def move_to(queue: Target) -> Action:
    """MOVE: put the message into another queue.

    Args:
        queue: The target: the name of a queue, a `Queue`, or `field(...)` if the message names it.

    Returns:
        An action for `Engine.create_selector(do=...)`.

    Raises:
        TypeError, ValueError: `queue` is none of these, or is empty or too long.

    With finite credit the source keeps the message as outstanding (unacknowledged) until it is settled in the target: acked,
    rejected, dropped or deleted. With `INFINITE` credit the message is handed over for good. If the target is full and its
    overflow selector cannot take the message, the message waits in its source until there is room (back-pressure).

    >>> move_to("work")
    move_to('work')
    """
    return Action("move", queue)


def deliver(destination: Destination, queue: Target | None = None) -> Action:
    """DELIVER: hand the message to your program under a destination (a consumer name).

    Args:
        destination: The name that your program takes deliveries by, or `field(...)` if the message names it.
        queue: If given, the message is moved into this queue with the destination stamped on it. A selector of that queue can
            then `deliver(field("destination"))`.

    Returns:
        An action for `Engine.create_selector(do=...)`.

    Raises:
        TypeError, ValueError: An argument is none of these, or is empty or too long.

    The message stays outstanding (unacknowledged) until your program acks, nacks or rejects the delivery. The selector has at
    most as many messages outstanding as its credit.

    >>> deliver("worker")
    deliver('worker')
    >>> deliver("worker", queue="work")
    deliver('worker', queue='work')
    """
    return Action("deliver", queue, destination)


def bounce_to(queue: Target) -> Action:
    """BOUNCE: move the message into a queue like a letter that is returned to its sender.

    Args:
        queue: The target: the name of a queue, a `Queue`, or `field(...)` if the message names it.

    Returns:
        An action for `Engine.create_selector(do=...)`.

    Raises:
        TypeError, ValueError: `queue` is none of these, or is empty or too long.

    The message's `reply_to`, if it has one, becomes its address. The headers `xump_original_address`, `xump_bounced_from` and
    `xump_reason` say where it was and why it came back.

    >>> bounce_to("returned")
    bounce_to('returned')
    """
    return Action("bounce", queue)


discard = described(Action("discard"), """
    DISCARD: an action that ends the message in its queue at once. Write it without parentheses.

    A discarded message counts as processed, and goes to the history if the queue keeps one. Discarding uses no credit.

    >>> from xump import Engine, default, discard
    >>> with Engine() as engine:
    ...     news = engine.create_queue("news", history_limit=10)
    ...     selector = engine.create_selector("news", when=default, do=discard)
    ...     number = news.publish("sport")
    ...     news.ready, news.history
    (0, 1)
    """)
