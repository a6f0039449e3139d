"""A W3C WebSub hub (Recommendation of 23 January 2018): whoever subscribes to a topic gets each of its messages as a POST.

A topic is a queue together with a pattern of addresses, and its URL is `…/topics/QUEUE/PATTERN`: `#` is the whole queue. The
topic says in its `Link` headers where the hub is, and what its own URL is. A subscription is a queue of its own, beside that of
the topic and in the same store, into which a selector copies what matches. So a target that is slow, or down for hours, holds
up nobody, and it loses nothing. What the hub must know again is in that queue's map. It ends when its lease ends, when it is
cancelled, when its target answers 410, or when the topic's queue is deleted.

No target is subscribed by others: the hub first asks the target (a GET with a challenge that the target repeats).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import aiohttp
from aiohttp import web
from yarl import URL

import xump.aio
from xump.actions import copy_to, deliver
from xump.broker.http.call import Call
from xump.broker.http.outgoing import Outgoing
from xump.broker.http.problems import Problem, asking
from xump.broker.http.targets import checked_url
from xump.conditions import always, match

if TYPE_CHECKING:
    from xump.broker.http.server import Http
    from xump.broker.vhost import Vhost
    from xump.engine import Engine
    from xump.selector import Selector
    from xump.types import SelectorStart

logger = logging.getLogger("xump")

QUEUE = "websub/"
"""Begins the names of the queues of subscriptions."""

KEPT = "http.websub"
"""The name in a queue's map of what the hub knows of its subscription."""

LEASE_SECONDS = 10 * 24 * 3600
"""How long a subscription lasts that does not say."""

LEASE_MAX = 365 * 24 * 3600
SECRET_BYTES_MAX = 199
"""The specification's bound: less than 200 bytes."""

CREDIT = 4
"""So many messages are on their way to a target at once. They may overtake each other; the ids (`Xump-Id`) are in order."""


@dataclass
class Subscription:
    """What the hub knows of one."""

    topic: str
    """The URL of the topic."""
    callback: str
    """The URL of the target."""
    source: str
    """The queue of the topic."""
    pattern: str
    """The pattern of addresses."""
    secret: str | None
    """What messages are signed with."""
    until: float
    """When its lease ends, POSIX seconds."""

    @property
    def name(self) -> str:
        """The name of its queue. A target has one subscription to a topic."""
        return QUEUE + hashlib.sha256(json.dumps([self.topic, self.callback]).encode()).hexdigest()[:32]


class Hub:
    """The hub of all virtual hosts."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._running: dict[tuple[str, str], tuple[Subscription, Outgoing, asyncio.TimerHandle]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The hub's own URL."""
        return f"{self._http.url}hub"

    def start(self, vhost: Vhost) -> None:
        """Go on with the subscriptions that there are."""
        for name, queue in list(vhost.engine.queues.items()):
            kept = queue.meta.get(KEPT) if name.startswith(QUEUE) else None
            if kept is not None:
                self._begin(vhost, Subscription(**json.loads(kept)))

    async def stop(self) -> None:
        """End what goes on; the subscriptions stay."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        running, self._running = self._running, {}
        for _, outgoing, timer in running.values():
            timer.cancel()
            await outgoing.stop()

    def links(self, topic: str) -> str:
        """The `Link` header of a topic, and of each of its messages."""
        return f'<{self.url}>; rel="hub", <{topic}>; rel="self"'

    def topic_of(self, text: str) -> tuple[str, str]:
        """Queue and pattern of a topic's URL. Raises `Problem` 400."""
        prefix = f"{self._http.url}topics/"
        queue, slash, pattern = text.removeprefix(prefix).partition("/")
        if not text.startswith(prefix) or not slash or not queue or not pattern:
            raise Problem(400, f"hub.topic must be {prefix}QUEUE/PATTERN, got {text!r}")
        return unquote(queue), unquote(pattern)

    # ---- subscriptions

    def ask(self, vhost: Vhost, mode: str, subscription: Subscription, lease: int) -> None:
        """Ask the target whether it wants this, and then do it."""
        task = asyncio.get_running_loop().create_task(self._ask(vhost, mode, subscription, lease))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask(self, vhost: Vhost, mode: str, subscription: Subscription, lease: int) -> None:
        challenge = secrets.token_urlsafe(32)
        query = {"hub.mode": mode, "hub.topic": subscription.topic, "hub.challenge": challenge}
        if mode == "subscribe":
            query["hub.lease_seconds"] = str(lease)
        try:
            async with self._http.webhooks.session.get(
                    URL(subscription.callback).update_query(query), allow_redirects=False) as response:
                echoed = await response.content.read(len(challenge) + 1)
                if not 200 <= response.status < 300 or echoed != challenge.encode():
                    logger.warning("%s did not confirm hub.mode=%s of %s", subscription.callback, mode, subscription.topic)
                    return
            if mode == "subscribe":
                await self._subscribe(vhost, subscription, lease)
            else:
                await self.end(vhost, subscription)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            logger.warning("%s could not be asked for hub.mode=%s: %s", subscription.callback, mode, error)
        except Problem as problem:
            logger.warning("%s: %s", subscription.topic, problem)

    async def _subscribe(self, vhost: Vhost, subscription: Subscription, lease: int) -> None:
        subscription.until = time.time() + lease
        engine, name = vhost.engine, subscription.name
        with asking():
            source = engine.queues.get(subscription.source)
            if source is None:
                raise Problem(404, f"queue {subscription.source!r} was deleted meanwhile")
            await self._pause(vhost, subscription)
            kept = json.dumps(vars(subscription)).encode()
            queue = engine.create_queue(name, store=source.store, meta={KEPT: kept})
            queue.meta[KEPT] = kept                     # it may have been there: a lease is renewed
            self._begin(vhost, subscription, "tail")
            await xump.aio.durable(engine)

    def _begin(self, vhost: Vhost, subscription: Subscription, start: SelectorStart = "current") -> None:
        """Let messages in, and send them. `start`: a new subscription begins with the next message; one that goes on after a
        restart, with the first that was not routed before it."""
        engine, name = vhost.engine, subscription.name
        if subscription.source not in engine.queues:
            engine.delete_queue(name)
            return
        pattern = subscription.pattern
        if _selector(engine, f"{name} in") is None:     # a lease that is renewed has it
            engine.create_selector(subscription.source, when=always if pattern == "#" else match("topic", pattern),
                                   do=copy_to(name), start=start, name=f"{name} in")
        engine.create_selector(name, when=always, do=deliver(name), credit=CREDIT, name=f"{name} out")
        loop = asyncio.get_running_loop()

        def end() -> None:
            """The lease is over, or the target wants no more."""
            loop.create_task(self.end(vhost, subscription)).add_done_callback(_look)

        outgoing = Outgoing(
            engine, name, subscription.callback, self._http.webhooks.session,
            None if subscription.secret is None else subscription.secret.encode(), self.links(subscription.topic), end)
        timer = loop.call_later(max(0.0, subscription.until - time.time()), end)
        self._running[vhost.name, name] = subscription, outgoing, timer

    async def _pause(self, vhost: Vhost, subscription: Subscription) -> bool:
        found = self._running.pop((vhost.name, subscription.name), None)
        if found is not None:
            found[2].cancel()
            await found[1].stop()
        return found is not None

    async def end(self, vhost: Vhost, subscription: Subscription) -> None:
        """End a subscription, with its messages."""
        await self._pause(vhost, subscription)
        engine, name = vhost.engine, subscription.name
        copying = _selector(engine, f"{name} in")
        if copying is not None:
            copying.delete()
        engine.delete_queue(name)

    def count(self, vhost: Vhost) -> int:
        """How many subscriptions there are."""
        return sum(host == vhost.name for host, _ in self._running)


def _selector(engine: Engine, name: str) -> Selector | None:
    return next((one for one in list(engine.selectors.values()) if one.name == name), None)


def _look(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("a subscription could not be ended", exc_info=task.exception())


# ---- requests

async def hub(call: Call) -> web.Response:
    """Subscribe or unsubscribe: the hub asks the target, and answers 202 before."""
    form = await call.request.post()
    given: dict[str, Any] = {key.removeprefix("hub."): value for key, value in form.items() if key.startswith("hub.")}
    mode = given.get("mode")
    if mode not in ("subscribe", "unsubscribe"):
        raise Problem(400, f"hub.mode must be subscribe or unsubscribe, got {mode!r}")
    source, pattern = call.http.hub.topic_of(str(given.get("topic", "")))
    callback = checked_url(given.get("callback"), call.http.private_targets)
    call.check("read", source)
    with asking():
        if source not in call.engine.queues:
            raise Problem(404, f"no queue {source!r} in the virtual host {call.vhost.name!r}")
        if pattern != "#":
            match("topic", pattern)
    secret = given.get("secret")
    if secret is not None and (not isinstance(secret, str) or len(secret.encode()) > SECRET_BYTES_MAX):
        raise Problem(400, f"hub.secret must be a text of at most {SECRET_BYTES_MAX} bytes")
    subscription = Subscription(str(given["topic"]), callback, source, pattern, secret or None, 0.0)
    call.http.hub.ask(call.vhost, mode, subscription, _lease(given.get("lease_seconds")))
    return web.Response(status=202)


def _lease(given: object) -> int:
    if given is None or given == "":
        return LEASE_SECONDS
    if not isinstance(given, str) or not given.isascii() or not given.isdigit() or not int(given):
        raise Problem(400, f"hub.lease_seconds must be a whole number of seconds, 1 or more, got {given!r}")
    return min(int(given), LEASE_MAX)


async def topic(call: Call) -> web.Response:
    """A topic: its newest message, and in `Link` where to subscribe."""
    queue = call.queue("read")
    call.only()
    url = f"{call.http.url}topics/{quote(queue.name, safe='')}/{quote(call.name('pattern'), safe='')}"
    newest = next(iter(queue.browse(reverse=True, limit=1)), None)
    body = b"" if newest is None else newest.body
    return web.Response(body=body, headers={"Link": call.http.hub.links(url)}, content_type="application/octet-stream")
