"""Receives and sends the messages of a ZeroMQ socket whole, with one call instead of one a frame."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, Self, final

FUNCTIONS: tuple[str, ...]
"""The functions of libzmq, in the order in which `Multipart` wants their addresses."""

@final
class Multipart:
    """The messages of a socket. As a socket, it is for one thread at a time.

    Args:
        socket: A socket of pyzmq.
        addresses: Of the functions of libzmq that `FUNCTIONS` names.
        fail: Is called with the number of an error, and raises it.
        frames_max: A longer message loses all frames but this many and one, so that it is known as too long.
        unreachable: The number of the error of a peer that is gone.
    """

    def __new__(
        cls, socket: Any, addresses: Iterable[int], fail: Callable[[int], NoReturn], *, frames_max: int, unreachable: int,
    ) -> Self: ...
    def receive(self, wait: bool = False) -> list[bytes] | None:
        """The frames of the next message; None: there is none, or none came in time.

        `wait`: wait for it, as long as the socket's `rcvtimeo` says.
        """
    def send(self, frames: Sequence[bytes]) -> bool:
        """Send a message; False: there is no room for it, or its peer is gone, of which a socket tells only if it is asked to.

        Never waits. A frame that is not bytes raises TypeError, and no frames ValueError, before anything is sent.
        """
