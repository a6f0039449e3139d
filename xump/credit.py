"""`INFINITE`: the credit that is never used up. Credit is a prefetch window; `xump_ext.select.credit` has its rules."""

from __future__ import annotations

from xump._value import described
from xump_ext.infinite import INFINITE, Infinite

__all__ = ["CREDIT_MAX", "INFINITE", "Infinite"]

CREDIT_MAX = 2**62
"""The widest finite window: sums of two windows fit into 64 bits."""

described(INFINITE, """
    Credit that is never used up: `create_selector(..., credit=INFINITE)`.

    Credit is a prefetch window: how many messages a selector may have taken that are not settled (acked, rejected or dropped).
    A selector with INFINITE credit has no window and leaves nothing outstanding. Its MOVE hands the message over for good. Its
    DELIVER settles the message when your program takes the delivery (automatic acknowledgement), so ack, nack and reject of that
    delivery do nothing.

    >>> from xump import INFINITE, Engine, always, deliver
    >>> with Engine() as engine:
    ...     log = engine.create_queue("log")
    ...     selector = engine.create_selector("log", when=always, do=deliver("screen"), credit=INFINITE)
    ...     number = log.publish("line")
    ...     [delivery] = engine.take(1, "screen")
    ...     log.ready, log.outstanding, selector.available
    (0, 0, INFINITE)
    """)
