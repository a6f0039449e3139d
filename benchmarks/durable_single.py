"""A queue on the disk, message by message: each publish, and each ack, is on the disk when the call returns.
`python -m benchmarks.durable_single`.

100-byte bodies; all are published, then taken and acked one by one. Ours are in durability "sync": `publish` of an address, the
body and a fresh `{"k": "v"}`, then `take(1)`, whose body and header are read, and `ack`. The peers write the body alone: a log
that is appended to, with an fdatasync for each message and for each ack (`append_log`), and LMDB with a transaction for each
(`lmdb_by_hand`).

By far the most of it is waiting for the disk. Ratios are of rates, so more is better: bars are seven tenths of the peer's.

    python -m benchmarks.durable_single --once "ring, sync"         # one contestant, for profilers
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter_ns

from benchmarks.disk import data_directory, engine_on, fresh, parser_with_data
from benchmarks.durable_groups import ADDRESS, LMDB, LMDB_AS_OURS, LOG, Run, figures, print_halves
from benchmarks.harness import BODY, Contestant, compare, describe, speed_table, take_turns
from benchmarks.peers import append_log, lmdb_by_hand

BAR = 0.7
OWN = ("ring, sync", "lmdb, sync")
PEERS: dict[str, Run] = {LOG: append_log.run, LMDB: lmdb_by_hand.run, LMDB_AS_OURS: partial(lmdb_by_hand.run, metasync=False)}


def own(name: str, messages: int, directory: Path) -> dict[str, float]:
    """By the name of the row."""
    store, durability = name.split(", ")
    address, body, size = ADDRESS, BODY, 0
    with engine_on(fresh(directory), store, 1, durability=durability) as engine:
        publish, take = engine.publish, engine.take
        started = perf_counter_ns()
        for _ in range(messages):
            publish("jobs", address, body, {"k": "v"})
        between = perf_counter_ns()
        for _ in range(messages):
            (delivery,) = take(1)
            message = delivery.message
            size += len(message.body)
            message.headers["k"]
            delivery.ack()
        ended = perf_counter_ns()
        assert size == messages * len(body) and (durability == "process" or engine.queues["jobs"].durable_id == messages)
        assert engine.stats()["queues"]["jobs"]["settled"] == messages
    return figures((between - started, ended - between), messages)


def peer(name: str, messages: int, directory: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=directory) as place:
        return figures(PEERS[name](Path(place), BODY, messages, 1), messages)


def main() -> None:
    """Parse the command line and run."""
    parser = parser_with_data(__doc__)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--once", metavar="NAME", choices=OWN, help=f"one of ours, once, for profilers: {'; '.join(OWN)}")
    options = parser.parse_args()
    messages = 200 if options.quick else options.messages
    with data_directory(options.data) as directory:
        if options.once:
            print({half or "both": f"{took:.0f} ns" for half, took in own(options.once, messages, directory).items()})
            return
        describe("lmdb")
        given: dict[str, Contestant] = {name: partial(peer, name, messages, directory) for name in PEERS}
        given |= {name: partial(own, name, messages, directory) for name in OWN}
        times = take_turns(given, options.rounds)
    table = speed_table(width=10)
    print("  log: the limit, each message on the disk")
    compare(table, times, LOG, OWN[:1], BAR)
    print("  LMDB: a transaction for each message, on the disk")
    compare(table, times, LMDB, OWN[1:], BAR)
    print("  LMDB as ours: two fdatasyncs for each message")
    compare(table, times, LMDB_AS_OURS, OWN[1:], BAR)
    print_halves(times)


if __name__ == "__main__":
    main()
