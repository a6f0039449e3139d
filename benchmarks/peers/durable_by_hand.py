"""Durable queues as one writes them with what Python has, and in key-value stores: bodies in groups, each written as the name
says before the next, then read and acked in groups. Nanoseconds that all messages took to be put, and to be taken.

    ring        a file of slots made beforehand; a write and an fdatasync for each group, and for each group of acks
    mapped      the same through a mapping, with msync
    sqlite      a table; `synchronous` FULL: the WAL is synced at each commit; NORMAL: at checkpoints only
    rocks       RocksDB by `rocksdict`, a write batch for each group, its WAL synced
    diskcache   its Deque, by transactions for each group; written, not synced
"""

from __future__ import annotations

import mmap
import os
import sqlite3
import struct
import zlib
from pathlib import Path
from time import perf_counter_ns

HEAD = struct.Struct("<II")
KEY = struct.Struct(">Q")
POSITION = struct.Struct("<Q")
FIRST = 4096
"""The slots begin there; before them is the position of what was acked."""


def _slot_bytes(body: bytes) -> int:
    return -(-(HEAD.size + len(body)) // 64) * 64


def _file(directory: Path, size: int) -> int:
    file = os.open(directory / "ring", os.O_CREAT | os.O_RDWR)
    os.pwrite(file, bytes(size), 0)
    os.fsync(file)
    return file


def _read(data: bytes | mmap.mmap, first: int, slot: int, group: int) -> int:
    """How many bytes of bodies are in the slots, whose checksums are compared."""
    size = 0
    for at in range(first, first + group * slot, slot):
        length, expected = HEAD.unpack_from(data, at)
        body = data[at + HEAD.size : at + HEAD.size + length]
        if zlib.crc32(body) != expected:
            raise ValueError(f"the slot at {at} is damaged")
        size += len(body)
    return size


def ring(directory: Path, body: bytes, messages: int, group: int) -> tuple[int, int]:
    slot, read = _slot_bytes(body), 0
    file, pad = _file(directory, FIRST + messages * slot), bytes(slot - HEAD.size - len(body))
    started = perf_counter_ns()
    for first in range(0, messages, group):
        slots = b"".join([HEAD.pack(len(body), zlib.crc32(body)) + body + pad for _ in range(group)])
        os.pwrite(file, slots, FIRST + first * slot)
        os.fdatasync(file)
    between = perf_counter_ns()
    for first in range(0, messages, group):
        read += _read(os.pread(file, group * slot, FIRST + first * slot), 0, slot, group)
        os.pwrite(file, POSITION.pack(first + group), 0)
        os.fdatasync(file)
    ended = perf_counter_ns()
    os.close(file)
    assert read == messages * len(body)
    return between - started, ended - between


def mapped(directory: Path, body: bytes, messages: int, group: int) -> tuple[int, int]:
    slot, read = _slot_bytes(body), 0
    size = -(-(FIRST + messages * slot) // mmap.PAGESIZE) * mmap.PAGESIZE
    file = _file(directory, size)
    with mmap.mmap(file, size) as memory:
        started = perf_counter_ns()
        for first in range(FIRST, FIRST + messages * slot, group * slot):
            for at in range(first, first + group * slot, slot):
                HEAD.pack_into(memory, at, len(body), zlib.crc32(body))
                memory[at + HEAD.size : at + HEAD.size + len(body)] = body
            page = first // mmap.PAGESIZE * mmap.PAGESIZE
            memory.flush(page, -(-(first + group * slot - page) // mmap.PAGESIZE) * mmap.PAGESIZE)
        between = perf_counter_ns()
        for first in range(0, messages, group):
            read += _read(memory, FIRST + first * slot, slot, group)
            memory[: POSITION.size] = POSITION.pack(first + group)
            memory.flush(0, mmap.PAGESIZE)
        ended = perf_counter_ns()
    os.close(file)
    assert read == messages * len(body)
    return between - started, ended - between


def sqlite(directory: Path, body: bytes, messages: int, group: int, synchronous: str = "FULL") -> tuple[int, int]:
    read, connection = 0, sqlite3.connect(directory / "queue.db", isolation_level=None)
    execute = connection.execute
    execute("PRAGMA journal_mode=WAL")
    execute(f"PRAGMA synchronous={synchronous}")
    execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, body BLOB)")
    started = perf_counter_ns()
    for _ in range(0, messages, group):
        execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO queue (body) VALUES (?)", [(body,)] * group)
        execute("COMMIT")
    between = perf_counter_ns()
    for _ in range(0, messages, group):
        execute("BEGIN IMMEDIATE")
        rows = execute("SELECT id, body FROM queue ORDER BY id LIMIT ?", (group,)).fetchall()
        read += sum(len(found) for _, found in rows)
        connection.executemany("DELETE FROM queue WHERE id = ?", [(id,) for id, _ in rows])
        execute("COMMIT")
    ended = perf_counter_ns()
    connection.close()
    assert read == messages * len(body)
    return between - started, ended - between


def rocks(directory: Path, body: bytes, messages: int, group: int) -> tuple[int, int]:
    from rocksdict import Options, Rdict, WriteBatch, WriteOptions

    read, options, synced = 0, Options(raw_mode=True), WriteOptions()
    synced.sync = True
    database = Rdict(str(directory), options)
    started = perf_counter_ns()
    for first in range(0, messages, group):
        batch = WriteBatch(raw_mode=True)
        for number in range(first, first + group):
            batch.put(KEY.pack(number), body)
        database.write(batch, synced)
    between = perf_counter_ns()
    for first in range(0, messages, group):
        batch, left = WriteBatch(raw_mode=True), group
        for key, found in database.items(from_key=KEY.pack(first)):
            read += len(found)
            batch.delete(key)
            left -= 1
            if left == 0:
                break
        database.write(batch, synced)
    ended = perf_counter_ns()
    database.close()
    assert read == messages * len(body)
    return between - started, ended - between


def diskcache(directory: Path, body: bytes, messages: int, group: int) -> tuple[int, int]:
    from diskcache import Deque

    read, waiting = 0, Deque(directory=str(directory))
    started = perf_counter_ns()
    for _ in range(0, messages, group):
        with waiting.transact():
            for _ in range(group):
                waiting.append(body)
    between = perf_counter_ns()
    for _ in range(0, messages, group):
        with waiting.transact():
            for _ in range(group):
                read += len(waiting.popleft())
    ended = perf_counter_ns()
    assert read == messages * len(body)
    return between - started, ended - between
