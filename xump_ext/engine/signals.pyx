"""Defers Ctrl-C, SIGTERM and SIGALRM while the main thread writes files.

Python runs a signal handler in the main thread between two bytecodes, and the handler may end the code there by an exception.
While a block of `DeferredSignals` runs, the process has a handler in C that only notes the signal. When the block ends, the
handler from before is back, and the noted signals are raised again for it. The handlers that Python shows (`signal.getsignal`)
do not change.

`signal.signal` could do the same for some 20 microseconds a block. This takes three to six system calls, below one microsecond.
"""

from libc.signal cimport SIG_DFL, SIG_IGN, SIGALRM, SIGINT, SIGTERM, raise_, sighandler_t

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

cdef extern from "signal.h" nogil:
    ctypedef int sigset_t
    struct sigaction_t "sigaction":
        sighandler_t sa_handler
        sigset_t sa_mask
        int sa_flags
    int set_action "sigaction"(int number, const sigaction_t* new, sigaction_t* old)
    int sigemptyset(sigset_t* mask)

cdef extern from *:
    """
    static volatile sig_atomic_t xump_signals_came[3];
    """
    int came "xump_signals_came"[3]

cdef enum: COUNT = 3
cdef int[COUNT] NUMBERS = [SIGINT, SIGTERM, SIGALRM]


cdef void note(int number) noexcept nogil:
    cdef int i
    for i in range(COUNT):
        if NUMBERS[i] == number:
            came[i] = 1


cdef class DeferredSignals:
    """A context manager for the main thread: `with DeferredSignals(): ...`. Nests. A signal that the program ignores, or that
    ends it at once, is left alone."""

    cdef sigaction_t[COUNT] before
    cdef bint[COUNT] replaced

    def __enter__(self):
        cdef sigaction_t ours
        cdef int i
        ours.sa_handler = note
        ours.sa_flags = 0
        sigemptyset(&ours.sa_mask)
        for i in range(COUNT):
            if set_action(NUMBERS[i], NULL, &self.before[i]) == 0 and (
                    self.before[i].sa_handler != SIG_DFL and self.before[i].sa_handler != SIG_IGN):
                self.replaced[i] = set_action(NUMBERS[i], &ours, NULL) == 0
        try:
            PyErr_CheckSignals()        # signals from before the block are handled before it
        except BaseException:
            self.restore()
            raise

    def __exit__(self, kind, error, traceback):
        self.restore()

    cdef int restore(self) except -1:
        cdef int i
        for i in range(COUNT):
            if self.replaced[i]:
                self.replaced[i] = False
                set_action(NUMBERS[i], &self.before[i], NULL)
        for i in range(COUNT):
            if came[i]:
                came[i] = 0
                raise_(NUMBERS[i])
        return 0
