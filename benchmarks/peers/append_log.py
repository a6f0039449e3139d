"""The limit for a durable queue: a log that is appended to, and a position that is written over. No ids, no headers, no index.

Each record is its length, a CRC-32 and the body. A group is one write and one fdatasync; so is the ack of a group, which says
up to where the log was read. The reader reads a group at once and checks each CRC.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from time import perf_counter_ns

HEAD = struct.Struct("<II")
POSITION = struct.Struct("<Q")


def run(directory: Path, body: bytes, messages: int, group: int) -> tuple[int, int]:
    """Nanoseconds that all messages took to be written, and to be read and acked."""
    size, pack, unpack, crc = HEAD.size + len(body), HEAD.pack, HEAD.unpack_from, zlib.crc32
    log = os.open(directory / "log", os.O_CREAT | os.O_RDWR | os.O_APPEND)
    acks = os.open(directory / "acks", os.O_CREAT | os.O_RDWR)
    os.pwrite(acks, POSITION.pack(0), 0)
    os.fsync(acks)
    started = perf_counter_ns()
    for _ in range(messages // group):
        os.write(log, b"".join([pack(len(body), crc(body)) + body for _ in range(group)]))
        os.fdatasync(log)
    between = perf_counter_ns()
    position = read = 0
    for _ in range(messages // group):
        data = os.pread(log, group * size, position)
        for at in range(0, len(data), size):
            length, expected = unpack(data, at)
            content = data[at + HEAD.size : at + HEAD.size + length]
            if crc(content) != expected:
                raise ValueError(f"the record at {position + at} is damaged")
            read += len(content)
        position += len(data)
        os.pwrite(acks, POSITION.pack(position), 0)
        os.fdatasync(acks)
    ended = perf_counter_ns()
    os.close(log)
    os.close(acks)
    assert read == messages * len(body)
    return between - started, ended - between
