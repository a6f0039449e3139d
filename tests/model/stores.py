"""What is there when the durable stores of a model are opened again, after an orderly end or a crash.

Nothing is left of queues in RAM and of selectors. Of what was synced everything is there: queues with their properties, ids and
counts, held; their messages, in order of time, then of their queues' age.

    ready           ready, routed or not, as it was
    outstanding     ready, and redelivered; but settled, if what it became is further down in a durable queue (after a crash: of
                    the same store; if it is in another one, both are ready, and the lower one may be marked redelivered)
                    what an overflow selector took at its entry is routed, if all before it in its queue were, or are kept
    delayed         delayed, until the same time; but ready after a crash, if it waited to be tried again
    history         history, in order of id; but after a crash as if outstanding, if an entry in RAM has its last word
    gone            gone; but ready again, if an entry in RAM has its last word (redelivered, if it was handed out)

What was handed out is known exactly after an orderly end. After a crash all that may have been handed out counts as that.

What is due waits for its queue's release, in order of time. The window of duplicates is as it was. How many duplicates there were
is counted anew: they were never written.
"""

from tests.model import books, staging
from tests.model.engine import EITHER, ModelEngine
from tests.model.entries import READY
from tests.model.routing import is_aside

AHEAD = 1024        # a crash: ids up to so many beyond the highest that was offered may have been handed out


def reopened(model, crashed):
    """A new engine over the stores of this one, whose calls are all over."""
    new = ModelEngine(clock=model.clock, hop_limit=model.hop_limit, dead_letter=model.dead_letter)
    new.stores, new.strayed, new.copies = model.stores, model.strayed, model.copies
    new.store_maps.update({name: items for name, items in model.store_maps.items() if name != "ram"})
    queues = [queue for queue in model.queues.values() if queue.durable]
    queues.sort(key=lambda queue: model.stores.index(queue.store))
    frontiers = {queue: frontier_of(queue) for queue in queues}
    logged = {queue.name: entries_of(model, queue) for queue in queues}
    entries = [entry for found in logged.values() for entry in found if stays(model, entry, crashed)]
    for entry in entries:
        come_back(entry, below(entry, model), frontiers[entry.queue], crashed)
    for queue in queues:
        open_queue(new, queue, crashed)
    entries.sort(key=lambda e: (model.stores.index(e.queue.store), e.message.timestamp, queues.index(e.queue), e.id))
    for entry in entries:
        new.sequence += 1
        open_entry(new.queue_by_name[entry.queue.name], entry, new.sequence)
    for queue in queues:
        opened = new.queue_by_name[queue.name]
        open_counts(opened, len(logged[queue.name]) if crashed else len(opened.entries))
        opened.adoptions = [adoption_in(new, adoption) for adoption in queue.adoptions]
    return new


def frontier_of(queue):
    """Up to where routing came: what is kept unrouted was passed, too."""
    return next((e.id for e in queue.entries if e.state == "unrouted" and not e.kept), queue.next_id)


def retries_that_may_be_kept(model):
    """By queue: what waits to be tried again since before its store was closed in order. As long as nothing was written of the
    queue since then, a crash does not make that ready (decision 159)."""
    waiting = {queue.name: [entry for entry in queue.entries if entry.was_delayed] for queue in model.queues.values()}
    return {name: entries for name, entries in waiting.items() if entries}


def keep_retries(entries):
    for entry in entries:
        entry.home, entry.state, entry.retrying, entry.kept_time = entry.state, "delayed", True, True


def adoption_in(new, old):
    adoption = staging.Adoption([new.queue_by_name[queue.name] for queue in old.queues])
    adoption.first_id = old.first_id
    return adoption


def entries_of(model, queue):
    """The entries of a queue whose ends its store has not heard of."""
    lent = [e.owner for other in model.queues.values() for e in other.entries if e.owner is not None and e.owner.queue is queue]
    for entry in lent:
        entry.state = "lent"
    return {*queue.entries, *lent}


def stays(model, entry, crashed):
    """Whether it is ready again, or in the history. If it is further down, that is its end; an orderly end knows that it was in
    the history for that."""
    if entry.state not in ("outstanding", "lent") or not is_further_down(model, entry, crashed):
        return True
    if crashed or entry not in entry.queue.processed:
        return False
    entry.state = "history"
    return True


def is_further_down(model, entry, crashed):
    """Whether a store has what became of it; after a crash: whether its own has."""
    queues = [queue for queue in model.queues.values() if queue.durable and queue.store in (entry.queue.store, *(
        () if crashed else model.stores))]
    live = [e for queue in queues for e in queue.entries if e.state != "history"]
    return any(e.parent is not None and books.owner_of(model, e.parent) is entry for e in live)


def below(entry, model):
    """What has become of it, as far down as that goes."""
    next_one = next((e for queue in model.queues.values() for e in queue.entries if entry in (e.owner, e.parent)), None)
    return [] if next_one is None else [next_one, *below(next_one, model)]


def come_back(entry, became, frontier, crashed):
    """What its store says of it."""
    if entry.state == "history":
        return
    if crashed:
        entry.delivery_count, entry.redelivered = entry.logged
        if entry.queue.handed and entry.id <= entry.queue.handed + AHEAD:
            entry.delivery_count, entry.redelivered = max(1, entry.delivery_count), True
        if entry.foreign and entry.redelivered is not True:
            entry.redelivered = EITHER      # its store cannot tell whether that was settled by an orderly end before
    elif entry.state in ("outstanding", "lent"):
        flags = [e.redelivered for e in (entry, *became)]
        was_taken = entry.state == "outstanding" or any(e.state == "outstanding" for e in became)
        entry.delivery_count = max(e.delivery_count for e in (entry, *became))
        entry.redelivered = True if was_taken or any(flag is True for flag in flags) else EITHER if EITHER in flags else False
    entry.logged = entry.delivery_count, entry.redelivered
    if entry.never_due:
        entry.state = "delayed"
    if entry.state == "delayed" and not (crashed and entry.retrying) and (not entry.lacking or entry.never_due):
        return
    was_passed = entry.id < frontier and (entry.state != "lent" or entry.never_waited) and not (
        is_aside(entry) or entry.came_delayed or entry.kept or entry.said_unrouted)      # a record says what became of such
    was_routed = entry.routed or was_passed
    entry.state = "waiting" if was_routed else "unrouted"


def open_queue(new, old, crashed):
    queue = new.create_queue(
        old.name, store=old.store, limit=old.limit, history_limit=old.history_limit, auto_delete=old.auto_delete,
        dead_letter=old.dead_letter, delivery_limit=old.delivery_limit, **old.terms)
    queue.held, queue.made = True, old.made
    queue.reopened = not queue.staged
    queue.window = old.window
    queue.items = old.items
    if not queue.staged:
        new.reopened.append(queue)
    queue.next_id, queue.timestamp, queue.entered = old.next_id, old.timestamp, old.entered
    queue.durable_id = old.next_id - 1
    queue.deleted, queue.dropped, queue.dead_lettered = old.deleted, old.dropped, old.dead_lettered
    queue.handed = old.handed if crashed else 0


def open_entry(queue, entry, sequence):
    """As new, but for what its store knows of it."""
    entry.queue, entry.sequence = queue, sequence
    entry.parent = entry.child = entry.selector = entry.delivery = entry.owner = None
    entry.holds, entry.hits, entry.parked, entry.marked, entry.nack_number = {}, [], False, False, 0
    entry.routed = entry.recovered = entry.state == "waiting" or (entry.state == "delayed" and entry.home == "waiting")
    entry.visited, entry.dead, entry.never_waited = None, False, False
    entry.was_delayed = entry.retrying and entry.kept_time and entry.state in READY
    entry.retrying = entry.kept_time = entry.retrying and entry.state == "delayed"
    entry.lacking = 0
    entry.said_unrouted = entry.state == "unrouted" and (entry.kept or entry.said_unrouted)
    entry.by_hand, entry.kept, entry.waited, entry.answer_by = False, False, entry.state in READY, None
    if not entry.came_delayed:
        entry.since = entry.message.timestamp
    if entry.dead_entry and entry.state != "history":
        entry.message = entry.message.replace(hops=0)
    queue.entries.append(entry)
    queue.entries.sort(key=lambda e: e.id)
    if entry.state == "history":
        queue.processed = [e for e in queue.entries if e.state == "history"]


def open_counts(queue, logged):
    """What is gone was settled, but for what was dropped or deleted; counted anew if the store has more than that, `logged`."""
    gone = queue.entered - len(queue.entries)
    if queue.deleted + sum(queue.dropped.values()) > queue.entered - logged:
        queue.deleted, queue.dropped = 0, {}
    queue.settled = gone - queue.deleted - sum(queue.dropped.values())
