"""A selector: its condition, its action, its credit."""

from tests.model import books, graph, routing, transactions
from tests.model.matching import INFINITE
from tests.model.room import wants_in
from tests.model.values import COUNT_MAX, integer, optional_duration
from tests.model.windows import lines
from xump.conditions import Role
from xump.errors import SelectorNotFound


class Selector:
    def __init__(self, engine, id, source, when, do, credit, enabled, start, name, ack_timeout, rank, ahead, window):
        self.engine = engine
        self.id = id
        self.name = name
        self.source = source
        self.when = when
        self.do = do
        self.credit = credit
        self.available = credit
        self.enabled = enabled
        self.ack_timeout = optional_duration("ack_timeout", ack_timeout)
        self.rank = integer("rank", rank, -32_768, 32_767)
        self.ahead = None if ahead is None else integer("ahead", ahead, 1, COUNT_MAX)
        self.window = window
        self.properties = (source.name, when, do, credit, enabled, start, self.ack_timeout, rank, ahead,
                           window and window.name)
        self.role = when.name if isinstance(when, Role) and when.name in ("default", "overflow") else "ordinary"
        self.start = 0                  # COPY: ids from here on are live
        self.replayed = 0               # COPY: ids from here to `start` were copied by its replay
        self.replay_at_enable = None    # COPY: the id from which to replay when first enabled
        self.aside = []                 # COPY: entries that come later, whatever their ids
        self.served_at = 0              # when it last took, by the engine's count; 0: never
        self.served = self.copied = self.dropped = self.paid = self.returned = self.errors = 0

    @property
    def consuming(self):
        return self.do.consuming

    @property
    def infinite(self):
        return self.credit == INFINITE

    @property
    def has_credit(self):
        if self.ahead is not None and self.offered >= self.ahead:
            return False
        return self.infinite or self.available > 0 or self.do.verb == "discard"

    @property
    def offered(self):
        return sum(e.selector is self for e in self.engine.offers)

    @property
    def turn(self):
        """The selector whose turn is lowest goes first (rule 4)."""
        return -self.rank, self.served_at, self.id

    @property
    def is_able(self):
        return self.enabled and self.has_credit

    @property
    def outstanding(self):
        return sum(e.state == "outstanding" and e.selector is self for e in self.source.entries)

    @property
    def blocked(self):
        return any(self in queue.waiting_list and wants_in(self.engine, self, queue) for queue in lines(self.engine))

    def has_replayed(self, entry):
        return self.replayed and self.replayed <= entry.id < self.start and entry not in self.aside

    def grant(self, n):
        if n and self.infinite:
            raise ValueError("INFINITE credit cannot be granted more or less")
        with self._call():
            if n and n < -self.available:
                raise ValueError(f"cannot take back {-n} credits, {self.available} of {self.credit} are available")
            if n:
                self.credit += n
                self.available += n

    def pay(self, n=1):
        if n and (self.do.verb != "deliver" or self.do.queue is not None or self.infinite):
            raise ValueError(f"selector {self.id} is paid from below; pay() is for deliveries of finite credit")
        with self._call():
            taken = [d.entry for d in self.engine.taken if d.entry.selector is self]
            if not 0 <= n <= len(taken):
                raise ValueError(f"cannot pay {n}, {len(taken)} are taken and not paid for")
            for entry in taken[:n]:
                books.pay(self.engine, entry)

    def enable(self):
        with self._call(), transactions.all_or_nothing(self.engine):
            if not self.enabled:
                graph.check_role(self.engine, self.source, self.role)
                self.enabled = True
                if self.replay_at_enable is not None:
                    routing.replay(self.engine, self, self.replay_at_enable)

    def disable(self):
        with self._call():
            self.enabled = False

    def delete(self, *, recall=True):
        return self.engine.delete_selector(self, recall=recall)

    def _call(self):
        if self.engine.selectors.get(self.id) is not self:
            raise SelectorNotFound(f"selector {self.id} was deleted")
        return self.engine._call()
