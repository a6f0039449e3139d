"""Looking at messages, times and counts, which changes nothing: a part of the engine's class.

The engine is one class in nine files (`engine_lock.pyx` says why). `EngineReading` adds what `browse`, `fetch`, `oldest`,
`next_due` and `stats` ask. `core.pyx` goes on. `browse` reads page after page, and leaves the engine lock between them.
"""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.engine.handles cimport QueueHandle, none_if_never
from xump_ext.match.filter cimport Filter
from xump_ext.message.content cimport content_release
from xump_ext.message.headers cimport content_t
from xump_ext.message.message cimport Message, message_object
from xump_ext.route.settling cimport hops_of
from xump_ext.route.oldest cimport oldest_ready
from xump_ext.state.constants cimport BOUND, DELAYED, HISTORY, MOVED, NEVER, OFFERED, TAKEN, UNROUTED, WAITING
from xump_ext.state.extra cimport is_first_delay
from xump_ext.state.graph cimport entry_t, queue_t
from xump_ext.state.index cimport index_from, index_get, index_since, index_until
from xump_ext.state.lazy_content cimport content_shown
from xump_ext.state.schedule cimport schedule_next

cdef dict STATES = {"ready": (1 << UNROUTED) | (1 << WAITING) | (1 << BOUND),
                    "outstanding": (1 << OFFERED) | (1 << TAKEN) | (1 << MOVED),
                    "history": 1 << HISTORY, "delayed": 1 << DELAYED}
cdef tuple STATE_NAMES = tuple([next(name for name, states in STATES.items() if states >> state & 1) for state in range(8)])


cdef class EngineReading(EngineTransactions):
    """A part of the engine's class: looking at messages, times and counts."""

    @property
    def next_due(self):
        """When something falls due next, in POSIX nanoseconds, or None: a delay or a retry ends, a message expires, or a delivery
        was not answered in time. Messages that wait for the release of their queue do not count. O(1) amortized."""
        self.lock()
        try:
            moment = schedule_next(&self.e.schedule)
        finally:
            self.unlock_now()
        return None if moment == NEVER else moment

    def _now(self):
        """The time by its clock, in POSIX nanoseconds."""
        self.lock()
        try:
            self.read_clock()
            return self.e.now
        finally:
            self.unlock_now()

    def _oldest(self, QueueHandle handle):
        """The timestamp of the oldest ready message, or None."""
        cdef entry_t* entry
        self.lock()
        try:
            entry = oldest_ready(handle.live())
            return None if entry == NULL else entry.timestamp
        finally:
            self.unlock_now()

    def _page(self, QueueHandle handle, start, bint reverse, state, Filter filter, bint detailed=False):
        """A page of what `browse` yields: (messages, the id where the next page begins, or None). `detailed`: for each message
        (message, state, until when it is delayed or None)."""
        cdef entry_t* entry
        cdef list found = []
        cdef int wanted = states_wanted(state), looked = 0
        self.lock()
        try:
            entry = first_browsed(handle.live(), start, reverse)
            while entry != NULL and looked < PAGE:
                if wanted >> entry.state & 1:
                    message = self.message_if_selected(entry, filter)
                    if message is not None:
                        found.append((message, state_name(entry), none_if_never(delayed_until(entry))) if detailed else message)
                looked += 1
                entry = next_browsed(entry, reverse)
            return found, None if entry == NULL else entry.id
        finally:
            self.unlock_now()

    cdef Message message_if_selected(self, entry_t* entry, Filter filter):
        """The message of an entry, or None if the filter does not select it."""
        cdef content_t* content = content_shown(entry)
        try:
            if filter is None or filter.evaluate(content, entry.timestamp, entry.delivery_count) == 1:
                return message_object(content, entry.id, entry.timestamp, hops_of(&self.e, entry))
            return None
        finally:
            content_release(content)

    def _fetch(self, QueueHandle handle, id):
        cdef entry_t* entry
        self.lock()
        try:
            entry = self.entry_of(handle, id)
            return None if entry == NULL else self.message_if_selected(entry, None)
        finally:
            self.unlock_now()

    cdef entry_t* entry_of(self, QueueHandle handle, object id) except? NULL:
        cdef queue_t* queue = handle.live()
        return index_get(&queue.index, id) if 0 < id < queue.next_id else NULL

    def _counters(self):
        """Those of the engine itself."""
        return {"entered": self.e.sequence, "held_messages": self.e.entries, "deliverable": self.e.offer_count,
                "no_queue": self.no_queue}

    def _stats(self):
        """All counters and gauges, of one moment: no other thread creates or deletes anything meanwhile."""
        self.lock()
        try:
            return {
                "engine": self._counters(),
                "queues": {name: queue.counters() for name, queue in self._queues.items()},
                "selectors": {id: selector.counters() for id, selector in self._selectors.items()},
                "windows": {name: window.counters() for name, window in self._windows.items()},
            }
        finally:
            self.unlock_now()


# ---- what `browse` looks at

cdef int states_wanted(object state) except -1:
    """The states that are called so, as bits; None: all."""
    return 0xFF if state is None else STATES[state]


cdef str state_name(const entry_t* entry):
    """The state of a message, as `browse` calls it."""
    return STATE_NAMES[entry.state]


cdef int64_t delayed_until(const entry_t* entry) noexcept:
    """When a delayed message is due, or expires, whichever is first; NEVER: it is not delayed."""
    if entry.state != DELAYED:
        return NEVER
    if entry.extra.due != NEVER:
        return entry.extra.due
    # its queue waits for its release
    return min(entry.extra.delayed_until if is_first_delay(entry) else entry.extra.ended.retry, entry.extra.expires)


cdef entry_t* first_browsed(queue_t* queue, object start, bint reverse) except? NULL:
    """The entry at `start`, an id or a time as ("time", ns), or the next one. O(log of the queue's pages)."""
    cdef uint64_t at
    if not isinstance(start, tuple):
        at = start
    elif reverse:
        at = since(queue, start[1] + 1) - 1     # the last message of that time
    else:
        at = since(queue, start[1])
    return index_until(&queue.index, at) if reverse else index_from(&queue.index, at)


cdef entry_t* next_browsed(const entry_t* entry, bint reverse) noexcept:
    if reverse:
        return index_until(&entry.queue.index, entry.id - 1) if entry.id > 1 else NULL
    return index_from(&entry.queue.index, entry.id + 1)


cdef uint64_t since(queue_t* queue, int64_t time) except? 0:
    """The first id whose message entered at `time` or later. O(log of the queue's pages)."""
    cdef entry_t* entry = index_since(&queue.index, time)
    return queue.next_id if entry == NULL else entry.id
