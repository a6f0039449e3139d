"""Taking: which offer or kept-back delivery your program gets next; the iterator over deliveries; putting back (rules 8, 10)."""

from cpython.object cimport PyObject

from xump_ext.engine.delivery cimport Delivery, hand_over
from xump_ext.engine.engine_lock cimport EngineLock
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.sleepers cimport EngineSleepers
from xump_ext.errors import no_pickle
from xump_ext.route.offering cimport in_hands
from xump_ext.route.requeue cimport return_unseen
from xump_ext.route.routing cimport go_on, run
from xump_ext.route.settling cimport nacked
from xump_ext.state.envelope cimport DestinationRef
from xump_ext.state.graph cimport offer_t, selector_t

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object mapping, object key) except? NULL


cdef offer_t* first_offer_to(EngineLock core, object destination) except? NULL:
    """The oldest offer to this destination, or to one of a tuple."""
    cdef PyObject* found
    if type(destination) is tuple:
        return first_offer_of(core, <tuple> destination)
    found = PyDict_GetItemWithError(core.destinations, destination)
    return NULL if found == NULL else (<DestinationRef> found).destination.head


cdef offer_t* first_offer_of(EngineLock core, tuple destinations) except? NULL:
    cdef offer_t* first = NULL
    cdef offer_t* offer
    for destination in destinations:
        offer = first_offer_to(core, destination)
        if offer != NULL and (first == NULL or offer.number < first.number):
            first = offer
    return first


cdef bint is_wanted(object destination, object name) except -1:
    """Whether this destination (None: any; a tuple: one of these) is that one."""
    return destination is None or (name in <tuple> destination if type(destination) is tuple else destination == name)


cdef Delivery next_undelivered(EngineLock core, object destination):
    """The next delivery to this destination that was kept back, or None. Those that are stale by now are dropped."""
    cdef Delivery delivery
    for delivery in list(core.undelivered):
        if not in_hands(delivery.entry) and not delivery.settled:
            core.undelivered.remove(delivery)
        elif <object> delivery.destination is not None and is_wanted(destination, <object> delivery.destination):
            core.undelivered.remove(delivery)
            return delivery
    return None


cdef Delivery next_undelivered_of(EngineLock core, QueueHandle handle):
    """The next one of this queue that was taken without a selector and kept back, or None."""
    cdef Delivery delivery
    for delivery in list(core.undelivered):
        if <object> delivery.destination is None and <object> delivery.queue is handle:
            core.undelivered.remove(delivery)
            if in_hands(delivery.entry):        # else it is stale by now
                return delivery
    return None


cdef int keep_undelivered(EngineSleepers core, list deliveries) except -1:
    """Keep back deliveries of a call that raised, so that your program did not get them: they go before all others."""
    core.undelivered[:0] = deliveries
    if core.takers == 0:
        return 0
    return core.wake({delivery.destination or ("queue", delivery.queue.name) for delivery in deliveries})


def put_back(EngineLock engine not None, list deliveries):
    """Messages that were taken, and that nobody has seen, return to their old places as if they had not been taken. Stale
    deliveries are left out."""
    cdef Delivery delivery
    engine.begin_call()
    try:
        for delivery in reversed(deliveries):
            if in_hands(delivery.entry):
                return_unseen(&engine.e, delivery.entry)
        go_on(&engine.e)
    finally:
        engine.unlock()


cdef class DeliveryIterator:
    """An iterator over deliveries, which ends when there has been none for `timeout` seconds. Created by `Engine.deliveries`.

    It does not give messages again that were nacked after it was created, unless they came back by time.
    """

    def __cinit__(self, EngineLock engine not None, destination, timeout):
        self.engine = engine
        self.core = engine
        self.destination = destination
        self.timeout = timeout
        self.began = self.core.e.nacks

    def __reduce__(self):
        raise no_pickle(self)

    def __iter__(self):
        return self

    def __next__(self):
        delivery = self.next_delivery()
        if delivery is None and self.timeout != 0:
            self.warn()
            delivery = self.engine._wait(self.take, self.destination, self.timeout)
        if delivery is None:
            raise StopIteration
        return delivery

    def take(self):
        """The next delivery, or None if there is none now. For `xump.aio`."""
        return self.next_delivery()

    cdef Delivery next_delivery(self):
        cdef PyObject* core = <PyObject*> self.core     # borrowed: `self` refers to it
        cdef Delivery delivery = None
        cdef offer_t* offer
        cdef bint ended = False, releases
        try:
            (<EngineLock> core).begin_call()
            try:
                if (<EngineLock> core).e.interrupted or (<EngineLock> core).undelivered:
                    delivery = self.left_over()
                if delivery is None:
                    offer = self.first_wanted() if self.is_picky() else first_offer(<EngineLock> core, self.destination)
                    if offer != NULL:
                        releases = (<selector_t*> offer.entry.holder).infinite | (<selector_t*> offer.entry.holder).reined
                        delivery = hand_over(<EngineLock> core, offer)
                        if releases:
                            go_on(&(<EngineLock> core).e)
            finally:
                (<EngineLock> core).unlock()
            ended = True
        finally:
            if not ended and delivery is not None:
                keep_undelivered(<EngineSleepers> core, [delivery])
        return delivery

    def warn(self):
        """Warn if it would wait for ever though there are messages, which it does not give again. For `xump.aio`, too."""
        cdef bint passes
        if self.timeout is not None or not self.is_picky():
            return
        self.core.lock()
        try:
            passes = first_offer(self.core, self.destination) != NULL and self.first_wanted() == NULL
        finally:
            self.core.unlock_now()
        if passes:
            self.engine._warn_of_nacked(self.destination)

    cdef inline bint is_picky(self) noexcept:
        """Whether a message was nacked since the iteration began."""
        return self.began != self.core.e.nacks

    cdef Delivery left_over(self):
        """A delivery to this destination that was kept back. Without one, a run that was interrupted goes on, and None."""
        cdef Delivery kept = next_undelivered(self.core, self.destination)
        if kept is None and self.core.e.interrupted:
            run(&self.core.e)
        return kept

    cdef offer_t* first_wanted(self) except? NULL:
        """The oldest offer that was not nacked since the iteration began; NULL: none."""
        cdef offer_t* offer
        # Go on behind the offers that were skipped before. Offers are not freed while the engine lives, so the number of the last
        # one tells whether it is still the same offer.
        if self.passed != NULL and self.passed.number == self.passed_number:
            offer = self.following(self.passed)
        else:
            offer = first_offer(self.core, self.destination)
        while offer != NULL and nacked(&self.core.e, offer.entry) > self.began:
            self.passed = offer
            self.passed_number = offer.number
            offer = self.following(offer)
        return offer

    cdef offer_t* following(self, const offer_t* offer) except? NULL:
        cdef offer_t* found
        if self.destination is not None and type(self.destination) is not tuple:
            return offer.below
        found = offer.next
        while found != NULL and not is_wanted(self.destination, <object> found.destination.name):
            found = found.next
        return found
