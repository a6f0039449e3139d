"""The door of the engine: every call enters alone, and leaves.

Entering alone costs a comparison: the interpreter lets one thread run at a time, and the core never gives way while it works,
unless it asks user code (a filter, an operator, a clock) or reads a content from its store. Only then can another thread find the
engine busy; it waits in a row. The same thread, coming back from inside, gets `Reentrant`. Who leaves lets the next one in, wakes
those who wait for deliveries, and reports what user code raised.
"""

from cpython.object cimport PyObject
from cpython.pystate cimport PyThreadState_Get
from libc.string cimport memset

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.errors import Closed, ForkedError, QueueNotFound, Reentrant
from xump_ext.log.journal cimport tell_stores
from xump_ext.state.constants cimport BROKEN, BUSY, CLOSED, FORKED, IDLE, NEW, RESERVED
from xump_ext.state.envelope cimport QueueRef, queue_named
from xump_ext.state.graph cimport destination_t, engine_t, offer_t, queue_t

cdef extern from "pythread.h":
    ctypedef void* PyThread_type_lock
    PyThread_type_lock PyThread_allocate_lock() nogil
    int PyThread_acquire_lock(PyThread_type_lock, int) nogil
    void PyThread_release_lock(PyThread_type_lock) nogil
    void PyThread_free_lock(PyThread_type_lock) nogil

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object)
    PyObject* PyDict_GetItemWithError(object mapping, object key) except? NULL


cdef class EngineLock:
    """What is common to all calls: the state, the names, who waits."""

    def __cinit__(self, *args, **kwargs):
        memset(&self.e, 0, sizeof(engine_t))
        self._stores = {}
        self._queues = {}
        self._selectors = {}
        self._named = {}
        self.destinations = {}
        self.nacked = {}
        self.owners = {}
        self.journals = []
        self.user_errors = []
        self.spent = []
        self.spare_slots = []
        self.undelivered = []
        self.wakers = {}
        self.state = NEW
        self.e.run_start = 1
        self.e.queues = <void*> self._queues
        self.e.destinations = <void*> self.destinations
        self.e.nacked = <void*> self.nacked
        self.e.owners = <void*> self.owners
        self.e.user_errors = <void*> self.user_errors
        self.e.spent = <void*> self.spent
        self.e.handle = <void*> self

    def _configure(self, clock, hop_limit, letters):
        if self.e.hop_limit:
            raise TypeError("an engine is made once: create another one")
        self.clock = clock
        self.e.hop_limit = hop_limit
        self._dead_letter = letters
        self.e.dead_letter = NULL if letters is None else <void*> letters
        if self.state == NEW:
            self.state = IDLE

    @property
    def dead_letter(self):
        """The name of the queue for what no queue's own dead letter takes, or None."""
        return self._dead_letter

    # ---- one at a time

    cdef int wait_for_lock(self) except -1:
        """Busy, or another's turn: wait. Closed, forked or called from inside: an error. Who does not enter after having waited
        passes the turn on."""
        cdef lock_waiter_t own
        own.lock = NULL
        own.overtaken = False
        try:
            while self.state != IDLE and self.next_owner != &own:
                self.check_state()
                self.wait_for_turn(&own)
            self.next_owner = NULL
        except BaseException:
            if own.lock != NULL:
                self.wake_next()
            raise
        finally:
            if own.lock != NULL:
                PyThread_free_lock(own.lock)
        return 0

    cdef int wake_next(self) except -1:
        """Calls the first who waits. He has the turn if he was called before, and somebody was faster: a thread that gives up the
        interpreter's lock only while it is inside would else keep all others out. Most times whoever comes first may enter: that
        needs no change of threads for each call."""
        cdef lock_waiter_t* first = self.waiting
        if self.state == RESERVED:
            self.state = self.e.at_rest
        if first == NULL:
            return 0
        self.waiting = first.next
        if first.next == NULL:
            self.last_waiting = NULL
        if first.overtaken and self.state == IDLE:
            self.state = RESERVED
            self.next_owner = first
        PyThread_release_lock(first.lock)
        return 0

    cdef int wait_for_turn(self, lock_waiter_t* own) except -1:
        """Until it is called: last in the row, or first, if it was called before."""
        if own.lock == NULL:
            own.lock = PyThread_allocate_lock()
            if own.lock == NULL:
                raise MemoryError()
            PyThread_acquire_lock(own.lock, 1)
        own.next = self.waiting if own.overtaken else NULL
        if self.waiting == NULL:
            self.waiting = self.last_waiting = own
        elif own.overtaken:
            self.waiting = own
        else:
            self.last_waiting.next = own
            self.last_waiting = own
        with nogil:
            PyThread_acquire_lock(own.lock, 1)
        own.overtaken = True        # unless nobody is inside
        return 0

    cdef int check_state(self) except -1:
        """Raises if nobody can enter, or if whoever asks is inside."""
        if self.state == CLOSED:
            raise Closed("the engine is closed; create another one")
        if self.state == NEW:
            raise Closed("the engine was not initialised: call super().__init__() before anything else")
        if self.state == BROKEN:
            raise Closed("the engine ran out of memory in the middle of a call, and ended there; durable stores have all "
                         "that was written before: close it, and create another one")
        if self.state == FORKED:
            raise ForkedError("the engine belongs to the parent process; create another one in this process")
        if self.state == BUSY and self.owner == <void*> PyThreadState_Get():
            raise Reentrant("the engine was called from inside a filter, an operator or its clock; do it after the call")
        return 0

    def _check_open(self):
        """Raises what any call would for a closed engine, a forked one, or a call from inside."""
        if self.state != IDLE:
            self.wait_for_lock()
            self.wake_next()

    cdef bint lock_if_open(self) except -1:
        """`lock`, for calls that also come while the engine is being closed: whether it was entered."""
        if self.state != CLOSED:
            try:
                self.lock()
                return True
            except Closed:
                if self.state != CLOSED:
                    raise
        return False

    cdef int begin_with_clock(self) except -1:
        try:
            self.read_clock()
        except BaseException:
            self.unlock()
            raise
        return 0

    cdef int read_clock(self) except -1:
        """An int, and no bool, of 64 bits; the lowest one stands for a clock that was not read."""
        now = self.clock()
        if not isinstance(now, int) or isinstance(now, bool):
            raise TypeError(f"clock must return POSIX nanoseconds as an int, got {type(now).__name__}")
        if not -2 ** 63 < now < 2 ** 63:
            raise ValueError(f"clock must return nanoseconds from -2**63 + 1 to 2**63 - 1, got {now}")
        self.e.now = now
        return 0

    cdef int unlock_slowly(self) except -1:
        """Lets the next thread in, tells who waits for deliveries, reports what user code raised."""
        self.wake_next()
        self.spent.clear()
        if self.takers and self.e.offered != self.offered_before:
            self.wake_offered()
        if self.user_errors:
            user_errors = list(self.user_errors)
            self.user_errors.clear()
            self._report(user_errors)
        if self.e.changed_stores != NULL:
            tell_stores(&self.e)
        return 0

    # ---- who waits for deliveries

    def _await(self, destination, wake):
        """`wake()` is called once, when something is offered under that destination (None: any) from now on, or the engine is
        closed; unless what this returns is withdrawn. Who waits looks once more after this call: what was offered before it tells
        nobody. O(1)."""
        if destination is not None:
            destination = str.__str__(destination)
        if not self.takers:
            self.offered_before = self.e.offered
        self.last_waiter += 1
        number = self.last_waiter
        self.wakers.setdefault(destination, {})[number] = wake
        self.takers += 1
        return destination, number

    def _withdraw(self, waiter):
        """False: it was woken, or withdrawn, before. O(1)."""
        destination, number = waiter
        cdef dict same = self.wakers.get(destination)
        if same is None or same.pop(number, None) is None:
            return False
        self.takers -= 1
        if not same:
            del self.wakers[destination]
        return True

    cdef int wake_offered(self) except -1:
        """Wakes those who wait for what was offered since the last time: O(offers, and those woken)."""
        cdef set destinations = set()
        cdef uint64_t before = self.offered_before
        self.offered_before = self.e.offered    # before waking: another thread may offer meanwhile
        cdef offer_t* offer = self.e.offers_tail
        cdef destination_t* last = NULL
        # Nothing in this loop may run other code, which might take the offers away: no object that is collected is made.
        while offer != NULL and offer.number > before:
            if offer.destination != last:
                last = offer.destination
                destinations.add(<object> last.name)
            offer = offer.previous
        return self.wake(destinations)

    cdef int wake(self, set destinations) except -1:
        """Whoever waits for one of these, or for any, in the order in which they came."""
        if not destinations:
            return 0
        woken = []
        for destination in (*destinations, None):
            for number in list(self.wakers.get(destination, ())):
                woken.append((number, destination))
        woken.sort()
        for number, destination in woken:
            wake = self.wakers.get(destination, {}).get(number)
            if self._withdraw((destination, number)):
                wake()
        return 0

    def _wake_all(self):
        """The engine was closed."""
        self.wake(set(self.wakers))

    @property
    def _waiters(self):
        """The destinations that are waited for, None for any, in the order in which they who wait have come; for tests."""
        return [destination for _, destination in sorted([(n, name) for name, same in self.wakers.items() for n in same])]

    cdef queue_t* queue_of(self, object queue) except? NULL:
        """By name or by object; NULL when there is none of that name."""
        cdef PyObject* found
        if <void*> queue == self.e.called_name:
            return self.e.called
        if PyUnicode_CheckExact(queue):
            found = PyDict_GetItemWithError(self._queues, queue)
            if found == NULL:
                return NULL
            if <void*> (<QueueHandle> found).name == <void*> queue:     # most programs write it once: it is the same object
                self.e.called_name = <void*> queue
                self.e.called = (<QueueHandle> found).queue
            return (<QueueRef> found).queue
        if isinstance(queue, QueueHandle):
            if (<QueueHandle> queue).engine is not self:
                raise QueueNotFound(f"queue {queue.name!r} belongs to another engine")
            if (<QueueHandle> queue).queue == NULL:
                return queue_named(&self.e, (<QueueHandle> queue).name)       # was deleted; there may be another one
            return (<QueueHandle> queue).queue
        if isinstance(queue, str):
            return queue_named(&self.e, str.__str__(queue))
        raise TypeError(f"a queue is named by a str or given as a Queue, got {type(queue).__name__}")

    def _forked(self):
        """In the child of a fork: the engine belongs to the parent."""
        if self.state != CLOSED:
            self.state = FORKED
        self.waiting = self.last_waiting = self.next_owner = NULL     # threads of the parent

    @property
    def closed(self):
        """Whether the engine was closed."""
        return self.state == CLOSED
