"""What it costs to recognise a publish that comes twice: the window of message ids. `python -m benchmarks.message_ids`.

The window is full: it remembers so many ids, the newest. Each publish looks for its id, a UUID as text of 36 bytes, adds it, and
the oldest is forgotten. Nanoseconds each, of the processor: on a busy machine, too, only what this thread did.

    new         ids that were never there
    fetched     the same, but the memory is fetched while the publish before is at work, as it can be while a message is made
    known       ids that are there, anywhere in the window: found, and nothing is added
    hash        the share of the hash, SipHash-1-3-128
    bytes       of memory an id, in all; of the peer without the texts, which the window does not keep either

The peer is an `OrderedDict` of texts in Python, whose hash of the text is known already.
"""

from __future__ import annotations

import random
import sys
import uuid
from collections import OrderedDict
from time import thread_time_ns
from typing import Any

from benchmarks.harness import Contestant, Table, describe, parser_of, take_turns, verdict
from benchmarks.peers import build

BAR_NS = 60
BAR_BYTES = 48
CALLS = 100_000


def new_ids(draw: random.Random, count: int) -> list[str]:
    return [str(uuid.UUID(int=draw.getrandbits(128))) for _ in range(count)]


class Full:
    """A window that is full, ours and the peer, and the ids that are in it."""

    def __init__(self, loop: Any, limit: int) -> None:
        self.draw = random.Random(limit)
        self.limit = limit
        self.window = loop.Loop(limit)
        self.peer: OrderedDict[str, int] = OrderedDict()
        self.ids = new_ids(self.draw, limit)
        self.window.published(self.ids)
        for number, id in enumerate(self.ids):
            self.peer[id] = number

    def ours(self) -> dict[str, float]:
        fresh = new_ids(self.draw, CALLS)
        new, known = self.window.published(fresh)
        assert known == 0
        ahead = new_ids(self.draw, CALLS)
        fetched, known = self.window.fetched(ahead)
        assert known == 0
        self.ids = (self.ids + fresh + ahead)[-self.limit :]
        old, known = self.window.published(self.draw.sample(self.ids, min(CALLS, self.limit)))
        assert known == min(CALLS, self.limit)
        hashed = self.window.hashed(fresh)
        return {
            "new": new / CALLS,
            "fetched": fetched / CALLS,
            "known": old / known,
            "hash": hashed / CALLS,
            "bytes": self.window.bytes_an_id(),
        }

    def theirs(self) -> dict[str, float]:
        fresh = new_ids(self.draw, CALLS)
        for id in fresh:
            hash(id)
        peer, limit = self.peer, self.limit
        started = thread_time_ns()
        for number, id in enumerate(fresh):
            if id not in peer:
                peer[id] = number
                if len(peer) > limit:
                    peer.popitem(last=False)
        new = thread_time_ns() - started
        known = self.draw.sample(list(peer), min(CALLS, limit))
        found = 0
        started = thread_time_ns()
        for id in known:
            if id in peer:
                found += 1
        old = thread_time_ns() - started
        return {"new": new / CALLS, "known": old / found, "bytes": sys.getsizeof(peer) / limit}


def main() -> None:
    """Parse the command line and run."""
    options = parser_of(__doc__).parse_args()
    loop = build("window_loop")
    contestants: dict[str, Contestant] = {}
    limits = (10_000, 100_000) if options.quick else (10_000, 100_000, 1_000_000, 4_000_000)
    for limit in limits:
        full = Full(loop, limit)
        contestants[f"xump {limit:,}"] = full.ours
        contestants[f"OrderedDict {limit:,}"] = full.theirs
    times = take_turns(contestants, options.rounds)
    describe()
    table = Table(32, "median", "min", "max", "bar", "")
    for name, took in times.items():
        middle = sorted(took)[len(took) // 2]
        cells = [f"{middle:.1f}", f"{min(took):.1f}", f"{max(took):.1f}"]
        bar = BAR_BYTES if name.endswith("bytes") else BAR_NS if name.endswith("fetched") else None
        if bar and name.startswith("xump"):
            cells += [str(bar), verdict(middle <= bar)]
        table.print(name, *cells)


if __name__ == "__main__":
    main()
