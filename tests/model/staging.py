"""Staged queues: what is published there waits as it came, until another queue adopts it and lets it enter (section 10)."""

from tests.model import books, due, letters, maps, publishing, told
from tests.model.room import has_room
from tests.model.values import COUNT_MAX, integer
from xump.errors import Conflict, TransactionError


class Adoption:
    """Staged queues whose rows enter another queue, in this order."""

    def __init__(self, queues):
        self.queues = queues
        self.first_id = None        # of the target when the first row entered; None: none has


def adopter_of(engine, queue):
    """The queue that has adopted this one, or None."""
    return next((q for q in engine.queues.values() for a in q.adoptions if queue in a.queues), None)


def check_open(engine, queue):
    """A staged queue that was adopted takes no more rows, and gives none but to its target."""
    if queue.staged and adopter_of(engine, queue) is not None:
        raise Conflict(f"queue {queue.name!r} was adopted by {adopter_of(engine, queue).name!r}")


def check_publish(engine, queue, delay):
    if queue.staged and delay is not None:
        raise ValueError(f"queue {queue.name!r} is staged: nobody knows when its messages enter")
    check_open(engine, queue)


def check_adoption(engine, target, given):
    """The staged queues, if the target can adopt so many rows of each."""
    if target.staged or target.transit:
        raise ValueError(f"queue {target.name!r} is staged, or keeps nothing")
    queues = []
    for name, rows in given:
        queue = engine._queue(name)
        integer("rows", rows, 0, COUNT_MAX)
        if not queue.staged or queue in queues:
            raise ValueError(f"queue {queue.name!r} is not staged, or is given twice")
        check_open(engine, queue)
        if queue.store != target.store:
            raise TransactionError(f"queue {queue.name!r} is in another store than {target.name!r}")
        if queue.ready != rows:
            raise ValueError(f"queue {queue.name!r} has {queue.ready} rows, not {rows}")
        queues.append(queue)
    return queues


def adopt(engine, target, given, meta):
    queues = check_adoption(engine, target, given)
    items = maps.changed(target.items, list(meta.items()))
    told.check(engine, "adopt", target)
    target.items.clear()
    target.items.update(items)
    adoption = Adoption(queues)
    target.adoptions.append(adoption)
    tidy(engine, target)


def tidy(engine, target):
    """Staged queues that are empty are gone, and so are adoptions of which nothing is left."""
    for adoption in target.adoptions:
        for queue in [q for q in adoption.queues if not q.entries]:
            adoption.queues.remove(queue)
            del engine.queue_by_name[queue.name]
    target.adoptions[:] = [a for a in target.adoptions if a.queues]


def enter(engine, target, n):
    """How many of the next n rows entered: as if published now, as far as a MOVE would find room."""
    count = 0
    while count < n and target.adoptions and enter_one(engine, target, target.adoptions[0]):
        count += 1
        tidy(engine, target)
    return count


def enter_one(engine, target, adoption):
    row = adoption.queues[0].entries[0]
    first, end = target.next_id, row.due if row.due > engine.time else None
    if publishing.first_of(engine, target, row.message) is not None:
        if engine.told is not None and target.durable and not engine.told.was_duplicate(target):
            return False        # the first row of an adoption needs room even then
        target.duplicates += 1
    elif due.is_late(engine, row.message):
        if not told.store_takes(engine, target, row.message, "wait"):
            return False
        entry = books.enter(engine, target, row.message, [], late=True)
        letters.dead_letter(engine, entry, "expired")
        publishing.remember(engine, target, entry)
    elif has_room(engine, target, row.message, delayed=end is not None):
        publishing.remember(engine, target, books.enter(engine, target, row.message, [], end=end))
    else:
        return False
    adoption.first_id = adoption.first_id or first
    books.remove(engine, row)
    row.queue.settled += 1
    return True


def entering(queue):
    """How many rows are still to enter."""
    return sum(q.ready for adoption in queue.adoptions for q in adoption.queues)


def stable_id(queue):
    """Up to here no transaction is visible in part."""
    started = [adoption.first_id for adoption in queue.adoptions[:1] if adoption.first_id is not None]
    return started[0] - 1 if started else queue.next_id - 1
