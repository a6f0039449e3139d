"""What `check()` methods are written in: a broken law is an AssertionError that says which, also under `python -O`."""

cdef inline int require(bint holds, str law) except -1:
    if not holds:
        raise AssertionError(law)
    return 0
