"""A relay's target over HTTP: the queues of a Xump broker. The rows of a queue go in one request, and all enter or none does.

The answer comes when the messages are durable. If it is lost they are sent again, so the queue needs `dedup`, as with any target.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import logging
import math
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from xump.sql.outcomes import Down, Outcome, Pressed, Refused, Row, by_halves, delay_of, ttl_of, until_down
from xump.sql.payload import unpack

logger = logging.getLogger("xump.sql")

TIMEOUT_SECONDS = 30.0
FULL = (503, 507)
"""A queue, or its store, has no room now."""
NO_FAULT = (401, 407, 408, 429)
"""Wrong passwords, and a server that has too much to do. Any other 4xx says that the request is wrong: one of its rows is."""


class HttpTarget:
    """A Xump broker's HTTP API.

    Args:
        url: `http://USER:PASSWORD@HOST:PORT`, or `https://…`; without a path.

    Raises:
        ValueError: It is none.
    """

    atomic = True
    """A request sends all of its rows or none."""

    def __init__(self, url: str) -> None:
        self._place = _place_of(url)
        self._headers = {"Content-Type": "application/x-ndjson", **_authorization(self._place)}
        self._connection: http.client.HTTPConnection | None = None
        self._warned: set[str] = set()

    def send(self, rows: Sequence[Row]) -> list[Outcome]:
        """Send the rows in order, those behind each other of one queue, one delay and one second of expiry together."""
        held: set[tuple[str, str]] = set()
        groups = (list(group) for _, group in itertools.groupby(rows, key=_together))
        each = until_down(groups, lambda group: by_halves(self._send_all, group, held))
        return list(itertools.chain.from_iterable(each))

    def _send_all(self, rows: list[Row]) -> None:
        lines = "\n".join(json.dumps(_line(row)) for row in rows).encode()
        queue, delay, ttl = _together(rows[0])
        query = urlencode({name: value for name, value in (("delay", delay), ("ttl", ttl)) if value is not None})
        status, said = self._post(f"/queues/{quote(queue, safe='')}{query and '?' + query}", lines)
        if status in FULL:
            raise Pressed(said)
        if 400 <= status < 500 and status not in NO_FAULT:
            raise Refused(f"{status}: {said}")
        if status != 201:
            raise Down(f"{self._place.hostname} answers {status}: {said}")

    def _post(self, path: str, body: bytes) -> tuple[int, str]:
        """Status, and what is wrong. A connection that failed is not used again."""
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._place.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(self._place.hostname or "", self._place.port, timeout=TIMEOUT_SECONDS)
        try:
            self._connection.request("POST", path, body, self._headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Down(f"{self._place.hostname} cannot be reached: {error}") from error
        try:
            return answer.status, str(json.loads(content).get("detail", ""))
        except (ValueError, AttributeError):
            return answer.status, answer.reason

    def warn(self, rows: Sequence[Row], lease: float) -> None:
        """Log once a queue what it needs, since it is not known here whether it has it."""
        for name in sorted({row.queue for row in rows} - self._warned):
            self._warned.add(name)
            logger.info("after a crash a relay sends again for some %g seconds: queue %r needs dedup=%g or more, and a durable "
                        "store", lease, name, 10 * lease)

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _place_of(url: str) -> SplitResult:
    try:
        place = urlsplit(url)
        wrong = not place.hostname or place.port == 0 or place.path not in ("", "/") or place.query or place.fragment
    except ValueError:          # the port is no number, or there is none so high
        wrong = True
    if wrong:
        raise ValueError("the URL of a broker's HTTP API is http://USER:PASSWORD@HOST:PORT or https://..., with no path, got "
                         f"{url!r}")
    return place


def _authorization(place: SplitResult) -> dict[str, str]:
    if place.username is None:
        return {}
    pair = f"{unquote(place.username)}:{unquote(place.password or '')}".encode()
    return {"Authorization": "Basic " + base64.b64encode(pair).decode()}


def _together(row: Row) -> tuple[str, float | None, int | None]:
    """All that rows of one request share: their queue, the delay, and for how many seconds they live from then on."""
    ttl = ttl_of(row, unpack(row.props))
    return row.queue, delay_of(row), None if ttl is None else math.ceil(ttl)


def _line(row: Row) -> dict[str, Any]:
    """The message as a line of JSON. Raises `Refused` for headers that JSON has not: bytes."""
    props, headers = unpack(row.props), unpack(row.headers)
    wrong = [name for name, value in headers.items() if isinstance(value, bytes)]
    if wrong:
        raise Refused(f"header {wrong[0]!r} has bytes, which go to an engine or a broker over AMQP only")
    found = {
        "address": row.address, "headers": headers, "reply_to": row.reply_to, "message_id": row.message_id,
        "correlation_id": props.get("correlation_id"), "priority": props.get("priority"),
        "body_base64": base64.b64encode(bytes(row.body)).decode()}
    return {name: value for name, value in found.items() if value is not None}
