"""The options of the data source: what a program says of the broker, the queue, the transaction and the limits.

Spark hands over keys in lower case and values as text. All of them are checked when the source is made, on the driver, before
any task runs.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from xump.broker.client import Client

CONNECT_SECONDS = 10.0
"""After so long without an answer a broker counts as unreachable."""

TIMEOUT_MS = 600_000
"""So long a commit is asked for."""

PARTS_ASKED_MAX = 10_000
"""The broker divides a queue into so many parts at most."""

DELIVERIES = ("exactly-once", "at-least-once")
ACKS = ("none", "commit")

READING = ("selector", "startingId", "endingId", "maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss", "ack")
WRITING = ("address", "delivery", "txnAppId", "txnVersion")


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that were asked for. They are pickled to the executors, which need not have the files that it names."""

    endpoint: str
    """Where the broker listens, `grpc://HOST:PORT` or `grpc+tls://HOST:PORT`."""
    queue: str
    """The queue that is written or read."""
    address: str | None = None
    """The address of all rows, if they have no column for it."""
    token: str | None = dataclasses.field(default=None, repr=False)
    """The token by which the broker knows the user, as long as the broker lives, and a day at most."""
    user: str | None = None
    """The user, instead of a token."""
    password: str | None = dataclasses.field(default=None, repr=False)
    """The password of the user."""
    tls_root_certs: bytes | None = dataclasses.field(default=None, repr=False)
    """The certificates, PEM, that the broker's one is checked with."""
    selector: str | None = None
    """A filter, as `where()` takes it: only what it selects is read."""
    starting_id: str | int = "earliest"
    """`"earliest"`, `"latest"` or an id."""
    ending_id: int | None = None
    """The last id that a batch reads; None: the last one that is there."""
    rows_a_trigger: int | None = None
    """So many rows a micro-batch reads at most."""
    partitions_min: int | None = None
    """In so many parts a queue is read, if it has as many messages."""
    fails_on_loss: bool = True
    """Whether a stream ends with an error when messages went before it had read them."""
    acks: bool = False
    """Whether a stream purges what it has read and Spark has checkpointed."""
    stages: bool = True
    """Whether rows are staged and committed (exactly once), or published at once (at least once)."""
    txn_app_id: str | None = None
    """The name of the application whose versions are committed once each."""
    txn_version: int | None = None
    """Which version this write is."""
    timeout: float = TIMEOUT_MS / 1000
    """So many seconds a commit is asked for."""
    given: frozenset[str] = frozenset()
    """The names of those that the program has given."""

    @property
    def client(self) -> Client:
        """A new client of the broker, which the caller closes."""
        return Client(self.endpoint, token=self.token, user=self.user, password=self.password,
                      tls_root_certs=self.tls_root_certs, timeout=min(CONNECT_SECONDS, self.timeout))


def _text(name: str, value: str) -> str:
    if not value:
        raise ValueError(f"option {name} is empty")
    return value


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        if value.lower() not in allowed:
            raise ValueError(f"option {name}={value!r}: allowed are {', '.join(allowed)}")
        return value.lower()

    return parse


def _number(least: int, most: int = (1 << 63) - 1) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            until = "on" if most >= 1 << 62 else f"to {most}"
            raise ValueError(f"option {name}={value!r}: allowed is a whole number from {least} {until}")
        return number

    return parse


def _flag(name: str, value: str) -> bool:
    return _one_of("true", "false")(name, value) == "true"


def _place(name: str, value: str) -> str | int:
    if value.lower() in ("earliest", "latest"):
        return value.lower()
    try:
        return _number(1)(name, value)
    except ValueError:
        raise ValueError(f"option {name}={value!r}: allowed are earliest, latest and an id from 1 on") from None


def _certificates(name: str, value: str) -> bytes:
    """The text of a certificate, or of the file that has it."""
    if value.lstrip().startswith("-----BEGIN"):
        return value.encode()
    try:
        return Path(value).read_bytes()
    except OSError as error:
        raise ValueError(f"option {name}={value!r} is neither a certificate (PEM) nor a file with one: {error}") from None


KNOWN: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "endpoint": ("endpoint", _text),
    "queue": ("queue", _text),
    "path": ("queue", _text),
    "address": ("address", lambda name, value: value),
    "token": ("token", _text),
    "user": ("user", _text),
    "password": ("password", _text),
    "tlsRootCerts": ("tls_root_certs", _certificates),
    "selector": ("selector", _text),
    "startingId": ("starting_id", _place),
    "endingId": ("ending_id", _number(1)),
    "maxOffsetsPerTrigger": ("rows_a_trigger", _number(1)),
    "minPartitions": ("partitions_min", _number(1, PARTS_ASKED_MAX)),
    "failOnDataLoss": ("fails_on_loss", _flag),
    "ack": ("acks", lambda name, value: _one_of(*ACKS)(name, value) == "commit"),
    "delivery": ("stages", lambda name, value: _one_of(*DELIVERIES)(name, value) == "exactly-once"),
    "txnAppId": ("txn_app_id", _text),
    "txnVersion": ("txn_version", _number(0)),
    "timeoutMs": ("timeout", lambda name, value: _number(1)(name, value) / 1000),
}
"""Each option: the field of `Options`, and what reads its text. `path` is what `save("queue")` and `load("queue")` give."""

SPARKS_OWN = ("checkpointlocation", "outputmode", "mergeschema", "recursivefilelookup")
"""Options that Spark itself reads, and hands on."""


def parsed(given: Mapping[str, str]) -> Options:
    """The options. Raises ValueError, which lists the known ones for an unknown one."""
    names = {name.lower(): name for name in KNOWN}
    found: dict[str, Any] = {}
    given_names = []
    for key, value in given.items():
        name = names.get(key.lower())
        if name is None and key.lower() in SPARKS_OWN:
            continue
        if name is None:
            raise ValueError(unknown("option", key, [known for known in KNOWN if known != "path"], names))
        given_names.append(name)
        field, parse = KNOWN[name]
        made = parse(name, value)
        if found.get(field, made) != made:
            raise ValueError(f"the queue is {found[field]!r} and {made!r}: give it once, as the option `queue` or as the path")
        found[field] = made
    for field, how in (("endpoint", '.option("endpoint", "grpc://HOST:PORT")'), ("queue", '.save("QUEUE") or .load("QUEUE")')):
        if field not in found:
            raise ValueError(f"the {field} is missing: say {how}")
    if "://" not in found["endpoint"]:
        raise ValueError(f"option endpoint={found['endpoint']!r}: expected grpc://HOST:PORT or grpc+tls://HOST:PORT")
    if ("user" in found) != ("password" in found):
        raise ValueError("options user and password belong together: give both, or a token")
    if "token" in found and "user" in found:
        raise ValueError("there are options token, and user and password: leave the token out, since the broker forgets it")
    return Options(**found, given=frozenset(given_names))


def as_texts(given: Mapping[str, Any]) -> dict[str, str]:
    """The options of a function as those of the data source, without those that are None.

    >>> as_texts({"address": None, "txnVersion": 7, "failOnDataLoss": False})
    {'txnVersion': '7', 'failOnDataLoss': 'false'}
    """
    return {name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in given.items() if value is not None}


def unknown(what: str, name: str, known: list[str], spelt: Mapping[str, str] | None = None) -> str:
    """The error text for a name that is not known."""
    close = difflib.get_close_matches(name.lower(), list(spelt or {one.lower(): one for one in known}), 1)
    meant = f"; did you mean {(spelt or {one.lower(): one for one in known})[close[0]]}?" if close else ""
    return f"unknown {what} {name!r}{meant} Known are {', '.join(known)}" if meant else (
        f"unknown {what} {name!r}; known are {', '.join(known)}")


def check_for(options: Options, reading: bool, streaming: bool = False) -> Options:
    """Raises ValueError for options that say nothing to a reader, or to a writer, and for pairs of which one is missing."""
    for name in WRITING if reading else READING:
        if name in options.given:
            raise ValueError(f"option {name} is for {'writing' if reading else 'reading'}")
    if streaming and options.acks and options.selector is not None:
        raise ValueError("ack=commit purges all messages up to an id, with a selector those too that the stream has not read: "
                         "leave one of them out, or have a selector of the engine copy what you want into a queue of its own")
    if streaming and reading and options.ending_id is not None:
        raise ValueError("option endingId is for a batch: a stream has no end")
    if reading and not streaming:
        for name in ("maxOffsetsPerTrigger", "ack", "failOnDataLoss"):
            if name in options.given:
                raise ValueError(f"option {name} is for a stream")
        if options.starting_id == "latest":
            raise ValueError("option startingId='latest' is for a stream: a batch would read nothing")
    if not reading:
        _check_transaction(options, streaming)
    return options


def _check_transaction(options: Options, streaming: bool) -> None:
    app, version = options.txn_app_id, options.txn_version
    if not options.stages and (app is not None or version is not None):
        raise ValueError("txnAppId and txnVersion are for delivery='exactly-once'")
    if streaming:
        if version is not None:
            raise ValueError("option txnVersion is for a batch: of a stream, it is the number of the micro-batch")
    elif (app is None) != (version is None):
        raise ValueError("txnAppId and txnVersion belong together: the application, and which of its writes this is")
