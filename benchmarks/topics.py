"""Topic routing, from publish to the queued copy: 10,000 patterns as COPY selectors. `python -m benchmarks.topics`.

The workload is that of `benchmarks.match`: addresses have 3 to 5 words, five times as many as patterns, and 200,000 messages
draw them by Zipf's law. The peer is a C++ flat trie with a cache of results, called once for each message from Python; it gives a
list of numbers, which are counted, and there its work ends. Ours publishes a message, which is matched, and copied into the
queues of the patterns that it matches: a queue for each pattern, or a hundred queues for all (a message gets into each once).

With 300,000 patterns there are 10,000 queues, or a hundred: what grows is the number of selectors.

    cold    nothing is remembered of any address
    warm    the same messages once more

    whole   with a body of 100 bytes and a fresh header
    bare    the address alone, which is what the peer gets
    many    whole ones by `publish_many`, 1,000 at a time

The number of copies is compared with the peer's hits. What waits in the queues is purged between the passes, not timed.
Ratios are of rates; the bars: half the peer's rate, and with 300,000 patterns two fifths of the rate with 10,000.
"""

from __future__ import annotations

from time import perf_counter, perf_counter_ns
from typing import Any

from benchmarks.harness import BODY, Contestant, Table, compare, describe, parser_of, speed, speed_table, take_turns, verdict
from benchmarks.match import Workload
from benchmarks.peers import build
from xump import Engine, copy_to, match

PEER_BAR = 0.5
GROWTH_BAR = 0.4
QUEUES_MAX = 10_000
SHARED = 100
MANY = 1_000


class Peer:
    """The flat trie."""

    def __init__(self, load: Workload) -> None:
        self.load = load
        self.trie = build("flat_trie").FlatTrie()
        for item, pattern in enumerate(load.patterns):
            self.trie.add(pattern.encode(), item)
        self.hits = sum(len(self.trie.match(address)) for address in load.messages)

    def once(self) -> float:
        match_cached, hits = self.trie.match_cached, 0
        started = perf_counter_ns()
        for address in self.load.messages:
            hits += len(match_cached(address))
        took = perf_counter_ns() - started
        assert hits == self.hits
        return took / len(self.load.messages)

    def __call__(self) -> dict[str, float]:
        self.trie.forget()
        return {"cold": self.once(), "warm": self.once()}


class Router:
    """An engine with a selector for each pattern."""

    def __init__(self, load: Workload, targets: int) -> None:
        self.load = load
        self.engine = Engine()
        started = perf_counter()
        with self.engine.building():
            self.engine.create_queue("topics")
            self.targets = [self.engine.create_queue(f"target-{number}") for number in range(targets)]
            for number, pattern in enumerate(load.patterns):
                self.engine.create_selector("topics", when=match("topic", pattern), do=copy_to(f"target-{number % targets}"))
        print(f"  {len(load.patterns):,} selectors and {targets:,} queues made in {perf_counter() - started:.2f} s", flush=True)

    def whole(self) -> None:
        body, publish = BODY, self.engine.publish
        for address in self.load.messages:
            publish("topics", address, body, {"k": "v"})

    def bare(self) -> None:
        publish = self.engine.publish
        for address in self.load.messages:
            publish("topics", address)

    def many(self) -> None:
        body, messages, publish_many = BODY, self.load.messages, self.engine.publish_many
        for start in range(0, len(messages), MANY):
            publish_many("topics", [(address, body, {"k": "v"}) for address in messages[start : start + MANY]])

    def forget(self) -> None:
        """What a queue remembers of addresses is forgotten when a copying selector comes or goes."""
        self.engine.create_selector("topics", when=match("eq", "nobody's"), do=copy_to("target-0")).delete()

    def timed(self, how: Any) -> float:
        """Nanoseconds a message; the copies are counted and purged."""
        started = perf_counter_ns()
        how()
        took = perf_counter_ns() - started
        self.copies = sum(queue.purge() for queue in self.targets)
        return took / len(self.load.messages)

    def passes(self, how: Any) -> dict[str, float]:
        self.forget()
        return {"cold": self.timed(how), "warm": self.timed(how)}


def measure(sizes: list[int], messages: int, rounds: int) -> None:
    """Both sizes take turns in one run."""
    contestants: dict[str, Contestant] = {}
    routers: list[tuple[Router, int, Peer]] = []
    for size in sizes:
        load = Workload(size, messages)
        peer = Peer(load)
        addresses = len(set(load.messages))
        hits = peer.hits / messages
        print(f"  {size:,} patterns, {messages:,} messages over {addresses:,} addresses, {hits:.2f} hits a message")
        contestants[f"{size:,} flat trie"] = peer
        most = min(size, QUEUES_MAX)
        for targets in (most, SHARED):
            router = Router(load, targets)
            routers.append((router, targets, peer))
            for how in ("whole", "bare", "many") if targets == most else ("whole",):
                name = f"{size:,} into {targets:,}, {how}"
                contestants[name] = lambda router=router, how=how: router.passes(getattr(router, how))
    times = take_turns(contestants, rounds)
    for router, targets, peer in routers:
        assert 0 < router.copies <= peer.hits and (targets < len(router.load.patterns) or router.copies == peer.hits)
        router.engine.check()
    table = speed_table()
    for size in sizes:
        for heat in ("cold", "warm"):
            names = [name for name in times if name.startswith(f"{size:,} into") and name.endswith(heat)]
            compare(table, times, f"{size:,} flat trie, {heat}", names, PEER_BAR)
    if len(sizes) > 1:
        smallest, largest = f"{sizes[0]:,}", f"{sizes[-1]:,}"
        print()
        table = Table(46, "ratio", "bar", "")
        for name in times:
            if name.startswith(f"{largest} into"):
                other = name.replace(largest, smallest)
                ratio = speed(times[name], times[other])
                table.print(f"{name} / {smallest}", f"{ratio:.2f}", f"{GROWTH_BAR:.1f}", verdict(ratio >= GROWTH_BAR))


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--patterns", type=int, action="append", help="how many; may be given several times")
    parser.add_argument("--messages", type=int, default=200_000)
    options = parser.parse_args()
    describe()
    sizes = options.patterns or ([10_000] if options.quick else [10_000, 300_000])
    measure(sizes, 20_000 if options.quick else options.messages, options.rounds)


if __name__ == "__main__":
    main()
