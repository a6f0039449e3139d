"""Room in queues, and the selectors that stand in line for it (rule 1, decision 4)."""

from tests.model import due, letters
from tests.model.entries import READY, Entry, Message
from tests.model.matching import makes, names_target, target_of
from tests.model.order import may_take
from tests.model.told import guess, store_takes
from tests.model.windows import Window, line_of, lines
from xump.actions import Field


def may_put(engine, selector, entry, refused, urgent=None):
    """Whether the selector may put the entry into its target, or take it under its window, now; else it is in that waiting list
    (decision 4). `urgent`: an unrouted entry that goes before it. Then something else enters a full store, so all that the model
    is told is that something does."""
    target = line_of(selector, entry.message)
    if target is None:
        return True
    if (selector, target) in refused:
        return False
    ahead = [s for s in target.waiting_list if s.rank >= selector.rank]
    first = not ahead or ahead[0] is selector
    if first and has_room_for(engine, target, selector, entry):
        return True
    if first and urgent is not None and engine.told is not None and not isinstance(target, Window) and (
            is_below_limit(engine, target, leaving=entry) and engine.told.way(target).last_id >= target.next_id):
        guess(engine)               # what enters may be an older one, and the urgent entry waits for its turn
        return True
    if ahead and entered_before(engine, ahead[0], selector, entry, target, refused):
        guess(engine)               # the first one had its turn before this one stood there, or the store refused its message
        return True
    if selector not in target.waiting_list:
        target.waiting_list.insert(len(ahead), selector)
    refused.append((selector, target))
    return False


def entered_before(engine, first, selector, entry, target, refused):
    """Whether what the selector makes of the entry has entered the full store next, though another selector is the first in the
    line, which would not have put the same there."""
    if engine.told is None or not getattr(target, "durable", False):
        return False
    is_other = first.source is not entry.queue or not may_take(first, entry) or (first, target) in refused
    return is_other and engine.told.has_entered(engine, target, makes(selector, entry), False) and (
        has_room_for(engine, target, selector, entry))


def has_room_for(engine, target, selector, entry):
    """Whether the window has credit, or the queue room for what the selector would make of the entry."""
    if isinstance(target, Window):
        return target.available > 0
    message = makes(selector, entry)
    if engine.told is not None and target.durable and message.hops > engine.hop_limit:      # it will not enter there
        return engine.told.has_died(entry.queue) and has_room(engine, target, message, leaving=entry, asks=False)
    return has_room(engine, target, message, leaving=entry)


def is_stuck(engine, entry):
    """Whether all who may take the waiting entry stand in line for it, behind others or where no room is."""
    if entry.queue.priority is None or entry.parked:        # else nothing in its queue is younger and goes first
        return False
    able = [s for s in entry.queue.selectors if may_take(s, entry) and s.is_able]
    lacked = 0 if engine.told is None else len(engine.told.lacked)
    stuck = bool(able) and all(stands_still(engine, selector, entry) for selector in able)
    if engine.told is not None:
        del engine.told.lacked[lacked:]         # nobody has asked for it
    return stuck


def stands_still(engine, selector, entry):
    target = line_of(selector, entry.message)
    if target is None or selector not in target.waiting_list:
        return False
    return target.waiting_list[0] is not selector or not has_room_for(engine, target, selector, entry)


def prune_lines(engine):
    for queue in lines(engine):
        while queue.waiting_list and has_room_for_any(engine, queue) and not wants_in(engine, queue.waiting_list[0], queue):
            queue.waiting_list.pop(0)


def wants_in(engine, selector, queue):
    return selector.is_able and not selector.source.held and has_waiting(engine, selector, queue)


def has_waiting(engine, selector, queue):
    waiting = [e for e in selector.source.entries if e.state == "waiting" and may_take(selector, e)]
    return any(line_of(selector, e.message) is queue for e in waiting)


def has_room(engine, queue, message, leaving=None, *, pushes=False, delayed=False, asks=True, copier=None,
             dead=False):
    """Whether the queue can take the message: it is below its limits, or its overflow selector takes it; or it drops its oldest
    ones, and the message may push (a publish, a COPY or a dead letter may). In a store that has room; not `asks`: that is known.
    `copier`: the selector that copies it. `dead`: a dead letter, which begins anew."""
    fits = is_below_limit(engine, queue, leaving)
    if not fits and not delayed and overflow_can_take(engine, queue, message, leaving):
        fits = True
        if queue.durable and any(due.is_past(engine, entry) for entry in counted(queue) if entry is not leaving):
            guess(engine)           # the store may have had room for it when that was gone; then it enters as any other
    fits = fits or (pushes and drops(queue))
    if leaving is not None and letters.dead_letter_of(engine, leaving)[0] is not queue:
        leaving = None          # its dead letter cannot be what has entered here
    return fits and (not asks or store_takes(engine, queue, message, "push" if pushes else "wait", copier, dead, leaving))


def drops(queue):
    """Whether it drops its oldest messages for one that pushes."""
    delayed = [e for e in counted(queue) if e.state == "delayed"]
    return queue.when_full != "refuse" and (
        is_within(queue, delayed) or (queue.when_full == "drop_to_fit" and leaves_any(queue, delayed)))


def is_below_limit(engine, queue, leaving=None):
    return not queue.dying and is_within(queue, [e for e in counted(queue) if e is not leaving])


def counted(queue):
    """What the limits count."""
    return [e for e in queue.entries if e.state in (*READY, "delayed")]


def is_within(queue, entries):
    """Whether these leave room for one more."""
    size = sum(len(e.message.body) for e in entries)
    return (queue.limit is None or len(entries) < queue.limit) and (queue.limit_bytes is None or size < queue.limit_bytes)


def leaves_any(queue, delayed):
    """Whether delayed messages leave anything of the limits, which may be 0: what comes may be dropped at once."""
    size = sum(len(e.message.body) for e in delayed)
    return (not delayed or queue.limit is None or len(delayed) < queue.limit) and (
        not size or queue.limit_bytes is None or size < queue.limit_bytes)


def overflow_can_take(engine, queue, message, leaving=None, *, asks=True):
    selector = queue.overflow
    if selector is None or not selector.has_credit:
        return False
    entry = Entry(queue, message, 0)
    if not names_target(selector, entry):
        return False
    target = target_of(selector, message)
    if target is None or target is queue:
        return target is None
    return is_below_limit(engine, target, leaving) and (
        not asks or store_takes(engine, target, makes(selector, entry), "overflow", overflow=selector))


def has_room_for_any(engine, queue):
    """Room whatever the message: an overflow selector that asks the message does not count. In a full store, too, as long as that
    has more than a few KiB left."""
    if isinstance(queue, Window):
        return queue.available > 0
    selector = queue.overflow
    if is_below_limit(engine, queue):
        return True
    by_field = selector and (isinstance(selector.do.queue, Field) or isinstance(selector.do.destination, Field))
    return not by_field and overflow_can_take(engine, queue, Message(), asks=False)
