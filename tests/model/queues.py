"""A queue: its list of entries, its properties and counts, and what can be asked of it."""

from datetime import datetime
from itertools import count

from tests.model import books, maps, routing, staging, told
from tests.model.entries import READY
from tests.model.matching import passes_quietly
from tests.model.values import COUNT_MAX, duration, integer, nanoseconds, optional_duration
from xump.actions import Field
from xump.conditions import Where, where as compile_where
from xump.errors import QueueNotFound, RewriterNotFound
from xump_ext.message.rewriter import rewriter_names


MADE = count(1)


class Queue:
    def __init__(self, engine, name, store, limit, history_limit, auto_delete, dead_letter, delivery_limit, **terms):
        self.engine = engine
        self.name = name
        self.store = store
        self.limit = limit
        self.history_limit = history_limit
        self.auto_delete = auto_delete
        self.dead_letter = dead_letter
        self.delivery_limit = delivery_limit
        self.terms = terms              # as given
        self.set_terms(**terms)
        if self.transit:
            check_transit(self)
        if self.staged:
            check_staged(self)
        self.held = self.staged
        self.adoptions = []             # of staged queues, the oldest first
        self.reopened = False           # held since its store was opened: what is due waits
        self.made = next(MADE)          # tells it from others of its name
        self.dying = False
        self.entries = []               # all that it holds, by id
        self.processed = []             # its history, in the order in which it was processed
        self.waiting_list = []          # selectors that wait for room here
        self.window = []                # (message_id, id, time) of those of which a publish may be a duplicate
        self.duplicates = 0
        self.next_id = 1
        self.timestamp = 0              # of its newest entry
        self.entered = self.settled = self.deleted = 0
        self.dropped = {}               # reason -> count
        self.dead_lettered = {}
        self.durable_id = 0             # ids up to it were there at the last sync
        self.items = {}                 # its map
        self.handed = 0                 # the highest id that was offered to your program, here or downstream

    def set_terms(self, *, retry_delay=None, ttl=None, priority=None, group=None, dedup=None, dedup_limit=100_000,
                  limit_bytes=None, when_full="refuse", unmatched="drop", transit=False, rewriter=None, staged=False):
        """The properties of sections 9 and 10."""
        self.rewriter = rewriter_of(rewriter)
        self.retry_delays = delays_of(retry_delay)      # ns
        self.ttl = optional_duration("ttl", ttl)        # ns
        self.priority = None if priority is None else integer("priority", priority, 1, 255)
        self.group = checked_group(group)
        self.dedup = optional_duration("dedup", dedup)  # ns
        self.dedup_limit = integer("dedup_limit", dedup_limit, 1, COUNT_MAX)
        self.limit_bytes = None if limit_bytes is None else integer("limit_bytes", limit_bytes, 0, COUNT_MAX)
        self.when_full = checked_word("when_full", when_full, "refuse", "drop_oldest", "drop_to_fit")
        self.unmatched = checked_word("unmatched", unmatched, "drop", "keep")
        self.transit = transit
        self.staged = staged

    @property
    def durable(self):
        return self.store != "ram"

    @property
    def properties(self):
        return (
            self.store, self.limit, self.history_limit, self.auto_delete, self.dead_letter, self.delivery_limit,
            self.retry_delays, self.ttl, self.priority, self.group, self.dedup, self.dedup_limit, self.limit_bytes,
            self.when_full, self.unmatched, self.staged, self.transit, self.rewriter)

    @property
    def selectors(self):
        return [s for s in self.engine.selectors.values() if s.source is self]

    @property
    def ready(self):
        return sum(e.state in READY for e in self.entries)

    @property
    def delayed(self):
        return sum(e.state == "delayed" for e in self.entries)

    @property
    def oldest(self):
        """The time at which the oldest ready message entered, or None."""
        return next((e.message.timestamp for e in self.entries if e.state in READY), None)

    @property
    def outstanding(self):
        return sum(e.state == "outstanding" for e in self.entries)

    @property
    def history(self):
        return sum(e.state == "history" for e in self.entries)

    @property
    def frontier(self):
        return next((e.id for e in self.entries if e.state == "unrouted"), self.next_id)

    @property
    def overflow(self):
        return next((s for s in self.selectors if s.role == "overflow" and s.enabled), None)

    @property
    def entering(self):
        return staging.entering(self)

    @property
    def stable_id(self):
        return staging.stable_id(self)

    @property
    def meta(self):
        return maps.Meta(lambda: self._live().items, self._call, lambda: told.check(self.engine, "map", self))

    def find(self, id):
        return next((e for e in self.entries if e.id == id), None)

    def publish(self, address="", body=b"", headers=None, *, reply_to=None, message_id=None, **terms):
        return self.engine.publish(self, address, body, headers, reply_to=reply_to, message_id=message_id, **terms)

    def hold(self):
        with self._call():
            self.held = True
            self._is_held_by_program()

    def release(self):
        if self._live().staged:
            raise ValueError(f"queue {self.name!r} is staged")
        with self._call():
            self._is_held_by_program()
            routing.release(self.engine, [self])

    def _is_held_by_program(self):
        """Or not: no building block ends its hold from now on."""
        self.engine.reopened = [queue for queue in self.engine.reopened if queue is not self]

    def fetch(self, id):
        entry = self.find(id)
        return entry and entry.message

    def delete(self, id):
        with self._call():
            entry = self.find(id)
            if entry is not None:
                books.delete_entry(self.engine, entry)
                if staging.adopter_of(self.engine, self):
                    staging.tidy(self.engine, staging.adopter_of(self.engine, self))
        return entry is not None

    def purge(self, *, upto=None):
        with self._call():
            staging.check_open(self.engine, self)
            found = [e for e in self.entries if e.state in (*READY, "delayed") and (upto is None or e.id <= upto)]
            for entry in found:
                books.delete_entry(self.engine, entry)
        return len(found)

    def _live(self):
        if self.engine.queues.get(self.name) is not self:
            raise QueueNotFound(f"queue {self.name!r} was deleted")
        return self

    def _call(self):
        return self._live().engine._call()

    def browse(self, start="head", *, state=None, where=None, limit=None, reverse=False):
        if state not in (None, "ready", "delayed", "outstanding", "history"):
            raise ValueError(f"unknown state {state!r}; there are 'ready', 'delayed', 'outstanding' and 'history'")
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}, allowed are 0 and more")
        condition = compile_where(where) if where is not None and not isinstance(where, Where) else where
        found = [e for e in self.entries if self._is_from(e, start, reverse)]
        found = [e for e in found if state in (None, "ready" if e.state in READY else e.state)]
        found = [e for e in found if condition is None or passes_quietly(condition, e)]
        if reverse:
            found.reverse()
        return iter([e.message for e in found[:limit]])

    def _is_from(self, entry, start, reverse):
        """Whether a browse from `start` comes to this entry: from there on, or down from there."""
        if start == "head":
            return True         # reverse: down from the newest, the default
        if isinstance(start, datetime):
            time = nanoseconds(start)
            return entry.message.timestamp <= time if reverse else entry.message.timestamp >= time
        if start == "current":
            start = self.frontier
        if not isinstance(start, int):
            raise ValueError(f"cannot start at {start!r}; allowed are 'head', 'current', an id and an aware datetime")
        return entry.id <= start if reverse else entry.id >= start


def delays_of(retry_delay):
    """Seconds, or a list of them, as ns."""
    if retry_delay is None:
        return None
    if not isinstance(retry_delay, (list, tuple)):
        return (duration("retry_delay", retry_delay),)
    if not retry_delay:
        raise ValueError("retry_delay must be seconds or a list of at least one")
    return tuple(duration("retry_delay", seconds) for seconds in retry_delay)


def check_transit(queue):
    """What keeps nothing has no use for what is about keeping."""
    plain = Queue(queue.engine, queue.name, "ram", None, 0, queue.auto_delete, queue.dead_letter, None)
    if queue.properties[:-2] != plain.properties[:-2]:
        raise ValueError("a transit queue keeps nothing: it has auto_delete, dead_letter and rewriter at most")


def check_staged(queue):
    """Nothing happens to what is there, so it has no use for what would."""
    plain = Queue(queue.engine, queue.name, queue.store, None, 0, False, None, None)
    if queue.properties[:-3] != plain.properties[:-3] or queue.transit or queue.rewriter:
        raise ValueError("a staged queue has no other property but its store")


def checked_group(group):
    if group is not None and not isinstance(group, Field):
        raise TypeError(f"group must be a field(...), got {group!r}")
    return group


def checked_word(what, word, *allowed):
    if word not in allowed:
        raise ValueError(f"{what} must be one of {allowed}, got {word!r}")
    return word


def rewriter_of(rewriter):
    """(name, argument), or None."""
    if rewriter is None:
        return None
    name, argument = (rewriter, "") if isinstance(rewriter, str) else rewriter
    if name not in rewriter_names():
        raise RewriterNotFound(f"no rewriter {name!r}")
    return name, argument
