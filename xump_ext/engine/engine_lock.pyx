"""The engine lock: one call at a time is inside the engine.

The engine is one class in four files. Cython has no partial classes, and parts that are objects of their own would cost a call
each time, so each file derives a class from the one before:

    engine_lock.pyx   EngineLock        the lock; queues by name; consumers that wait for deliveries
    stores.pyx        EngineStores      durable stores come and go
    publish.pyx       EnginePublish     publishing and transactions
    core.pyx          Core              all other calls; `xump.Engine` derives from it

This file is the first. It adds `_configure`, `_check_open`, `_await`, `_withdraw`, `_wake_all`, `_forked`, `closed` and
`dead_letter`, and for the other files `begin_call`, `lock` and `unlock`, between which every call does its work.

To take the lock costs one comparison. The interpreter runs one thread at a time, and the core does not give way to another while
it works, unless it calls user code (a filter, an operator, a clock) or reads a content from a store. Only then can another thread
find the lock taken; it waits in a list, first come, first called. A call from the same thread comes from inside, and raises
`Reentrant`. A call that leaves wakes the next thread and the consumers that wait for deliveries, and reports errors of user code.

The lock is in one of these states; the last three are for good:

    NEW         `_configure` was not called yet
    IDLE        free
    BUSY        a call is inside
    RESERVED    free, but only for one thread, which was overtaken before
    CLOSED      the engine was closed
    FORKED      this is the child of a fork; the engine belongs to the parent
    BROKEN      memory ended in the middle of a step: the books (counters and links) may be wrong
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
    """What all calls share: the lock, the names of queues and selectors, the waiting consumers."""

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
        """The name of the engine's own dead letter queue, for messages that no queue's own takes; or None."""
        return self._dead_letter

    # ---- one at a time

    cdef int wait_for_lock(self) except -1:
        """Wait while the lock is taken or reserved. Raises if the engine is closed or forked, or if the call comes from inside;
        a thread that has waited before that wakes the next one."""
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
        """Call the first waiting thread.

        It gets the lock if no other thread is faster, so that not every call needs a change of threads. If it was overtaken
        before, the lock is reserved for it: else a thread that gives up the interpreter only while it is inside would keep all
        others out.
        """
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
        """Wait until called: as the last in the list, or as the first, if it was called before."""
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
        own.overtaken = True        # not read if the lock is free now
        return 0

    cdef int check_state(self) except -1:
        """Raise if the engine will never be free, or if this thread is inside."""
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
        """Raise what any call raises if the engine is closed or forked, or if this call comes from inside."""
        if self.state != IDLE:
            self.wait_for_lock()
            self.wake_next()

    cdef bint lock_if_open(self) except -1:
        """`lock` for calls that may come while the engine is being closed. False: it is closed, and the lock is not taken."""
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
        """Read the user's clock: an int of 64 bits, and no bool. The lowest one is taken: it stands for a clock not read."""
        now = self.clock()
        if not isinstance(now, int) or isinstance(now, bool):
            raise TypeError(f"clock must return POSIX nanoseconds as an int, got {type(now).__name__}")
        if not -2 ** 63 < now < 2 ** 63:
            raise ValueError(f"clock must return nanoseconds from -2**63 + 1 to 2**63 - 1, got {now}")
        self.e.now = now
        return 0

    cdef int unlock_slowly(self) except -1:
        """Wake the next thread and the waiting consumers, report errors of user code, tell the stores that changed."""
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

    # ---- consumers that wait for deliveries

    def _await(self, destination, wake):
        """Have `wake()` called once: when something is offered under that destination (None: any) from now on, or when the engine
        is closed. Returns a waiter for `_withdraw`.

        Offers from before this call wake nobody, so the caller has to look for them once more. O(1).
        """
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
        """Remove a waiter that `_await` returned. False: it was woken or withdrawn before. O(1)."""
        destination, number = waiter
        cdef dict same = self.wakers.get(destination)
        if same is None or same.pop(number, None) is None:
            return False
        self.takers -= 1
        if not same:
            del self.wakers[destination]
        return True

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
        """Wake all waiting consumers, since the engine was closed."""
        self.wake(set(self.wakers))

    @property
    def _waiters(self):
        """The destinations that consumers wait for (None: any), in the order in which these came; for tests."""
        return [destination for _, destination in sorted([(n, name) for name, same in self.wakers.items() for n in same])]

    cdef queue_t* queue_of(self, object queue) except? NULL:
        """A queue by its name or handle; NULL: there is none of that name."""
        cdef PyObject* found
        if <void*> queue == self.e.called_name:
            return self.e.called
        if PyUnicode_CheckExact(queue):
            found = PyDict_GetItemWithError(self._queues, queue)
            if found == NULL:
                return NULL
            if <void*> (<QueueHandle> found).name == <void*> queue:     # most programs give the same str object each time
                self.e.called_name = <void*> queue
                self.e.called = (<QueueHandle> found).queue
            return (<QueueRef> found).queue
        if isinstance(queue, QueueHandle):
            if (<QueueHandle> queue).engine is not self:
                raise QueueNotFound(f"queue {queue.name!r} belongs to another engine")
            if (<QueueHandle> queue).queue == NULL:
                return queue_named(&self.e, (<QueueHandle> queue).name)       # it was deleted; there may be a new one
            return (<QueueHandle> queue).queue
        if isinstance(queue, str):
            return queue_named(&self.e, str.__str__(queue))
        raise TypeError(f"a queue is named by a str or given as a Queue, got {type(queue).__name__}")

    def _forked(self):
        """In the child of a fork: the engine belongs to the parent."""
        if self.state != CLOSED:
            self.state = FORKED
        self.waiting = self.last_waiting = self.next_owner = NULL     # these are threads of the parent

    @property
    def closed(self):
        """Whether the engine was closed."""
        return self.state == CLOSED
