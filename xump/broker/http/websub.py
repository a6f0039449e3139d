"""A W3C WebSub hub (Recommendation of 23 January 2018): whoever subscribes to a topic gets each of its messages as a POST.

A topic is a queue together with a pattern of addresses, and its URL is `…/topics/QUEUE/PATTERN`: `#` is the whole queue. The
topic says in its `Link` headers where the hub is, and what its own URL is. A subscription is a queue of its own, beside that of
the topic and in the same store, into which a selector copies what matches. So a target that is slow, or down for hours, holds
up nobody, and it loses nothing. The hub keeps what it must know again in that queue's map. It ends when its lease ends, when it
is cancelled, when its target answers 410, or when the topic's queue is deleted and all was sent that was in it.

No target is subscribed by others: the hub first asks the target (a GET with a challenge that the target repeats). A target that
confirmed, and is not subscribed after all, is told so (`hub.mode=denied`); so is one whose topic has ended.

The broker may be known by several names, and may not know them: the URLs are those by which the client has called it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit, urlunsplit

import aiohttp
from aiohttp import web
from yarl import URL

import xump.aio
from xump._aio_wait import soon
from xump.actions import copy_to, deliver
from xump.broker.exchanges import topic_matches
from xump.broker.http.call import Call
from xump.broker.http.outgoing import Outgoing, kind_of
from xump.broker.http.problems import RETRY_SECONDS, Problem, asking
from xump.broker.http.targets import check_target, checked_url
from xump.broker.patience import in_steps, with_room
from xump.conditions import always, match

if TYPE_CHECKING:
    from xump.broker.http.server import Http
    from xump.broker.vhost import Vhost
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.selector import Selector
    from xump.types import SelectorStart
    from xump.watch import Change, Watch
    from xump_ext.message.message import Message

logger = logging.getLogger("xump")

QUEUE = "websub/"
"""Begins the names of the queues of subscriptions."""

KEPT = "http.websub"
"""The name in a queue's map of what the hub knows of its subscription."""

LEASE_SECONDS = 10 * 24 * 3600
"""How long a subscription lasts that does not say."""

LEASE_MAX = 365 * 24 * 3600
DIGITS_MAX = 20
SECRET_BYTES_MAX = 199
"""The specification's bound: less than 200 bytes."""

CREDIT = 4
"""So many messages are on their way to a target at once. They may overtake each other; the ids (`Xump-Id`) are in order."""


@dataclass
class Subscription:
    """One subscription, as the hub knows it."""

    topic: str
    """The URL of the topic."""
    callback: str
    """The URL of the target."""
    source: str
    """The queue of the topic."""
    pattern: str
    """The pattern of addresses."""
    secret: str | None
    """The secret that messages are signed with."""
    until: float
    """When its lease ends, POSIX seconds."""

    @property
    def name(self) -> str:
        """The name of its queue. A target has one subscription to a topic."""
        return QUEUE + hashlib.sha256(json.dumps([self.topic, self.callback]).encode()).hexdigest()[:32]


ALONE = "sandbox; default-src 'none'; frame-ancestors 'none'"
"""The policy for a message as a page: its publisher may not act as its reader, neither by a script that is in it, nor by one that
is another message."""

ASKED_MAX = 1000
"""So many targets are asked at the same time; each may take ten seconds to answer."""

LOOKED_AT = 1000
"""So many messages are looked at for the newest one of a topic."""


class Hub:
    """The hub of all virtual hosts."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._running: dict[tuple[str, str], tuple[Subscription, Outgoing, asyncio.TimerHandle]] = {}
        self._asking: set[asyncio.Task[Any]] = set()
        self._changing = asyncio.Lock()                 # a subscription that is being changed has ended, and not begun yet
        self._watches: list[Watch] = []
        self._orphans: set[tuple[str, str]] = set()     # subscriptions whose topic has ended

    def start(self, vhost: Vhost) -> None:
        """Go on with the subscriptions that there are."""
        loop = asyncio.get_running_loop()

        def told(changes: list[Change]) -> None:
            """The graph has changed."""
            gone = [str(one.thing.name) for one in changes if one.what == "queue" and not one.came]
            if gone:
                soon(loop, self._sources_gone, vhost, gone)

        self._watches.append(vhost.engine.watch(told))
        for name, queue in list(vhost.engine.queues.items()):
            kept = queue.meta.get(KEPT) if name.startswith(QUEUE) else None
            if kept is not None:
                self._begin(vhost, Subscription(**json.loads(kept)))

    async def stop(self) -> None:
        """End what goes on; the subscriptions stay."""
        for watch in self._watches:
            watch.stop()
        self._watches.clear()
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        running, self._running = self._running, {}
        for _, outgoing, timer in running.values():
            timer.cancel()
            await outgoing.stop()
        self._orphans.clear()
        self._changing = asyncio.Lock()                 # the next loop may be another one

    # ---- subscriptions

    def ask(self, vhost: Vhost, mode: str, subscription: Subscription, lease: int) -> None:
        """Ask the target whether it wants this, and then do it. Raises `Problem` 503 if too many are being asked."""
        if len(self._asking) >= ASKED_MAX:
            raise Problem(503, f"{ASKED_MAX} targets are being asked already", Retry_After=str(RETRY_SECONDS))
        self._do(vhost, self._ask, mode, subscription, lease)

    def _do(self, vhost: Vhost, work: Callable[..., Coroutine[Any, Any, Any]], *given: Any) -> None:
        task = asyncio.get_running_loop().create_task(in_steps(vhost.engine, work, vhost, *given))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        task.add_done_callback(_look)

    async def _ask(self, vhost: Vhost, mode: str, subscription: Subscription, lease: int) -> None:
        challenge = secrets.token_urlsafe(32)
        query = {"hub.mode": mode, "hub.topic": subscription.topic, "hub.challenge": challenge}
        if mode == "subscribe":
            query["hub.lease_seconds"] = str(lease)
        try:
            async with self._call(subscription, query) as response:
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
            await self._deny(subscription, str(problem))

    def _call(self, subscription: Subscription, query: dict[str, str]) -> Any:
        check_target(subscription.callback, self._http.private_targets)
        return self._http.webhooks.session.get(
            URL(subscription.callback).update_query(query), allow_redirects=False)

    async def _deny(self, subscription: Subscription, why: str) -> None:
        """Tell a target that it is not subscribed, or not any more; what it answers does not matter."""
        query = {"hub.mode": "denied", "hub.topic": subscription.topic, "hub.reason": why}
        try:
            async with self._call(subscription, query):
                pass
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            logger.warning("%s could not be told hub.mode=denied: %s", subscription.callback, error)

    def _sources_gone(self, vhost: Vhost, gone: list[str]) -> None:
        """The queues of topics were deleted: their subscriptions end when all has been sent."""
        for host, name in list(self._running):
            if host == vhost.name and self._running[host, name][0].source in gone:
                self._orphans.add((host, name))
                self._sent(vhost, name)

    def _sent(self, vhost: Vhost, name: str) -> None:
        """Something was sent: end the subscription, if that was the last of it."""
        queue = vhost.engine.queues.get(name)
        if (vhost.name, name) in self._orphans and (queue is None or not queue.ready + queue.delayed + queue.outstanding):
            self._orphans.discard((vhost.name, name))
            self._do(vhost, self._end_orphan, self._running[vhost.name, name][0])

    async def _end_orphan(self, vhost: Vhost, subscription: Subscription) -> None:
        if await self.end(vhost, subscription, True):
            await self._deny(subscription, f"the topic has ended: its queue {subscription.source!r} was deleted")

    async def _subscribe(self, vhost: Vhost, subscription: Subscription, lease: int) -> None:
        subscription.until = time.time() + lease
        engine, name = vhost.engine, subscription.name
        with asking():
            async with self._changing:
                source = engine.queues.get(subscription.source)
                if source is None:
                    raise Problem(404, f"queue {subscription.source!r} was deleted meanwhile")
                kept = json.dumps(vars(subscription)).encode()
                is_renewed = name in engine.queues
                await with_room(engine, lambda: self._keep(engine, source, name, kept))
                await self._pause(vhost, subscription)
                try:
                    self._begin(vhost, subscription, "tail")
                except BaseException:
                    if not is_renewed:          # the next start would find it, and could not begin it either
                        engine.delete_queue(name)
                    raise
            await xump.aio.durable(engine)

    def _keep(self, engine: Engine, source: Queue, name: str, kept: bytes) -> None:
        queue = engine.create_queue(name, store=source.store, meta={KEPT: kept})
        queue.meta[KEPT] = kept                         # it may have been there: a lease is renewed

    def _begin(self, vhost: Vhost, subscription: Subscription, start: SelectorStart = "current") -> None:
        """Let messages in, and send them. `start`: a new subscription begins with the next message; one that goes on after a
        restart, with the first that was not routed before it."""
        engine, name = vhost.engine, subscription.name
        if subscription.source not in engine.queues:
            engine.delete_queue(name)
            self._do(vhost, self._end_orphan, subscription)
            return
        pattern = subscription.pattern
        if _selector(engine, f"{name} in") is None:     # a lease that is renewed has it
            engine.create_selector(subscription.source, when=always if pattern == "#" else match("topic", pattern),
                                   do=copy_to(name), start=start, name=f"{name} in")
        engine.create_selector(name, when=always, do=deliver(name), credit=CREDIT, name=f"{name} out")

        def end() -> None:
            """The lease is over, or the target wants no more."""
            self._do(vhost, self.end, subscription, True)

        outgoing = Outgoing(
            engine, name, subscription.callback, self._http.webhooks,
            None if subscription.secret is None else subscription.secret.encode(), links(subscription.topic), end,
            lambda: self._sent(vhost, name))
        timer = asyncio.get_running_loop().call_later(max(0.0, subscription.until - time.time()), end)
        self._running[vhost.name, name] = subscription, outgoing, timer

    async def _pause(self, vhost: Vhost, subscription: Subscription) -> bool:
        self._orphans.discard((vhost.name, subscription.name))
        found = self._running.pop((vhost.name, subscription.name), None)
        if found is not None:
            found[2].cancel()
            await found[1].stop()
        return found is not None

    async def end(self, vhost: Vhost, subscription: Subscription, this: bool = False) -> bool:
        """End a subscription, with its messages. `this`: not one that has taken its place meanwhile. Returns whether it did."""
        engine, name = vhost.engine, subscription.name
        async with self._changing:
            running = self._running.get((vhost.name, name))
            if this and running is not None and running[0] is not subscription:
                return False
            await self._pause(vhost, subscription)
            copying = _selector(engine, f"{name} in")
            if copying is not None:
                copying.delete()
            engine.delete_queue(name)
        return True

    def count(self, vhost: Vhost) -> int:
        """How many subscriptions there are."""
        return sum(host == vhost.name for host, _ in self._running)


def _selector(engine: Engine, name: str) -> Selector | None:
    return next((one for one in list(engine.selectors.values()) if one.name == name), None)


def _look(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("a subscription of WebSub could not be begun, or ended", exc_info=task.exception())


# ---- URLs

def links(topic: str) -> str:
    """The `Link` header of a topic, and of each of its messages."""
    place = urlsplit(topic)
    hub = urlunsplit((place.scheme, place.netloc, "/hub", place.query, ""))
    return f'<{hub}>; rel="hub", <{topic}>; rel="self"'


def topic_url(call: Call, queue: str, pattern: str) -> str:
    """The URL of a topic, as the client calls the broker."""
    vhost = "" if call.vhost.name == "/" else f"?vhost={quote(call.vhost.name, safe='')}"
    return f"{call.request.scheme}://{call.request.host}/topics/{quote(queue, safe='')}/{quote(pattern, safe='')}{vhost}"


def topic_of(call: Call, text: str) -> tuple[str, str]:
    """Queue and pattern of a topic's URL. Raises `Problem` 400. The scheme may be another one: a proxy may speak TLS for us."""
    try:
        place = urlsplit(text)
        vhost = parse_qs(place.query, strict_parsing=True) if place.query else {}
    except ValueError:
        raise Problem(400, f"hub.topic={text!r} is no URL") from None
    parts = place.path.split("/")
    if place.scheme not in ("http", "https") or place.netloc != call.request.host or place.fragment or (
            len(parts) != 4 or parts[:2] != ["", "topics"] or not parts[2] or not parts[3]) or (
            vhost not in ({"vhost": [call.vhost.name]}, {} if call.vhost.name == "/" else None)):
        wanted = unquote(topic_url(call, "QUEUE", "PATTERN"))
        raise Problem(400, f"hub.topic must be {wanted}, got {text!r}")
    return unquote(parts[2]), unquote(parts[3])


# ---- requests

async def hub(call: Call) -> web.Response:
    """Subscribe or unsubscribe: the hub asks the target, and answers 202 before."""
    form = await call.form()
    given: dict[str, Any] = {key.removeprefix("hub."): value for key, value in form.items() if key.startswith("hub.")}
    mode = given.get("mode")
    if mode not in ("subscribe", "unsubscribe"):
        raise Problem(400, f"hub.mode must be subscribe or unsubscribe, got {mode!r}")
    source, pattern = topic_of(call, str(given.get("topic", "")))
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
    if not isinstance(given, str) or not given.isascii() or not given.isdigit() or not given.strip("0"):
        raise Problem(400, f"hub.lease_seconds must be a whole number of seconds, 1 or more, got {given!r}")
    return min(int(given.lstrip("0")[:DIGITS_MAX]), LEASE_MAX)      # Python makes no int of thousands of digits


async def topic(call: Call) -> web.Response:
    """A topic: its newest message, among the last thousand of its queue, and in `Link` where to subscribe."""
    queue = call.queue("read")
    call.only()
    pattern = call.name("pattern")
    newest = await asyncio.to_thread(_newest, queue, pattern)
    return web.Response(body=b"" if newest is None else newest.body, headers={
        "Link": links(topic_url(call, queue.name, pattern)), "Content-Security-Policy": ALONE,
        "Content-Type": "application/octet-stream" if newest is None else kind_of(newest)})


def _newest(queue: Queue, pattern: str) -> Message | None:
    with asking():
        match("topic", pattern)
        for message in queue.browse(reverse=True, limit=LOOKED_AT):
            if topic_matches(pattern, message.address):
                return message
    return None
