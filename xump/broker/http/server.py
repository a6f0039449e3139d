"""Listens for HTTP in the broker's loop, and ends with the broker."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.http import HttpProcessingError

from xump.broker.addresses import host_and_port, is_loopback
from xump.broker.http import access, routes
from xump.broker.http.call import BODY_BYTES_MAX, Call, in_time
from xump.broker.http.deliveries import Leases
from xump.broker.http.overview import Rates
from xump.broker.http.problems import RETRY_SECONDS, Problem, answer
from xump.broker.http.webhooks import Webhooks
from xump.broker.http.websub import Hub
from xump.broker.patience import in_steps, not_waiting
from xump_ext.state.sleeper import Sleeper

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.broker.vhost import Vhost

logger = logging.getLogger("xump")

NAME = re.compile(r"\{(\w+)\}")
"""A name in the path of a route."""

END_SECONDS = 1.0
"""How long the end waits for a request that is being answered, or that still comes in."""

IDLE_SECONDS = 75.0
"""So long a connection may be without a request, or with a part of one."""

SECURITY = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""Headers of every answer, unless it has stricter ones: a page of this server loads nothing from elsewhere, and is in no frame of
another page."""


class _Log(logging.LoggerAdapter[logging.Logger]):
    """The log of the server: of bytes that are no HTTP it says in a line what is wrong. Only defects show where in the code."""

    def exception(self, msg: object, *args: object, exc_info: Any = True, **given: Any) -> None:
        """An error of a request."""
        if isinstance(exc_info, HttpProcessingError):
            self.warning(f"{msg}: %s", *args, " ".join(exc_info.message.split()))
        else:
            super().exception(msg, *args, exc_info=exc_info, **given)


async def _answered(request: web.Request, handler: web.Handler) -> web.StreamResponse:  # type: ignore[name-defined]
    try:
        response: web.StreamResponse = await handler(request)
    except Problem as problem:
        response = answer(problem.status, str(problem), problem.headers)
    except web.HTTPException as error:
        response = answer(error.status, error.text or error.reason, {
            name: value for name, value in error.headers.items() if name in ("Allow", "Location")})
    except Exception:
        logger.exception("%s %s", request.method, request.path)
        response = answer(500, "the broker has a defect; its log says more")
    return response


async def _sent(request: web.Request, response: web.StreamResponse) -> None:
    async with in_time(request, response.content_length or 0):
        await response.prepare(request)
        await response.write_eof()


async def _secure(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in SECURITY.items():
        response.headers.setdefault(name, value)


class Http:
    """The HTTP API of a broker.

    Args:
        broker: The broker.
        address: Where to listen, `HOST:PORT`; port 0: any that is free.
        private_targets: Whether webhooks may go to private addresses, which the internet does not reach.

    Raises:
        ValueError: `address` is wrong, or would let other machines in without TLS and users.
    """

    def __init__(self, broker: Broker, address: str, *, private_targets: bool = False, insecure: bool = False) -> None:
        self.broker = broker
        """The broker."""
        self._host, self._port = host_and_port(address, "http")
        if not insecure and not is_loopback(self._host) and (broker.tls is None or broker.is_open):
            raise ValueError(f"http={address!r} lets other machines in: give `tls` and `users`, or insecure=True")
        self.address: tuple[str, int] = (self._host, self._port)
        """Where it listens."""
        self.private_targets = private_targets
        """Whether webhooks may go to private addresses."""
        self.names = frozenset({self._host})
        """The names by which it may be called, beside addresses and `localhost`."""
        self.webhooks = Webhooks(self)
        """The webhooks of all virtual hosts."""
        self.hub = Hub(self)
        """The WebSub hub."""
        self.leases = Leases()
        """The messages that clients have taken."""
        self._rates: dict[str, Rates] = {}
        self._calls: set[asyncio.Task[web.StreamResponse]] = set()
        self._waiters: set[Sleeper] = set()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The address of the live page."""
        host, port = self.address
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/"

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The certificate and key that make connections secure, or None."""
        return self.broker.tls

    def rates_of(self, vhost: Vhost) -> Rates:
        """The rates in a virtual host."""
        return self._rates.setdefault(vhost.name, Rates())

    def application(self) -> web.Application:
        """The application, to be served by anything that serves aiohttp's."""
        made = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[self._guard])
        made.on_response_prepare.append(_secure)
        for route in routes.ROUTES:
            path = NAME.sub(r"{\1:[^/]+}", route.path)      # else a name would have no braces
            made.router.add_route(route.method, path, self._handler(route), name=None)
        return made

    def _handler(self, route: routes.Route) -> web.Handler:  # type: ignore[name-defined]
        async def handle(request: web.Request) -> web.StreamResponse:
            """Ask who it is, and hand on the call."""
            if self.broker.is_ending:
                raise Problem(503, "the broker ends", Retry_After=str(RETRY_SECONDS))
            user = await access.user_of(request, self.broker, self.names)
            name = request.query.get("vhost", "/")
            vhost = self.broker.vhosts.get(name)
            if vhost is None:
                raise Problem(404, f"no virtual host {name!r}")
            return await in_steps(vhost.engine, route.handler, Call(self, request, user, vhost))

        return handle

    @web.middleware
    async def _guard(self, request: web.Request, handler: web.Handler) -> web.StreamResponse:  # type: ignore[name-defined]
        """Errors become answers, and answers are sent in time."""
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            response = await _answered(request, handler)
            await _sent(request, response)
        finally:
            self._calls.discard(task)
        return response

    @contextmanager
    def woken_at_end(self) -> Iterator[Sleeper]:
        """A request waits in this block for messages, and is woken when the broker ends, to say so."""
        waiter = Sleeper()
        self._waiters.add(waiter)
        try:
            yield waiter
        finally:
            self._waiters.discard(waiter)

    async def start(self) -> None:
        """Listen, and go on with the webhooks that there are."""
        self._runner = web.AppRunner(
            self.application(), access_log=None, logger=_Log(logger, {}), handle_signals=False, shutdown_timeout=END_SECONDS,
            lingering_time=END_SECONDS, keepalive_timeout=IDLE_SECONDS)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self.tls)
        await site.start()
        name = self._runner.addresses[0]
        self.address = (name[0], name[1])
        for vhost in self.broker.vhosts.values():
            # no message of a store that was reopened meets half of them
            with not_waiting(vhost.engine), vhost.engine.building():
                self.webhooks.start(vhost)
                self.hub.start(vhost)

    async def stop(self) -> None:
        """Listen no more, and end the webhooks; what they had begun goes back to its queue. Requests end first: else they could
        take messages, and begin webhooks, after all had ended."""
        for waiter in self._waiters:
            if waiter.call is not None:         # `wait` sets it when the request begins to wait
                waiter.call()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        calls = list(self._calls)
        for call in calls:              # what was not done in its time has been cancelled, and has not heard of it yet
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self.hub.stop()
        await self.webhooks.stop()
        self.leases.close()
