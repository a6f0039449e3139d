"""An assertion for `check()` methods that also works under `python -O`.

A broken law raises an AssertionError that names the law.
"""

cdef inline int require(bint holds, str law) except -1:
    if not holds:
        raise AssertionError(law)
    return 0
