"""The entries of an `lmdb` store: records by their keys, and one entry of its own under a key before all others.

    META_KEY    magic 8 bytes, version u32, salt u32, end u64, groups u64, transaction u64, crc u32
    others      as `xump_ext.records.record.items` gives them

Each transaction writes the store's own entry, with its own number. LMDB's meta pages have no CRC: by this number the store knows
that a meta page names the transaction to whose tree it leads.

A record has its own CRC, and names its queue, its id and its place in the log. So a reader also notices a record under the key of
another one.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from xump_ext.records import crc, kinds

META_KEY = b"\x00"
META_MAGIC = b"XumpLMDB"
VERSION = 3

_META = struct.Struct("<8sIIQQQ")
_CRC = struct.Struct("<I")
META_BYTES = _META.size + _CRC.size
WORDS = {kinds.QUEUE: "queue", kinds.STATE: "state", kinds.ENTER: "message", kinds.MARK: "mark", kinds.SEEN: "message_id",
         kinds.META: "map", kinds.ADOPT: "adoptions"}
WORD_OF_KEY = {kinds.KEY_OF_KIND[kind]: word for kind, word in WORDS.items()}


class StoreMeta(NamedTuple):
    salt: int
    end: int
    groups: int
    transaction: int = 0
    """LMDB's number of the transaction that wrote the entry."""


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
    first = kinds.KEY_OF_KIND.get(kind)
    return b"" if first is None else kinds.KEY.pack(first, queue, id if kind in (kinds.ENTER, kinds.MARK, kinds.SEEN) else 0)


def is_key(key: bytes) -> bool:
    """Whether a record may have that key."""
    return len(key) == kinds.KEY.size and key[0] in WORD_OF_KEY


def named(key: bytes) -> tuple[int, int, str]:
    """Queue and id in a key, 0 where it has none, and the entry in words."""
    if not is_key(key):
        return 0, 0, f"entry under the key {key.hex()}"
    first, queue, id = kinds.KEY.unpack(key)
    return queue, id, f"{WORD_OF_KEY[first]} of queue {queue}" + (f", id {id}" if id else "")
