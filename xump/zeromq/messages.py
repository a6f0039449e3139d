"""Whole messages of a socket: a list of frames in, a list of frames out, with one call each.

Compiled code does it (`xump_ext.zeromq.multipart`), by the functions of the libzmq that pyzmq has loaded. Where those are not to
be found, as in a pyzmq of which libzmq is a hidden part, pyzmq does the same frame by frame, at eight times the cost.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn, Protocol

import zmq
import zmq.backend

from xump.zeromq.frames import FRAMES_MAX
from xump_ext.zeromq.multipart import FUNCTIONS, Multipart

_AT_ONCE, _MORE_AT_ONCE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
"""To make an int of an enum costs as much as a frame."""


class Messages(Protocol):
    """The common part of both ways."""

    def receive(self, wait: bool = False) -> list[bytes] | None:
        """The frames of the next message, at most `FRAMES_MAX` and one; None: there is none, or none came in time.

        Args:
            wait: Wait for it, as long as the socket's `rcvtimeo` says.
        """

    def send(self, frames: Sequence[bytes]) -> bool:
        """Send a message; False: there is no room for it, or, with `router_mandatory`, its peer is gone. Never waits."""


def messages(socket: zmq.Socket[Any]) -> Messages:
    """The messages of a socket."""
    if _ADDRESSES is None:
        return FrameByFrame(socket)
    return Multipart(socket, _ADDRESSES, _fail, frames_max=FRAMES_MAX, unreachable=zmq.EHOSTUNREACH)


class FrameByFrame:
    """The messages of a socket, through pyzmq."""

    def __init__(self, socket: zmq.Socket[Any]) -> None:
        self._recv = socket.recv
        self._send = partial(zmq.backend.Socket.send, socket)       # what `Socket.send` calls in the end

    def receive(self, wait: bool = False) -> list[bytes] | None:
        """As `Messages` says."""
        try:
            frame = self._recv(0 if wait else _AT_ONCE, copy=False)     # half the cost of `recv_multipart`
        except zmq.Again:
            return None
        frames = [frame.bytes]
        while frame.more:
            frame = self._recv(_AT_ONCE, copy=False)
            if len(frames) <= FRAMES_MAX:
                frames.append(frame.bytes)
        return frames

    def send(self, frames: Sequence[bytes]) -> bool:
        """As `Messages` says."""
        if not frames:
            raise ValueError("a message has at least one frame, which may be empty: b\"\"")
        for frame in frames:
            if not isinstance(frame, bytes):
                raise TypeError(f"a frame of a message must be bytes, got {frame!r}")
        sent = True
        for at, frame in enumerate(frames, start=1):
            try:
                self._send(frame, _MORE_AT_ONCE if at < len(frames) else _AT_ONCE)
            except zmq.ZMQError as error:
                if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                    raise
                if at == 1:
                    return False
                sent = False                # libzmq drops the rest, which it must be given for that
        return sent


def _fail(errno: int) -> NoReturn:
    raise zmq.ContextTerminated(errno) if errno == zmq.ETERM else zmq.ZMQError(errno)


def _addresses() -> tuple[int, ...] | None:
    """Where the functions of libzmq are in memory; None: they cannot be found, or it is older than 4.1."""
    if zmq.zmq_version_info() < (4, 1):
        return None
    loaded = sys.modules[zmq.backend.Socket.__module__].__file__
    try:
        # To look into the module that is linked with libzmq finds what it is linked with.
        library = ctypes.CDLL(loaded)
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in FUNCTIONS]
    except (OSError, AttributeError):
        return None
    return tuple(address for address in found if address is not None)


_ADDRESSES = _addresses()
