"""The limits of messages and conditions, in one place, with the arithmetic. A value beyond a limit raises `ValueError`."""

from xump_ext.message.headers import headers_bytes_max
from xump_ext.message.message import address_bytes_max, body_bytes_max

filter_chars_max = 4 * 1024
"""Characters in the text of one filter."""

filter_depth_max = 100
"""Levels of nesting in one filter. Evaluating a level takes a C stack frame of some 100 bytes."""

pattern_bytes_max = address_bytes_max
"""Bytes of a pattern: as many as the text may have that it is compared with."""

pattern_words_max = 1_000
"""Words of one topic pattern. After a `#` each of them may be compared with each word of an address, which has at most 65,536
words. So a pattern costs a message at most 65 million steps, a fraction of a second. AMQP allows an address 255 bytes, some
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
