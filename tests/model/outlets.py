"""Outlets and watches: who is called when a call is over (decisions 198, 199)."""

from tests.model import deliveries, routing

TURN = 16


class Outlet:
    def __init__(self, engine, call):
        self.engine = engine
        self.call = call
        self.own = []           # its destinations
        self.line = []          # those of them that have offers, or had; the first one is asked
        self.quiet = True
        engine.outlets.append(self)

    @property
    def destinations(self):
        return tuple(self.own)

    def offers(self):
        return [entry for entry in self.engine.offers if entry.offered_to in self.own]

    def add(self, destination):
        return self.add_all([destination]) == 1

    def add_all(self, destinations):
        """All, or none."""
        if not all(isinstance(destination, str) for destination in destinations):
            raise TypeError(f"destinations are texts, got {destinations}")
        with self.engine._call():
            new = [destination for destination in dict.fromkeys(destinations) if destination not in self.own]
            for destination in new:
                if any(destination in outlet.own for outlet in self.engine.outlets):
                    raise ValueError(f"destination {destination!r} belongs to another outlet")
            for destination in new:
                self.own.append(destination)
                self.look()
            return len(new)

    def discard(self, destination):
        with self.engine._call():
            if destination not in self.own:
                return False
            self.own.remove(destination)
            if destination in self.line:
                self.line.remove(destination)
            return True

    def close(self):
        with self.engine._call():
            self.own, self.line = [], []

    def take(self, n):
        if n < 0:
            raise ValueError(f"n must not be negative, got {n}")
        taken, turn, was_quiet = [], TURN, self.quiet
        with self.engine._call():
            while len(taken) < n and self.leave_line():
                if turn == 0:
                    self.line.append(self.line.pop(0))
                    turn = TURN
                    continue
                destination = self.line[0]
                taken.append(deliveries.hand_over(
                    self.engine, next(e for e in self.engine.offers if e.offered_to == destination)))
                turn = turn - 1 if any(e.offered_to == destination for e in self.engine.offers) else TURN
            routing.finish(self.engine, lets_in=False)
            self.quiet = not self.leave_line() or was_quiet     # then whatever the end of the call offered calls back
        return taken if taken or self.quiet or n == 0 else self.take(n)

    def leave_line(self):
        """Those without offers leave the line, as far as they stand first. Whether one is left."""
        while self.line and not any(entry.offered_to == self.line[0] for entry in self.engine.offers):
            self.line.pop(0)
        return bool(self.line)

    def look(self):
        """Something may have been offered here."""
        for entry in self.offers():
            if entry.offered_to not in self.line:
                self.line.append(entry.offered_to)

    def tell(self):
        """The call is over."""
        if self.quiet and self.offers():
            self.quiet = False
            self.call()


def has(engine, entry):
    """Whether the entry is in the hands of the program, though it has not taken it: an outlet offers it."""
    return any(entry.offered_to in outlet.own for outlet in engine.outlets)


class Watch:
    def __init__(self, engine, call):
        self.engine = engine
        self.call = call
        self.known = graph_of(engine)
        engine.watches.append(self)

    def stop(self):
        if self in self.engine.watches:
            self.engine.watches.remove(self)

    def tell(self):
        now = graph_of(self.engine)
        changes = [(what, False, thing) for what, thing in self.known if (what, thing) not in now]
        changes += [(what, True, thing) for what, thing in now if (what, thing) not in self.known]
        self.known = now
        if changes:
            self.call(changes)


def graph_of(engine):
    return [*(("queue", queue) for queue in engine.queues.values()),
            *(("selector", selector) for selector in engine.selectors.values())]
