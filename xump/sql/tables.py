"""The tables as SQLAlchemy metadata. They are written by `xump.sql` only; read them as you like.

Times are microseconds since 1970 by the database's clock. Bodies, headers and payloads are bytes: text refuses NUL, and JSON has
neither bytes nor NaN. Rows that wait have partial indexes, which rows that are done leave: a poll costs the same with ten million
of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    false,
    not_,
)

VERSION = 2
"""Of the tables. A program refuses tables of another one."""
SLOTS = 16
"""How many shares the keys of an outbox have: so many relays can work at once."""
PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,30}\Z")

_big = BigInteger().with_variant(Integer, "sqlite")


@dataclass(frozen=True)
class Tables:
    """The tables of one prefix in one schema. Made by `tables()`."""

    metadata: MetaData
    """Theirs, or yours."""
    version: Table
    """Which version the tables are of."""
    outbox: Table
    """Messages to send."""
    slot: Table
    """Shares of the outbox, and which relay has them."""
    relay: Table
    """Relays, and when they were last seen."""
    inbox: Table
    """Messages that came."""
    task: Table
    """Tasks that wait or run."""
    done: Table
    """Tasks that are done or dead."""
    worker: Table
    """Workers, and when they were last seen."""
    schedule: Table
    """The next time of each schedule."""
    scaler: Table
    """Which scaler decides."""

    def all(self) -> list[Table]:
        """Every table, in the order in which `init` creates them."""
        return [self.version, self.outbox, self.slot, self.relay, self.inbox, self.task, self.done, self.worker, self.schedule,
                self.scaler]


def tables(schema: str | None = None, prefix: str = "xump_", metadata: MetaData | None = None) -> Tables:
    """Describe the tables.

    Args:
        schema: The database schema that they are in; None: the connection's own.
        prefix: The beginning of their names: small letters, digits and underscores.
        metadata: Yours, so that Alembic sees them; None: a new one. If it has them already, these are returned.

    Raises:
        ValueError: The prefix is wrong.

    >>> tables().outbox.name
    'xump_outbox'
    """
    if not isinstance(prefix, str) or not PREFIX.match(prefix):
        raise ValueError("prefix must be up to 31 small letters, digits and underscores, and not begin with a digit, got "
                         f"{prefix!r}")
    metadata = MetaData() if metadata is None else metadata
    made = {name: _table(metadata, schema, prefix, name) for name in _COLUMNS}
    return Tables(metadata, **made)


def _table(metadata: MetaData, schema: str | None, prefix: str, name: str) -> Table:
    full = prefix + _NAMES.get(name, name)
    known = metadata.tables.get(f"{schema}.{full}" if schema else full)
    if known is not None:
        return known
    columns = [Column(column, *given[:1], **_options(given)) for column, given in _COLUMNS[name].items()]
    options: dict[str, Any] = {"sqlite_autoincrement": True} if "id" in _COLUMNS[name] and name not in ("worker", "done") else {}
    if name in _VACUUM:
        options["postgresql_with"] = _VACUUM[name]
    table = Table(full, metadata, *columns, schema=schema, **options)
    for suffix, unique, fields, where in _INDEXES.get(name, ()):
        condition = where(table) if where else None
        Index(f"{full}_{suffix}", *(table.c[field] for field in fields), unique=unique, postgresql_where=condition,
              sqlite_where=condition)
    return table


def _options(given: tuple[Any, ...]) -> dict[str, Any]:
    options = dict(given[1]) if len(given) > 1 else {}
    return {"nullable": False, **options}


_NULL = {"nullable": True}
_ID = (_big, {"primary_key": True, "autoincrement": True})
_COUNT = (Integer, {"server_default": "0"})
_TOTAL = (_big, {"server_default": "0"})

_NAMES = {"slot": "outbox_slot", "done": "task_done"}

_COLUMNS: dict[str, dict[str, tuple[Any, ...]]] = {
    "version": {"name": (String(40), {"primary_key": True}), "version": (Integer,)},
    "outbox": {
        "id": _ID, "slot": (SmallInteger,), "queue": (Text,), "address": (Text,), "key": (Text, _NULL), "body": (LargeBinary,),
        "headers": (LargeBinary, _NULL), "reply_to": (Text, _NULL), "message_id": (Text,), "props": (LargeBinary, _NULL),
        "at": (_big, _NULL), "created": (_big,), "attempts": _COUNT, "retry_at": (_big, _NULL),
        "parked": (Boolean, {"server_default": false()}), "dead_at": (_big, _NULL), "error": (Text, _NULL),
    },
    "slot": {"slot": (SmallInteger, {"primary_key": True, "autoincrement": False}), "owner": (String(40), _NULL),
             "until": (_big, {"server_default": "0"}), "fence": (_big, {"server_default": "0"})},
    "relay": {"owner": (String(40), {"primary_key": True}), "seen": (_big,)},
    "inbox": {
        "id": _ID, "digest": (LargeBinary(32),), "source": (Text,), "message_id": (Text,), "key": (Text, _NULL),
        "address": (Text,), "received": (_big,), "body": (LargeBinary, _NULL), "headers": (LargeBinary, _NULL),
        "reply_to": (Text, _NULL), "correlation_id": (Text, _NULL), "retry_at": (_big,), "lease_until": (_big, _NULL),
        "attempts": _COUNT, "done_at": (_big, _NULL), "dead_at": (_big, _NULL), "error": (Text, _NULL),
    },
    "task": {
        "id": _ID, "lane": (Text,), "name": (Text,), "payload": (LargeBinary,), "codec": (String(20),),
        "ukey": (Text, _NULL), "ukey_digest": (LargeBinary(32), _NULL), "due": (_big,), "priority": (SmallInteger,),
        "start_time": (_big, _NULL), "lease_until": (_big, _NULL), "attempts": _COUNT, "worker": (String(40), _NULL),
        "created": (_big,), "parent": (_big, _NULL), "error": (Text, _NULL),
    },
    "done": {
        "id": (_big, {"primary_key": True, "autoincrement": False}), "lane": (Text,), "name": (Text,), "payload": (LargeBinary,),
        "ukey": (Text, _NULL), "priority": (SmallInteger, {"server_default": "0"}), "start_time": (_big, _NULL),
        "finish_time": (_big,), "attempts": (Integer,),
        "worker": (String(40), _NULL), "outcome": (String(20),), "error": (Text, _NULL),
    },
    "worker": {
        "id": (String(40), {"primary_key": True}), "host": (Text,), "pid": (Integer,), "started": (_big,), "seen": (_big,),
        "places": _COUNT, "running": _COUNT, "finished": _TOTAL, "failed": _TOTAL, "taken": _TOTAL,
        "stopping": (Boolean, {"server_default": false()}), "stop": (Boolean, {"server_default": false()}),
    },
    "schedule": {"name": (String(200), {"primary_key": True}), "cron": (Text,), "next_at": (_big,), "last_id": (_big, _NULL)},
    "scaler": {"name": (String(40), {"primary_key": True}), "owner": (String(40), _NULL), "until": (_big,)},
}

_INDEXES: dict[str, list[tuple[str, bool, tuple[str, ...], Any]]] = {
    "outbox": [
        ("ready", False, ("slot", "id"), lambda t: not_(t.c.parked) & t.c.dead_at.is_(None)),
        ("parked", False, ("key", "id"), lambda t: t.c.parked),
        ("retry", False, ("retry_at",), lambda t: t.c.retry_at.is_not(None)),
        ("dead", False, ("dead_at",), lambda t: t.c.dead_at.is_not(None)),
    ],
    "inbox": [
        ("digest", True, ("digest",), None),
        ("ready", False, ("retry_at", "id"), lambda t: t.c.done_at.is_(None) & t.c.dead_at.is_(None)),
        ("key", False, ("key", "id"), lambda t: t.c.done_at.is_(None)),
        ("done", False, ("done_at",), lambda t: t.c.done_at.is_not(None)),
        ("dead", False, ("dead_at",), lambda t: t.c.dead_at.is_not(None)),
    ],
    "task": [
        ("ready", False, ("lane", "priority", "due", "id"), lambda t: t.c.start_time.is_(None)),
        ("lease", False, ("lease_until",), lambda t: t.c.start_time.is_not(None)),
        ("ukey", True, ("ukey_digest",), lambda t: t.c.start_time.is_(None)),
    ],
    "done": [("finish", False, ("finish_time",), None), ("dead", False, ("id",), lambda t: t.c.outcome == "dead")],
}

# A claim looks at rows that are dead soon after: without these, it wades through what vacuum has not taken yet.
_VACUUM = {
    name: {"autovacuum_vacuum_scale_factor": "0.01", "autovacuum_vacuum_cost_delay": "0", "fillfactor": "90"}
    for name in ("outbox", "task")
}
