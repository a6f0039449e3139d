"""Taking messages over HTTP: each comes with a token, to be answered before its lease ends; else the message goes back.

    POST /queues/NAME/take              messages, each with a token in `delivery`; waits for the first one
    POST /deliveries/TOKEN/ack          it is done
    POST /deliveries/TOKEN/nack         it goes back, at once or after `delay` seconds, or to the dead letters
    POST /deliveries/TOKEN/renew        the lease begins anew
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import web

from xump._aio_wait import wait
from xump.broker.http import messages
from xump.broker.http.call import Call, answer, number, one_of, seconds
from xump.broker.http.messages import shown
from xump.broker.http.problems import RETRY_SECONDS, Problem, asking
from xump.broker.patience import not_waiting
from xump.errors import Closed, StaleDelivery, StoreFailed

if TYPE_CHECKING:
    from xump.broker.users import User
    from xump.engine import Engine
    from xump.queue import Queue
    from xump_ext.engine.delivery import Delivery

WAIT_SECONDS_MAX = 60.0
"""So long a request waits for a message at most: a proxy between would end it."""

LEASE_SECONDS = 60.0
"""So long a message is leased if the request does not say."""

LEASE_SECONDS_MAX = 86_400.0
"""The longest lease; a client that needs longer renews it."""

COUNT_MAX = 1000
"""So many messages are taken at once."""


class Lease(NamedTuple):
    """A message that was taken."""

    delivery: Delivery
    """The delivery that is answered."""
    user: User
    """The user that took it."""
    seconds: float
    """How long it is leased."""
    end: asyncio.TimerHandle
    """Takes it back."""


class Leases:
    """The messages that were taken over HTTP and are not answered yet, by token."""

    def __init__(self) -> None:
        self._by_token: dict[str, Lease] = {}

    def add(self, delivery: Delivery, user: User, seconds: float) -> str:
        """A token for the delivery."""
        token = secrets.token_urlsafe(16)
        self._keep(token, delivery, user, seconds)
        return token

    def _keep(self, token: str, delivery: Delivery, user: User, seconds: float) -> None:
        end = asyncio.get_running_loop().call_later(seconds, self._ended, token)
        self._by_token[token] = Lease(delivery, user, seconds, end)

    def of(self, token: str, user: User) -> Lease:
        """The lease. Raises `Problem` 404, also for another user's token."""
        lease = self._by_token.get(token)
        if lease is None or lease.user.name != user.name:
            raise Problem(404, "no such delivery: it was answered, or its lease has ended and the message went back to its queue")
        return lease

    def renew(self, token: str, lease: Lease, seconds: float) -> None:
        """The lease begins anew."""
        lease.end.cancel()
        self._keep(token, lease.delivery, lease.user, seconds)

    def drop(self, token: str) -> None:
        """It was answered."""
        self._by_token.pop(token).end.cancel()

    def _ended(self, token: str) -> None:
        give_back(self._by_token.pop(token).delivery)

    def taken(self, engine: Engine) -> Iterator[tuple[str, str]]:
        """User and queue of each message of this engine."""
        for lease in self._by_token.values():
            if lease.delivery.queue.engine is engine:
                yield lease.user.name, lease.delivery.queue.name

    def close(self) -> None:
        """The server ends: all go back."""
        for lease in self._by_token.values():
            lease.end.cancel()
            give_back(lease.delivery)
        self._by_token.clear()


def give_back(delivery: Delivery) -> None:
    """The message returns to its queue, as its `retry_delay` says. If the engine has it already, or is closed, that is done."""
    with not_waiting(delivery.queue.engine), suppress(StaleDelivery, Closed, StoreFailed):
        delivery.nack()


async def take(call: Call) -> web.Response:
    """Take messages of a queue, to be answered before their lease ends."""
    queue = call.queue("read")
    call.check_takes(queue.name)
    call.only("count", "wait", "lease")
    count = call.parameter("count", number)
    count = 1 if count is None else count
    waits = call.parameter("wait", seconds) or 0.0
    lease = _lease(call)
    if not 0 <= waits <= WAIT_SECONDS_MAX:
        raise Problem(400, f"wait={waits:g}: expected 0 to {WAIT_SECONDS_MAX:g} seconds")
    if not 1 <= count <= COUNT_MAX:
        raise Problem(400, f"count={count}: expected 1 to {COUNT_MAX}")
    with _leasing() as taken:
        with asking():
            first = await _first(call, queue, waits)
            if first is not None:
                taken.append(first)
                size = len(first.message.body)
                while len(taken) < count and size < messages.BODIES_BYTES_MAX and (
                        delivery := call.engine.get(queue)) is not None:
                    taken.append(delivery)
                    size += len(delivery.message.body)
        described = [shown_delivery(delivery) for delivery in taken]
    leases = call.http.leases
    return answer([{"delivery": leases.add(delivery, call.user, lease), **about}
                   for delivery, about in zip(taken, described, strict=True)])


async def _first(call: Call, queue: Queue, timeout: float) -> Delivery | None:
    """The first message, or None. If the broker ends, or the client goes, while this waits, it takes none: each take counts
    as a delivery, and a queue may allow few."""

    def taken() -> Delivery | None:
        if call.broker.is_ending:
            raise Problem(503, "the broker ends", Retry_After=str(RETRY_SECONDS))
        if call.request.transport is None or call.request.transport.is_closing():
            raise Problem(408, "the client has gone")
        return call.engine.get(queue)

    first = taken()
    if first is not None or timeout == 0:
        return first
    with call.http.woken_at_end() as waiter:
        return await wait(call.engine, taken, queue, timeout, waiter)


@contextmanager
def _leasing() -> Iterator[list[Delivery]]:
    """The block takes what is leased afterwards. If it raises, all goes back."""
    taken: list[Delivery] = []
    try:
        yield taken
    except BaseException:
        for delivery in taken:
            give_back(delivery)
        raise


def _lease(call: Call) -> float:
    given = call.parameter("lease", seconds)
    if given is None:
        return LEASE_SECONDS
    if not 0 < given <= LEASE_SECONDS_MAX:
        raise Problem(400, f"lease={given:g}: expected more than 0, at most {LEASE_SECONDS_MAX:g} seconds")
    return given


async def ack(call: Call) -> web.Response:
    """Ack a message that was taken; answers when that is durable."""
    call.only()
    lease = _answered(call)
    await call.done(lease.delivery.ack)
    return answer({"acked": True})


async def nack(call: Call) -> web.Response:
    """Give a message back that was taken: to its queue, or with `requeue=false` to the dead letters."""
    call.only("delay", "requeue")
    delay = call.parameter("delay", seconds)
    requeue = call.parameter("requeue", one_of("true", "false")) != "false"
    lease = call.http.leases.of(call.name("token"), call.user)

    def back() -> None:
        """If it raises, the lease goes on, unless the engine has taken the message back."""
        try:
            lease.delivery.nack(requeue=requeue, delay=delay)
        except StaleDelivery:
            call.http.leases.drop(call.name("token"))
            raise
        call.http.leases.drop(call.name("token"))

    await call.done(back)
    return answer({"nacked": True})


async def renew(call: Call) -> web.Response:
    """Begin the lease of a message that was taken anew."""
    call.only("lease")
    lease = call.http.leases.of(call.name("token"), call.user)
    again = lease.seconds if "lease" not in call.request.query else _lease(call)
    with asking():
        try:
            lease.delivery.extend(again)
        except StaleDelivery:
            call.http.leases.drop(call.name("token"))
            raise
        except ValueError:          # the engine has it still; only what a selector delivers can have a time of the engine's own
            pass
    call.http.leases.renew(call.name("token"), lease, again)
    return answer({"lease": again})


def _answered(call: Call) -> Lease:
    lease = call.http.leases.of(call.name("token"), call.user)
    call.http.leases.drop(call.name("token"))
    return lease


def shown_delivery(delivery: Delivery) -> dict[str, Any]:
    """A message that was taken, as JSON has it."""
    return {**shown(delivery.message), "delivery_count": delivery.delivery_count}
