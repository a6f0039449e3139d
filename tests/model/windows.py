"""Windows that several selectors share, and in whose lines they stand as in that of a full target (decision 195)."""

from tests.model.matching import target_of
from tests.model.values import COUNT_MAX, integer


class Window:
    def __init__(self, engine, name, credit):
        self.engine = engine
        self.name = name
        self.credit = self.first = integer("credit", credit, 0, COUNT_MAX)
        self.lowered_at = 0             # so many were outstanding when it was last resized
        self.waiting_list = []

    @property
    def selectors(self):
        return [s for s in self.engine.selectors.values() if s.window is self]

    @property
    def outstanding(self):
        return sum(s.outstanding for s in self.selectors)

    @property
    def available(self):
        return max(self.credit - self.outstanding, 0)

    def delete(self):
        return self.engine.delete_window(self)

    def resize(self, credit):
        integer("credit", credit, 0, COUNT_MAX)
        with self.engine._call():
            self.credit, self.lowered_at = credit, self.outstanding


def lines(engine):
    """Everything in whose waiting list a selector may stand."""
    return [*engine.queues.values(), *engine.windows.values()]


def line_of(selector, message):
    """In whose waiting list the selector stands with the message, if it has to: its target or its window; or None."""
    return selector.window or target_of(selector, message)
