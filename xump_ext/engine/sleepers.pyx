"""Consumers that wait for deliveries, or for what falls due, sleep until a call wakes them: a part of the engine's class.

`EngineSleepers` comes after `EngineLock` in `engine_lock.pyx`, which says why the engine is one class in nine files; `stores.pyx`
goes on. It adds `_await`, `_withdraw`, `_wait`, `_sleep` and `_wake_all`.

A consumer that waits is a `Sleeper`. It is listed under each key that may wake it: the name of a destination, None for any, or a
queue from which a message can be taken by hand. A call that leaves the engine lock wakes those for which it offered something
(`wake_waiting`): all that wait for the destination, in the order in which they came. The first one that calls takes the message.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.message.times cimport NEVER, later
from xump_ext.route.oldest cimport first_free
from xump_ext.state.constants cimport IDLE
from xump_ext.state.graph cimport destination_t, offer_t
from xump_ext.state.schedule cimport schedule_next
from xump_ext.state.sleeper cimport Sleeper, steady_time

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object mapping, object key) except? NULL


cdef tuple ALARM = ("alarm", "")            # under this key waits who does what falls due for others: see `xump._aio_wait`
cdef tuple NOTHING = (("nothing", ""),)     # of no destination: only the end of the engine wakes it
cdef double SECONDS_MAX = 9e9        # 285 years; longer timeouts never end
cdef tuple SERVED = (("served",),)      # woken each by itself, not for what it waits for


cdef class EngineSleepers(EngineLock):
    """A part of the engine's class: who waits for deliveries."""

    def __cinit__(self, *args, **kwargs):
        self.sleepers = {}

    # ---- they come and go

    def _await_alarm(self, wake):
        """Have `wake()` called once: when something falls due earlier than now known, or when the engine is closed."""
        return self._await((ALARM,), wake)

    def _await(self, destination, wake, alarmed=True):
        """Have `wake()` called once: when something is offered under that destination (None: any; a tuple: one of these) from now
        on, or when the engine is closed. A `QueueHandle`: when a message of that queue can be taken by hand. `alarmed`: also when
        something falls due earlier than now known; without it, somebody else does what falls due. Returns a `Sleeper` for
        `_withdraw`.

        Messages that were there before this call do not wake it, so the caller has to look for them once more. O(1).
        """
        cdef Sleeper sleeper = sleeper_for(destination)
        sleeper.call = wake
        sleeper.unalarmed = not alarmed
        self.enlist(sleeper)
        return sleeper

    def _withdraw(self, Sleeper sleeper not None):
        """Remove what `_await` returned. False: it was woken or withdrawn before. O(1)."""
        return self.withdraw(sleeper)

    cdef int enlist(self, Sleeper sleeper) except -1:
        """It waits from now on, by its keys, behind all others."""
        cdef PyObject* same
        if self.takers == 0:
            self.offered_before = self.e.offered
            self.alarm = schedule_next(&self.e.schedule)
        self.last_sleeper += 1
        sleeper.number = self.last_sleeper
        for key in sleeper.keys:
            same = PyDict_GetItemWithError(self.sleepers, key)
            if same == NULL:
                self.sleepers[key] = {sleeper: None}
            else:
                (<dict> same)[sleeper] = None
        self.takers += 1
        self.waits += 1
        self.queues_waited_for += sleeper.for_queue
        return 0

    cdef bint withdraw(self, Sleeper sleeper) except -1:
        """It waits no more. False: nor did it before."""
        cdef dict same
        if sleeper.number == 0:
            return False
        sleeper.number = 0
        self.takers -= 1
        self.waits -= 1
        self.queues_waited_for -= sleeper.for_queue
        for key in sleeper.keys:
            same = self.sleepers[key]
            if len(same) > 1:
                del same[sleeper]
            else:
                del self.sleepers[key]
        return True

    # ---- they sleep

    def _wait(self, take, awaited, timeout):
        """Return what `take()` gives, as soon as that is neither empty nor None, or after `timeout` seconds (None: for ever).
        `awaited`: as for `_await`. The thread holds no lock meanwhile, and wakes for what falls due."""
        cdef Sleeper sleeper = sleeper_for(awaited)
        cdef int64_t end = end_of(timeout), until
        while True:
            self.enlist(sleeper)
            try:
                taken = take()
                if taken:
                    return taken
                until = min(end, self.wake_up())
                if not sleeper.sleep(until) and until == end:
                    return take()
            finally:
                self.withdraw(sleeper)

    def _sleep(self, Sleeper sleeper not None, timeout):
        """Wait until it is served, at most for `timeout` seconds (None: for ever); what falls due meanwhile is done."""
        cdef int64_t end = end_of(timeout), until
        sleeper.keys = SERVED
        while not sleeper.served:
            self.enlist(sleeper)
            try:
                until = min(end, self.wake_up())
                if not sleeper.sleep(until) and until == end:
                    return
            finally:
                self.withdraw(sleeper)
            if not sleeper.served:
                self.begin_call()       # does what fell due; raises if the engine was closed
                self.unlock()

    cdef int64_t wake_up(self) except? -1:
        """The moment of `steady_time` when something falls due; NEVER: nothing does. It is known from now on that somebody wakes
        then."""
        cdef int64_t span = self.span_until_due()
        return NEVER if span == NEVER else later(steady_time(), span)

    def _seconds_until_due(self):
        """How long a call that waits may sleep before something falls due; None: nothing does. It is known from now on that
        somebody wakes then."""
        cdef int64_t span = self.span_until_due()
        return None if span == NEVER else span / 1e9

    cdef int64_t span_until_due(self) except? -1:
        """`_seconds_until_due` in nanoseconds; NEVER: nothing falls due."""
        cdef int64_t moment, now
        if self.state == IDLE and self.e.schedule.live == 0:
            self.alarm = NEVER
            return NEVER
        self.lock()
        try:
            moment = self.alarm = schedule_next(&self.e.schedule)
            if moment == NEVER:
                return NEVER
            self.read_clock()
            now = max(self.e.now, self.e.time)
        finally:
            self.unlock_now()
        return 0 if moment <= now else <int64_t> min(<uint64_t> moment - <uint64_t> now, <uint64_t> NEVER - 1)

    # ---- they are woken

    cdef int wake_waiting(self) except -1:
        if self.e.offered != self.offered_before:
            self.wake_offered()
        if self.queues_waited_for:
            self.wake_for_queues()
        if self.takers and self.e.schedule.live:
            self.wake_for_alarm()
        return 0

    cdef int wake_offered(self) except -1:
        """Wake the consumers that wait for messages offered since the last time. O(offers, and consumers woken)."""
        cdef set destinations = set()
        cdef uint64_t before = self.offered_before
        self.offered_before = self.e.offered    # before waking: another thread may offer meanwhile
        cdef offer_t* offer = self.e.offers_tail
        cdef destination_t* last = NULL
        # Other code might take offers away, so this loop runs none: it makes no object that the collector tracks.
        while offer != NULL and offer.number > before:
            if offer.destination != last:
                last = offer.destination
                destinations.add(<object> last.name)
            offer = offer.previous
        return self.wake(destinations)

    cdef int wake(self, set destinations) except -1:
        """Wake the consumers that wait for one of these destinations, or for any, in the order in which they came."""
        cdef list woken = []
        cdef PyObject* same
        if not destinations:
            return 0
        for destination in (*destinations, None):
            same = PyDict_GetItemWithError(self.sleepers, destination)
            if same != NULL:
                woken.extend(<dict> same)
        return self.wake_these(woken)

    cdef int wake_these(self, list woken) except -1:
        """Wake those of these that still wait, in the order in which they came."""
        if len(woken) > 1:
            woken.sort(key=_number_of)
        for sleeper in woken:
            if self.withdraw(<Sleeper> sleeper):
                (<Sleeper> sleeper).wake()
        return 0

    cdef int wake_for_queues(self) except -1:
        """Wake those who wait for a message of a queue that can be taken by hand now."""
        cdef QueueHandle handle
        cdef set found = set()
        for key in self.sleepers:
            if isinstance(key, tuple) and key[0] == "queue":
                handle = self._queues.get(key[1])
                if handle is None or first_free(handle.queue) != NULL:
                    found.add(key)
        return self.wake(found)

    cdef int wake_for_alarm(self) except -1:
        """Wake all who sleep until something falls due if that is earlier now."""
        cdef int64_t moment = schedule_next(&self.e.schedule)
        if moment < self.alarm:
            self.alarm = moment
            self.wake_these([sleeper for same in self.sleepers.values() for sleeper in same
                             if not (<Sleeper> sleeper).unalarmed])
        return 0

    def _wake_all(self):
        """Wake all waiting consumers, since the engine was closed."""
        self.wake(set(self.sleepers))

    @property
    def _waiting_destinations(self):
        """The destinations that consumers wait for (None: any), in the order in which these came; for tests. An alarm is none."""
        found = [(_number_of(sleeper), name) for name, same in self.sleepers.items() for sleeper in same if name != ALARM]
        return [name for _, name in sorted(found, key=lambda one: one[0])]


cdef Sleeper sleeper_for(object awaited):
    """A sleeper that waits for destinations, or for a message of a queue."""
    cdef Sleeper sleeper = Sleeper.__new__(Sleeper)
    if isinstance(awaited, QueueHandle):
        sleeper.for_queue = True
        sleeper.keys = (("queue", (<QueueHandle> awaited).name),)
    elif isinstance(awaited, tuple):
        sleeper.keys = awaited or NOTHING
    else:
        sleeper.keys = (None if awaited is None else str.__str__(awaited),)
    return sleeper


cdef int64_t end_of(object timeout) except? -1:
    """The moment of `steady_time` when a timeout, in seconds, is over; NEVER for None."""
    return NEVER if timeout is None or timeout >= SECONDS_MAX else later(steady_time(), <int64_t> (<double> timeout * 1e9))


def _number_of(Sleeper sleeper not None):
    """Its place among those that wait."""
    return sleeper.number
