"""What a publisher is told of its message: a visited set that keeps count, which goes along with whatever the message becomes."""

from xump_ext.outcome import Outcome, OutcomeFlag

REFUSED_MAX = 255
NOTHING = OutcomeFlag(0)


class Trip(list):
    """The visited set of a message whose publisher asked."""

    def __init__(self):
        super().__init__()
        self.id = self.copies = self.refused = 0
        self.flags = NOTHING

    @property
    def outcome(self):
        return Outcome(self.id, self.copies, min(self.refused, REFUSED_MAX), self.flags)


def tell(visited, *, copies=0, refused=0, flags=NOTHING):
    """So many copies or refusals more, and what happened; if somebody asked."""
    if isinstance(visited, Trip):
        visited.copies += copies
        visited.refused += refused
        visited.flags |= flags


def rests(engine, queue):
    """Whether what enters the queue is there, for now. It only passes through a transit queue."""
    return not queue.transit or queue.held or engine.depth > 0


def end_of(reason, was_sent):
    """The flags of a message that leaves its queue for this reason, as a dead letter or dropped."""
    unroutable = OutcomeFlag.UNROUTABLE if reason == "unroutable" else NOTHING
    return unroutable | (OutcomeFlag.DEAD_LETTERED if was_sent else OutcomeFlag.DROPPED)
