"""Checks passwords beside the loop: to hash one takes tens of milliseconds, by intention, and others do not wait for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.broker.users import User, Users

CHECKS_MAX = 2
"""So many passwords are hashed at once; the others wait in line. Each takes a processor."""


class Passwords:
    """The threads that check passwords which were not right before."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pool = ThreadPoolExecutor(CHECKS_MAX, "xump-password")

    async def check(self, look: Callable[[Users], User | None], is_wanted: Callable[[], bool]) -> User | None:
        """The user that `look` finds among the users, in a thread; None, too, if the answer is not wanted any more once it is its
        turn. If the users change meanwhile, it looks again."""
        loop = asyncio.get_running_loop()
        while True:
            users = self._broker.users
            found = await loop.run_in_executor(self._pool, _looked, look, users, is_wanted)
            if users is self._broker.users:
                return found

    def stop(self) -> None:
        """Check no more. Those who wait are told nothing: their connections have ended."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _looked(look: Callable[[Users], User | None], users: Users, is_wanted: Callable[[], bool]) -> User | None:
    return look(users) if is_wanted() else None
