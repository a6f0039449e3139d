"""A request as the body of a message: its frames, their lengths before them, and a number that says who asks how."""

from collections.abc import Iterable

def pack(kind: int, frames: Iterable[bytes]) -> bytes:
    """Make one body of some frames. Cost: O(bytes).

    Raises:
        ValueError, TypeError: The number or the count of frames is above 65,535; a frame has 4 GiB, or is not bytes.

    >>> unpack(pack(3, [b"client", b"", b"body"]))
    (3, [b'client', b'', b'body'])
    """

def unpack(body: bytes) -> tuple[int, list[bytes]]:
    """The number and the frames that `pack` was given.

    Raises:
        ValueError: `pack` did not make this body.
    """
