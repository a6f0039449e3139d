"""Entering, taking, paying, coming home: how messages move and how credit is counted (rules 1, 7, 8, 9, 10).

Every function leaves the counters and links right.
"""

from tests.model import due, letters, told
from tests.model.entries import Entry
from tests.model.matching import destination_of, makes, target_of
from tests.model.room import is_below_limit, overflow_can_take
from tests.model.values import after


def enter(engine, queue, message, visited, *, parent=None, dead=False, dead_entry=False, like=None, owner=None,
          came=None, end=None, late=False):
    """Rule 1, when it is known that the queue has room. `like`: the entry whose count of deliveries travels with it. `owner`:
    the durable entry of which it has the last word, if it is in RAM. `came`: the one that goes on as this by INFINITE, or of
    which it is a copy. `end`: of its delay. `late`: its time is over."""
    overflows = not late and end is None and not is_below_limit(engine, queue) and overflow_can_take(engine, queue, message)
    engine.sequence += 1
    queue.timestamp = max(queue.timestamp, engine.now)
    entry = Entry(queue, message.replace(id=queue.next_id, timestamp=queue.timestamp), engine.sequence)
    entry.since = engine.time
    queue.next_id += 1
    queue.entered += 1
    queue.entries.append(entry)
    told.arrives(engine, entry.message)
    if queue not in visited:
        visited.append(queue)
    entry.visited, entry.dead, entry.dead_entry, entry.parent = visited, dead, dead_entry, parent
    if parent is not None:
        parent.child = entry
    if like is not None:
        entry.delivery_count, entry.redelivered, entry.nack_number = like.delivery_count, like.redelivered, like.nack_number
    entry.logged = entry.delivery_count, entry.redelivered
    entry.owner = None if queue.durable else owner
    above = (None if parent is None else owner_of(engine, parent)) or came
    # With two durable stores, also one that stayed in its own: what it came from may have copies that are on their way.
    entry.foreign = above is not None and queue.durable and (
        above.queue.store != queue.store or above.foreign or len(engine.stores) > 2)
    if came is not None and not queue.durable and parent is owner is None:
        engine.strayed.add(message.body)
    if end is not None:
        entry.state, entry.due, entry.since, entry.came_delayed = "delayed", end, end, True
        entry.visited = None        # whoever asked for its outcome knows that it is delayed
    if overflows:
        entry.state = "entering"    # what overflow takes never counts as ready
        entry.never_waited = True
        take(engine, queue.overflow, entry)
    return entry


def take(engine, selector, entry):
    """One consuming action on an entry that the selector may take (rules 4 and 8)."""
    if entry.visited is None:
        entry.visited = [entry.queue]
    entry.parked = False
    engine.served_count += 1
    selector.served_at = engine.served_count
    selector.served += 1
    if selector.do.verb == "discard":
        settle(engine, entry)
    elif target_of(selector, entry.message) is not None:
        move(engine, selector, entry)
    else:
        entry.selector = selector
        entry.state = "bound" if selector.infinite else "outstanding"
        if not selector.infinite:
            selector.available -= 1
        if selector.window and selector in selector.window.waiting_list:
            selector.window.waiting_list.remove(selector)
        entry.offered_to = destination_of(selector, entry.message)
        entry.visited = None        # decision 165
        engine.offers.append(entry)
        for outlet in engine.outlets:
            outlet.look()
        if not selector.infinite:
            hand(engine, entry)


def hand(engine, entry):
    """From here on your program may have it: durable queues keep that in mind."""
    for above in [*entry.chain, *(e.owner for e in entry.chain if e.owner)]:
        above.queue.handed = max(above.queue.handed, above.id)


def tell_again(engine, entry):
    """It was taken before, and is now: stores know how often."""
    for above in [*entry.chain, *(e.owner for e in entry.chain if e.owner)]:
        above.logged = entry.delivery_count, True


def owner_of(engine, entry):
    """The durable entry that stands behind this one: itself, the nearest upstream, or the owner of that."""
    return next((above if above.queue.durable else above.owner for above in entry.chain
                 if above.queue.durable or above.owner), None)


def inherited_owner(engine, entry):
    """The owner of what becomes of an entry that ends. It is known to have been delivered as often as the entry was."""
    owner = owner_of(engine, entry)
    for above in entry.chain if owner else ():
        owner.delivery_count = max(owner.delivery_count, above.delivery_count)
        owner.redelivered = owner.redelivered or above.redelivered
        if owner in (above, above.owner):
            break
    return owner


def move(engine, selector, entry):
    target = target_of(selector, entry.message)
    if selector in target.waiting_list:
        target.waiting_list.remove(selector)
    message = makes(selector, entry)
    if message.hops > engine.hop_limit:
        if not selector.infinite:
            selector.paid += 1
        letters.dead_letter(engine, entry, "hops")
    elif selector.infinite:
        parent, entry.parent = entry.parent, None
        owner = inherited_owner(engine, entry) if parent is None or owner_of(engine, parent) is None else None
        came = owner_of(engine, entry)
        settle(engine, entry)
        enter(engine, target, message, entry.visited, parent=parent, dead=entry.dead, like=entry, owner=owner, came=came)
    else:
        selector.available -= 1
        entry.selector = selector
        entry.state = "outstanding"
        enter(engine, target, message, entry.visited, parent=entry, dead=entry.dead, like=entry)


def settle(engine, entry):
    """The last word on a processed message: into the history or gone, and its supplier is paid."""
    queue = entry.queue
    entry.state = "history"
    entry.selector = entry.owner = None
    entry.by_hand = entry.retrying = False
    queue.processed.append(entry)
    while queue.history_limit is not None and len(queue.processed) > queue.history_limit:
        remove(engine, queue.processed[0])
        queue.settled += 1
    pay_supplier(engine, entry)


def pay_supplier(engine, entry):
    parent, entry.parent = entry.parent, None
    if parent is not None:
        pay(engine, parent)


def pay(engine, entry):
    """Pays for an outstanding entry: one credit is available again, and the entry is settled."""
    if entry.selector is not None:      # None: taken by hand
        entry.selector.available += 1
        entry.selector.paid += 1
    if entry.delivery is not None:
        entry.delivery.answered = True
    withdraw(engine, entry)
    entry.child = None
    settle(engine, entry)


def withdraw(engine, entry):
    """No offer and no delivery of this entry is good any more."""
    if entry in engine.offers:
        engine.offers.remove(entry)
    if entry.delivery is not None:
        engine.taken.remove(entry.delivery)
    entry.delivery = entry.answer_by = None
    if entry.state == "bound":
        entry.selector = None


def give_back(engine, entry):
    """Takes an outstanding entry's credit back unpaid, and recalls what it became downstream."""
    child = entry.child
    if child is not None:
        if child.state == "outstanding":
            give_back(engine, child)
        entry.delivery_count, entry.nack_number = child.delivery_count, child.nack_number
        entry.redelivered = entry.redelivered or child.redelivered
        entry.child = child.parent = None
        remove(engine, child)
        child.queue.deleted += 1
        if child.queue.durable and not entry.queue.durable:
            engine.strayed.add(entry.message.body)
    if entry.selector is not None:
        entry.selector.available += 1
        entry.selector.returned += 1
    entry.selector = None
    withdraw(engine, entry)


def bring_home(engine, entry, delay=0):
    """An outstanding entry comes home to its old place (rules 9 and 10), after a delay in ns, or expires."""
    give_back(engine, entry)
    entry.redelivered = entry.redelivered or entry.delivery_count > 0
    wait_again(engine, entry)
    if due.is_past(engine, entry):
        letters.expire(engine, entry)
    elif delay:
        entry.home, entry.state, entry.retrying, entry.due = entry.state, "delayed", True, after(engine.time, delay)


def wait_again(engine, entry):
    """As it was before it was taken: what was taken by hand may not have been routed yet, or may be parked."""
    entry.state = entry.home if entry.by_hand else "waiting"
    entry.by_hand = entry.overflowed = False
    entry.holds = {}
    if not entry.parked:
        entry.hits = []
    entry.logged = entry.delivery_count, entry.redelivered


def remove(engine, entry):
    entry.queue.entries.remove(entry)
    entry.selector = entry.owner = None
    if entry in entry.queue.processed:
        entry.queue.processed.remove(entry)
    withdraw(engine, entry)
    entry.state = "gone"


def delete_entry(engine, entry):
    if entry.state == "outstanding":
        give_back(engine, entry)
    remove(engine, entry)
    entry.queue.deleted += 1
    pay_supplier(engine, entry)
