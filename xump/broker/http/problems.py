"""Errors, as HTTP says them: a status, and what is wrong as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from xump.broker.errors import ProtocolError
from xump.errors import (
    Closed,
    Conflict,
    QueueFull,
    QueueNotFound,
    SelectorNotFound,
    StaleDelivery,
    StoreFailed,
    StoreFull,
    StoreNotFound,
    XumpError,
)

STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (QueueNotFound, 404), (StoreNotFound, 404), (SelectorNotFound, 404), (Conflict, 409), (StaleDelivery, 409),
    (ProtocolError, 400), (QueueFull, 503), (StoreFull, 507), (Closed, 503), (StoreFailed, 500), (ValueError, 400),
    (TypeError, 400),
)
"""Which status an error of the engine has, or of the broker's own routing; the first row that fits."""

RETRY_SECONDS = 1
"""After how many seconds a client may try again where there was no room."""


class Problem(Exception):
    """A mistake in a request."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status = status
        """The status."""
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        """Further headers of the answer."""


@contextmanager
def asking() -> Iterator[None]:
    """A block that asks the engine: its errors are the caller's, and become problems."""
    try:
        yield
    except Exception as error:
        for kind, status in STATUSES:
            if isinstance(error, kind):
                raise Problem(status, text_of(error), **({"Retry_After": str(RETRY_SECONDS)} if status == 503 else {})) from None
        if isinstance(error, XumpError):
            raise Problem(500, text_of(error)) from None
        raise


def text_of(error: Exception) -> str:
    """The text of an error. `str` of a KeyError has quotes around it."""
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)


def answer(status: int, detail: str, headers: dict[str, str] | None = None) -> web.Response:
    """A problem as a response."""
    title = web.Response(status=status).reason
    return web.Response(
        status=status, headers=headers, content_type="application/problem+json",
        text=json.dumps({"title": title, "status": status, "detail": detail}))
