"""The entries of an `lmdb` store: records by their keys, and one entry of its own under a key before all others.

    META_KEY    magic 8 bytes, version u32, salt u32, end u64, groups u64, crc u32: written with each group
    others      as `xump_ext.records.record.items` gives them

A record has its own CRC, and names its queue, its id and its place in the log. So a reader also notices a record under the key of
another one.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from xump_ext.records import crc
from xump_ext.records.kinds import KEY_ENTER, KEY_MARK, KEY_QUEUE, KEY_STATE

META_KEY = b"\x00"
META_MAGIC = b"XumpLMDB"
VERSION = 1

_META = struct.Struct("<8sIIQQ")
_CRC = struct.Struct("<I")
META_BYTES = _META.size + _CRC.size
# The fields of a record's head that stores read: kind, length, queue, position, id.
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
    """The entry under META_KEY is not one that this version writes."""


class OtherVersion(NotOurs):
    """The store has another version of the format."""


class DamagedMeta(NotOurs):
    """This version wrote the entry, and it is damaged."""


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
    """The key of a record of that kind; b"": the store keeps none."""
    first = KEY_OF_KIND.get(kind)
    return b"" if first is None else KEY.pack(first, queue, id if first >= KEY_ENTER[0] else 0)


def named(key: bytes) -> tuple[int, int, str]:
    """Queue and id in a key, 0 where it has none, and the entry in words."""
    if len(key) != KEY.size or key[0] not in KINDS:
        return 0, 0, f"entry under the key {key.hex()}"
    first, queue, id = KEY.unpack(key)
    return queue, id, f"{KINDS[first]} of queue {queue}" + (f", id {id}" if id else "")
