"""The constants of the record format."""

from struct import Struct

HEAD: Struct
MAGIC_AT: int
KIND_AT: int
POSITION_AT: int
ID_AT: int
GROUP_FIELDS: Struct
COUNT_AT: int
GROUP_SIZE_AT: int
SYNCED_AT: int
U64: Struct
NAMES: dict[int, str]
FIXED_BYTES: dict[int, int]
GROUP_BYTES: int
FIXED_BYTES_MAX: int
UNLIMITED: int
KEY: Struct
KEY_OF_KIND: dict[int, int]
KEY_QUEUE: bytes
KEY_STATE: bytes
KEY_ENTER: bytes
KEY_MARK: bytes
KEY_SEEN: bytes
KEY_META: bytes
KEY_ADOPT: bytes
MAGIC_BYTES: bytes
MAGIC: int
GROUP: int
QUEUE: int
GONE: int
STATE: int
ENTER: int
MARK: int
SETTLE: int
SEEN: int
FORGET: int
META: int
ADOPT: int
REDELIVERED: int
DEAD_ENTRY: int
HISTORIC: int
RARE: int
TIMED: int
ROUTED: int
UNROUTED: int
MARKED: int
EXACT: int
AUTO_DELETE: int
NO_TEXT: int
REASONS_STORED: int
