"""A durable queue as one writes it with py-lmdb: bodies under counted keys, a transaction for each group, read and deleted in
order."""

from __future__ import annotations

import struct
from pathlib import Path
from time import perf_counter_ns

import lmdb

KEY = struct.Struct(">Q")
MAP_BYTES = 1 << 30


def run(directory: Path, body: bytes, messages: int, group: int, metasync: bool = True) -> tuple[int, int]:
    """Nanoseconds that all messages took to be put, and to be read and deleted. Each transaction is durable when it is through:
    LMDB syncs pages and meta page; with `metasync=False` a call of `sync` does the latter, as in our store."""
    key, read = KEY.pack, 0
    with lmdb.open(str(directory), map_size=MAP_BYTES, metasync=metasync) as environment:
        started = perf_counter_ns()
        for first in range(0, messages, group):
            with environment.begin(write=True) as transaction:
                put = transaction.put
                for number in range(first, first + group):
                    put(key(number), body, append=True)
            if not metasync:
                environment.sync(True)
        between = perf_counter_ns()
        for _ in range(0, messages, group):
            with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.first()
                for _ in range(group):
                    read += len(cursor.value())
                    cursor.delete()
            if not metasync:
                environment.sync(True)
        ended = perf_counter_ns()
        assert read == messages * len(body) and environment.stat()["entries"] == 0
    return between - started, ended - between
