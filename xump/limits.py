"""The limits of messages and conditions, in one place, with the arithmetic. Beyond them is a `ValueError`."""

from xump_ext.message.headers import headers_bytes_max
from xump_ext.message.message import address_bytes_max, body_bytes_max

filter_chars_max = 4 * 1024
"""Text of one filter."""

filter_depth_max = 100
"""Levels of one filter: each takes a C stack frame of some 100 bytes when it is evaluated."""

pattern_bytes_max = address_bytes_max
"""A pattern needs no more than what it is compared with."""

pattern_words_max = 1_000
"""Words of one topic pattern. Behind a `#` each of them may be compared with each word of an address, of which there are at most
65,536: so a pattern costs a message at most 65 million steps, a fraction of a second. AMQP has 255 bytes for an address, some
128 words."""

__all__ = [
    "address_bytes_max",
    "body_bytes_max",
    "filter_chars_max",
    "filter_depth_max",
    "headers_bytes_max",
    "pattern_bytes_max",
    "pattern_words_max",
]
