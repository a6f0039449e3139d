"""Idempotent services: a request that comes again gets the answer that it got before, and is not done again.

The reply is kept by the request's identity, in a queue with a store on disk. The first frame of a body is its identity; `stamp()`
makes one, and a client that asks again sends the same frames, and so the same identity.

    replies -- one queue: message_id = the identity, body = the frames of the reply; a message ends after `keep` seconds

An index, identity to message, is in RAM; it is read from the queue at the start. A request that comes while its first one is at
work waits for that one. If the function fails nothing is kept, and the next one does the work.
"""

from __future__ import annotations

import functools
import hashlib
import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from xump.zeromq.frames import Answer, reply_frames
from xump.zeromq.limits import KEPT_REPLIES_MAX, KEPT_SECONDS
from xump_ext.zeromq.packing import pack, unpack

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.store_types import Store
    from xump.transaction import Transaction

Body = list[bytes]


PLAIN_BYTES_MAX = 128
"""A longer identity is known by its hash: the index keeps each, and a client that sends megabytes must not end the service."""


def stamp() -> bytes:
    """An identity for a request, which no other has: send it as the first frame."""
    return uuid.uuid4().hex.encode()


def _first_frame(body: Body) -> tuple[bytes, Body]:
    return body[0], body[1:]


def _key(identity: bytes) -> str:
    """The name of an identity, which may be any bytes, and of any length."""
    return identity.hex() if len(identity) <= PLAIN_BYTES_MAX else "sha256:" + hashlib.sha256(identity).hexdigest()


class Replies:
    """The replies of a service, by the identities of its requests.

    Args:
        engine: Where they are kept.
        name: Of the queue; it is created if it does not exist.
        store: Of the queue: one on disk, if replies should outlive the program.
        keep: For how many seconds a reply is kept.
        limit: How many replies are kept; then the oldest one goes for the newest.

    Raises:
        ValueError: No reply could be kept.
    """

    def __init__(
        self, engine: Engine, name: str, *, store: str | Store = "ram", keep: float = KEPT_SECONDS, limit: int = KEPT_REPLIES_MAX,
    ) -> None:
        if not keep > 0 or limit < 1:
            raise ValueError(f"keep is {keep!r}, limit {limit!r}; allowed are more than 0 seconds, and 1 or more replies")
        self._engine = engine
        self.queue = engine.create_queue(name, store=store, ttl=keep, limit=limit, when_full="drop_oldest", unmatched="keep")
        """The replies that are kept."""
        self._kept = {message.message_id: message.id for message in self.queue.browse()}      # in the order of their ids
        self._at_work: set[str] = set()
        self._changed = threading.Condition()

    def once(self, identity: bytes, work: Callable[[Transaction], Answer]) -> Body:
        """The reply to a request: the one that is kept, or that of `work`, which is on disk when this returns.

        Args:
            identity: Of the request.
            work: Is called with a transaction that ends with the reply: what it publishes, and the reply, are kept both or
                neither.
        """
        key = _key(identity)
        self._engine.tick()                 # so that what is over its time is gone
        with self._changed:
            while True:
                kept = self._reply(key)
                if kept is not None:
                    break
                if key not in self._at_work:
                    self._at_work.add(key)
                    break
                self._changed.wait()
        if kept is None:
            kept = self._work(key, work)
        self._engine.sync()             # also for one that is kept: it may be new, and not on disk yet
        return kept

    def _work(self, key: str, work: Callable[[Transaction], Answer]) -> Body:
        try:
            with self._engine.transaction() as tx:
                reply = reply_frames(work(tx))
                tx.publish(self.queue, "", pack(0, reply), message_id=key)
            with self._changed:
                self._kept.pop(key, None)
                self._kept[key] = tx.ids[-1]
                self._forget()
            return reply
        finally:
            with self._changed:
                self._at_work.discard(key)
                self._changed.notify_all()

    def _forget(self) -> None:
        """Those that ended: the ids that the queue has begin later."""
        oldest = next(self.queue.browse(limit=1), None)
        while self._kept and (oldest is None or next(iter(self._kept.values())) < oldest.id):
            del self._kept[next(iter(self._kept))]

    def _reply(self, key: str) -> Body | None:
        number = self._kept.get(key)
        message = None if number is None else self.queue.fetch(number)
        return None if message is None else unpack(message.body)[1]

    def check(self) -> None:
        """Verify that each reply is found by its identity. Call it while no request is at work."""
        found = {message.message_id: message.id for message in self.queue.browse()}
        if found.items() - self._kept.items():
            raise AssertionError(f"replies {sorted(found.values())} are kept, and {sorted(self._kept.values())} can be found")


def idempotent(
    replies: Replies, *, identify: Callable[[Body], tuple[bytes, Body]] = _first_frame, with_transaction: bool = False,
) -> Callable[[Callable[..., Answer]], Callable[[Body], Body]]:
    """A decorator for the function of a worker: each request is done once.

    Args:
        replies: Where the replies are kept.
        identify: Splits a body into the identity of the request and the rest, which the function gets.
        with_transaction: Whether the function gets a transaction of the engine as its second argument. Its publishes and acks
            there happen together with its reply, also if the machine fails: exactly once.

    Without a transaction, a program that dies between the work and its reply does the work again.

    >>> from xump import Engine
    >>> with Engine() as engine:
    ...     @idempotent(Replies(engine, "charges"))
    ...     def charge(body):
    ...         print("charged", body)
    ...         return b"ok"
    ...     charge([b"request 7", b"12.50"]), charge([b"request 7", b"12.50"])
    charged [b'12.50']
    ([b'ok'], [b'ok'])
    """
    def decorate(function: Callable[..., Answer]) -> Callable[[Body], Body]:
        @functools.wraps(function)
        def once(body: Body) -> Body:
            identity, rest = identify(body)
            return replies.once(identity, lambda tx: function(rest, tx) if with_transaction else function(rest))
        return once
    return decorate
