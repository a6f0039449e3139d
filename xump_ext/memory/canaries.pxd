"""Defects that tests/builds/canaries.py compiles in, one at a time, to see that the tests find them. Most strike at every eighth
entry of an engine. In a release they are constants, which the C compiler removes."""

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #ifndef XUMP_CANARY_PAYMENT
    #define XUMP_CANARY_PAYMENT 0
    #endif
    #ifndef XUMP_CANARY_LINK
    #define XUMP_CANARY_LINK 0
    #endif
    #ifndef XUMP_CANARY_ROTATION
    #define XUMP_CANARY_ROTATION 0
    #endif
    #ifndef XUMP_CANARY_EXPIRY
    #define XUMP_CANARY_EXPIRY 0
    #endif
    #ifndef XUMP_CANARY_GROUP
    #define XUMP_CANARY_GROUP 0
    #endif
    #ifndef XUMP_CANARY_DUPLICATE
    #define XUMP_CANARY_DUPLICATE 0
    #endif
    #ifndef XUMP_CANARY_DELAY
    #define XUMP_CANARY_DELAY 0
    #endif
    #ifndef XUMP_CANARY_CHECKSUM
    #define XUMP_CANARY_CHECKSUM 0
    #endif
    #ifndef XUMP_CANARY_SETTLEMENT
    #define XUMP_CANARY_SETTLEMENT 0
    #endif
    #ifndef XUMP_CANARY_ROOM
    #define XUMP_CANARY_ROOM 0
    #endif
    #define xump_strikes(canary, sequence) ((canary) && (sequence) % 8 == 7)
    """
    # See `CANARIES` in tests/builds/canaries.py for what each of them breaks.
    const bint PAYMENT "XUMP_CANARY_PAYMENT"
    const bint LINK "XUMP_CANARY_LINK"
    const bint ROTATION "XUMP_CANARY_ROTATION"
    const bint EXPIRY "XUMP_CANARY_EXPIRY"
    const bint GROUP_ORDER "XUMP_CANARY_GROUP"
    const bint DUPLICATE "XUMP_CANARY_DUPLICATE"
    const bint DELAY "XUMP_CANARY_DELAY"
    const bint CHECKSUM "XUMP_CANARY_CHECKSUM"
    const bint SETTLEMENT "XUMP_CANARY_SETTLEMENT"
    const bint ROOM "XUMP_CANARY_ROOM"
    bint strikes "xump_strikes"(bint canary, uint64_t sequence) noexcept nogil
