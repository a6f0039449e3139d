"""Dead letters: bounces by the engine itself (rules 11 and 12)."""

import inspect

from tests.model import books, told
from tests.model.entries import bounced
from tests.model.outcomes import end_of, tell
from tests.model.room import drops, has_room, is_below_limit
from tests.model.values import count
from xump_ext.death import Death
from xump_ext.message.rewriter import rewriter_function

REFUSED = "rejected", "delivery-limit"
"""The reasons of what your program did not want: such a dead letter begins a new trip."""


def dead_letter(engine, entry, reason, detail=None, or_keep=False):
    """Bounces an entry out of its queue (rule 11), or drops it; it is settled by either. `or_keep`: instead of being
    dropped it stays, unrouted."""
    queue, message = entry.queue, entry.message
    books.withdraw(engine, entry)       # INFINITE may have bound it
    entry.never_due = entry.state == "delayed" and not entry.retrying
    entry.state = "leaving"
    target, namer = to_own(engine, queue) if reason == "overflow" else dead_letter_of(engine, entry)
    if is_fresh(engine, entry, reason) or (reason == "expired" and message.hops >= engine.hop_limit):
        target = None
    hops = message.hops
    if reason in REFUSED:
        entry.visited, hops = [], -1
    elif entry.visited is None:
        entry.visited = [queue]
    owner, came = books.inherited_owner(engine, entry), books.owner_of(engine, entry)
    if enter_dead(engine, target, message, reason, queue.name, detail, entry.visited, owner, came, namer, hops):
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


def is_fresh(engine, entry, reason):
    """Dead-lettered before it has waited. What expires has, unless it came in this very run."""
    return entry.dead and (reason != "expired" or entry.sequence >= engine.room_run)


def expire(engine, entry):
    """Its time is over; it is in the hands of nobody. Without room for its dead letter it waits, delayed."""
    told.expires(engine, entry.message)
    if not expire_first(engine, entry.queue) and not lacks_room(engine, entry, "expired"):
        dead_letter(engine, entry, "expired")
        return
    entry.never_due = entry.state == "delayed" and not entry.retrying
    books.withdraw(engine, entry)
    engine.lacked += 1
    entry.state, entry.home, entry.retrying, entry.lacking = "delayed", "waiting", False, engine.lacked


def expire_in_room(engine):
    """There may be room: what waits for it goes on, from each queue the first ones."""
    for queue in list(engine.queues.values()):
        expire_first(engine, queue)


def expire_first(engine, queue):
    """The same in one queue; whether there are others that go on waiting."""
    for entry in sorted([entry for entry in queue.entries if entry.lacking], key=lambda entry: entry.lacking):
        if lacks_room(engine, entry, "expired"):
            return True
        first, entry.lacking = entry.never_due, 0
        dead_letter(engine, entry, "expired")
        entry.never_due = first
    return False


def lacks_room(engine, entry, reason):
    """Whether a store has no room for its dead letter: a rewriter is called for the next one, or the next one is there."""
    target, namer = room_for(engine, entry, reason)
    if engine.told is None or target is None or not (target.durable or target.transit):
        return False
    if namer is not None and namer.rewriter is not None:
        return not engine.told.ends_next(entry, reason)
    hops = 0 if reason in REFUSED else entry.message.hops + 1
    made = bounced(entry.message, reason, entry.queue.name).replace(hops=hops)
    return not engine.told.has_entered(engine, target, made, reason in REFUSED)


def room_for(engine, entry, reason):
    """The dead letter queue for which a store must have room, and the queue that names it; None: none must."""
    target, namer = dead_letter_of(engine, entry)
    if is_fresh(engine, entry, reason) or target is None or (reason == "expired" and entry.message.hops >= engine.hop_limit) or (
            target.durable and not is_below_limit(engine, target) and not drops(target)):
        target = None
    return target, namer


def places(engine, entry, reason):
    """The queues whose stores must have room for it."""
    target, _ = room_for(engine, entry, reason)
    owner = books.owner_of(engine, entry)
    if target is not None and target.transit and owner is not None:
        return [owner.queue]
    return [target] if target is not None and target.durable else []


def tell_end(entry, reason, was_sent):
    """What its publisher is told: of a dead letter, nothing more."""
    if not entry.dead:
        was_counted = reason == "unroutable" and not entry.queue.transit
        tell(entry.visited, flags=end_of(reason, was_sent), copies=-was_counted)


def enter_dead(engine, target, message, reason, from_name, detail, visited, owner=None, came=None, namer=None, hops=None):
    """Whether the dead letter queue (None: there is none) took the message. `namer`: the queue that names it, not the engine."""
    if target is None:
        return False
    if hops is None:        # it has not entered the queue that refuses it
        hops, message = message.hops, message.replace(id=0, timestamp=0, hops=0)
    message, barred = letter(engine, target, namer, message, reason, from_name, detail)
    message = message.replace(hops=hops + 1, expires=None)
    if barred is not None:
        visited = [engine.queues[name] for name in barred if name in engine.queues]     # a trip of its own
        if target in visited:
            return False
    if not has_room(engine, target, message, pushes=True, dead=reason != "expired"):
        return False
    books.enter(engine, target, message, visited, dead=True, dead_entry=reason != "expired", owner=owner, came=came)
    return True


def letter(engine, target, namer, message, reason, from_name, detail):
    """What a dead letter is, and the queues that it does not enter if it begins a trip of its own; else None."""
    if namer is not None and namer.rewriter is not None:
        name, argument = namer.rewriter
        if engine.told is not None:
            engine.told.ended += message.id != 0 and reason in ("expired", "delivery-limit")
        rewriter = inspect.unwrap(rewriter_function(name))
        made = rewriter(message, Death(reason, from_name, target.name, argument, detail or None, engine.time))
        return made if isinstance(made, tuple) else (made, None)
    return bounced(message, reason, from_name, detail), None


def to_own(engine, queue):
    return own_dead_letter(engine, queue), queue


def own_dead_letter(engine, queue):
    """A queue that is its own dead letter counts as one without."""
    return None if queue.dead_letter == queue.name else living(engine, queue.dead_letter)


def living(engine, name):
    """The queue of that name, unless it is about to be deleted, or staged."""
    queue = engine.queues.get(name)
    return None if queue is None or queue.dying or queue.staged else queue


def dead_letter_of(engine, entry):
    """The first that exists: the queue's, those of the queues up the chain of unpaid parents, the engine's; and the queue that
    names it, None for the engine."""
    found, namer, above = None, None, entry
    while found is None and above is not None:
        found, namer = to_own(engine, above.queue)
        above = above.parent
    if found is None:
        found, namer = living(engine, engine.dead_letter), None
    return (None if found is entry.queue else found), namer
