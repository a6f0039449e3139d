"""Requests as bodies: back as they were, and every damage of their lengths an error."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xump_ext.zeromq.packing import pack, unpack


def packed_by_the_page(kind, frames):
    """What the layout at the head of packing.pyx says, by `struct`."""
    return struct.pack(f"<HH{len(frames)}I", kind, len(frames), *map(len, frames)) + b"".join(frames)


@given(st.integers(0, 0xFFFF), st.lists(st.binary(max_size=300)))
def test_back_as_it_was_and_by_the_layout(kind, frames):
    body = pack(kind, frames)
    assert body == packed_by_the_page(kind, frames)
    assert unpack(body) == (kind, frames)


def test_truncated_or_longer_at_every_offset():
    body = pack(513, [b"client", b"", b"x" * 20])
    for end in range(len(body)):
        with pytest.raises(ValueError, match="packed request"):
            unpack(body[:end])
    with pytest.raises(ValueError, match="end at byte 42, its body has 43"):
        unpack(body + b"!")


def test_every_byte_of_the_head_flipped():
    """Never a crash and never a frame that is not in the body."""
    body = pack(3, [b"client", b"", b"x" * 20])
    for at in range(2, 4 + 3 * 4):
        for bit in range(8):
            wrong = bytearray(body)
            wrong[at] ^= 1 << bit
            with pytest.raises(ValueError, match="packed request"):
                unpack(bytes(wrong))


def test_lengths_that_overflow():
    with pytest.raises(ValueError, match="frame 1 of a packed request has 4294967295 bytes, of which its body has 3"):
        unpack(struct.pack("<HHII", 0, 2, 0, 0xFFFFFFFF) + b"abc")


@pytest.mark.parametrize(("kind", "frames", "error"), [
    (-1, [], ValueError), (65536, [], ValueError), (0, [b""] * 65536, ValueError), (0, ["text"], TypeError),
    (0, [None], TypeError),
])
def test_what_cannot_be_packed(kind, frames, error):
    with pytest.raises(error):
        pack(kind, frames)


def test_the_most_frames():
    frames = [b"x"] * 0xFFFF
    assert unpack(pack(0xFFFF, frames)) == (0xFFFF, frames)
