"""Outbox, inbox and tasks beside the user's SQL database: rows in the user's own transaction. Needs the extra `sql`.

Exactly once exists in two places only: a row is there if and only if its transaction was committed, and a handler whose only
effect is in the connection that it was given has that effect once. Everything else happens at least once.
"""

from xump.sql.cleaner import Cleaner
from xump.sql.errors import ConfigurationError, MissingId, SchemaMismatch, SqlError, TransactionAborted
from xump.sql.inbox import Inbox
from xump.sql.metrics import Metrics
from xump.sql.outbox import Outbox
from xump.sql.outcomes import Down, Pressed, Refused, Target, Untried
from xump.sql.processor import Processor
from xump.sql.relay import Relay
from xump.sql.scaler import Scaler
from xump.sql.schema import check, configure_sqlite, init
from xump.sql.tables import Tables, tables
from xump.sql.tasks import Task, Tasks
from xump.sql.wake import Wake
from xump.sql.worker import Worker

__all__ = [
    "Cleaner",
    "ConfigurationError",
    "Down",
    "Inbox",
    "Metrics",
    "MissingId",
    "Outbox",
    "Pressed",
    "Processor",
    "Refused",
    "Relay",
    "Scaler",
    "SchemaMismatch",
    "SqlError",
    "Tables",
    "Target",
    "Task",
    "Tasks",
    "TransactionAborted",
    "Untried",
    "Wake",
    "Worker",
    "check",
    "configure_sqlite",
    "init",
    "tables",
]
