"""The constants of the record format."""

from struct import Struct

HEAD: Struct
NAMES: dict[int, str]
FIXED_BYTES: dict[int, int]
UNLIMITED: int
KEY_HEAD: Struct
KEY_QUEUE: bytes
KEY_STATE: bytes
KEY_ENTER: bytes
KEY_MARK: bytes
MAGIC: int
GROUP: int
QUEUE: int
GONE: int
STATE: int
ENTER: int
MARK: int
SETTLE: int
REDELIVERED: int
DEAD_ENTRY: int
HISTORIC: int
RARE: int
MARKED: int
EXACT: int
AUTO_DELETE: int
NO_TEXT: int
REASONS_STORED: int
