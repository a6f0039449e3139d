"""Asks a running broker over HTTP (docs/http.md), with nothing but Python's own library."""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import socket
import ssl
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from xump.cli.exit import CommandError, ExitCode

DEFAULT = "http://127.0.0.1:8080"
"""Where a broker is looked for that is not named."""

VARIABLE = "XUMP_BROKER"
"""The variable of the environment that names another one."""

TIMEOUT_SECONDS = 90.0
"""So long an answer may take: more than any request waits for a message."""

PAGE = 1000
"""So many messages the broker shows at once."""

SIDECAR = ".http"
"""The suffix of the file beside a store in which its process says where it answers."""


def add_broker(parser: argparse.ArgumentParser) -> None:
    """Add the option `--broker`."""
    parser.add_argument(
        "--broker", metavar="URL", default=os.environ.get(VARIABLE, DEFAULT), type=_url,
        help=f"where the broker answers HTTP; with a user: http://USER:PASSWORD@HOST:PORT; or the topology that it serves; "
             f"default: ${VARIABLE}, else {DEFAULT}")


def _url(text: str) -> str:
    if is_url(text):
        try:
            _place(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text
    if not text.endswith(".toml"):
        raise argparse.ArgumentTypeError(f"must be a URL such as {DEFAULT}, or a topology with a table `broker`, got {text!r}")
    try:
        table = tomllib.loads(Path(text).read_text()).get("broker", {})
        host_and_port: str = table["http"]
        return ("https://" if "certificate" in table else "http://") + host_and_port
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise argparse.ArgumentTypeError(f"{text} does not say where its broker answers HTTP ([broker], http): {error}") from None


def is_url(text: str) -> bool:
    """Whether it names a broker, and no file."""
    return text.startswith(("http://", "https://"))


def _place(url: str) -> SplitResult:
    """The parts of a URL. Raises ValueError unless it is that of a broker."""
    wrong = f"{url!r} is not where a broker answers: expected a URL such as {DEFAULT}"
    try:
        place = urlsplit(url)
        port = place.port
    except ValueError as error:
        raise ValueError(f"{wrong}; {error}") from None
    if not place.hostname or port == 0 or place.path not in ("", "/") or place.query or place.fragment:
        raise ValueError(wrong)
    return place


def process_of(path: str) -> str | None:
    """The URL of the process that has the store open, if it answers HTTP; None: none does."""
    try:
        url = Path(path + SIDECAR).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    place = urlsplit(url)
    try:
        socket.create_connection((place.hostname or "", place.port or 80), 1.0).close()
    except OSError:
        return None         # left behind by a process that was killed
    return url


class Remote:
    """A broker, over one connection that stays open.

    Errors of the broker become `CommandError`: what it says of the queue or message is found wrong, the rest not carried out.
    """

    def __init__(self, url: str, place: str = "say with --broker where it is") -> None:
        """`place`: how one says where the broker is."""
        self._otherwise = place
        try:
            self._place = _place(url)
        except ValueError as error:
            raise CommandError(str(error)) from None
        self._headers = _authorization(self._place.username, self._place.password)
        self._connection = _connection(self._place)

    @property
    def url(self) -> str:
        """Where it answers, without a password."""
        return f"{self._place.scheme}://{self._connection.host}:{self._connection.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._connection.close()

    def ask(self, method: str, *path: str, body: bytes | None = None, kind: str = "", **query: Any) -> Any:
        """The broker's answer: a value if it is JSON, else bytes. `path`: its parts; a query's None is left out."""
        target = "/" + "/".join(quote(part, safe="") for part in path)
        given = {name: value for name, value in query.items() if value is not None}
        headers = {**self._headers, **({"Content-Type": kind} if kind else {})}
        try:
            self._connection.request(method, target + ("?" + urlencode(given) if given else ""), body, headers)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise CommandError(
                f"no broker answers at {self.url}: {getattr(error, 'strerror', None) or error}. Start one with "
                f"`xump serve --http HOST:PORT`, or {self._otherwise}") from None
        is_json = "json" in (response.headers.get("Content-Type") or "")
        found = json.loads(content) if is_json else content
        if response.status >= 400:
            said = found.get("detail") if isinstance(found, dict) else response.reason
            if response.status == 401:
                said = f"{said}: {self._place.scheme}://USER:PASSWORD@{self._place.hostname}:{self._place.port or ''}".rstrip(":")
            raise Refused(f"{self.url}: {said}", response.status)
        return found

    def browse(
        self, queue: str, start: Any, state: str | None, where: str | None, limit: int | None, reverse: bool
    ) -> Iterator[dict[str, Any]]:
        """Messages of a queue, as JSON has them, page by page."""
        left = limit
        while left is None or left > 0:
            page = self.ask(
                "GET", "queues", queue, "messages", start=start, state=state, where=where,
                limit=PAGE if left is None else min(PAGE, left), reverse="true" if reverse else None)
            yield from page
            if len(page) < PAGE:
                return
            start = page[-1]["id"] + (-1 if reverse else 1)
            if start < 1:
                return
            left = None if left is None else left - len(page)


def _authorization(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password or '')}".encode()).decode()}


def _connection(place: SplitResult) -> http.client.HTTPConnection:
    if place.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(place.hostname or "", place.port, timeout=TIMEOUT_SECONDS, context=context)
    return http.client.HTTPConnection(place.hostname or "", place.port, timeout=TIMEOUT_SECONDS)


class Refused(CommandError):
    """The broker refused a request."""

    def __init__(self, said: str, status: int) -> None:
        super().__init__(said, ExitCode.PROBLEM_FOUND if status in (404, 409, 503, 507) else ExitCode.NOT_CARRIED_OUT)
        self.status = status
        """The status that it answered with."""


def message_of(shown: dict[str, Any]) -> SimpleNamespace:
    """A message with the attributes that `xump.Message` has, of what a broker shows."""
    body = shown["body"].encode() if "body" in shown else base64.b64decode(shown["body_base64"])
    return SimpleNamespace(**{
        "reply_to": None, "message_id": None, "correlation_id": None, "expires": None, "annex": None, "destination": None,
        **shown, "body": body})
