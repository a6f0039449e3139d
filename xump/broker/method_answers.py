"""Answers to the methods of a channel, in the order of the methods.

One that says that something durable has come, changed or gone is written once that is on disk: else a client could rely on what
a crash undoes. Those behind it wait, too; what the methods do is done at once, and publishes go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from xump.broker.errors import ProtocolError

if TYPE_CHECKING:
    from xump.broker.channel import Channel


class Answer:
    """An answer that waits for its turn."""

    __slots__ = ("do", "is_due", "undo")

    def __init__(self, do: Callable[[], None], undo: Callable[[], None] | None, is_due: bool) -> None:
        self.do = do
        """Writes it."""
        self.undo = undo
        """Called instead if the channel closes before; None: there is nothing to do."""
        self.is_due = is_due
        """Whether what it says is on disk."""


class Answers:
    """The answers of one channel, from the first on that waits for a disk."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._line: deque[Answer] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def add(self, do: Callable[[], None], *, durable: bool = False, undo: Callable[[], None] | None = None) -> None:
        """Do what belongs to the answer of a method after all answers before; if `durable`, once what was done so far is on disk.
        `undo` is called instead if the channel closes before."""
        if not durable and not self._line:
            do()
            return
        answer = Answer(do, undo, not durable)
        self._line.append(answer)
        if durable:
            self._channel.vhost.when_durable(partial(self._durable, answer))

    def _durable(self, answer: Answer, error: BaseException | None) -> None:
        connection = self._channel.connection
        if connection.state != "running" or connection.transport.is_closing():
            return
        if error is not None:
            connection.fail(ProtocolError(541, f"a store failed: {error}", 0))
            return
        answer.is_due = True
        while self._line and self._line[0].is_due:
            connection.carry_out(self._channel, self._line.popleft().do)
        connection.flush()

    def close(self, by_client: bool) -> None:
        """The channel closes. If its client closes it, the client gets the answers that need no channel first."""
        line = list(self._line)
        self._line.clear()
        for answer in line:
            if answer.undo is not None:
                answer.undo()
            elif by_client:
                self._line.append(answer)
