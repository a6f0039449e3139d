"""Messages on their way to a URL: one task takes deliveries, as many as its selector has credit, and POSTs each.

    2xx             the target has it: ack
    410             the target wants no more: the subscription ends
    anything else   it comes again, after `Retry-After` if the target says so, else after the queue's retry_delay, else after
                    1, 10, 60, 600 seconds; after the queue's delivery_limit, else after 10 attempts, it is a dead letter.
                    A message that could not even be sent is no exception: what failed once may fail each time
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import aiohttp

import xump.aio
from xump._header_json import encoded
from xump.broker.http import cloudevents
from xump.broker.http.targets import beginning, check_target
from xump.broker.patience import in_steps, not_waiting
from xump.errors import Closed, StaleDelivery, StoreFull, XumpError
from xump_ext.engine.taking import put_back

if TYPE_CHECKING:
    from xump.broker.http.webhooks import Webhooks
    from xump.engine import Engine
    from xump_ext.engine.delivery import Delivery
    from xump_ext.message.message import Message

logger = logging.getLogger("xump")

RETRY_SECONDS = (1, 10, 60, 600)
"""When a message comes again whose queue does not say."""

ATTEMPTS_MAX = 10
"""After so many attempts it is a dead letter, if its queue does not say."""

RETRY_AFTER_MAX = 3600.0
"""A target puts off a message for at most so many seconds."""

OF_TARGETS = (aiohttp.ClientError, OSError, TimeoutError)
"""Errors of targets, and of the way to them."""

TASK = "webhook"
"""Begins the names of the tasks that send."""

GONE = 410
AT_ONCE = 100


class Outgoing:
    """Posts what is delivered under a destination."""

    def __init__(
        self, engine: Engine, destination: str, url: str, webhooks: Webhooks, secret: bytes | None = None,
        links: str | None = None, gone: Callable[[], None] | None = None, sent: Callable[[], None] | None = None,
    ) -> None:
        self.url = url
        """Where to."""
        self.counts = {"accepted": 0, "failed": 0, "dead": 0}
        """How many were accepted, how many attempts failed, how many messages were given up."""
        self.error: str | None = None
        """Why the last attempt failed; None: it did not."""
        self._engine = engine
        self._destination = destination
        self._webhooks = webhooks
        self._secret = secret
        self._links = links
        self._gone = gone
        self._sent = sent
        self._posts: dict[asyncio.Task[None], Delivery] = {}
        self._task = asyncio.get_running_loop().create_task(in_steps(engine, self._run), name=f"{TASK} {destination}")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.error = str(task.exception())
            logger.error("%s: nothing more is sent", self.url, exc_info=task.exception())

    async def stop(self) -> None:
        """Take no more, and end what was begun: those messages go back to their queue."""
        posts = dict(self._posts)
        for task in (self._task, *posts):
            task.cancel()
        await asyncio.gather(self._task, *posts, return_exceptions=True)
        # Those whose tasks had not begun were not sent; the others are answered.
        with not_waiting(self._engine):
            _answer(partial(put_back, self._engine, list(posts.values())))

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                deliveries = await xump.aio.take(self._engine, AT_ONCE, self._destination, timeout=None)
            except Closed:
                return
            except Exception as error:                  # of what fell due in the engine, for instance
                pause = RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
                failures += 1
                self.error = said(error)
                logger.exception("%s: nothing could be taken to be sent; trying again in %d s", self.url, pause)
                await asyncio.sleep(pause)
                continue
            failures = 0
            for delivery in deliveries:
                task = asyncio.get_running_loop().create_task(in_steps(self._engine, self._post, delivery))
                self._posts[task] = delivery
                task.add_done_callback(self._posts.pop)

    async def _post(self, delivery: Delivery) -> None:
        """One attempt."""
        try:
            status, retry_after = await self._ask(delivery)
        except Exception as error:
            self._failed(delivery, said(error), None, None if isinstance(error, OF_TARGETS) else error)
        except BaseException:
            _answer(delivery.nack)
            raise
        else:
            if 200 <= status < 300:
                self.error = None
                self.counts["accepted"] += 1
                _answer(delivery.ack)
            else:
                self._failed(delivery, f"the target answered {status}", retry_after)
                if status == GONE and self._gone is not None:
                    self._gone()
        if self._sent is not None:
            self._sent()

    async def _ask(self, delivery: Delivery) -> tuple[int, str | None]:
        body = delivery.message.body
        headers = dict(self._headers(delivery, body))
        check_target(self.url, self._webhooks.private_targets)
        async with self._webhooks.session.post(self.url, data=body, headers=headers, allow_redirects=False) as response:
            with suppress(aiohttp.ClientError):         # the status says all; the rest is read for the connection's sake
                await beginning(response)
            return response.status, response.headers.get("Retry-After")

    def _headers(self, delivery: Delivery, body: bytes) -> Iterator[tuple[str, str]]:
        message = delivery.message
        own = {name: value for name, value in message.headers.items()
               if not cloudevents.is_attribute(name, value) and name != cloudevents.CONTENT_TYPE and not isinstance(value, bytes)}
        yield "Content-Type", kind_of(message)
        yield "Xump-Queue", line(delivery.queue.name)
        yield "Xump-Id", str(delivery.id)
        yield "Xump-Address", line(message.address)
        yield "Xump-Delivery-Count", str(delivery.delivery_count)
        if message.message_id is not None:
            yield "Xump-Message-Id", line(message.message_id)
        if own:
            yield "Xump-Headers", json.dumps({name: encoded(value) for name, value in own.items()})
        yield from cloudevents.http_headers(message.headers)
        if self._links is not None:
            yield "Link", self._links
        if self._secret is not None:
            yield "X-Hub-Signature", "sha256=" + hmac.new(self._secret, body, hashlib.sha256).hexdigest()

    def _failed(self, delivery: Delivery, why: str, retry_after: str | None, defect: Exception | None = None) -> None:
        """`defect`: an error that is not the target's."""
        if self.error is None:
            logger.warning("%s: message %d of queue %r was not accepted: %s", self.url, delivery.id, delivery.queue.name, why,
                           exc_info=defect)
        self.error = why
        self.counts["failed"] += 1
        queue, count = delivery.queue, delivery.delivery_count
        if queue.delivery_limit is None and count >= ATTEMPTS_MAX:
            self.counts["dead"] += 1
            _answer(lambda: _bury(delivery, f"{self.url}: {why}"))
        elif retry_after is not None and retry_after.isascii() and retry_after.isdigit():
            _answer(lambda: delivery.nack(delay=min(float(retry_after), RETRY_AFTER_MAX)))
        elif queue.retry_delay is None:
            _answer(lambda: delivery.nack(delay=RETRY_SECONDS[min(count, len(RETRY_SECONDS)) - 1]))
        else:
            _answer(delivery.nack)


def _bury(delivery: Delivery, why: str) -> None:
    """To the dead letters; if a store has no room for that, it is sent once more later."""
    try:
        delivery.reject(why)
    except StoreFull:
        delivery.nack(delay=RETRY_SECONDS[-1])


def _answer(call: Callable[[], None]) -> None:
    try:
        with suppress(StaleDelivery, Closed):   # the subscription, or the queue, was deleted meanwhile: the message is not lost
            call()
    except XumpError:
        logger.exception("what became of a message that was sent could not be kept")


def said(error: Exception) -> str:
    """The text of an error."""
    return str(error) or type(error).__name__


def kind_of(message: Message) -> str:
    """The type of a body, as a header of HTTP. Its parameters may be in quotes."""
    return quote(str(message.headers.get(cloudevents.CONTENT_TYPE, "application/octet-stream")), safe=cloudevents.SAFE + ' "%')


def line(text: str) -> str:
    """A text as the value of an HTTP header, which has neither line ends nor much beyond ASCII: as in a URL."""
    return quote(text, safe=cloudevents.SAFE + " ")

