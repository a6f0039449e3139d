"""What can be seen of an engine and its messages, in plain values, so that two engines can be compared."""

import pyarrow

HEADERS = pyarrow.struct([("n", pyarrow.int64()), ("to", pyarrow.string())])
TIMED = {"at": pyarrow.int64(), "expires": pyarrow.int64(), "priority": pyarrow.int64(), "correlation_id": pyarrow.string()}
STATES = ("ready", "delayed", "outstanding", "history")
QUEUE_KEYS = ("entered", "ready", "delayed", "outstanding", "history", "settled", "dropped", "deleted", "dead_lettered",
              "duplicates", "late", "meta_bytes", "entering")
# Not "errors": selectors that share a condition share its evaluations, the model makes one for each.
SELECTOR_KEYS = ("credit", "available", "outstanding", "served", "copied", "dropped", "paid", "returned", "blocked")


def message_seen(message):
    return (message.id, message.address, message.body, dict(message.headers), message.reply_to, message.message_id,
            message.destination, message.timestamp, message.hops, message.expires, message.priority, message.correlation_id,
            message.annex)


def delivery_seen(delivery):
    return (message_seen(delivery.message), delivery.destination, str(getattr(delivery.queue, "name", delivery.queue)),
            getattr(delivery.selector, "id", delivery.selector), delivery.delivery_count, delivery.redelivered, delivery.group)


def plain(value):
    """A message, if it is one, as a value."""
    return message_seen(value) if hasattr(value, "address") else value


def seen_of(engine):
    stats = engine.stats()
    return {
        "queues": {name: {key: stats["queues"][name][key] for key in QUEUE_KEYS} for name in sorted(stats["queues"])},
        "selectors": {id: {key: stats["selectors"][id][key] for key in SELECTOR_KEYS} for id in sorted(stats["selectors"])},
        "messages": {name: {state: [message_seen(message) for message in queue.browse(state=state)] for state in STATES}
                     for name, queue in sorted(engine.queues.items())},
        "frontiers": {name: queue.frontier for name, queue in sorted(engine.queues.items())},
        "stable": {name: queue.stable_id for name, queue in sorted(engine.queues.items())},
        "oldest": {name: queue.oldest for name, queue in sorted(engine.queues.items())},
        "windows": stats["windows"],
        "next_due": engine.next_due,
        "maps": {name: dict(queue.meta) for name, queue in sorted(engine.queues.items())},
    }


def differences(model, engine, path=""):
    """The leaves that are not equal, one a line."""
    if isinstance(model, dict) and isinstance(engine, dict):
        lines = []
        for key in sorted({*model, *engine}, key=str):
            if model.get(key) != engine.get(key):
                lines.append(differences(model.get(key), engine.get(key), f"{path}/{key}"))
        return "\n".join(lines)
    return f"{path}: model {model!r}, engine {engine!r}"


# ---- batches

def parts_of(row):
    """A row in the order of `publish`, and its terms: the columns that say when, how urgent, and what it answers."""
    *values, terms = row if isinstance(row[-1], dict) and len(row) > 4 else (*row, {})
    return tuple(values), terms


def table_of(rows):
    """Rows as columns; those that no row needs are missing."""
    rows = [parts_of(row) for row in rows]
    columns = {
        "address": pyarrow.array([values[0] for values, _ in rows], pyarrow.string()),
        "body": pyarrow.array([values[1] for values, _ in rows], pyarrow.binary()),
        "headers": pyarrow.array([values[2] for values, _ in rows], HEADERS),
        "reply_to": pyarrow.array([values[3] for values, _ in rows], pyarrow.string()),
    }
    if any(len(values) > 4 for values, _ in rows):
        columns["message_id"] = pyarrow.array([values[4] if len(values) > 4 else None for values, _ in rows], pyarrow.string())
    for name, kind in TIMED.items():
        if any(name in terms for _, terms in rows):
            columns[name] = pyarrow.array([terms.get(name) for _, terms in rows], kind)
    return pyarrow.table(columns)


def row_seen(delivery):
    """A delivery as a row of a batch."""
    message = delivery.message
    return {
        "id": message.id, "queue": str(getattr(delivery.queue, "name", delivery.queue)), "destination": delivery.destination,
        "delivery_count": delivery.delivery_count, "timestamp": message.timestamp, "address": message.address,
        "body": message.body, "headers": dict(message.headers), "reply_to": message.reply_to, "message_id": message.message_id,
        "correlation_id": message.correlation_id, "expires": message.expires, "priority": message.priority,
    }


def rows_seen(batch):
    """The rows of a batch that was taken."""
    columns = pyarrow.record_batch(batch)
    rows = columns.to_pylist()
    for name in ("timestamp", "expires"):
        for row, moment in zip(rows, columns[name].cast(pyarrow.int64()).to_pylist(), strict=True):
            row[name] = moment
    for row in rows:
        # A column for each header of the batch; null where the message has none.
        row["headers"] = {name: value for name, value in (row["headers"] or {}).items() if value is not None}
    return rows
