"""The engine's calls on queues, selectors, credit and deliveries: the last part of its class.

The engine is one class in nine files (`engine_lock.pyx` says why). `Core` is the last part, after `EngineReading` in
`reading.pyx`. It adds the calls that take and ack deliveries, create and delete queues and selectors, enable, grant and pay,
hold queues and build, ask and answer, delete messages, and close.

Most calls have the same shape:

    self.begin_call()       takes the engine lock, so the call is alone
    …                       changes the books (counters and links)
    go_on(&self.e)          runs the graph until nothing more happens
    self.unlock()           lets the next call in

`xump.Engine` derives from `Core`. It checks the arguments and says what is wrong with them; here they are right, except for
messages, which are checked where they are made.
"""

from os import urandom

from cpython.object cimport PyObject
from cpython.dict cimport PyDict_GetItemWithError
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free

from xump_ext.engine.delivery cimport Delivery, check_deliveries, hand_by_hand, hand_over
from xump_ext.engine.handles cimport QueueHandle, SelectorHandle
from xump_ext.engine.maps cimport check_map_fits, map_begin, map_charge
from xump_ext.engine.enqueue cimport check_takes_rows
from xump_ext.engine.queue_edit cimport message_delete, queue_create, queue_delete, selector_delete
from xump_ext.engine.replay cimport selector_begin, selector_start
from xump_ext.engine.selector_edit cimport selector_create, selector_enable
from xump_ext.engine.staging cimport adopted_shrinks
from xump_ext.engine.taking cimport first_offer, keep_undelivered, next_undelivered, next_undelivered_of
from xump_ext.engine.windows cimport WindowHandle, window_begin, window_end, window_resize
from xump_ext.errors import Conflict, iterator_of, no_pickle
from xump_ext.log.journal cimport Journal
from xump_ext.log.room cimport COMES_IN, kept_bytes
from xump_ext.memory.heap cimport heap_free
from xump_ext.message.content cimport content_release
from xump_ext.message.headers cimport content_t
from xump_ext.message.times cimport NEVER
from xump_ext.message.message cimport Message, content_alone, content_new
from xump_ext.route.due cimport due_again, release_due
from xump_ext.route.clock cimport time_of
from xump_ext.route.offering cimport pay
from xump_ext.state.queue_lists cimport queue_list
from xump_ext.route.oldest cimport first_free
from xump_ext.route.replies cimport Request
from xump_ext.route.requeue cimport expire_in_room, mark_returned
from xump_ext.route.holding cimport hold, wake_everything
from xump_ext.route.routing cimport go_on, run
from xump_ext.route.unmatched cimport keep_unmatched
from xump_ext.select.credit cimport can_take, selector_idle, selector_waiters_wake, selector_wake
from xump_ext.state.constants cimport (
    BOUND, BROKEN, CLOSED, DELAYED, FORKED, IDLE, NEW, OVERFULL, UNROUTED, WAITING,
)
from xump_ext.state.envelope cimport DestinationRef
from xump_ext.state.graph cimport destination_t, entry_t, offer_t, queue_t, selector_t
from xump_ext.state.index cimport index_from
from xump_ext.state.lazy_content cimport can_be_read, is_loaded
from xump_ext.state.offers cimport destination_left, offers_free
from xump_ext.state.run_queue cimport end_visited
from xump_ext.state.schedule cimport schedule_free
from xump_ext.state.visited cimport visited_free

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(list items, Py_ssize_t at)

cdef class Core(EngineReading):
    """The compiled base of `xump.Engine`: all nine parts."""

    def __cinit__(self, *args, **kwargs):
        self._builders = {}
        self._reopened = []

    def __del__(self):
        # The collector calls this before it takes the objects apart: queues and selectors are still whole.
        if self.state == IDLE:
            self.state = CLOSED
            self._free()

    def __reduce__(self):
        raise no_pickle(self)

    # ---- taking

    def _take(self, Py_ssize_t n, destination):
        """Take up to n deliveries, as many as there are."""
        cdef list taken = []
        cdef bint ended = False
        try:
            self.begin_call()
            try:
                self.take_into(taken, n, destination)
            finally:
                self.unlock()
            ended = True
        finally:
            if not ended and taken:
                keep_undelivered(self, taken)
        return taken

    def _get(self, QueueHandle handle):
        """Take the first message that is free, or None."""
        cdef list taken = []
        cdef bint ended = False
        try:
            self.begin_call()
            try:
                self.get_into(taken, handle)
            finally:
                self.unlock()
            ended = True
        finally:
            if not ended and taken:
                keep_undelivered(self, taken)
        return taken[0] if taken else None

    cdef int get_into(self, list taken, QueueHandle handle) except -1:
        cdef entry_t* entry
        if handle.live().staged:
            raise ValueError(f"queue {handle.name!r} is staged: its messages are for the queue that adopts it; browse it, or "
                             "give it to Engine.adopt")
        kept = next_undelivered_of(self, handle) if self.undelivered else None
        if kept is not None:
            taken.append(kept)
            return 0
        if self.e.building:
            keep_unmatched(handle.live())
        entry = first_free(handle.live())
        if entry != NULL:
            taken.append(hand_by_hand(self, entry))
            go_on(&self.e)
        return 0

    cdef int take_into(self, list taken, Py_ssize_t n, object destination) except -1:
        cdef DestinationRef ref
        cdef PyObject* found
        while n > 0 and self.undelivered:
            delivery = next_undelivered(self, destination)
            if delivery is None:
                break
            taken.append(delivery)
            n -= 1
        if self.e.interrupted:
            run(&self.e)
        if n < 2 or type(destination) is not str:
            return self.take_offers(taken, n, destination, NULL)
        found = PyDict_GetItemWithError(self.destinations, destination)
        if found == NULL:
            return 0
        ref = <DestinationRef> found
        ref.destination.pins += 1           # looked up once: what a run does meanwhile does not end it
        try:
            return self.take_offers(taken, n, destination, &ref.destination)
        finally:
            ref.destination.pins -= 1
            destination_left(&self.e, &ref.destination)

    cdef int take_offers(self, list taken, Py_ssize_t n, object destination, destination_t* found) except -1:
        """The offers to a destination, which was looked up already, or of any or several."""
        cdef offer_t* offer
        cdef bint releases
        while n > 0:
            offer = first_offer(self, destination) if found == NULL else found.head
            if offer == NULL:
                break
            if taken and not is_loaded(offer.entry) and not can_be_read(offer.entry):
                break               # hand out the ones before it; the next call raises for this one
            releases = (<selector_t*> offer.entry.holder).infinite | (<selector_t*> offer.entry.holder).reined
            taken.append(hand_over(self, offer))
            if releases:
                go_on(&self.e)
            n -= 1
        return 0

    def ack(self, deliveries):
        """Acknowledge many deliveries with one call and one run: all of them, or none.

        Args:
            deliveries: A `Delivery`, or an iterable of them.

        Raises:
            StaleDelivery: A delivery was answered before, the engine took it back, or it is given twice.
            StoreFailed: The store of a message has failed: the message is settled in memory, and the store still has it.
            Closed: The engine is closed.
            TypeError: An item is not a `Delivery`.

        If it raises another error, nothing has changed.

        Cost: O(deliveries + queues that the messages were moved through), and the run that follows.

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     worker = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=10)
        ...     ids = engine.publish_many("jobs", [("resize",), ("rotate",)])
        ...     engine.ack(engine.take(10, "worker"))
        ...     jobs.outstanding
        0
        """
        cdef PyObject* given
        cdef list checked
        cdef Py_ssize_t i
        if isinstance(deliveries, Delivery):
            deliveries = (deliveries,)
        elif type(deliveries) is not list:
            deliveries = iterator_of(deliveries, "deliveries must be a Delivery or an iterable of them")
        checked = list(deliveries)
        self.begin_call()
        try:
            check_deliveries(self, checked)
            for i in range(len(checked)):
                # Borrowed: this list is our own. The caller's might change meanwhile, by a finalizer that the collector runs.
                given = PyList_GET_ITEM(checked, i)
                (<Delivery> given).answered = True
                if not (<Delivery> given).settled:
                    pay(&self.e, (<Delivery> given).entry)
            go_on(&self.e)
        finally:
            self.unlock()

    # ---- queues and selectors

    def _create_queue(self, QueueHandle handle, dict properties, Journal journal, dict items):
        """`items`: what its map has from the start."""
        cdef int64_t charge = map_charge(items) if items else 0
        self.begin_call()
        try:
            if journal is not None:
                journal.must_write()
            if items and journal is not None:
                self.make_room(journal, charge + kept_bytes(&journal.store, charge, COMES_IN))
                check_map_fits(journal, charge, charge, handle.name)
            queue_create(&self.e, handle, properties, self.spare_slots, journal, 0)
            if self.e.is_watched:
                self.teller.caused.append(("queue", True, handle))
            if items:
                map_begin(handle.queue, items)
            expire_in_room(&self.e)       # it may be the dead letter queue of what waits for room in another one
            go_on(&self.e)
        finally:
            self.unlock()

    def _delete_queue(self, name):
        """Delete a queue; return the names of all queues that are gone with it, its own first."""
        cdef queue_t* queue
        self.begin_call()
        try:
            queue = self.queue_of(name)
            if queue == NULL:
                return []
            if queue.adopter != NULL:
                raise Conflict(f"queue {(<QueueHandle> queue.handle).name!r} was adopted by "
                               f"{(<QueueHandle> queue.adopter.handle).name!r}, which it belongs to now: it goes when its "
                               "messages have entered, or with that queue")
            names = queue_delete(&self.e, queue, self._selectors, self.spare_slots)
            expire_in_room(&self.e)
            go_on(&self.e)
            return names
        finally:
            self.unlock()

    def _create_selector(
        self, SelectorHandle handle, int verb, int role, tuple terms, queue_field, target, destination_field, destination,
        credit, ack_timeout, rank, ahead, window, bint enabled, start,
    ):
        """`ack_timeout` is None or in nanoseconds; for `start` see `replay.pyx`."""
        cdef selector_t* selector
        self.begin_call()
        try:
            if handle.source.live().staged or (target is not None and (<QueueHandle> target).live().staged):
                staged = handle.source if handle.source.queue.staged else target
                raise ValueError(f"queue {staged.name!r} is staged: it is published into, and its messages enter the queue that "
                                 "adopts it; selectors neither take from it nor put into it")
            selector_create(
                &self.e, handle, verb, role, terms, queue_field, target, destination_field, destination, credit, ack_timeout,
                rank, ahead, window, False)
            selector = handle.selector
            self._selectors[handle.id] = handle
            if self.e.is_watched:
                self.teller.caused.append(("selector", True, handle))
            try:
                selector_start(&self.e, selector, start)
                if enabled:
                    selector_begin(&self.e, selector)
            except BaseException:
                auto_delete = handle.source.queue.auto_delete     # a selector that was not created deletes no queue with it
                handle.source.queue.auto_delete = False
                selector_delete(&self.e, selector, self._selectors, self.spare_slots, True)
                handle.source.queue.auto_delete = auto_delete
                go_on(&self.e)          # what no selector matched was to be tried again
                raise
            go_on(&self.e)
        finally:
            self.unlock()

    def _delete_selector(self, SelectorHandle handle, bint recalls):
        """Delete a selector; return the names of the queues that are gone with it. None: it was deleted before."""
        self.begin_call()
        try:
            if handle.selector == NULL:
                return None
            names = selector_delete(&self.e, handle.selector, self._selectors, self.spare_slots, recalls)
            go_on(&self.e)
            return names
        finally:
            self.unlock()

    def _create_window(self, WindowHandle handle, credit):
        self.begin_call()
        try:
            window_begin(&self.e, handle, credit)
            self._windows[handle.name] = handle
            go_on(&self.e)
        finally:
            self.unlock()

    def _resize_window(self, WindowHandle handle, credit):
        self.begin_call()
        try:
            window_resize(&self.e, handle, credit)
            go_on(&self.e)
        finally:
            self.unlock()

    def _delete_window(self, WindowHandle handle):
        """Delete a window, unless selectors share it; return how many do. None: it was deleted before."""
        self.begin_call()
        try:
            if handle.deleted:
                return None
            if not handle.selectors:
                window_end(&self.e, handle)
                del self._windows[handle.name]
            go_on(&self.e)
            return handle.selectors
        finally:
            self.unlock()

    def _enable(self, SelectorHandle handle, bint enabled):
        self.begin_call()
        try:
            if enabled:
                if not handle.live().enabled:
                    selector_begin(&self.e, handle.selector)
            else:
                selector_enable(&self.e, handle.live(), False)
            go_on(&self.e)
        finally:
            self.unlock()

    def _grant(self, SelectorHandle handle, n):
        cdef selector_t* selector
        self.begin_call()
        try:
            selector = handle.live()
            outstanding = selector.holding.count + selector.taken.count
            if n and selector.infinite:
                raise ValueError(f"selector {handle.id} has INFINITE credit; there is nothing to grant")
            if n and not outstanding <= selector.window + n <= 2 ** 62:
                raise ValueError(f"cannot grant {n}: selector {handle.id} has a window of {selector.window}, of which "
                                 f"{outstanding} are outstanding")
            selector.window += n
            selector.available += n
            if not can_take(selector):
                selector_idle(selector)
                if self.e.building:
                    selector_waiters_wake(&self.e, selector)
            selector_wake(&self.e, selector)
            go_on(&self.e)
        finally:
            self.unlock()

    def _pay(self, SelectorHandle handle, n):
        cdef selector_t* selector
        self.begin_call()
        try:
            selector = handle.live()
            if n > selector.taken.count:
                raise ValueError(
                    f"cannot ack {n} messages: your program holds {selector.taken.count} of selector {handle.id}")
            for _ in range(n):
                pay(&self.e, selector.taken.head)
            go_on(&self.e)
        finally:
            self.unlock()

    def _hold(self, QueueHandle handle, bint held):
        cdef queue_t* queue
        self.begin_call()
        try:
            queue = handle.live()
            if queue.staged:
                if not held:
                    raise ValueError(f"queue {handle.name!r} is staged, so it is always held: Engine.adopt gives its messages to "
                                     "another queue")
                return
            self._reopened[:] = [other for other in self._reopened if other is not handle]    # your program holds it, or not
            if not held:
                self.end_hold(queue)
                time_of(&self.e)
                if queue.awaits_release:
                    release_due(&self.e, [handle])
                elif queue.has_awaiting:
                    due_again(&self.e, queue)
            elif not queue.held:
                hold(&self.e, queue)
            run(&self.e)        # also if there is nothing to route: the delays that ended now belong to a run
        finally:
            self.unlock()

    cdef int end_hold(self, queue_t* queue) except -1:
        """End the hold of a queue, so that its messages may go on."""
        if queue.held:
            queue.held = False
            if queue.returning != NULL and queue.returning.count:
                mark_returned(&self.e, queue)
            if queue.drops_oldest:          # one that could not be read may have been in the way
                queue_list(&self.e, queue, OVERFULL)
            wake_everything(&self.e, queue)
        return 0

    def _ask(self, QueueHandle replies, queue, address, body, headers, wake):
        """Publish a request, whose reply comes to the queue `replies`; `wake()` is called when it comes, perhaps at once; None:
        it is for `_sleep`. Returns the `Request`."""
        cdef Request request = Request.__new__(Request)
        cdef content_t* content
        request.message_id = urandom(16).hex()
        request.call = wake
        if isinstance(address, Message):
            content = content_alone(address, body, headers, replies.name, request.message_id, NULL)
        else:
            content = content_new(address, body, headers, replies.name, request.message_id, NULL)
        try:
            self.lock()
            try:
                self.e.replies = replies.live()
                self.requests[request.message_id] = request
            finally:
                self.unlock_now()
        except BaseException:
            self._end_request(request)
            content_release(content)
            raise
        try:
            self.publish_content(queue, content, None, NEVER)
        except BaseException:
            self._end_request(request)
            raise
        return request

    def _end_request(self, Request request not None):
        """The request does not wait any more."""
        self.requests.pop(request.message_id, None)

    def _has_requests(self):
        """Whether requests wait for replies."""
        return bool(self.requests)

    # ---- time

    def tick(self):
        """Do what fell due, and nothing else. Every other call that changes something does that first, too.

        Raises:
            Closed: The engine is closed.

        Cost: that of what fell due, and the run that follows.

        >>> from xump import Engine
        >>> now = 0
        >>> with Engine(clock=lambda: now) as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     number = jobs.publish("resize", delay=60)
        ...     before = jobs.delayed, jobs.ready, engine.next_due
        ...     now = engine.next_due
        ...     engine.tick()
        ...     before, (jobs.delayed, jobs.ready, engine.next_due)
        ((1, 0, 60000000000), (0, 1, None))
        """
        self.begin_call()
        try:
            go_on(&self.e)
        finally:
            self.unlock()

    # ---- reading

    def _delete_message(self, QueueHandle handle, id):
        cdef entry_t* entry
        self.begin_call()
        try:
            entry = self.entry_of(handle, id)
            if entry == NULL:
                return False
            message_delete(&self.e, entry)
            if handle.queue.adopter != NULL:
                adopted_shrinks(self, handle.queue, 1)
            go_on(&self.e)
            return True
        finally:
            self.unlock()

    def _purge(self, QueueHandle handle, uint64_t upto, uint64_t most, uint64_t after):
        """Delete ready and delayed messages with ids from `after` + 1 to `upto`, looking at most at so many. Return how many
        were deleted, and the id that was looked at last; 0: all were."""
        cdef queue_t* queue
        cdef entry_t* entry
        cdef uint64_t count = 0, id = 0, left = 0
        self.begin_call()
        try:
            queue = handle.live()
            if queue.staged:
                check_takes_rows(queue)
            entry = index_from(&queue.index, after + 1)
            while entry != NULL and entry.id <= upto:
                if most == 0:
                    left = id
                    break
                most -= 1
                id = entry.id
                if entry.state == UNROUTED or entry.state == WAITING or entry.state == BOUND or entry.state == DELAYED:
                    message_delete(&self.e, entry)
                    count += 1
                entry = index_from(&queue.index, id + 1)
            go_on(&self.e)
            return count, left
        finally:
            self.unlock()

    # ---- the end

    def _close(self):
        """Close the engine: no call enters any more. Returns whether it was open."""
        if self.state == FORKED:
            return False
        if self.state != NEW and self.state != BROKEN and not self.lock_if_open():
            return False
        self.state = CLOSED
        self.wake_next()
        return True

    def _free(self):
        """Free everything, after `_close` and when the stores have all that they need. Deliveries become stale."""
        for journal in list(self.journals):
            self.detach(journal)
        self.free_graph()
        # What a program gave may hold deliveries, and these hold the engine: a circle that the collector does not see.
        self.clock = None
        self.teller.watchers = ()
        self.outlets.clear()

    cdef int free_graph(self) except -1:
        """Free all that the engine holds. Its queues and selectors are as if deleted."""
        cdef QueueHandle queue
        cdef WindowHandle window
        if self.e.handle == NULL:
            return 0
        if self.e.at_rest == BROKEN:        # links may be wrong, so the memory is not freed
            self.e.handle = NULL
            return 0
        self.e.building = 1
        self.undelivered.clear()
        for queue in self._queues.values():
            if queue.queue != NULL:
                queue.queue.dying = True        # no late message becomes a dead letter: its store may be closed
        for queue in list(self._queues.values()):
            if queue.queue != NULL:
                queue_delete(&self.e, queue.queue, self._selectors, self.spare_slots)
        for window in self._windows.values():
            window_end(&self.e, window)
        self._windows.clear()
        end_visited(&self.e)
        offers_free(&self.e)
        visited_free(&self.e)
        heap_free(&self.e.runnable)
        heap_free(&self.e.backlogs)
        schedule_free(&self.e.schedule)
        free(self.e.run_queue)
        free(self.e.parked)
        free(self.e.suspended)
        self.e.run_queue = NULL
        self.e.parked = NULL
        self.e.suspended = NULL
        self.e.handle = NULL
        self.sources_to_drop.clear()
        self.teller.caused.clear()
        self.teller.due.clear()
        return 0
