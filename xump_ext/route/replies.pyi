"""Replies: what comes to the queue of replies is for the request that waits for it."""

from xump_ext.message.message import Message
from xump_ext.state.sleeper import Sleeper

class Request(Sleeper):
    """A request that waits for its reply."""

    @property
    def message_id(self) -> str: ...
    @property
    def answer(self) -> Message | None: ...
