"""The first model of Freelance: a Lazy Pirate with a list of servers."""

from __future__ import annotations

from typing import Any

from xump.zeromq.lazy_pirate import Client


class OneAtATime(Client):
    """Asks one server after the other, until one answers.

    Args:
        endpoints: The servers. One that answered is asked first the next time.
        timeout: Seconds for each.
        rounds: How often each is asked.
        options: As for `xump.zeromq.LazyPirate`: `keys`, `context`.
    """

    def __init__(self, *endpoints: str, timeout: float = 1.0, rounds: int = 2, **options: Any) -> None:
        super().__init__(*endpoints, timeout=timeout, retries=rounds * max(1, len(endpoints)) - 1, **options)
