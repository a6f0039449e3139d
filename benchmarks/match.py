"""Cold topic matching: our index, a C++ flat trie, a dict trie in Python. `python -m benchmarks.match`.

Workload W2: half of the patterns are addresses, three tenths have one `*`, two tenths are `prefix.#`; addresses have 3 to 5
words, five times as many as patterns, and messages draw them by Zipf's law. With 10,000 patterns and 200,000 messages these are
28,765 addresses, and 1.09 patterns match a message. Nothing is remembered from one message to the next, all candidates get every
message, and their numbers of hits must agree. Both compiled candidates run in a compiled loop, so no Python call is measured.

    python -m benchmarks.match                                  # 10,000 and 300,000 patterns
    python -m benchmarks.match --patterns 10000 --rounds 9
    python -m benchmarks.match --instructions                   # counts of instructions a match, by valgrind's callgrind

Instruction counts do not depend on what else the machine does: they compare two versions where times are too noisy. They
say nothing of cache misses, which is what grows with the number of patterns.
"""

from __future__ import annotations

import array
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from string import ascii_lowercase
from time import perf_counter, perf_counter_ns
from typing import Any

from benchmarks.harness import compare, describe, parser_of, speed_table, take_turns
from benchmarks.peers import build
from xump_ext.match.pattern_index import MatchIndex

LEVELS = (50, 100, 200, 200, 200)  # words there are at each level, for 10,000 patterns


class Workload:
    """Patterns, and messages as one text with the ends of the addresses. The same each time, for a number of patterns."""

    def __init__(self, patterns: int, messages: int) -> None:
        draw = random.Random(42)
        scale = (patterns / 10_000) ** 0.5  # so that as many of the prefixes have a pattern, whatever the size
        words = self.words(draw)
        levels = [[next(words) for _ in range(int(count * scale))] for count in LEVELS]
        found: dict[str, None] = {}
        while len(found) < 5 * patterns:
            found[".".join(draw.choice(words) for words in levels[: draw.randint(3, 5)])] = None
        addresses = list(found)
        chosen = dict.fromkeys(draw.sample(addresses, patterns // 2))
        while len(chosen) < patterns * 8 // 10:
            parts = draw.choice(addresses).split(".")
            parts[draw.randrange(len(parts))] = "*"
            chosen[".".join(parts)] = None
        chosen.update(dict.fromkeys(word + ".#" for word in draw.sample(levels[0], len(levels[0]) * 4 // 10)))
        while len(chosen) < patterns:
            chosen[".".join(draw.choice(addresses).split(".")[:2]) + ".#"] = None
        self.patterns = list(chosen)
        draw.shuffle(self.patterns)
        weights = accumulate(1 / rank for rank in range(1, len(addresses) + 1))
        self.messages = draw.choices(addresses, cum_weights=list(weights), k=messages)
        self.text = "".join(self.messages).encode()
        self.ends = array.array("N" if array.array("L").itemsize != 8 else "L")
        end = 0
        for address in self.messages:
            end += len(address.encode())
            self.ends.append(end)

    @staticmethod
    def words(draw: random.Random) -> Iterator[str]:
        """Each only once."""
        made = set()
        while True:
            word = "".join(draw.choice(ascii_lowercase) for _ in range(draw.randint(4, 8)))
            if word not in made:
                made.add(word)
                yield word


class DictTrie:
    """Nested dicts, level by level: what a Python programmer writes who wants it fast. Nodes are [children, here, tail]."""

    def __init__(self) -> None:
        self.root: list[Any] = [{}, [], []]

    def add(self, pattern: str, item: int) -> None:
        node = self.root
        for word in pattern.split("."):
            if word == "#":
                node[2].append(item)
                return
            node = node[0].setdefault(word, [{}, [], []])
        node[1].append(item)

    def match(self, address: str) -> list[int]:
        hits: list[int] = []
        level = [self.root]
        for word in address.split("."):
            below = []
            for children, _, tail in level:
                hits += tail
                if "*" in children:
                    below.append(children["*"])
                if word in children:
                    below.append(children[word])
            level = below
        for _, here, tail in level:
            hits += tail
            hits += here
        return hits


def candidates(load: Workload) -> tuple[dict[str, float], dict[str, Callable[[], int]]]:
    """The seconds that adding all patterns took, and functions that match all messages and return the hits."""
    added = {}

    def add_all(name: str, add: Callable[[str, int], object]) -> None:
        started = perf_counter()
        for item, pattern in enumerate(load.patterns):
            add(pattern, item)
        added[name] = perf_counter() - started

    index, flat, trie, loop = MatchIndex(), build("flat_trie").FlatTrie(), DictTrie(), build("index_loop")
    add_all("C++ flat trie", lambda pattern, item: flat.add(pattern.encode(), item))
    add_all("Xump's match index", lambda pattern, item: index.add("topic", pattern, item))
    add_all("dict trie in Python", trie.add)
    print(f"  index: {sys.getsizeof(index) / len(load.patterns):.0f} bytes a pattern; {index.counts()}")
    matched = {
        "C++ flat trie": lambda: flat.run(load.text, load.ends),
        "Xump's match index": lambda: loop.run(index, load.text, load.ends),
        "dict trie in Python": lambda: sum(len(trie.match(address)) for address in load.messages),
    }
    return added, matched


def measure(patterns: int, messages: int, rounds: int) -> None:
    """Print a table for one size."""
    load = Workload(patterns, messages)
    added, matched = candidates(load)
    hits = set()

    def contestant(match_all: Callable[[], int]) -> Callable[[], float]:
        def timed() -> float:
            started = perf_counter_ns()
            found = match_all()
            took = perf_counter_ns() - started
            hits.add(found)
            return took / messages

        return timed

    times = take_turns({name: contestant(match_all) for name, match_all in matched.items()}, rounds)
    assert len(hits) == 1, f"the candidates disagree: {hits}"
    addresses = len(set(load.messages))
    each = hits.pop() / messages
    print(f"  {patterns:,} patterns, {messages:,} messages over {addresses:,} addresses, {each:.2f} hits a message")
    print(f"  seconds to add all: {', '.join(f'{name} {took:.2f}' for name, took in added.items())}")
    compare(speed_table(), times, "C++ flat trie", [name for name in times if name != "C++ flat trie"], None)


def instructions(patterns: int, messages: int) -> None:
    """Print the instructions of one match: the compiled loop, run once under callgrind, divided by its messages."""
    for name, function in (("flat_trie", "FlatTrie_*run"), ("index_loop", "index_loop_*run")):
        with tempfile.TemporaryDirectory() as directory:
            command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={directory}/out", "--collect-atstart=no",
                       f"--toggle-collect=__pyx_pw_*{function}*", sys.executable, "-m", "benchmarks.match",
                       "--once", name, "--patterns", str(patterns), "--messages", str(messages)]  # fmt: skip
            subprocess.run(command, check=True, capture_output=True)
            counted = re.search(r"^(?:summary|totals): (\d+)", Path(directory, "out").read_text(), re.MULTILINE)
            assert counted is not None
            print(f"{name:12} {patterns:8,} patterns: {int(counted[1]) / messages:6.0f} instructions a match")


def once(name: str, patterns: int, messages: int) -> None:
    """One pass of one compiled loop, for profilers."""
    load = Workload(patterns, messages)
    if name == "flat_trie":
        trie = build("flat_trie").FlatTrie()
        for item, pattern in enumerate(load.patterns):
            trie.add(pattern.encode(), item)
        trie.run(load.text, load.ends)
    else:
        index = MatchIndex()
        for item, pattern in enumerate(load.patterns):
            index.add("topic", pattern, item)
        build("index_loop").run(index, load.text, load.ends)


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--patterns", type=int, action="append", help="how many; may be given several times")
    parser.add_argument("--messages", type=int, help="how many (200,000; with --instructions 2,000)")
    parser.add_argument("--instructions", action="store_true", help="count instructions instead of time; needs valgrind")
    parser.add_argument("--once", choices=["flat_trie", "index_loop"], help="one pass of one candidate, for profilers")
    options = parser.parse_args()
    sizes = options.patterns or ([10_000] if options.instructions or options.quick else [10_000, 300_000])
    messages = options.messages or (2_000 if options.instructions else 20_000 if options.quick else 200_000)
    if not options.once:
        describe()
    for patterns in sizes:
        if options.once:
            once(options.once, patterns, messages)
        elif options.instructions:
            instructions(patterns, messages)
        else:
            measure(patterns, messages, options.rounds)


if __name__ == "__main__":
    main()
