"""What falls due: ends of delays, expiries, deadlines of deliveries (section 9).

A call first does what fell due since the last one, moment by moment, as if it had been called at each of them. Within a moment
expiries come first, then the rest, each in the order of entry. What is in a queue that is held since its store was opened waits
for its release, which is then its moment.
"""

from tests.model import books, deliveries, letters, outlets
from tests.model.entries import READY
from tests.model.values import after

ROOM_RETRY_NS = 10**9
"""After so long a message is tried again that your program has, and for whose dead letter there was no room."""


def expiry_of(entry):
    """When the entry is of no use any more, or None."""
    ends = [] if entry.message.expires is None else [entry.message.expires]
    if entry.queue.ttl is not None:
        ends.append(after(entry.since, entry.queue.ttl))
    return min(ends, default=None)


def is_past(engine, entry):
    """For what comes back: whether its time is over."""
    expiry = expiry_of(entry)
    return expiry is not None and expiry <= engine.time


def is_late(engine, message):
    """For what is about to enter."""
    return message.expires is not None and message.expires < engine.time


def deadlines_of(engine, entry):
    """(time, what is due then) of an entry; the expiry goes first."""
    found = []
    if entry.lacking:
        return found
    offered = entry in engine.offers
    expires = entry.state in (*READY, "delayed") or offered
    if expires and not (offered and outlets.has(engine, entry)) and expiry_of(entry) is not None:
        found.append((expiry_of(entry), "expiry"))
    if entry.state == "delayed":
        found.append((entry.due, "delay"))
    if entry.delivery is not None and entry.answer_by is not None:
        found.append((entry.answer_by, "answer"))
    return found


def everything(engine):
    """All that will fall due, in the order in which it will be done."""
    entries = [e for queue in engine.queues.values() if not (queue.reopened or queue.staged) for e in queue.entries]
    found = [(time, what, e) for e in entries for time, what in deadlines_of(engine, e)]
    return sorted(found, key=lambda item: (item[0], item[1] != "expiry", item[2].sequence))


def next_due(engine):
    return next((time for time, _, _ in everything(engine)), None)


def do_what_is_due(engine):
    """One pass over what is due now; whether there was anything."""
    due = [item for item in everything(engine) if item[0] <= engine.time]
    for time, what, entry in due:
        if (time, what) in deadlines_of(engine, entry):     # still
            do(engine, entry, what)
    return bool(due)


def do(engine, entry, what):
    if what == "expiry":
        expire(engine, entry)
    elif what == "delay":
        entry.state = entry.home
        entry.retrying = False
        entry.nack_number = 0       # it came back by time: the same iteration may have it again
    elif deliveries.is_at_its_limit(engine, entry) and letters.lacks_room(engine, entry, "delivery-limit"):
        entry.answer_by = after(engine.time, ROOM_RETRY_NS)
    else:
        entry.nack_number = 0
        deliveries.send_back(engine, entry, None)


def expire(engine, entry):
    if entry.state == "outstanding":
        books.give_back(engine, entry)
    letters.expire(engine, entry)
