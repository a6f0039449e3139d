"""What the model is told of room in durable stores. It cannot know to the byte when a store is full, so it hears what the engine
did, and holds it to everything else.

The engine makes a call first. Then the model is told:

    refused     the call raised StoreFull; or which messages did, where each asks for itself
    entered     which message entered a durable queue under which id: the stores' own records say so
    limits      how far each queue had come when the call ended, and at each run that began because a store had room again

Where the rules let the model put a message into a durable queue, it asks whether the message has entered there under the next id.
If not, there was no room. So the model is never told what to do, only whether there was room for what it would do next. A
publish, a transaction and the like it refuses if the engine did.

`Told` has also what the model was refused for lack of room, for `full.py`, which knows how much room there was.
"""

from collections import namedtuple
from contextlib import contextmanager, nullcontext

from tests.model.entries import number_of
from xump.errors import StoreFull
from xump_ext.outcome import OutcomeFlag

Limits = namedtuple("Limits", "queues copied served ends")
"""How far all had come: names of queues -> `Way`, ids of selectors -> how often they copied, and how often they took, and the
number of `ENDS`."""
Way = namedtuple("Way", "last_id deaths duplicates")
NOWHERE = Way(0, 0, 0)
INFINITY = float("inf")
Came = namedtuple("Came", "number address hops dead time")
"""What the record of an entry says: its message's number, address and hops, whether it is a dead letter that began anew, and when
it entered."""


class Told:
    """Of one call."""

    def __init__(self, entered, ends, ended, begun, before, limits, after, error, outcomes, refused):
        self.entered = entered          # (queue's name, id) -> `Came`
        self.ends = ends                # as `ENDS` of `vocabulary.py`
        self.ended = ended              # how many of them the model has made
        self.before = before            # limits of the runs before the call's own work: a store had made room for it
        self.limits = limits            # when the call had done its work
        self.after = after              # limits of the runs after it
        self.ran_before = bool(before)
        self.refused = error is StoreFull
        self.refusals = [OutcomeFlag.STORE_FULL in outcome.flags for outcome in outcomes]
        """Of the messages that each ask for themselves."""
        self.rows = iter(self.refusals)
        self.waited = False             # whether a message enters that waited for room in its queue
        self.late = refused             # numbers of messages that waited for room in a queue, until its store was full
        self.now = begun                # limits of what was due before all that
        self.lacked = []                # (what, store, message) for which there was no room
        self.answered = []              # messages for whose dead letters the call needs room
        self.arrivals = []              # messages that the model has put into queues
        self.pushed = {True: set(), False: set()}       # what was to enter a queue at once, and did or did not
        self.guessed = False            # whether the model had to guess what came first
        self.largest_ended = False      # in a store that refused something: that may have gone on in the middle of a run
        self.live = []                  # messages that were there when it began
        self.had_lines = False          # whether a selector waited for room when it began
        self.newly = []                 # places of `entered` that are of this call
        self.runs = [("begun", begun), *(("before", run) for run in before), ("limits", limits),
                     *(("after", run) for run in after)]

    def __str__(self):
        runs = [f"{what} {({name: way.last_id for name, way in run.queues.items()})} {run.ends}" for what, run in self.runs]
        return f"{'; '.join(runs)}; entered {[(*place, *self.entered[place]) for place in self.newly if place in self.entered]}"

    def had_room_by(self, moment):
        """Whether the next of the runs before the call's own work was a part of this moment in the past: what entered says so."""
        if not self.before:
            return False
        times = [came.time for (queue, id), came in self.entered.items()
                 if self.now.queues.get(queue, NOWHERE).last_id < id <= self.before[0].queues.get(queue, NOWHERE).last_id]
        return bool(times) and max(times) <= moment

    def begin(self, engine):
        """What was due is done; the call's own work comes next."""
        for limits in self.before:
            engine.go_on(limits)
        self.before, self.now = [], self.limits

    def end(self, engine):
        for limits in self.after:
            engine.go_on(limits)
        if any(number_of(publisher.message.body) in self.late for publisher in engine.publishers):
            engine.go_on(self.limits)   # a store had room again, but not for a publisher that waited, and nothing else went on

    def begin_row(self):
        """The next message of those that each ask for themselves."""
        self.refused = next(self.rows)

    @contextmanager
    def let_in(self, message):
        """A message comes that waited for room in its queue."""
        refused, lacked = self.refused, len(self.lacked)
        self.refused, self.waited = number_of(message.body) in self.late, True
        try:
            yield
        finally:
            self.refused, self.waited = refused, False
            self.lacked[lacked:] = [one for one in self.lacked[lacked:] if one[0] != "publish"]    # it is not of this call

    def check(self, what, *places, answered=()):
        """Raises StoreFull if the engine did, for something that goes into one of these queues or stores. `answered`: messages
        that go there as dead letters."""
        self.answered += answered
        stores = [place.store for place in places if place.store != "ram"]
        if self.refused and stores:
            self.lacked.append((what, stores[0], None))
            raise StoreFull("as the engine said")

    def comes_later(self, engine, queue, message):
        """Whether a message that waited for room in this durable queue still waits: its store cleans its log for it."""
        return self.waited and not self.has_entered(engine, queue, message, False)

    def has_entered(self, engine, queue, message, dead):
        came = Came(number_of(message.body), message.address, message.hops, dead, max(queue.timestamp, engine.now))
        assert came.number is not None, f"a message without a number: {message}"
        return queue.next_id <= self.way(queue).last_id and self.entered.get((queue.name, queue.next_id)) == came

    def takes(self, engine, queue, message, what, copier=None, dead=False, leaving=None, overflow=None):
        """Whether the message has entered the durable queue as the next one: of those that are alike the copy that this selector
        makes, or what this overflow selector takes, or the dead letter, or neither."""
        if self.has_entered(engine, queue, message, dead) and not self.expires_next(leaving) and (
                copier is None or self.now.copied.get(copier.id, INFINITY) > copier.copied) and (       # it may be gone
                overflow is None or self.now.served.get(overflow.id, INFINITY) > overflow.served):
            self.note(queue, message, what, True)
            return True
        self.note(queue, message, what, False)
        if self.now is self.limits:
            self.lacked.append((what, queue.store, message))
        return False

    def expires_next(self, entry):
        """Whether the message expires where it is and is not moved: its dead letter may look as it would."""
        return entry is not None and (entry.queue.name, entry.id, "expired") in self.ends[self.ended : self.now.ends]

    def note(self, queue, message, what, entered):
        if what == "push":
            self.pushed[entered].add((queue.name, number_of(message.body), message.address, message.hops))

    def has_twins(self):
        """Whether of two messages that are alike, and were to enter the same queue, one found room: a copy's dead letter, and the
        original's."""
        return bool(self.pushed[True] & self.pushed[False])

    def way(self, queue):
        return self.now.queues.get(queue.name, NOWHERE)

    def has_died(self, queue):
        """Whether one more message of the queue ended for its hops."""
        return self.way(queue).deaths > deaths_of(queue.dropped, queue.dead_lettered)

    def ends_next(self, entry, reason):
        """Whether this message ends for its time, or its delivery limit, as the next one that does."""
        return self.ended < self.now.ends and self.ends[self.ended] == (entry.queue.name, entry.id, reason)

    def was_duplicate(self, queue):
        """Whether one more row was a duplicate of a message of the queue."""
        return self.way(queue).duplicates > queue.duplicates


def deaths_of(dropped, dead_lettered):
    return dropped.get("hops", 0) + dead_lettered.get("hops", 0)


def check(engine, what, *places, answered=()):
    """See `Told.check`. A model that is told nothing has stores without an end."""
    if engine.told is not None:
        engine.told.check(what, *places, answered=answered)


def arrives(engine, message):
    """The model has put it into a queue."""
    if engine.told is not None:
        engine.told.arrivals.append(message)


def comes_later(engine, queue, message):
    """See `Told.comes_later`."""
    return engine.told is not None and queue.durable and engine.told.comes_later(engine, queue, message)


def let_in(engine, message):
    """See `Told.let_in`."""
    return nullcontext() if engine.told is None else engine.told.let_in(message)


def guess(engine):
    """The model guesses what came first."""
    if engine.told is not None:
        engine.told.guessed = True


def expires(engine, message):
    """A message expires. If it came in the same call, as one of several that had waited for room, the others may have come before
    or after that: a record that ends before it is written gives its room back."""
    told = engine.told
    if told is not None and told.had_lines and any(message is other for other in told.arrivals):
        told.guessed = True


def store_takes(engine, queue, message, what, copier=None, dead=False, leaving=None, overflow=None):
    """Whether the store of the queue has room for the message. `what` would be done with it otherwise: it would "wait".
    `leaving`: its entry in the queue that it leaves for that, if its dead letter would enter here, too."""
    return engine.told is None or not queue.durable or engine.told.takes(
        engine, queue, message, what, copier, dead, leaving, overflow)
