"""What an `lmdb` store keeps in its environment: records by their keys, and one entry of its own under a key before all others.

    META_KEY    magic 8 bytes, version u32, salt u32, end u64, groups u64, crc u32: written with each group
    others      as `xump_ext.records.items` gives them

A record has its own CRC, and says which queue and id it is of, and where in the log it was: so one that stands under another's
key is found, too.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from xump_ext.records import KEY_ENTER, KEY_MARK, KEY_QUEUE, KEY_STATE, crc

META_KEY = b"\x00"
META_MAGIC = b"XumpLMDB"
VERSION = 1

_META = struct.Struct("<8sIIQQ")
_CRC = struct.Struct("<I")
META_BYTES = _META.size + _CRC.size
# Of a record's head: kind, length, queue, position, id.
HEAD = struct.Struct("<6xBxIIQQ")
HEAD_BYTES = 32
KEY = struct.Struct(">BIQ")
KEY_OF_KIND = {2: KEY_QUEUE[0], 4: KEY_STATE[0], 5: KEY_ENTER[0], 6: KEY_MARK[0]}
KINDS = dict(zip(KEY_OF_KIND.values(), ("queue", "state", "message", "mark"), strict=True))


class StoreMeta(NamedTuple):
    salt: int
    end: int
    groups: int


class NotOurs(Exception):
    """What stands under META_KEY is not what this version writes."""


class OtherVersion(NotOurs):
    """It is a store, of another version of the format."""


class DamagedMeta(NotOurs):
    """It was written by this version, and is damaged."""


def pack_meta(meta: StoreMeta) -> bytes:
    head = _META.pack(META_MAGIC, VERSION, *meta)
    return head + _CRC.pack(crc(head))


def unpack_meta(data: bytes) -> StoreMeta:
    """Raises `NotOurs`."""
    if data[:8] != META_MAGIC or len(data) < 12:
        raise NotOurs("it is an LMDB environment of another program")
    version = int.from_bytes(data[8:12], "little")
    if version != VERSION:
        raise OtherVersion(f"it has version {version} of the format; this Xump reads version {VERSION}")
    if len(data) != META_BYTES or _CRC.pack(crc(data[: _META.size])) != data[_META.size :]:
        raise DamagedMeta("the store's own entry, with its salt and position, is damaged")
    return StoreMeta(*_META.unpack_from(data)[2:])


def key_of(kind: int, queue: int, id: int) -> bytes:
    """Where the record of that kind is kept; b"": nowhere."""
    first = KEY_OF_KIND.get(kind)
    return b"" if first is None else KEY.pack(first, queue, id if first >= KEY_ENTER[0] else 0)


def named(key: bytes) -> tuple[int, int, str]:
    """Queue and id in a key, 0 where there is none, and what it is of, for people."""
    if len(key) != KEY.size or key[0] not in KINDS:
        return 0, 0, f"entry under the key {key.hex()}"
    first, queue, id = KEY.unpack(key)
    return queue, id, f"{KINDS[first]} of queue {queue}" + (f", id {id}" if id else "")
