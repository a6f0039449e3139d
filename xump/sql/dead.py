"""Tasks that are dead: kept with their error, and told of, in one transaction."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from xump.sql.claims import end
from xump.sql.payload import error_column

if TYPE_CHECKING:
    from xump.sql.tasks import Tasks

logger = logging.getLogger("xump.sql")


def bury(connection: Connection, tasks: Tasks, row: Any, error: str) -> bool:
    """End a task as dead, and put a notice into the outbox if there is a queue for it. Returns whether it was ours."""
    if not end(connection, tasks.tables, row, "dead", error):
        return False
    if tasks.dead_queue is not None:
        notice = {"id": row.id, "name": row.name, "attempts": row.attempts, "error": error_column(error)}
        # With an id of its own: that of the task is one only within its table, and the queue may be told of many.
        tasks.outbox.publish(connection, tasks.dead_queue, row.name, json.dumps(notice).encode())
    return True
