"""The work of `xump consume`: threads take messages of a running broker, and run a command for each, or print it.

All of them end when one does with an error, and on SIGTERM or Ctrl-C: a message that is being worked on goes back to its queue.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

from xump.cli.answers import TAKEN
from xump.cli.exit import CommandError, ExitCode
from xump.cli.remote import Remote, message_of
from xump.cli.signals import on_signals

WAIT_SECONDS = 1.0
"""So long a request waits for a message; then the next one does, unless the command is to end. A request is not cut short for
that: it may have taken a message just then, which would come again only when its lease ends."""

LEASE_SECONDS = 60.0
"""So long the broker waits for an answer; a command that runs longer has it renewed."""


class Consuming:
    """The state that the threads share: how many messages may still be taken, whether to end, and the commands that run."""

    def __init__(self, count: int | None) -> None:
        """`count`: how many messages may be taken; None: any number."""
        self.ended = False
        """Whether to end."""
        self.interrupted = False
        """Whether it is a signal that ends it."""
        self._left = count
        self._running: set[subprocess.Popen[bytes]] = set()
        self._asking = 0
        self._lock = threading.Condition()

    def one(self) -> bool:
        """Whether one more message may be taken."""
        with self._lock:
            if self._left is not None:
                self._left -= 1
            return self._left is None or self._left >= 0

    @contextmanager
    def asking(self) -> Iterator[bool]:
        """A block that asks the broker for a message, unless the command is to end: then it is given False."""
        with self._lock:
            may = not self.ended
            self._asking += may
        try:
            yield may
        finally:
            with self._lock:
                self._asking -= may
                self._lock.notify_all()

    def interrupt(self) -> None:
        """End, because a signal has come."""
        self.interrupted = True
        self.end()

    def end(self) -> None:
        """Take no more messages, and kill the commands that run."""
        with self._lock:
            self.ended = True
            for process in self._running:
                process.kill()

    def before_return(self) -> None:
        """Wait, at the end, until no thread asks for a message: it would get the one that returns, which counts as a delivery."""
        with self._lock:
            self._lock.wait_for(lambda: not self.ended or not self._asking)

    def start(self, words: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start a command, which `end` kills until it is `done`. Raises OSError."""
        process = subprocess.Popen(words, stdin=subprocess.PIPE, env=variables)
        with self._lock:
            self._running.add(process)
            if self.ended:
                process.kill()
        return process

    def done(self, process: subprocess.Popen[bytes]) -> None:
        """Forget a command, which is killed if it still runs."""
        with self._lock:
            self._running.discard(process)
        process.kill()
        process.wait()


def consume(options: argparse.Namespace) -> ExitCode:
    """Carry out `xump consume`."""
    consuming = Consuming(options.count)
    with on_signals(consuming.interrupt), ThreadPoolExecutor(options.parallel) as pool:
        try:
            for done in as_completed([pool.submit(_work, options, consuming) for _ in range(options.parallel)]):
                done.result()
        finally:        # after an error; the pool waits for the other threads
            consuming.end()
    return ExitCode.INTERRUPTED if consuming.interrupted else ExitCode.OK


def _work(options: argparse.Namespace, consuming: Consuming) -> None:
    with Remote(options.broker) as broker:
        while consuming.one():
            taken = _take(broker, options, consuming)
            if taken is None:
                return
            ack = False
            try:
                if not consuming.ended:
                    ack = _run(broker, options, consuming, taken) if options.words else _show(taken)
            except BaseException:
                consuming.end()
                raise
            finally:
                if not ack:
                    consuming.before_return()
                broker.ask("POST", "deliveries", taken["delivery"], "ack" if ack else "nack")


def _take(broker: Remote, options: argparse.Namespace, consuming: Consuming) -> dict[str, Any] | None:
    """A message; None: none has come for as long as the command waits, or it is to end."""
    left = options.wait
    while True:
        wait = WAIT_SECONDS if left is None else min(WAIT_SECONDS, left)
        with consuming.asking() as may:
            if not may:
                return None
            found: list[dict[str, Any]] = broker.ask(
                "POST", "queues", options.queue, "take", wait=wait, lease=LEASE_SECONDS, like=TAKEN)
        if found:
            return found[0]
        if left is not None:
            left -= wait
            if left <= 0:
                return None


def _show(taken: dict[str, Any]) -> bool:
    print(json.dumps({name: value for name, value in taken.items() if name != "delivery"}), flush=True)
    return True


def _run(broker: Remote, options: argparse.Namespace, consuming: Consuming, taken: dict[str, Any]) -> bool:
    """Run the command. True: it ended with 0."""
    message = message_of(taken)
    variables = os.environ | {
        "XUMP_QUEUE": options.queue, "XUMP_ID": str(message.id), "XUMP_ADDRESS": message.address,
        "XUMP_DELIVERY_COUNT": str(message.delivery_count)}
    for name, value in message.headers.items():
        variables["XUMP_HEADER_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)] = (
            json.dumps(value) if isinstance(value, bool) else base64.b64encode(value).decode() if isinstance(value, bytes)
            else str(value))
    try:
        process = consuming.start(options.words, {name: value for name, value in variables.items() if "\0" not in value})
    except OSError as error:
        raise CommandError(f"{options.words[0]}: {error.strerror}") from None
    body: bytes | None = message.body
    try:
        while True:
            try:
                process.communicate(body, timeout=LEASE_SECONDS / 3)
                return process.returncode == 0
            except subprocess.TimeoutExpired:
                body = None
                broker.ask("POST", "deliveries", taken["delivery"], "renew")
    finally:
        consuming.done(process)
