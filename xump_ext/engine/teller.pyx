"""Calls back when a call is over: outlets that have a first offer, watchers of queues and selectors that came and went.

A call notes them in `caused` while it is inside the engine. When it leaves, they are `due`, and one thread calls them, one
after the other. A thread that holds a lock beside the engine's, to write for a store (`Later`) or to change the graph
(`graph_lock.pyx`), calls none of them before it has given that up: a call-back may call the engine, and so wait for that very
lock.
"""

from functools import partial

from cpython.pystate cimport PyThreadState_Get


cdef class Teller:
    def __cinit__(self):
        self.caused = []
        self.due = []
        self.later = {}
        self.watchers = ()

    cdef int call_over(self, object engine) except -1:
        """The call that is over has left the engine: calls what is due, unless another thread does so, or this one has to wait.
        `engine`: calls back."""
        cdef void* thread = <void*> PyThreadState_Get()
        if self.due and not self.calling and thread != self.graph_thread and not engine.closed and (
                not self.later or <size_t> thread not in self.later):
            self.tell(engine)
        return 0

    cdef int after_call(self, object call, tuple arguments) except -1:
        """Has this called when the call that runs is over: for what ends inside one, as when the collector ends a generator."""
        self.caused.append(partial(call, *arguments))
        return 0

    cdef int tell(self, object engine) except -1:
        """Makes the call-backs that are due, one after the other. Those that they cause themselves follow when these have
        returned, in the same loop: none is called inside another one."""
        self.calling = True
        try:
            while self.due:
                one = self.due.pop(0)
                if type(one) is tuple:
                    self.due[:0] = self.tellings(one)
                else:
                    engine._call_back(one)
        finally:
            self.calling = False
            self.put_back()     # after an interrupt the rest is told at the end of the next call
        return 0

    cdef int put_back(self) except -1:
        """Has the end of the next call tell what is due and told by no one now. It looks only at what was caused."""
        if self.due and not self.calling:
            self.caused[:0] = self.due
            self.due.clear()
        return 0

    cdef list tellings(self, tuple change):
        """Call-backs that tell each watcher of this change and of those that are due right after it, but of nothing that came and
        went."""
        cdef dict net = {change: None}
        while self.due and type(self.due[0]) is tuple:
            change = self.due.pop(0)
            came = change[0], True, change[2]
            if not change[1] and came in net:
                del net[came]
            else:
                net[change] = None
        return [partial(self._tell, watcher, list(net)) for watcher in self.watchers if net]

    def _tell(self, watcher, changes):
        if watcher in self.watchers:        # one before it may have ended it
            watcher(changes)

    cdef int wait_begin(self) except -1:
        """This thread calls nobody back until `wait_end`. May be nested."""
        thread = <size_t> PyThreadState_Get()
        self.later[thread] = self.later.get(thread, 0) + 1
        return 0

    cdef int wait_end(self) except -1:
        thread = <size_t> PyThreadState_Get()
        depth = self.later.pop(thread) - 1
        if depth:
            self.later[thread] = depth
        return 0


cdef class Later:
    """A context manager: its thread calls nobody back until the outermost one ends. May be entered again and again."""

    def __cinit__(self, Teller teller not None, engine):
        self.teller = teller
        self.engine = engine

    def __enter__(self):
        self.teller.wait_begin()

    def __exit__(self, *_):
        self.teller.wait_end()
        self.teller.call_over(self.engine)
