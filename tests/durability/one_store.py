"""Engines over one durable store, which is opened again and again."""

KINDS = {
    "ring": {"durability": "process", "segment_bytes": 1 << 16, "min_bytes": 0, "max_bytes": 1 << 20},
    "lmdb": {"durability": "process"},
}


def bodies(engine, state="ready"):
    return {name: [message.body for message in queue.browse(state=state)] for name, queue in engine.queues.items()}
