"""A request, and what its handler needs of it: user, engine, queue, parameters."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

from aiohttp import web

import xump.aio
from xump.broker.exchange_graph import PREFIX
from xump.broker.http import access
from xump.broker.http.problems import RETRY_SECONDS, Problem, asking
from xump.broker.patience import with_room
from xump.broker.permissions import is_kept_to_itself, why_not, why_not_take

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.broker.http.server import Http
    from xump.broker.users import User
    from xump.broker.vhost import Vhost
    from xump.engine import Engine
    from xump.queue import Queue

T = TypeVar("T")
logger = logging.getLogger("xump")

BODY_BYTES_MAX = 64 << 20
"""The largest body of a message."""

SMALL_BYTES_MAX = 1 << 20
"""The largest body that is a JSON object or a form."""

FIELDS_MAX = 100
"""The most fields of a form."""

BODY_SECONDS = 30.0
"""So long a client may take to send a body, and a second longer for each `RATE_MIN` bytes."""

ANSWER_SECONDS = 30.0
"""The same for a client that reads an answer."""

RATE_MIN = 10_000

FORM = "application/x-www-form-urlencoded"


class Call:
    """A request."""

    def __init__(self, http: Http, request: web.Request, user: User, vhost: Vhost) -> None:
        self.http = http
        """The server."""
        self.request = request
        """The request as it came."""
        self.user = user
        """Whose it is."""
        self.vhost = vhost
        """The virtual host that it is for."""

    @property
    def broker(self) -> Broker:
        """The broker."""
        return self.http.broker

    @property
    def engine(self) -> Engine:
        """The engine of the virtual host."""
        return self.vhost.engine

    def may(self, permission: str, name: str) -> bool:
        """Whether the user has this permission for a queue. That of an exchange is the exchange."""
        return self.user.may_enter(self.vhost.name) and why_not(self.vhost, permission, name) is None and self.user.may(
            self.vhost.name, permission, name.removeprefix(PREFIX))

    def check(self, permission: str, name: str) -> None:
        """Raise `Problem` 403 unless the user has this permission for a queue. That of an exchange is the exchange."""
        why = why_not(self.vhost, permission, name)
        if why is not None:
            raise Problem(403, why)
        access.check(self.user, self.vhost.name, permission, name.removeprefix(PREFIX))

    def check_takes(self, name: str) -> None:
        """Raise `Problem` 403 unless messages of a queue that the user may read may be taken from here."""
        why = why_not_take(self.vhost, name)
        if why is not None:
            raise Problem(403, why)

    def check_reads_all(self) -> None:
        """Raise `Problem` 403 unless the user may read all queues; it does not say which others there are."""
        if not all(self.may("read", name) for name in list(self.engine.queues) if not is_kept_to_itself(name)):
            raise Problem(403, f"user {self.user.name!r} may not read all queues of the virtual host {self.vhost.name!r}")

    def name(self, part: str = "queue") -> str:
        """A part of the path."""
        return self.request.match_info[part]

    def queue(self, permission: str) -> Queue:
        """The queue that the path names. Raises `Problem` 403 or 404."""
        name = self.name()
        self.check(permission, name)
        queue = self.engine.queues.get(name)
        if queue is None:
            raise Problem(404, f"no queue {name!r} in the virtual host {self.vhost.name!r}")
        return queue

    def parameter(self, name: str, parse: Callable[[str], T]) -> T | None:
        """A parameter of the query, or None. Raises `Problem` 400."""
        given = self.request.query.get(name)
        if given is None:
            return None
        try:
            return parse(given)
        except ValueError as error:
            raise Problem(400, f"{name}={given!r}: {error}") from None

    def only(self, *names: str) -> None:
        """Raise `Problem` 400 if the query has other parameters than these."""
        for name in self.request.query:
            if name not in names and name != "vhost":
                raise Problem(400, f"no parameter {name!r} here; there are {', '.join((*names, 'vhost'))}")

    def check_memory(self) -> None:
        """Raise `Problem` 503 if messages take too much memory to publish more."""
        if self.broker.memory.look():
            raise Problem(503, self.broker.memory.said(), Retry_After=str(RETRY_SECONDS))

    async def done(self, change: Callable[[], T]) -> T:
        """Change something in the engine, as soon as its stores have room for that; returns when it is durable. `change` changes
        nothing if it raises. Raises `Problem`."""
        with asking():
            found = await with_room(self.engine, change)
            await xump.aio.durable(self.engine)
        return found

    async def json(self) -> dict[str, Any]:
        """The body, a JSON object. Raises `Problem` 400."""
        try:
            found = json.loads(await self.body(SMALL_BYTES_MAX) or b"{}")
        except (ValueError, RecursionError) as error:
            raise Problem(400, f"the body is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise Problem(400, f"the body must be a JSON object, got {type(found).__name__}")
        return found

    async def form(self) -> dict[str, str]:
        """The body, a form. Raises `Problem` 400, or 415 if it is none."""
        if self.request.content_type != FORM:
            raise Problem(415, f"the body must be {FORM}, got {self.request.content_type}")
        try:
            text = (await self.body(SMALL_BYTES_MAX)).decode()
            return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX))
        except ValueError as error:
            raise Problem(400, f"the body is no form: {error}") from None

    async def body(self, bytes_max: int = BODY_BYTES_MAX) -> bytes:
        """The body. Raises `Problem` 413 if it is longer, 408 if the client sends too slowly, 400 if it does not send all, and
        503 if messages, and bodies that are on their way, take too much memory.

        JSON that is parsed takes many times the memory of its bytes, so it may have less of them than a message."""
        found, content, memory = bytearray(), self.request.content, self.broker.memory
        now = asyncio.get_running_loop().time
        began = now()
        try:
            async with asyncio.timeout(BODY_SECONDS) as deadline:
                while not content.at_eof():
                    more = await content.readany()
                    found += more
                    memory.promised += len(more)        # it counts as memory before it is a message
                    if len(found) > bytes_max:
                        raise Problem(413, f"the body may have {bytes_max} bytes at most")
                    if bytes_max > SMALL_BYTES_MAX:
                        self.check_memory()
                    deadline.reschedule(max(began + BODY_SECONDS + len(found) / RATE_MIN, now()))
        except TimeoutError:
            raise Problem(408, f"only {len(found)} bytes of the body came: send {RATE_MIN} a second, or more") from None
        except (web.RequestPayloadError, ConnectionError) as error:
            raise Problem(400, f"the body did not come to its end: {error}") from None
        else:
            return bytes(found)
        finally:
            memory.promised -= len(found)
            found.clear()           # the error of a client that went is in a cycle with this frame


@asynccontextmanager
async def in_time(request: web.Request, size: int) -> AsyncIterator[None]:
    """A block that sends an answer of so many bytes. It ends if the client goes. One that reads too slowly is disconnected: its
    answer would be kept in memory."""
    seconds = ANSWER_SECONDS + size / RATE_MIN
    try:
        async with asyncio.timeout(seconds):
            with suppress(ConnectionError):
                yield
    except TimeoutError:
        logger.warning("%s %s: the client has not read its answer in %.0f s", request.method, request.path, seconds)
        if request.transport is not None:
            request.transport.abort()


def number(text: str) -> int:
    """A whole number that is not negative."""
    if not text.isascii() or not text.isdigit():
        raise ValueError("expected a whole number, 0 or more")
    return int(text)


def seconds(text: str) -> float:
    """A number of seconds."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number of seconds") from None


def one_of(*allowed: str) -> Callable[[str], str]:
    """One of these words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"expected {', '.join(allowed)}")
        return text

    return parse


def answer(value: Any, status: int = 200) -> web.Response:
    """A value as JSON."""
    return web.Response(text=json.dumps(value, default=str), status=status, content_type="application/json")
