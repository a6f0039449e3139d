"""The constants of the record format, under the names that Python code uses.

`kinds.pxd` defines each of them once and draws the records.
"""

import struct

HEAD = struct.Struct("<IHBBIIQQ")
"""The head of every record: crc, magic, kind, flags, length, queue, position, id."""
MAGIC_AT, KIND_AT, POSITION_AT, ID_AT = 4, 6, 16, 24
"""The offsets of some of these fields."""

GROUP_FIELDS = struct.Struct("<QQQ")
"""The fields that follow the head of a GROUP: count of records, bytes of the group, position up to which the log was synced."""
COUNT_AT, GROUP_SIZE_AT, SYNCED_AT = 32, 40, 48
"""The offsets of these fields. The count of a SETTLE has the same offset as that of a GROUP."""

U64 = struct.Struct("<Q")
"""One field of 64 bits."""

NAMES = {GROUP: "GROUP", QUEUE: "QUEUE", GONE: "GONE", STATE: "STATE", ENTER: "ENTER", MARK: "MARK", SETTLE: "SETTLE",
         SEEN: "SEEN", FORGET: "FORGET", META: "META", ADOPT: "ADOPT"}

FIXED_BYTES = {
    GROUP: sizeof(group_record_t), GONE: sizeof(head_t), STATE: sizeof(state_record_t), MARK: sizeof(mark_record_t),
    SETTLE: sizeof(settle_record_t), SEEN: sizeof(seen_record_t), FORGET: sizeof(head_t),
}
"""The lengths of records without texts; their crc covers all of it."""
GROUP_BYTES = FIXED_BYTES[GROUP]
FIXED_BYTES_MAX = max(FIXED_BYTES.values())

UNLIMITED = 2**64 - 1
"""The limit of a queue without a limit."""

KEY = struct.Struct(">BIQ")
"""A key of a store that finds records by key: its kind, the number of the queue, the id. Keys in order are records in an order in
which they may be applied."""
KEY_OF_KIND = {QUEUE: 1, STATE: 2, ENTER: 3, MARK: 4, SEEN: 5, META: 6, ADOPT: 7}
"""The first byte of the key of a record, by its kind; records of other kinds have no key."""
KEY_QUEUE, KEY_STATE, KEY_ENTER, KEY_MARK, KEY_SEEN, KEY_META, KEY_ADOPT = (
    bytes([KEY_OF_KIND[kind]]) for kind in (QUEUE, STATE, ENTER, MARK, SEEN, META, ADOPT))

MAGIC_BYTES = (<int> MAGIC).to_bytes(2, "little")

assert HEAD.size == sizeof(head_t) and KEY.size == KEY_BYTES and HEAD.size + GROUP_FIELDS.size == GROUP_BYTES

globals().update(
    MAGIC=MAGIC, GROUP=GROUP, QUEUE=QUEUE, GONE=GONE, STATE=STATE, ENTER=ENTER, MARK=MARK, SETTLE=SETTLE,
    SEEN=SEEN, FORGET=FORGET, META=META, ADOPT=ADOPT, TIMED=RECORD_TIMED, ROUTED=RECORD_ROUTED, UNROUTED=RECORD_UNROUTED,
    REDELIVERED=RECORD_REDELIVERED, DEAD_ENTRY=RECORD_DEAD_ENTRY, HISTORIC=RECORD_HISTORIC, RARE=RECORD_RARE,
    MARKED=RECORD_MARKED, EXACT=RECORD_EXACT, AUTO_DELETE=RECORD_AUTO_DELETE, NO_TEXT=NO_TEXT, REASONS_STORED=REASONS_STORED,
)
