"""The end of selectors and queues, and what a selector may be (rules 9 and 14)."""

from datetime import datetime

from tests.model import books, due, letters
from tests.model.matching import INFINITE
from tests.model.values import nanoseconds
from tests.model.windows import lines
from xump.errors import Conflict


def check_selector(engine, selector, start):
    if selector.credit != INFINITE and selector.credit < 0:
        raise ValueError(f"credit is {selector.credit}, allowed are 0 and more and INFINITE")
    target = selector.do.queue
    if selector.ack_timeout is not None and (selector.do.verb != "deliver" or target is not None or selector.infinite):
        raise ValueError(f"ack_timeout is for deliveries of finite credit, got {selector.do!r} with credit {selector.credit}")
    if selector.rank and not selector.consuming:
        raise ValueError(f"rank is for what takes messages, got {selector.do!r}")
    if selector.ahead is not None and (selector.do.verb != "deliver" or target is not None or selector.role == "overflow"):
        raise ValueError(f"ahead is for deliveries, got {selector.do!r}")
    delivers = selector.do.verb == "deliver" and target is None and selector.role != "overflow"
    if selector.window and (not delivers or selector.infinite):
        raise ValueError(f"window is for deliveries of finite credit, got {selector.do!r}")
    if selector.ack_timeout == 0:
        raise ValueError("ack_timeout must be above 0: nobody could answer in time")
    if isinstance(target, str) and engine._queue(target).staged or selector.source.staged:
        raise ValueError(f"a staged queue is published into, and has no selectors; got {selector.do!r}")
    if selector.role == "overflow" and (not selector.consuming or target == selector.source.name):
        raise ValueError(f"an overflow selector consumes, and into another queue; got {selector.do!r}")
    if selector.source.transit and (selector.do.verb not in ("copy", "discard") or selector.role == "overflow"):
        raise ValueError(f"a transit queue copies and discards, got {selector.when!r} and {selector.do!r}")
    if selector.source.transit and start != "current":
        raise ValueError(f"a transit queue keeps nothing from which a selector could start, got {start!r}")
    if start != "current" and selector.consuming:
        raise ValueError(f"a consuming selector sees ready messages only; it cannot start at {start!r}")
    if isinstance(start, str) and start not in ("current", "tail", "head"):
        raise ValueError(f"unknown start {start!r}; there are 'current', 'tail', 'head', ids and aware datetimes")
    if isinstance(start, datetime):
        nanoseconds(start)
    if selector.enabled:
        check_role(engine, selector.source, selector.role)


def check_role(engine, queue, role):
    if role != "ordinary" and any(s.role == role and s.enabled for s in queue.selectors):
        raise Conflict(f"queue {queue.name!r} has an enabled {role} selector")


def delete_selector(engine, selector, recall=True):
    doomed = []
    end_selector(engine, selector, recall, doomed)
    end_queues(engine, doomed)


def end_selector(engine, selector, recall, doomed):
    """Its queue joins the `doomed` ones if it deletes itself now."""
    queue = selector.source
    for entry in list(queue.entries):
        if entry.selector is selector and entry.delivery is not None and not recall:
            entry.selector, entry.by_hand, entry.home = None, True, "waiting"
            entry.overflowed = selector.role == "overflow"
        elif entry.selector is selector and entry.state == "outstanding":
            books.bring_home(engine, entry)
        elif entry.selector is selector:
            books.withdraw(engine, entry)
            entry.selector = None
            books.wait_again(engine, entry)
            if due.is_past(engine, entry):      # an outlet offered it
                letters.expire(engine, entry)
        entry.hits = [s for s in entry.hits if s is not selector]
    for other in lines(engine):
        if selector in other.waiting_list:
            other.waiting_list.remove(selector)
    del engine.selector_by_id[selector.id]
    if queue.auto_delete and not keeps_alive(queue, selector) and not queue.dying:
        queue.dying = True
        doomed.append(queue)


def keeps_alive(queue, ended):
    """Whether a queue with auto_delete stays when this selector has ended. The default of a transit queue does not count."""
    if not queue.transit:
        return bool(queue.selectors)
    return ended.role == "default" or any(s.role != "default" for s in queue.selectors)


def delete_queue(engine, queue):
    queue.dying = True
    end_queues(engine, [queue])


def end_queues(engine, doomed):
    """Rule 14: of each queue its selectors, what came from elsewhere, what remains; all before anything is routed. Queues that
    delete themselves for it follow then, the last one first."""
    while doomed:
        end_queue(engine, doomed.pop(), doomed)


def end_queue(engine, queue, doomed):
    for selector in list(engine.selectors.values()):
        if queue in (selector.source, engine.queues.get(selector.do.queue)) and selector.id in engine.selectors:
            end_selector(engine, selector, True, doomed)
    while any(e.parent for e in queue.entries):
        books.bring_home(engine, next(e.parent for e in queue.entries if e.parent))
    for entry in list(queue.entries):
        books.remove(engine, entry)
    del engine.queue_by_name[queue.name]
    for staged in [staged for adoption in queue.adoptions for staged in adoption.queues]:
        staged.dying = True
        doomed.append(staged)
