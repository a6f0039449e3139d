"""Dead letters: bounces by the engine itself (rules 11 and 12)."""

from tests.model import books
from tests.model.entries import bounced
from tests.model.outcomes import end_of, tell
from tests.model.room import has_room
from tests.model.values import count

REFUSED = "rejected", "delivery-limit"
"""The reasons of what your program did not want: such a dead letter begins a new trip."""


def dead_letter(engine, entry, reason, detail=None, or_keep=False):
    """Bounces an entry out of its queue (rule 11), or drops it; it is settled by either. `or_keep`: instead of being
    dropped it stays, unrouted."""
    queue, message = entry.queue, entry.message
    books.withdraw(engine, entry)       # INFINITE may have bound it
    entry.never_due = entry.state == "delayed" and not entry.retrying
    entry.state = "leaving"
    target = own_dead_letter(engine, queue) if reason == "overflow" else dead_letter_of(engine, entry)
    if entry.dead or (reason == "expired" and message.hops >= engine.hop_limit):
        target = None
    if reason in REFUSED:
        entry.visited, message = [], message.replace(hops=-1)
    elif entry.visited is None:
        entry.visited = [queue]
    owner, came = books.inherited_owner(engine, entry), books.owner_of(engine, entry)
    if enter_dead(engine, target, message, reason, queue.name, detail, entry.visited, owner, came):
        count(queue.dead_lettered, reason)
        tell_end(entry, reason, True)
        books.settle(engine, entry)
    elif or_keep:
        entry.state, entry.kept = "unrouted", True
    else:
        books.remove(engine, entry)
        count(queue.dropped, reason)
        tell_end(entry, reason, False)
        books.pay_supplier(engine, entry)


def tell_end(entry, reason, was_sent):
    """What its publisher is told: of a dead letter, nothing more."""
    if not entry.dead:
        was_counted = reason == "unroutable" and not entry.queue.transit
        tell(entry.visited, flags=end_of(reason, was_sent), copies=-was_counted)


def enter_dead(engine, target, message, reason, from_name, detail, visited, owner=None, came=None):
    """Whether the dead letter queue (None: there is none) took the message."""
    if target is None:
        return False
    message = bounced(message.replace(hops=message.hops + 1, expires=None), reason, from_name, detail)
    if not has_room(engine, target, message, pushes=True):
        return False
    books.enter(engine, target, message, visited, dead=True, dead_entry=reason != "expired", owner=owner, came=came)
    return True


def own_dead_letter(engine, queue):
    """A queue that is its own dead letter counts as one without."""
    return None if queue.dead_letter == queue.name else living(engine, queue.dead_letter)


def living(engine, name):
    """The queue of that name, unless it is about to be deleted."""
    queue = engine.queues.get(name)
    return None if queue is None or queue.dying else queue


def dead_letter_of(engine, entry):
    """The first that exists: the queue's, those of the queues up the chain of unpaid parents, the engine's."""
    found, above = None, entry
    while found is None and above is not None:
        found = own_dead_letter(engine, above.queue)
        above = above.parent
    found = found or living(engine, engine.dead_letter)
    return None if found is entry.queue else found
