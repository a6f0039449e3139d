"""Hears what a compiled engine does with the room of its durable stores, for `told.py`: it stands between an engine and its
committers, and between these and the engine's ports.

A store has room again at two kinds of moments: in the middle of a call that lacks room, before the call has changed anything
(`make_room`), and when something was written. Each time what waits for room may go on, in a run of its own.
"""

from contextlib import contextmanager

from tests.model.entries import number_of
from tests.model.told import NOWHERE, Came, Limits, Told, Way, deaths_of
from tests.model.vocabulary import ENDS
from xump_ext.outcome import Outcome
from xump_ext.records import describe
from xump_ext.records.kinds import DEAD_ENTRY


class Port:
    """The port of one store, and what goes through it."""

    def __init__(self, port, hearing, store):
        self._port, self._hearing, self._store = port, hearing, store

    def __getattr__(self, name):
        return getattr(self._port, name)

    def has_room(self, room):
        self._hearing.hear_refusals()
        with self._hearing.run():
            self._port.has_room(room)

    def written(self, group, final):
        self._hearing.read(self._store, memoryview(group))
        self._port.written(group, final)


class Hearing:
    """Of an engine. `names`: queues by (store, number), which last longer than the engine. `meanwhile()` is called when room was
    made for a call, which is not over yet."""

    def __init__(self, engine, names, meanwhile):
        self.engine, self.names, self.meanwhile = engine, names, meanwhile
        self.entered = {}               # as in `Told`
        self.last = None                # what was told of the last call
        ENDS.clear()
        self.lacks_room = False         # whether a call is about to have room made for it
        self.rounds = 0                 # how many threads of stores write, or look for something to write
        self.known = self.limits()      # of all calls before
        self.newly = []                 # (queue's name and id, bytes) of what the groups of this call have
        self.begin()
        for name, store in engine._stores.items():
            if store.committer is not None:
                self.stand_between(name, store.committer)

    def stand_between(self, name, committer):
        make_room = committer.make_room

        def made(wanted):
            self.come_before()
            self.lacks_room = True
            try:
                make_room(wanted)
            finally:
                self.lacks_room = False
                self.meanwhile()
        def crowded():
            """As where the thread does not keep up: what a thread does when it likes could not be told."""
            committer._port.has_room(committer._backend.room() - committer._on_its_way)
            make_room(0)
        round_ = committer._round

        def one_round():
            self.rounds += 1
            try:
                round_()
            finally:
                self.rounds -= 1
        committer._port = Port(committer._port, self, name)
        committer.make_room, committer.crowded, committer._round = made, crowded, one_round

    def is_at_work(self, committer):
        """Whether the thread of a store may be about to write something, or has not come to the end of that: a call that waits
        for a call-back may have hurried it once more than was needed."""
        return committer._thread is not None and (
            self.rounds > 0 or committer._hurry.is_set() or (committer._each_call and committer.wakeup.is_set()))

    def begin(self):
        self.begun, self.before, self.after, self.newly = None, [], [], []
        self.largest, self.refusing = self.largest_bytes(), set()
        for place in [place for place in self.entered if place[0] not in self.known.queues]:
            del self.entered[place]

    @contextmanager
    def run(self):
        """A store says that it has room."""
        if self.engine.closed:
            yield
            return
        begun = self.limits()
        yield
        ended = self.limits()
        if ended == begun:
            return
        self.after.append((begun, ended))
        if self.lacks_room:
            self.come_before()

    def largest_bytes(self):
        """For each durable store: how large its largest message is, about."""
        return {name: store.committer._port.demand(0).largest_bytes for name, store in self.engine._stores.items()
                if store.committer is not None}

    def hear_refusals(self):
        """A store's mark that something was refused goes when it tells its room."""
        self.refusing |= {name for name in self.largest if self.engine._stores[name].committer._port.refused}

    def come_before(self):
        """The runs so far came before the call's own work, for which there was no room yet."""
        for begun, ended in self.after:
            self.begun = begun if self.begun is None else self.begun
            self.before.append(ended)
        self.after = []

    def limits(self):
        stats = self.engine.stats()
        queues = {name: Way(queue["entered"], deaths_of(queue["dropped"], queue["dead_lettered"]), queue["duplicates"])
                  for name, queue in stats["queues"].items()}
        selectors = stats["selectors"].items()
        return Limits(queues, {id: selector["copied"] for id, selector in selectors},
                      {id: selector["served"] for id, selector in selectors}, len(ENDS))

    def read(self, store, data):
        """The records of a group that was written."""
        at = 0
        while at < len(data):
            record = describe(data, at)
            if record["kind"] == "QUEUE":
                self.names[store, record["queue"]] = record["name"]
            elif record["kind"] == "ENTER":
                came = Came(number_of(data[at : at + record["length"]]), record["address"], record["hops"],
                            bool(record["flags"] & DEAD_ENTRY), record["timestamp"])
                place = self.names[store, record["queue"]], record["id"]
                if place not in self.entered:       # else it was copied forward, perhaps as one of the history
                    self.newly.append((place, record["length"]))
                    self.entered[place] = came
            at += record["length"]

    def has_heard_all(self):
        """Whether it is known which messages entered."""
        ways = [(name, way) for name, way in self.limits().queues.items() if self.engine.queues[name].store.name != "ram"]
        return all((name, id) in self.entered for name, way in ways
                   for id in range(self.known.queues.get(name, NOWHERE).last_id + 1, way.last_id + 1))

    def told(self, error, result, refused):
        """What is told of a call that is over."""
        self.known = self.limits()
        limits = self.after[0][0] if self.after else self.limits()
        outcomes = [one for one in result if isinstance(one, Outcome)] if isinstance(result, list) else []
        ended = 0 if self.last is None else self.last.ended     # a refused call may leave the model what the engine has done
        self.last = Told(self.entered, ENDS, ended, limits if self.begun is None else self.begun, self.before, limits,
                         [ended for _, ended in self.after], error, outcomes, refused)
        self.hear_refusals()
        largest = self.largest_bytes()
        self.last.largest_ended = any(largest[store] < self.largest[store] for store in self.refusing)
        return self.last
