"""Publishers that wait for room: a part of the engine's class."""

from typing import Any

from xump_ext.engine.publish import EnginePublish
from xump_ext.state.sleeper import Sleeper

class Publisher(Sleeper):
    """A publish, a transaction, or a queue's next adopted message, that waits for room."""

    id: int
    error: Exception | None
    @property
    def waits(self) -> bool:
        """Whether it still waits."""

class EnginePublishers(EnginePublish):
    """A part of the engine's class: messages that waited for room come in."""

    def _publish_later(self, held: list[Publisher], wake: Any, queue: Any, address: Any, body: Any, headers: Any, reply_to: Any,
                       message_id: Any, correlation_id: Any, delay: Any, at: Any, ttl: Any, expires: Any,
                       priority: Any) -> Publisher: ...
    def _publish_no_more(self, publisher: Publisher) -> bool: ...
