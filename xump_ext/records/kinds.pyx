"""The constants of the record format, under the names that Python code uses.

`kinds.pxd` defines each of them once and draws the records.
"""

import struct

HEAD = struct.Struct("<IHBBIIQQ")
"""The head of every record: crc, magic, kind, flags, length, queue, position, id."""

NAMES = {GROUP: "GROUP", QUEUE: "QUEUE", GONE: "GONE", STATE: "STATE", ENTER: "ENTER", MARK: "MARK", SETTLE: "SETTLE"}

FIXED_BYTES = {
    GROUP: sizeof(group_record_t), GONE: sizeof(head_t), STATE: sizeof(state_record_t), MARK: sizeof(mark_record_t),
    SETTLE: sizeof(settle_record_t),
}
"""The length of a record without texts, by kind; its crc covers all of it."""

UNLIMITED = 2**64 - 1
"""Stands for no limit."""

KEY_HEAD = struct.Struct(">BIQ")
"""A key in a store that finds records by key: its kind (`KEY_QUEUE` and so on), the number of the queue, the id."""

KEY_QUEUE, KEY_STATE, KEY_ENTER, KEY_MARK = b"\x01", b"\x02", b"\x03", b"\x04"

assert HEAD.size == sizeof(head_t) and KEY_HEAD.size == KEY_BYTES

globals().update(
    MAGIC=MAGIC, GROUP=GROUP, QUEUE=QUEUE, GONE=GONE, STATE=STATE, ENTER=ENTER, MARK=MARK, SETTLE=SETTLE,
    REDELIVERED=RECORD_REDELIVERED, DEAD_ENTRY=RECORD_DEAD_ENTRY, HISTORIC=RECORD_HISTORIC, RARE=RECORD_RARE,
    MARKED=RECORD_MARKED, EXACT=RECORD_EXACT, AUTO_DELETE=RECORD_AUTO_DELETE, NO_TEXT=NO_TEXT, REASONS_STORED=REASONS_STORED,
)
