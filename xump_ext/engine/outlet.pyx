"""Outlets: messages offered to a set of destinations, for a program that has no thread waiting for each of them.

An outlet is *quiet* while nothing is offered to its destinations. The call that ends the quiet calls back, once; then the program
drains the outlet until nothing is left, which makes it quiet again. Its destinations stand in line: the first one has a turn of
so many offers, then goes to the back. So a call-back is paid for once, not once a message, and no destination starves another.

A message offered here counts as in your program's hands: it does not expire any more (`state/offers.pyx`).

`outlet.pxd` says how a compiled server drains it, without a Python object for a message.
"""

from libc.stdint cimport int64_t, uint32_t

from xump_ext.engine.delivery cimport hand_over
from xump_ext.engine.taking cimport keep_undelivered, next_undelivered
from xump_ext.errors import StoreFull, no_pickle
from xump_ext.memory.document cimport document
from xump_ext.route.answers cimport reject_entry
from xump_ext.route.offering cimport PAID, accept, pay
from xump_ext.route.requeue cimport NACK_ASKS, NACK_RETURNS, nack_entry
from xump_ext.route.routing cimport go_on
from xump_ext.state.constants cimport NEVER
from xump_ext.state.envelope cimport DestinationRef
from xump_ext.state.graph cimport destination_t, entry_t
from xump_ext.message.content cimport checked_text
from xump_ext.state.lazy_content cimport can_be_read
from xump_ext.state.offers cimport destination_named, destination_left, outlet_first, outlet_join, outlet_part, outlet_turned

cdef int64_t COUNT_MAX = 2 ** 62

cdef enum:
    TURN = 16       # so many offers a destination gives before the next one has its turn


cdef class Outlet:
    """The messages that are offered to a set of destinations, with one call-back for all. Created by `Engine.outlet`.

    >>> from xump import Engine, always, deliver
    >>> with Engine() as engine:
    ...     outlet = engine.outlet(lambda: print("there is something"), ["mail", "news"])
    ...     for name in ("mail", "news"):
    ...         queue = engine.create_queue(name)
    ...         reader = engine.create_selector(name, when=always, do=deliver(name), credit=10)
    ...         ids = engine.publish_many(name, [(f"{name} 1",), (f"{name} 2",)])
    ...     [delivery.address for delivery in outlet.take(10)]
    there is something
    ['mail 1', 'mail 2', 'news 1', 'news 2']
    """

    def __cinit__(self, EngineLock engine not None, call):
        self.engine = engine
        self.core = engine
        self.call = call
        self.own = {}
        self.o.handle = <void*> self
        self.o.engine = &engine.e
        self.o.quiet = True

    def __reduce__(self):
        raise no_pickle(self)

    def __repr__(self):
        return f"<Outlet of {len(self.own)} destinations>"

    @property
    def destinations(self):
        """Its destinations, in the order in which they came, as a tuple."""
        return tuple(self.own)

    def add(self, destination):
        """Let a destination belong to this outlet. Messages that are offered there now are in it.

        Args:
            destination: A destination (consumer name).

        Returns:
            Whether it is new here.

        Raises:
            ValueError: It belongs to another outlet.
            TypeError: It is not a str.
            Closed: The engine is closed.

        Cost: O(messages that are offered there).
        """
        return self._add_all([checked_text(destination, "destination")]) == 1

    def _add_all(self, list destinations not None):
        """`add` several, or none: how many are new here."""
        cdef DestinationRef there
        cdef destination_t* found
        cdef list new
        self.core.begin_call()
        try:
            new = [name for name in dict.fromkeys(destinations) if name not in self.own]
            for name in new:
                there = self.core.destinations.get(name)
                if there is not None and there.destination.outlet != NULL:
                    raise ValueError(f"destination {name!r} belongs to another outlet; discard it there first")
            for name in new:
                found = destination_named(&self.core.e, name)
                self.own[name] = self.core.destinations[name]
                self.core.outlets[id(self)] = self          # its destinations lead to it
                outlet_join(&self.core.e, &self.o, found)
            go_on(&self.core.e)
            return len(new)
        finally:
            self.core.unlock()

    def discard(self, destination):
        """A destination does not belong to this outlet any more. Messages that are offered there stay so, and may expire again.

        Args:
            destination: A destination.

        Returns:
            Whether it belonged to this outlet.

        Raises:
            TypeError: It is not a str.
            Closed: The engine is closed.

        Cost: O(messages that are offered there).
        """
        destination = checked_text(destination, "destination")
        self.core.begin_call()
        try:
            if destination not in self.own:
                return False
            self.leave(destination)
            go_on(&self.core.e)
            return True
        finally:
            self.core.unlock()

    def close(self):
        """No destination belongs to this outlet any more, and nobody is called back. Does nothing in a closed engine."""
        if self.engine.closed:
            return
        self.core.begin_call()
        try:
            for name in list(self.own):
                self.leave(name)
            go_on(&self.core.e)
        finally:
            self.core.unlock()

    def take(self, n):
        """Take up to `n` deliveries: the destinations in turn, at most 16 of each; within each in the order of the offers.

        Args:
            n: The largest number of deliveries to take.

        Returns:
            A list of deliveries. If it is empty, and `n` is not 0, the outlet is quiet: the next offer calls back. Call this
            until then, or again later of your own accord.

        Raises:
            TypeError, ValueError: `n` is not an int from 0 to 2**62.
            Closed: The engine is closed.

        Cost: O(n).
        """
        cdef list taken
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"n must be an int, got {n!r}")
        if not 0 <= n <= COUNT_MAX:
            raise ValueError(f"n must be from 0 to {COUNT_MAX}, got {n}")
        while True:
            taken = self.taken(n)
            if taken or self.o.quiet or n == 0:     # else the end of the call offered some, and nobody would be called back
                return taken

    cdef list taken(self, Py_ssize_t n):
        cdef list taken = []
        cdef entry_t* entry
        cdef bint ended = False
        self.begin()
        try:
            while len(taken) < n and self.core.undelivered:
                delivery = next_undelivered(self.core, tuple(self.own))
                if delivery is None:
                    break
                taken.append(delivery)
            while len(taken) < n:
                entry = self.next()
                if entry == NULL or (taken and not can_be_read(entry)):
                    break               # hand out the ones before one that cannot be read; the next call raises for that
                taken.append(hand_over(self.core, entry.below.offer))
            ended = True
        finally:
            try:
                self.end()
            except BaseException:
                ended = False
                raise
            finally:
                if not ended and taken:
                    keep_undelivered(self.core, taken)
        return taken

    cdef int begin(self) except -1:
        """Take the engine lock; the first destination in line has its turn."""
        self.turn = TURN
        return self.core.begin_call()

    cdef entry_t* next(self) except? NULL:
        """The oldest offer of the destination whose turn it is, or NULL."""
        cdef entry_t* entry = outlet_first(&self.o, &self.turn, TURN)
        if entry != NULL and self.turn == 0:
            outlet_turned(&self.o)
            self.turn = TURN
            entry = outlet_first(&self.o, &self.turn, TURN)
        if entry != NULL:
            self.turn -= 1
        return entry

    cdef int take_entry(self, entry_t* entry, entry_t** slot) except -1:
        """Your program takes what `next` gave; one of INFINITE credit is settled by that, and its slot is PAID."""
        slot[0] = PAID
        return accept(&self.core.e, entry, slot)

    cdef int settle_entry(self, entry_t* entry) except -1:
        """Your program takes what `next` gave, and acks it."""
        cdef entry_t* slot = PAID
        accept(&self.core.e, entry, &slot)
        return pay(&self.core.e, slot) if slot != PAID else 0

    cdef int end(self) except -1:
        """Run the graph; quiet is what has nothing left. Leave the lock."""
        try:
            go_on(&self.core.e)
            self.o.quiet = outlet_first(&self.o, &self.turn, TURN) == NULL
        finally:
            self.core.unlock()
        return 0

    def __call__(self):
        """Call back, if there is still something in it. The engine does this when a call is over."""
        cdef uint32_t turn = TURN
        if outlet_first(&self.o, &turn, TURN) == NULL:
            self.o.quiet = True
        else:
            self.call()

    cdef int leave(self, object name) except -1:
        cdef DestinationRef reference = self.own.pop(name)
        outlet_part(&self.core.e, &reference.destination)
        if not self.own:
            del self.core.outlets[id(self)]
        return destination_left(&self.core.e, &reference.destination)


# ---- slots

cdef int pay_slot(EngineLock core, entry_t** slot) except -1:
    """Ack what is in the slot."""
    return pay(&core.e, slot[0])


cdef int give_back_slot(EngineLock core, entry_t** slot) except -1:
    """The message in the slot returns to its old place, as by a nack."""
    try:
        return nack_entry(&core.e, slot[0], NEVER, True, NACK_ASKS)
    except StoreFull:
        return nack_entry(&core.e, slot[0], NEVER, True, NACK_RETURNS)


cdef int refuse_slot(EngineLock core, entry_t** slot) except -1:
    """The message in the slot is dead-lettered, else dropped, as by a reject. Raises StoreFull if a store has no room for that;
    then nothing has changed."""
    return reject_entry(&core.e, slot[0], None, False)


cdef void forget_slot(entry_t** slot) noexcept:
    """The memory of the slot ends; what was in it stays outstanding."""
    if slot[0] != NULL and slot[0] != PAID:
        slot[0].below.delivery = NULL
    slot[0] = NULL


document(Outlet, b"engine", b"The Engine that it belongs to.")
document(Outlet, b"call", b"The function that is called when there is something to take.")
