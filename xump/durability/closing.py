"""Syncs and closes durable stores together, and closes engines at the end of the interpreter.

A message that moves from one store to another is settled in the first only after it is durable in the second: a *fence* holds the
record of its end back until then. So to make everything durable takes rounds over all stores, until nothing waits behind a fence.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from xump.durability.committer import Committer, close_backend
from xump.errors import SyncTimeout

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.store_types import Store

logger = logging.getLogger("xump")

open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
"""The engines that were created and not closed."""

engines_with_stores: set[Engine] = set()
"""Those of them that have durable stores. They stay until they are closed, also if the program drops them: the end of the
interpreter closes and syncs their stores. Where a store has a thread, that would keep the engine anyway."""


def sync_stores(committers: list[Committer], timeout: float | None) -> None:
    """Return when everything that was gathered for these stores is durable. Raises SyncTimeout after `timeout` seconds.

    The last round begins when nothing waits behind a fence any more: what went on meanwhile, in the group of another thread, is
    written then, and this round waits for it. Records that join later do not count: other threads may go on.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    last = [(committer, committer.last_fenced) for committer in committers]
    again = True
    while again:
        again = any(committer.is_fenced(number) for committer, number in last)
        for committer in committers:
            if not committer.sync(deadline):
                raise SyncTimeout(f"not everything is durable after {timeout} seconds; store {committer.name!r} is busy")


def close_stores(
    stores: list[Store], committers: Callable[[], list[Committer]], broken: bool, errors: list[BaseException]
) -> None:
    """Write the last groups of some stores of an engine, and close them. Adds what goes wrong to `errors`.

    `committers` gives those of all stores of the engine. `broken`: the engine ran out of memory, so nothing more is written.
    """
    all_of_engine = committers()
    closing = [store.committer for store in stores if store.committer is not None]
    of_others: list[BaseException] = []
    for committer in closing:
        committer.stop()
        if broken:
            committer.mark_failed("the engine ran out of memory")
    while any(committer.fenced for committer in closing):
        for committer in all_of_engine:
            committer.flush(errors if committer in closing else of_others)
    # The others raise their errors at their own next call; but what ends the program ends this one.
    errors += [error for error in of_others if not isinstance(error, Exception)]
    for committer in closing if len(closing) > 1 else ():
        committer.flush(errors)         # each settles in its last group what the others have made durable
    for committer in closing:
        committer.finish(errors)
    for store in stores:
        if store.committer is None:
            close_backend(store.backend, errors)


def raise_first(errors: list[BaseException]) -> None:
    """Raise the first of the errors that occurred while stores were closed, if there is one. The others are logged.

    Ctrl-C, or what else is no `Exception`, comes before the errors."""
    errors = sorted(errors, key=lambda error: isinstance(error, Exception))
    for error in errors[1:]:
        logger.error("while stores were closed: %s", error, exc_info=error)
    if errors:
        raise errors[0]


@atexit.register
def _close_durable_engines() -> None:
    """When the interpreter ends, write what was gathered and not written yet."""
    errors: list[BaseException] = []
    for engine in list(engines_with_stores):
        try:
            engine.close()
        except BaseException as error:
            errors.append(error)
    raise_first(errors)


def _after_fork() -> None:
    engines_with_stores.clear()     # they are the parent's
    for engine in list(open_engines):
        engine._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
