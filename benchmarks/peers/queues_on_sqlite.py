"""Durable queues for Python that are kept in SQLite, as they come. Neither has headers: they get the body alone.

    persist-queue   SQLiteAckQueue: each put and each ack is a transaction that is on the disk when it returns. What was acked is
                    cleared after each group, else each get would look at it again.
    litequeue       a transaction for each group of puts and of acks; pop has its own. In its settings a commit is written, not
                    synced. What is done is pruned after each group, as its documentation advises.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns


def persist_queue(directory: Path, body: bytes, messages: int, group: int) -> tuple[int, int]:
    """Nanoseconds that all messages took to be put, and to be got and acked."""
    from persistqueue import SQLiteAckQueue

    queue, read = SQLiteAckQueue(str(directory)), 0
    started = perf_counter_ns()
    for _ in range(messages):
        queue.put(body)
    between = perf_counter_ns()
    for _ in range(messages // group):
        for _ in range(group):
            item = queue.get(block=False, raw=True)
            read += len(item["data"])
            queue.ack(item)
        queue.clear_acked_data(max_delete=group, keep_latest=0)
    ended = perf_counter_ns()
    queue.close()
    assert read == messages * len(body)
    return between - started, ended - between


def litequeue(directory: Path, body: bytes, messages: int, group: int) -> tuple[int, int]:
    """Nanoseconds that all messages took to be put, and to be popped and marked as done."""
    from litequeue import LiteQueue

    queue, read = LiteQueue(str(directory / "queue.db")), 0
    started = perf_counter_ns()
    for _ in range(messages // group):
        with queue.transaction():
            for _ in range(group):
                queue.put(body)
    between = perf_counter_ns()
    for _ in range(messages // group):
        taken = [queue.pop() for _ in range(group)]
        read += sum(len(message.data) for message in taken)
        with queue.transaction():
            for message in taken:
                queue.done(message.message_id)
        queue.prune()
    ended = perf_counter_ns()
    queue.close()
    assert read == messages * len(body)
    return between - started, ended - between
