"""A request as the body of a message: its frames, their lengths before them, and a number that says who asks how.

    kind, count: 16 bits each | length of each frame: 32 bits each | the frames

>>> unpack(pack(3, [b"client", b"", b"body"]))
(3, [b'client', b'', b'body'])
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

_HEAD = struct.Struct("<HH")


@lru_cache(maxsize=64)
def _layout(count: int) -> struct.Struct:
    return struct.Struct(f"<HH{count}I")


def pack(kind: int, frames: Sequence[bytes]) -> bytes:
    """Make one body of some frames. Cost: O(bytes)."""
    count = len(frames)
    return _layout(count).pack(kind, count, *map(len, frames)) + b"".join(frames)


def unpack(body: bytes) -> tuple[int, list[bytes]]:
    """The number and the frames that `pack` was given.

    Raises:
        ValueError: `pack` did not make this body.
    """
    if len(body) < _HEAD.size:
        raise ValueError(f"a packed request has at least {_HEAD.size} bytes, this one has {len(body)}")
    kind, count = _HEAD.unpack_from(body)
    layout = _layout(count)
    if len(body) < layout.size:
        raise ValueError(f"a packed request of {count} frames has at least {layout.size} bytes, this one has {len(body)}")
    at, frames = layout.size, []
    for size in layout.unpack_from(body)[2:]:
        frames.append(body[at : at + size])
        at += size
    if at != len(body):
        raise ValueError(f"the frames of a packed request end at byte {at}, its body has {len(body)}")
    return kind, frames
