"""Declarations of `wakeup.pyx`."""

cdef class Wakeup:
    cdef void* lock         # held while there is nothing to wake for
    cdef bint is_free       # nobody holds it
    cdef bint flag

    # Wakes those that wait, and those that wait later, until `clear`. Runs no Python code.
    cdef void wake(self) noexcept
