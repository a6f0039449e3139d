"""Asks a running broker over HTTP (docs/http.md), with nothing but Python's own library."""

from __future__ import annotations

import argparse
import base64
import http.client
import os
import reprlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from xump._header_json import decoded
from xump._parsing import json_of, toml_of
from xump.cli.answers import MESSAGES, fits
from xump.cli.exit import CommandError, ExitCode
from xump.topology.graph import printable

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
        table = toml_of(Path(text).read_bytes()).get("broker", {})
        url: str = ("https://" if "certificate" in table else "http://") + table["http"]
        _place(url)
        return url
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
        (place.hostname or "").encode("idna")           # as a connection does it
        _connection(place)
    except (ValueError, http.client.InvalidURL) as error:
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
    try:
        place = _place(url)
        socket.create_connection((place.hostname or "", place.port or 80), 1.0).close()
    except (OSError, ValueError):
        return None         # left behind by a process that was killed, or no file of ours
    return url


class Remote:
    """A broker, over one connection that stays open.

    Errors of the broker become `CommandError`: what it says of the queue or message is found wrong, the rest not carried out.
    """

    def __init__(self, url: str, place: str = "say with --broker where it is") -> None:
        """`place`: how one says where the broker is."""
        self._hint = f"Start one with `xump serve --http HOST:PORT`, or {place}"
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

    def ask(self, method: str, *path: str, body: bytes | None = None, kind: str = "", like: Any = object, **query: Any) -> Any:
        """The broker's answer, which has the shape `like` (`xump.cli.answers`): a value if it is JSON, else bytes. `path`: its
        parts; a query's None is left out."""
        try:
            target = "/" + "/".join(quote(part, safe="") for part in path)
            given = urlencode({name: value for name, value in query.items() if value is not None})
        except UnicodeEncodeError as error:
            raise CommandError(f"{error.object!r} is not text in UTF-8, as names and filters are") from None
        headers = {**self._headers, **({"Content-Type": kind} if kind else {})}
        try:
            self._connection.request(method, target + ("?" + given if given else ""), body, headers)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise CommandError(
                f"no broker answers at {self.url}: {printable(getattr(error, 'strerror', None) or str(error))}. "
                f"{self._hint}") from None
        found = _value(content, response.headers.get("Content-Type") or "")
        if response.status >= 400:
            said = found.get("detail") if isinstance(found, dict) else response.reason
            if response.status == 401:
                said = f"{said}: {self._place.scheme}://USER:PASSWORD@{self._place.hostname}:{self._place.port or ''}".rstrip(":")
            raise Refused(f"{self.url}: {printable(str(said))}", response.status)
        if not fits(found, like):
            raise CommandError(f"{self.url} does not answer as a Xump broker does: to {method} {target} it said "
                               f"{reprlib.repr(content)}. {self._hint}")
        return found

    def browse(
        self, queue: str, start: Any, state: str | None, where: str | None, limit: int | None, reverse: bool
    ) -> Iterator[dict[str, Any]]:
        """Messages of a queue, as JSON has them, page by page."""
        left = limit
        while left is None or left > 0:
            page = self.ask(
                "GET", "queues", queue, "messages", start=start, state=state, where=where,
                limit=PAGE if left is None else min(PAGE, left), reverse="true" if reverse else None, like=MESSAGES)
            yield from page
            if not page:        # one of large messages has fewer than were asked for
                return
            start = page[-1]["id"] + (-1 if reverse else 1)
            if start < 1:
                return
            left = None if left is None else left - len(page)


def _value(content: bytes, kind: str) -> Any:
    """The content of an answer: a value if it is JSON, else the bytes."""
    try:
        return json_of(content) if "json" in kind else content
    except ValueError:
        return content


def _authorization(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    said = f"{unquote(user)}:{unquote(password or '')}".encode(errors="surrogateescape")        # as it was typed
    return {"Authorization": "Basic " + base64.b64encode(said).decode()}


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
    encoded, text = shown.get("body_base64"), shown.get("body", "")
    body = text.encode(errors="surrogatepass") if encoded is None else base64.b64decode(encoded)
    return SimpleNamespace(**{
        "reply_to": None, "message_id": None, "correlation_id": None, "expires": None, "annex": None, "destination": None,
        **shown, "headers": {name: decoded(value) for name, value in shown["headers"].items()}, "body": body})
