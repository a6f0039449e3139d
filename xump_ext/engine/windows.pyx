"""Windows that several selectors share: their handles, and their gates.

A gate is a queue that nothing enters. Its limit is the window's credit, and as many messages as the selectors have outstanding
count as ready in it. So a selector that finds the window empty stands in the gate's waiting list, as in that of a full target
(`select/credit.pyx`), and credit that comes back wakes the first of the list and no other.
"""

from libc.stdint cimport int64_t

from xump_ext.errors import Closed, WindowNotFound, no_pickle
from xump_ext.memory.document cimport document
from xump_ext.select.credit cimport waiters_wake
from xump_ext.select.runnable cimport runnable_remove


cdef class WindowHandle:
    """The properties of a window that several selectors share. Each costs O(1)."""

    def _name(self, engine, name):
        self.engine = engine
        self.name = name

    cdef queue_t* live(self) except NULL:
        if self.deleted or self.gate.engine == NULL:
            if self.engine is not None and self.engine.closed:
                raise Closed("the engine is closed; create another one")
            raise WindowNotFound(f"window {self.name!r} was deleted")
        return &self.gate

    def __reduce__(self):
        raise no_pickle(self)

    def __repr__(self):
        return f"<Window {self.name!r}{', deleted' if self.deleted else ''}>"

    @property
    def credit(self):
        """How many messages its selectors together may have outstanding."""
        return self.live().limit

    @property
    def available(self):
        """Credit that is left; 0 also while more is outstanding than a smaller window allows."""
        cdef queue_t* gate = self.live()
        return gate.limit - gate.ready if gate.ready < gate.limit else 0

    @property
    def outstanding(self):
        """Messages that its selectors have taken and that are not settled."""
        return self.live().ready

    def counters(self):
        """A dict of all gauges."""
        return {"credit": self.credit, "available": self.available, "outstanding": self.outstanding,
                "selectors": self.selectors}


cdef int window_begin(engine_t* engine, WindowHandle handle, int64_t credit) except -1:
    """The window is there from now on."""
    handle.gate.engine = engine
    handle.gate.handle = <void*> handle
    handle.gate.limit = handle._first = credit
    return 0


cdef int window_resize(engine_t* engine, WindowHandle handle, int64_t credit) except -1:
    """Gives the window this credit. If more is outstanding, its selectors take nothing until enough of it is settled."""
    cdef queue_t* gate = handle.live()
    gate.limit = credit
    return waiters_wake(engine, gate)


cdef int window_end(engine_t* engine, WindowHandle handle) except -1:
    """The window, which no selector shares, ends."""
    runnable_remove(engine, handle.gate.stands_in, &handle.gate.runnable)
    handle.deleted = True
    return 0


document(WindowHandle, b"name", b"The name of the window, unique in its engine.")
document(WindowHandle, b"engine", b"The Engine that it belongs to.")
