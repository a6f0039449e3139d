"""Webhooks: a subscription POSTs each message of a queue to a URL.

A webhook is a selector that delivers, so it shares its queue with other consumers as any worker does; where each of several
targets must get every message, give each a queue of its own and copy. It is kept in the map of its queue, so it is as durable as
the queue, and goes with it.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

import xump.aio
from xump.actions import deliver
from xump.broker.http.call import Call, answer
from xump.broker.http.outgoing import Outgoing
from xump.broker.http.problems import Problem, asking
from xump.broker.http.targets import checked_url, session
from xump.broker.patience import not_waiting, with_room
from xump.conditions import always, where

if TYPE_CHECKING:
    from xump.broker.http.server import Http
    from xump.broker.vhost import Vhost
    from xump.queue import Queue
    from xump.selector import Selector

KEPT = "http.webhook/"
"""Begins the names in the map of a queue."""

NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
CREDIT_MAX = 1000
PROPERTIES = {"queue": None, "url": None, "where": None, "credit": 10, "secret": None}
"""The options of a webhook, and their defaults; queue and url must be."""


@dataclass
class Webhook:
    """A webhook that works."""

    about: dict[str, Any]
    """Its properties."""
    selector: Selector
    """The consumer that gives it messages."""
    outgoing: Outgoing
    """The task that sends them."""

    async def stop(self) -> None:
        """Messages that it has not finished go to the others of its queue."""
        try:
            await self.outgoing.stop()
        finally:
            with not_waiting(self.selector.source.engine):
                self.selector.delete()


class Webhooks:
    """The webhooks of all virtual hosts."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._running: dict[tuple[str, str], Webhook] = {}
        self._session: aiohttp.ClientSession | None = None
        self.changing = asyncio.Lock()
        """Hold it to look at the webhooks, or to change them: one that is being changed has ended, and not begun yet."""

    @property
    def private_targets(self) -> bool:
        """Whether they may go to private addresses."""
        return self._http.private_targets

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session that calls targets."""
        if self._session is None:
            self._session = session(self._http.private_targets)
        return self._session

    def start(self, vhost: Vhost) -> None:
        """Go on with those that the queues know."""
        for queue in list(vhost.engine.queues.values()):
            for name, kept in list(queue.meta.items()):
                if name.startswith(KEPT):
                    self._begin(vhost, name.removeprefix(KEPT), json.loads(kept), queue)

    async def stop(self) -> None:
        """End all of them, until they are started again."""
        async with self.changing:
            running, self._running = self._running, {}
            for webhook in running.values():
                await webhook.stop()
        self.changing = asyncio.Lock()                  # the next loop may be another one
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def of(self, vhost: Vhost) -> dict[str, Webhook]:
        """Those of a virtual host, by name. One whose queue was deleted has ended with it. The caller holds `changing`."""
        for (host, name), webhook in list(self._running.items()):
            if host == vhost.name and vhost.engine.queues.get(webhook.about["queue"]) is not webhook.selector.source:
                del self._running[host, name]
                await webhook.stop()
        return {name: webhook for (host, name), webhook in self._running.items() if host == vhost.name}

    async def put(self, vhost: Vhost, name: str, about: dict[str, Any], queue: Queue) -> Webhook:
        """Create a webhook, or change it. If it raises, all is as it was. The caller holds `changing`."""
        kept = queue.meta.get(KEPT + name)
        await self._keep(queue, name, json.dumps(about).encode())
        before = self._running.pop((vhost.name, name), None)
        try:
            if before is not None:
                await before.stop()
            webhook = self._begin(vhost, name, about, queue)
        except BaseException:
            await self._keep(queue, name, kept)
            if before is not None and before.selector.source.name in vhost.engine.queues:
                self._begin(vhost, name, before.about, before.selector.source)
            raise
        if before is not None and before.selector.source is not queue:
            await self._forget(vhost, name, before)
        return webhook

    async def delete(self, vhost: Vhost, name: str) -> bool:
        """End a webhook; returns whether there was one. The caller holds `changing`."""
        webhook = self._running.get((vhost.name, name))
        if webhook is None:
            return False
        await self._forget(vhost, name, webhook)
        self._running.pop((vhost.name, name), None)
        await webhook.stop()
        return True

    async def _forget(self, vhost: Vhost, name: str, webhook: Webhook) -> None:
        queue = vhost.engine.queues.get(webhook.about["queue"])
        if queue is not None:
            await self._keep(queue, name, None)

    async def _keep(self, queue: Queue, name: str, about: bytes | None) -> None:
        """Keep a webhook in the map of its queue; None: no more."""

        def write() -> None:
            """In one step."""
            if about is None:
                queue.meta.pop(KEPT + name, None)
            else:
                queue.meta[KEPT + name] = about

        await with_room(queue.engine, write)

    def _begin(self, vhost: Vhost, name: str, about: dict[str, Any], queue: Queue) -> Webhook:
        destination = f"webhook/{name}"
        selector = vhost.engine.create_selector(
            queue, when=always if about["where"] is None else where(about["where"]), do=deliver(destination),
            credit=about["credit"], name=f"webhook {name}")
        secret = None if about["secret"] is None else about["secret"].encode()
        webhook = self._running[vhost.name, name] = Webhook(
            about, selector, Outgoing(vhost.engine, destination, about["url"], self, secret))
        return webhook


async def put(call: Call) -> web.Response:
    """Create a webhook, or change it."""
    call.only()
    name = call.name("webhook")
    if not NAME.fullmatch(name):
        raise Problem(400, f"a webhook's name has 1 to 100 letters, digits and . _ -, got {name!r}")
    about = _checked(await call.json(), call.http.private_targets)
    webhooks = call.http.webhooks
    async with webhooks.changing:
        found = (await webhooks.of(call.vhost)).get(name)
        if found is not None:
            call.check("read", found.about["queue"])
        call.check("read", about["queue"])
        call.check_takes(about["queue"])
        queue = call.engine.queues.get(about["queue"])
        if queue is None:
            raise Problem(404, f"no queue {about['queue']!r} in the virtual host {call.vhost.name!r}")
        with asking():
            webhook = await webhooks.put(call.vhost, name, about, queue)
    with asking():
        await xump.aio.durable(call.engine)
    return answer(_shown(name, webhook), 201)


def _checked(given: dict[str, Any], private: bool) -> dict[str, Any]:
    for key in given:
        if key not in PROPERTIES:
            raise Problem(400, f"a webhook has no {key!r}; it has {', '.join(PROPERTIES)}")
    about = {**PROPERTIES, **given}
    if not isinstance(about["queue"], str):
        raise Problem(400, f"queue must be the name of a queue, got {about['queue']!r}")
    for key in ("where", "secret"):
        if about[key] is not None and not isinstance(about[key], str):
            raise Problem(400, f"{key} must be a text, got {about[key]!r}")
    credit = about["credit"]
    if isinstance(credit, bool) or not isinstance(credit, int) or not 1 <= credit <= CREDIT_MAX:
        raise Problem(400, f"credit must be a whole number from 1 to {CREDIT_MAX}, got {credit!r}")
    about["url"] = checked_url(about["url"], private)
    if about["where"] is not None:
        with asking():
            where(about["where"])
    return about


async def listed(call: Call) -> web.Response:
    """The webhooks of the queues that the user may read."""
    call.only()
    async with call.http.webhooks.changing:
        found = await call.http.webhooks.of(call.vhost)
    return answer([_shown(name, webhook) for name, webhook in found.items() if call.may("read", webhook.about["queue"])])


async def delete(call: Call) -> web.Response:
    """End a webhook."""
    call.only()
    name, webhooks = call.name("webhook"), call.http.webhooks
    async with webhooks.changing:
        found = (await webhooks.of(call.vhost)).get(name)
        if found is not None:
            call.check("read", found.about["queue"])
        with asking():
            deleted = await webhooks.delete(call.vhost, name)
    with asking():
        await xump.aio.durable(call.engine)
    return answer({"deleted": deleted})


def _shown(name: str, webhook: Webhook) -> dict[str, Any]:
    about = {key: value for key, value in webhook.about.items() if key != "secret"}
    return {"name": name, **about, **webhook.outgoing.counts, "error": webhook.outgoing.error}
