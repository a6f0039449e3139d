"""Messages, and entries: messages in a queue."""

from __future__ import annotations

import re
from dataclasses import dataclass, field as dataclass_field, replace

READY = ("unrouted", "waiting", "bound")
NUMBER = re.compile(rb"#(\d+)#")


class Either:
    """What may be true or not. As long as nobody knows better it goes on with the message."""

    def __eq__(self, other):
        return isinstance(other, (bool, Either))

    __hash__ = None


EITHER = Either()


@dataclass(frozen=True)
class Message:
    address: str = ""
    body: bytes = b""
    headers: dict = dataclass_field(default_factory=dict)
    reply_to: str | None = None
    message_id: str | None = None
    destination: str | None = None
    id: int = 0
    timestamp: int = 0
    hops: int = 0
    expires: int | None = None
    priority: int = 0
    correlation_id: str | None = None
    annex: tuple | None = None

    def replace(self, **changes):
        return replace(self, **changes)


class Entry:
    """A message in a queue."""

    def __init__(self, queue, message, sequence):
        self.queue = queue
        self.message = message
        self.sequence = sequence        # of its entry, engine-wide
        self.state = "unrouted"
        self.since = 0                  # its time in the queue counts from here: its entry, or the end of the delay it came with
        self.parent = None              # the outstanding entry upstream that is paid when this one is settled
        self.child = None               # the entry downstream that this outstanding one became by MOVE or BOUNCE
        self.selector = None            # that bound or took it
        self.offered_to = None          # the destination under which it is offered or was taken
        self.delivery = None            # taken by your program and not yet acked
        self.holds = {}                 # selector -> whether its condition holds, as far as it was evaluated
        self.hits = []                  # the hit set, while parked
        self.parked = False             # routed, when none of its hit set could act
        self.marked = False             # routed to the default role
        self.routed = False             # its hit set was found
        self.never_waited = False       # an overflow selector took it at its entry: a routing (rule 7) that no record says
        self.came_delayed = False       # at its entry
        self.kept_time = False          # a retry delays it since before its store was opened
        self.was_delayed = False        # the same, and its store ended by a crash since
        self.never_due = False          # it expired before the end of that delay
        self.kept = False               # unrouted, for want of a selector that matches it
        self.awake = None               # (dead, hops, waited) before the first call ended that it lived to see
        self.waited = False             # ready, or taken by hand, when a call had run to quiescence, or its store was opened
        self.by_hand = False            # taken by `get`, or by a selector that was deleted without a recall
        self.overflowed = False         # that was an overflow selector
        self.due = 0                    # delayed: until then
        self.said_unrouted = False      # its store's log said so when it was opened: it had been kept
        self.home = "unrouted"          # delayed, or taken by hand: the state in which it comes back
        self.lacking = 0                # delayed, since it has expired and there is no room for its dead letter: the how manieth
        self.retrying = False           # delayed, since it was nacked
        self.answer_by = None           # in your program's hands: it goes back if there is no answer by then
        self.visited = None             # queues entered in this run; shared with everything it becomes
        self.dead = False               # dead-lettered, and has not waited since
        self.dead_entry = False         # entered this queue by dead-lettering, and not for having expired
        self.delivery_count = 0
        self.redelivered = False
        self.nack_number = 0            # of its last nack, engine-wide
        self.owner = None               # in RAM: the durable entry of which this one has the last word
        self.logged = 0, False          # delivery_count and redelivered, as its store has them
        self.foreign = False            # it came by MOVE or COPY from a message that a crash may bring back
        self.recovered = False          # it was routed before its store was opened, and its queue is held since

    @property
    def id(self):
        return self.message.id

    @property
    def chain(self):
        """Itself, and what is upstream waiting for its payment, down from there."""
        return [self] if self.parent is None else [self, *self.parent.chain]

    def __repr__(self):
        return f"<{self.state} {self.queue.name}:{self.id}>"


def bounced(message, reason, from_name, detail=None):
    """The envelope mangled (rule 11)."""
    headers = {name: value for name, value in message.headers.items() if name != "xump_detail"}
    headers.setdefault("xump_original_address", message.address)
    headers["xump_bounced_from"] = from_name
    headers["xump_reason"] = reason
    if detail:
        headers["xump_detail"] = detail
    address = message.address if message.reply_to is None else message.reply_to
    return message.replace(address=address, reply_to=None, headers=headers)


def number_of(data):
    """By which a body is known, and a record that has it; None: it has no number. A checksum may look like one, before it."""
    found = NUMBER.findall(data)
    return int(found[-1]) if found else None
