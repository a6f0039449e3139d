"""Cold topic matching: our index, a C++ flat trie, a dict trie in Python. `python -m benchmarks.match`.

Workload W2: half of the patterns are addresses, three tenths have one `*`, two tenths are `prefix.#`; addresses have 3 to 5
words, five times as many as patterns, and messages draw them by Zipf's law. Nothing is remembered from one message to the
next, all candidates get every message, and their numbers of hits must agree. Both compiled candidates run in a compiled
loop, so no Python call is measured. Repeats are interleaved, in a new order each; the figures are medians.

    python -m benchmarks.match                                  # 10,000 and 300,000 patterns
    python -m benchmarks.match --patterns 10000 --repeat 9
    python -m benchmarks.match --instructions                   # counts of instructions a match, by valgrind's callgrind

Instruction counts do not depend on what else the machine does: they compare two versions where times are too noisy. They
say nothing of cache misses, which is what grows with the number of patterns.
"""

from __future__ import annotations

import argparse
import array
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

from benchmarks.peers import build
from xump_ext.match import MatchIndex

LEVELS = (50, 100, 200, 200, 200)  # words there are at each level, for 10,000 patterns


class Workload:
    """Patterns, and messages as one text with the ends of the addresses."""

    def __init__(self, patterns: int, messages: int) -> None:
        draw = random.Random(42)
        scale = (patterns / 10_000) ** 0.5  # so that as many of the prefixes have a pattern, whatever the size
        levels = [self.words(draw, int(count * scale)) for count in LEVELS]
        found: dict[str, None] = {}
        while len(found) < 5 * patterns:
            found[".".join(draw.choice(words) for words in levels[: draw.randint(3, 5)])] = None
        addresses = list(found)
        chosen = dict.fromkeys(draw.sample(addresses, patterns // 2))
        while len(chosen) < patterns * 8 // 10:
            words = draw.choice(addresses).split(".")
            words[draw.randrange(len(words))] = "*"
            chosen[".".join(words)] = None
        chosen.update(dict.fromkeys(word + ".#" for word in draw.sample(levels[0], len(levels[0]) * 4 // 10)))
        while len(chosen) < patterns:
            chosen[".".join(draw.choice(addresses).split(".")[:2]) + ".#"] = None
        self.patterns = draw.sample(list(chosen), patterns)
        weights = [1 / rank for rank in range(1, len(addresses) + 1)]
        self.messages = draw.choices(addresses, weights, k=messages)
        self.text = "".join(self.messages).encode()
        self.ends = array.array("N" if array.array("L").itemsize != 8 else "L")
        end = 0
        for address in self.messages:
            end += len(address.encode())
            self.ends.append(end)

    @staticmethod
    def words(draw: random.Random, count: int) -> list[str]:
        found: dict[str, None] = {}
        while len(found) < count:
            found["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(4, 8)))] = None
        return list(found)


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


def candidates(load: Workload, flat_trie: ModuleType, index_loop: ModuleType) -> dict[str, tuple[float, Callable[[], int]]]:
    """By name: the seconds that adding all patterns took, and a function that matches all messages and returns the hits."""
    started = perf_counter()
    index = MatchIndex()
    for item, pattern in enumerate(load.patterns):
        index.add("topic", pattern, item)
    index_s = perf_counter() - started
    print(f"  index: {sys.getsizeof(index) / len(load.patterns):.0f} bytes a pattern; {index.counts()}")

    started = perf_counter()
    flat = flat_trie.FlatTrie()
    for item, pattern in enumerate(load.patterns):
        flat.add(pattern.encode(), item)
    flat_s = perf_counter() - started

    started = perf_counter()
    trie = DictTrie()
    for item, pattern in enumerate(load.patterns):
        trie.add(pattern, item)
    trie_s = perf_counter() - started

    return {
        "C++ flat trie": (flat_s, lambda: flat.run(load.text, load.ends)),
        "Xump's match index": (index_s, lambda: index_loop.run(index, load.text, load.ends)),
        "dict trie in Python": (trie_s, lambda: sum(len(trie.match(address)) for address in load.messages)),
    }


def measure(patterns: int, messages: int, repeat: int) -> None:
    """Print a table for one size."""
    load = Workload(patterns, messages)
    print(f"{patterns:,} patterns, {messages:,} messages over {len(set(load.messages)):,} addresses, {repeat} repeats")
    rows = candidates(load, build("flat_trie"), build("index_loop"))
    took: dict[str, list[float]] = {name: [] for name in rows}
    hits = set()
    order = list(rows)
    for _ in range(repeat):
        random.shuffle(order)
        for name in order:
            started = perf_counter()
            hits.add(rows[name][1]())
            took[name].append(perf_counter() - started)
    assert len(hits) == 1, f"the candidates disagree: {hits}"
    print(f"  {hits.pop() / messages:.2f} hits a message")
    print(f"  {'':22} {'add all, s':>10} {'ns/message':>11} {'(min':>6} {'max)':>6} {'ratio':>6}")
    base = next(iter(rows))
    for name, (add_s, _) in rows.items():
        ns = [seconds / messages * 1e9 for seconds in took[name]]
        ratio = statistics.median(own / other for own, other in zip(took[name], took[base], strict=True))
        print(f"  {name:22} {add_s:10.2f} {statistics.median(ns):11.0f} {min(ns):6.0f} {max(ns):6.0f} {ratio:6.2f}")


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patterns", type=int, action="append", help="how many; may be given several times")
    parser.add_argument("--messages", type=int, help="how many (200,000; with --instructions 2,000)")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--instructions", action="store_true", help="count instructions instead of time; needs valgrind")
    parser.add_argument("--once", choices=["flat_trie", "index_loop"], help="one pass of one candidate, for profilers")
    options = parser.parse_args()
    sizes = options.patterns or ([10_000] if options.instructions else [10_000, 300_000])
    for patterns in sizes:
        if options.once:
            once(options.once, patterns, options.messages or 200_000)
        elif options.instructions:
            instructions(patterns, options.messages or 2_000)
        else:
            measure(patterns, options.messages or 200_000, options.repeat)


if __name__ == "__main__":
    main()
