"""In which order entries are looked at, and which of them have to wait for another one of their key (section 9: priority, order
per key).
"""

from tests.model.entries import READY
from tests.model.matching import holds, names_target, text_in


def rank(entry):
    """The order in a queue: the highest priority first, where the queue has priorities, then the lowest id."""
    highest = entry.queue.priority
    return (0 if highest is None else -min(entry.message.priority, highest)), entry.id


def everywhere(engine, state, is_next=lambda entry: True, is_stuck=lambda entry: False):
    """A merge of the queues' own orders: of the entries that are next in theirs the oldest one comes first. An entry that cannot
    be next is passed over; one that is stuck keeps its place in its own queue, and holds up none of it."""
    lines = [sorted([e for e in queue.entries if e.state == state and is_next(e)], key=rank) for queue in engine.queues.values()]
    merged = []
    while lines := [line for line in lines if line]:
        merged.append(min(lines, key=lambda line: (not is_stuck(line[0]), line[0].sequence)).pop(0))
    return merged


def key_of(entry):
    """The key within which the queue keeps the order, or None."""
    group = entry.queue.group
    return (text_in(entry.message, group.name) or None) if group else None


def is_first_of_its_key(entry):
    """Whether the order per key lets anybody take this entry."""
    key = key_of(entry)
    if key is None:
        return True
    same = [e for e in entry.queue.entries if key_of(e) == key]
    if any(holds_its_key(e) for e in same):
        return False
    before = [e for e in same if e.id < entry.id and not is_by_overflow(e)]
    return not any(e.state in READY or (e.state == "delayed" and e.retrying) for e in before)


def holds_its_key(entry):
    return entry.state in ("outstanding", "bound") and not is_by_overflow(entry)


def is_by_overflow(entry):
    """What an overflow selector took does not count for its key."""
    return entry.overflowed or (entry.selector is not None and entry.selector.role == "overflow")


def may_take(selector, entry):
    """Whether a waiting entry is one for this selector, enabled or not."""
    return selector.consuming and holds(selector, entry) and names_target(selector, entry) and is_first_of_its_key(entry)
