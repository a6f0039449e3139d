"""The engine lock: one call at a time is inside the engine.

The engine is one class in nine files. Cython has no partial classes, and parts that are objects of their own would cost a call
each time, so each file derives a class from the one before:

    engine_lock.pyx   EngineLock          the lock; the clock; queues by name
    sleepers.pyx      EngineSleepers      consumers that wait for deliveries
    stores.pyx        EngineStores        durable stores come and go
    enqueue.pyx       EngineEnqueue       letting messages in
    publish.pyx       EnginePublish       publishing
    publishers.pyx    EnginePublishers    publishers that wait for room
    transactions.pyx  EngineTransactions  transactions
    reading.pyx       EngineReading       looking at messages, times and counts
    core.pyx          Core                all other calls; `xump.Engine` derives from it

This file is the first. It adds `_configure`, `_check_open`, `_forked`, `closed` and `dead_letter`, and for the other files
`begin_call`, `lock` and `unlock`, between which every call does its work.

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
from libc.stdint cimport INT64_MIN, int64_t, uint64_t
from libc.string cimport memset

from xump_ext.engine.graph_lock cimport GraphLock
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.teller cimport Later, Teller
from xump_ext.errors import Closed, ForkedError, QueueNotFound, Reentrant
from xump_ext.log.journal cimport tell_stores
from xump_ext.log.marks cimport Owners
from xump_ext.message.headers cimport content_t
from xump_ext.message.times cimport NEVER, Times
from xump_ext.route.clock cimport now_of
from xump_ext.route.routing cimport run
from xump_ext.state.constants cimport BROKEN, BUSY, CLOSED, FORKED, IDLE, NEW, RESERVED, TIME_UNREAD
from xump_ext.state.envelope cimport QueueRef, queue_called
from xump_ext.state.graph cimport engine_t, queue_t
from xump_ext.state.schedule cimport schedule_is_due, schedule_next

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
    """The state that all calls share: the lock, the clock, the names of queues and selectors."""

    def __cinit__(self, *args, **kwargs):
        memset(&self.e, 0, sizeof(engine_t))
        self._stores = {}
        self._queues = {}
        self._selectors = {}
        self._named = {}
        self._windows = {}
        self.destinations = {}
        self.nacked = {}
        self.owners = Owners.__new__(Owners)
        self.journals = []
        self.user_errors = []
        self.sources_to_drop = []
        self.teller = Teller.__new__(Teller)
        self._graph_lock = GraphLock(self.teller, self)
        self.outlets = {}
        self.spare_slots = []
        self.undelivered = []
        self.requests = {}
        self.publishers = {}
        self.state = NEW
        self.e.run_start = 1
        self.e.time = TIME_UNREAD
        self.e.until = INT64_MIN
        self.e.queues = <void*> self._queues
        self.e.destinations = <void*> self.destinations
        self.e.nacked = <void*> self.nacked
        self.e.owners = <void*> self.owners
        self.e.user_errors = <void*> self.user_errors
        self.e.sources_to_drop = <void*> self.sources_to_drop
        self.e.tellings = <void*> self.teller.caused
        self.e.requests = <void*> self.requests
        self.e.handle = <void*> self

    def _configure(self, clock, hop_limit, dead_letter):
        if self.e.hop_limit:
            raise TypeError("an engine is made once: create another one")
        self.clock = clock
        self.e.hop_limit = hop_limit
        self._dead_letter = dead_letter
        self.e.dead_letter = NULL if dead_letter is None else <void*> dead_letter
        if self.state == NEW:
            self.state = IDLE

    @property
    def _hop_limit(self):
        """How many hops a message may take."""
        return self.e.hop_limit

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
            while self.state != IDLE and self.next_thread != &own:
                self.raise_if_unusable()
                self.wait_to_be_called(&own)
            self.next_thread = NULL
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
        cdef lock_waiter_t* first = self.queued_threads
        if self.state == RESERVED:
            self.state = self.e.at_rest
        if first == NULL:
            return 0
        self.queued_threads = first.next
        if first.next == NULL:
            self.last_queued_thread = NULL
        if first.overtaken and self.state == IDLE:
            self.state = RESERVED
            self.next_thread = first
        PyThread_release_lock(first.lock)
        return 0

    cdef int wait_to_be_called(self, lock_waiter_t* own) except -1:
        """Wait until called: as the last in the list, or as the first, if it was called before."""
        if own.lock == NULL:
            own.lock = PyThread_allocate_lock()
            if own.lock == NULL:
                raise MemoryError()
            PyThread_acquire_lock(own.lock, 1)
        own.next = self.queued_threads if own.overtaken else NULL
        if self.queued_threads == NULL:
            self.queued_threads = self.last_queued_thread = own
        elif own.overtaken:
            self.queued_threads = own
        else:
            self.last_queued_thread.next = own
            self.last_queued_thread = own
        with nogil:
            PyThread_acquire_lock(own.lock, 1)
        own.overtaken = True        # not read if the lock is free now
        return 0

    cdef int raise_if_unusable(self) except -1:
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
        if self.state == BUSY and self.thread == <void*> PyThreadState_Get():
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
            self.run_until()
        except BaseException:
            self.unlock_now()
            raise
        return 0

    cdef int do_due_now(self) except -1:
        """Read the clock, and do what fell due, in a call that has only taken the lock."""
        if self.clock is not None or self.e.schedule.live:
            self.read_clock()
            self.run_until()
        return 0

    cdef int read_clock(self) except -1:
        """Read the clock. That of a user gives an int of 64 bits, and no bool. The lowest one is taken: it stands for a clock not
        read. So is the highest one, NEVER, which counts as the moment before."""
        if self.clock is None:
            now_of(&self.e)
            return 0
        now = self.clock()
        if not isinstance(now, int) or isinstance(now, bool):
            raise TypeError(f"clock must return POSIX nanoseconds as an int, got {type(now).__name__}")
        if not -2 ** 63 < now < 2 ** 63:
            raise ValueError(f"clock must return nanoseconds from -2**63 + 1 to 2**63 - 1, got {now}")
        self.e.now = min(<int64_t> now, NEVER - 1)
        return 0

    cdef int run_until(self) except -1:
        """The clock was read: do what fell due until now, each moment at its own time. Publishers that wait for room are let in
        at the end of each."""
        cdef engine_t* engine = &self.e
        cdef int64_t now = engine.now, until = max(engine.now, engine.time), moment
        if schedule_is_due(&engine.schedule, until):
            if not self.publishers:
                engine.until = until
            moment = schedule_next(&engine.schedule)
            self.catches_up = True
            try:
                while moment <= until and moment != NEVER:      # a clock may say the last moment there is
                    engine.now = engine.time = max(moment, engine.time)
                    run(engine)
                    if self.publishers:
                        self.let_in()
                    moment = schedule_next(&engine.schedule)
            finally:
                self.catches_up = False
                engine.now = now
                engine.until = INT64_MIN
        engine.time = max(engine.time, until)       # others may have called while a store was cleaned
        return 0

    cdef int let_in(self) except -1:
        """Let publishers in that wait for room; `publishers.pyx` says how."""
        return 0

    cdef bint make_room_for_letters(self) except -1:
        """Let a store make room that had none for dead letters; `stores.pyx` says how."""
        return False

    cdef int unlock_slowly(self) except -1:
        """Let waiting publishers in, leave the lock, and do what follows from the call. No publisher is let in while the time
        is not known: the user's clock has failed."""
        try:
            if self.publishers and self.state == BUSY and (self.clock is None or self.e.now != TIME_UNREAD):
                self.let_in()
        finally:
            self.leave()
        return 0

    cdef int leave(self) except -1:
        """Leave the lock; wake the next thread and the waiting consumers, report errors of user code, tell the stores that
        changed; call back."""
        if self.teller.caused:
            self.teller.due += self.teller.caused
            self.teller.caused.clear()
        if self.state == BUSY:
            self.state = self.e.at_rest
        self.wake_next()
        self.sources_to_drop.clear()
        if self.takers:
            self.wake_waiting()
        if self.user_errors:
            user_errors = list(self.user_errors)
            self.user_errors.clear()
            self._report(user_errors)
        if self.e.changed_stores != NULL:
            tell_stores(&self.e)
        if self.teller.due:
            self.teller.call_over(self)
        return 0

    def _watch(self, watcher):
        """From now on it is called with the changes of the graph: tuples (what, whether it came, the thing)."""
        self.teller.watchers += (watcher,)
        self.e.is_watched = True

    def _watch_no_more(self, watcher):
        self.teller.watchers = tuple([other for other in self.teller.watchers if other is not watcher])
        self.e.is_watched = bool(self.teller.watchers)

    def _later(self):
        """A context manager for a thread that takes another lock beside the engine's: it calls nobody back before it ends."""
        return Later(self.teller, self)

    def _call_back(self, one, *arguments):
        """Call it, and log what it raises."""
        try:
            one(*arguments)
        except Exception as error:
            self._report([(None, error)])

    cdef int wake_waiting(self) except -1:
        """Wake the consumers that wait for what this call offered; `sleepers.pyx` says how."""
        return 0

    cdef uint64_t publish_content(self, object queue, content_t* content, Times times, int64_t delay) except? 0:
        """Publish one message; `publish.pyx` says how."""
        return 0

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
                return queue_called(&self.e, (<QueueHandle> queue).name)       # it was deleted; there may be a new one
            return (<QueueHandle> queue).queue
        if isinstance(queue, str):
            return queue_called(&self.e, str.__str__(queue))
        raise TypeError(f"a queue is named by a str or given as a Queue, got {type(queue).__name__}")

    def _forked(self):
        """In the child of a fork: the engine belongs to the parent."""
        if self.state != CLOSED:
            self.state = FORKED
        self.queued_threads = self.last_queued_thread = self.next_thread = NULL     # these are threads of the parent

    @property
    def closed(self):
        """Whether the engine was closed."""
        return self.state == CLOSED
