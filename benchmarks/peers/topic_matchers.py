"""Libraries that match topics, and a dict that remembers: nanoseconds a message, over the workload of `benchmarks.match`. They
count hits, and have no queues.

    paho    the matcher of the MQTT client: a trie, in Python
    kombu   the topic exchange of its transports in memory: a regular expression for each pattern, all tried in turn
"""

from __future__ import annotations

from time import perf_counter_ns

from benchmarks.match import DictTrie, Workload


def dict_trie(load: Workload, *, remembers: bool) -> float:
    """Nested dicts; and with what was found for each address in another dict."""
    trie = DictTrie()
    for item, pattern in enumerate(load.patterns):
        trie.add(pattern, item)
    match, hits = trie.match, 0
    known: dict[str, list[int]] = {}
    started = perf_counter_ns()
    for address in load.messages:
        found = known.get(address)
        if found is None:
            found = match(address)
            if remembers:
                known[address] = found
        hits += len(found)
    return _done(started, hits, len(load.messages))


def paho(load: Workload) -> float:
    from paho.mqtt.matcher import MQTTMatcher

    matcher, hits = MQTTMatcher(), 0
    for item, pattern in enumerate(load.patterns):
        matcher[pattern.replace(".", "/").replace("*", "+")] = item
    addresses = [address.replace(".", "/") for address in load.messages]
    started = perf_counter_ns()
    for address in addresses:
        for _ in matcher.iter_match(address):
            hits += 1
    return _done(started, hits, len(addresses))


def kombu(load: Workload, count: int) -> float:
    from kombu.connection import Connection

    hits = 0
    with Connection("memory://") as connection:
        exchange = connection.default_channel.exchange_types["topic"]
        table = [exchange.prepare_bind(f"queue-{item}", "x", pattern, None) for item, pattern in enumerate(load.patterns)]
        exchange.lookup(table, "x", "a.b", None)        # compiles the expressions
        started = perf_counter_ns()
        for address in load.messages[:count]:
            hits += len(exchange.lookup(table, "x", address, None))
        return _done(started, hits, count)


def _done(started: int, hits: int, count: int) -> float:
    took = perf_counter_ns() - started
    assert hits > 0
    return took / count
