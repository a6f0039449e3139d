"""Arrow Flight beside bare Flight: publishing, and reading by id. `python -m benchmarks.flight`.

- Put: batches of 10,000 rows (address, 100 bytes, a header) into a Wolfpack in RAM of two recipients, each answered, eight under
  way, beside a bare server that counts rows and answers. Bar: 0.3 of its rate.
- Get: 1,000,000 messages of a queue in RAM by `do_get`, beside a bare server that yields the same batches, which it has ready.
  Bar: 0.3 of its rate.

Each server is a process of its own; the client is pyarrow's.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter_ns

import pyarrow
from pyarrow import flight

from benchmarks.harness import BODY, compare, describe, parser_of, speed_table, take_turns

BATCH = 10_000
WINDOW = 8
READ = 1_000_000
CREDIT = "1000"

SERVER = """
import sys
import xump, pyarrow
from xump import Wolfpack
from xump.broker import Broker

with xump.Engine() as engine:
    pack = Wolfpack(engine, "jobs")
    for name in ("one", "two"):
        pack.join(name, credit=int(sys.argv[1]))
    many = engine.create_queue("many")
    BATCHES
    with Broker(engine, "127.0.0.1:0", flight="grpc://127.0.0.1:0") as broker:
        print(broker.flight.url, flush=True)
        sys.stdin.read()
"""
BARE = """
import sys
import xump, pyarrow
from pyarrow import flight
from xump_ext.arrow.browse import browse_slice

with xump.Engine() as engine:
    many = engine.create_queue("many")
    BATCHES
    ready, at = [], 1
    while at is not None:
        found, at = browse_slice(engine, many, at, 0, None, None, False, 2048, 1 << 20, 1 << 14, True)
        ready.append(pyarrow.record_batch(found))

class Server(flight.FlightServerBase):
    rows = 0

    def do_put(self, context, descriptor, reader, writer):
        for chunk in reader:
            self.rows += chunk.data.num_rows
            writer.write(pyarrow.py_buffer(b'{"rows": 10000, "first": 1, "last": 10000}'))

    def do_get(self, context, ticket):
        return flight.GeneratorStream(ready[0].schema, iter(ready))

    def do_action(self, context, action):
        return []

server = Server("grpc://127.0.0.1:0")
print(f"grpc://127.0.0.1:{server.port}", flush=True)
sys.stdin.read()
"""
FILL = """rows = pyarrow.table({"address": ["jobs.new"] * 10_000, "body": [bytes(100)] * 10_000,
                          "headers": [{"n": n} for n in range(10_000)]})
    for _ in range(ROWS // 10_000):
        engine.publish_batch(many, rows)"""


@contextmanager
def process(code: str, rows: int) -> Iterator[flight.FlightClient]:
    """A server; a client of it."""
    code = code.replace("BATCHES", FILL.replace("ROWS", str(rows)))
    command = [sys.executable, "-c", code, CREDIT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield flight.connect(server.stdout.readline().strip())
        finally:
            server.kill()


def put(client: flight.FlightClient, batch: pyarrow.RecordBatch, count: int) -> float:
    """Nanoseconds a row."""
    begun = perf_counter_ns()
    writer, answers = client.do_put(flight.FlightDescriptor.for_path("jobs"), batch.schema)
    for sent in range(count):
        writer.write_batch(batch)
        if sent >= WINDOW:
            answers.read()
    for _ in range(min(count, WINDOW)):
        answers.read()
    writer.close()
    taken = (perf_counter_ns() - begun) / (count * batch.num_rows)
    list(client.do_action(flight.Action("purge", b'{"name": "jobs"}')))
    return taken


def get(client: flight.FlightClient, rows: int) -> float:
    """Nanoseconds a row."""
    begun = perf_counter_ns()
    found = sum(chunk.data.num_rows for chunk in client.do_get(flight.Ticket(b"many")))
    taken = (perf_counter_ns() - begun) / rows
    if found != rows:
        raise RuntimeError(f"{found} rows came, and {rows} are there")
    return taken


def main(arguments: list[str] | None = None) -> None:
    options = parser_of(__doc__).parse_args(arguments)
    rows = READ // 10 if options.quick else READ
    describe("pyarrow")
    batch = pyarrow.record_batch({
        "address": ["jobs.new"] * BATCH, "body": [BODY] * BATCH, "headers": [{"n": n} for n in range(BATCH)]})
    with ExitStack() as servers:
        clients = {name: servers.enter_context(process(code, rows)) for name, code in (("xump", SERVER), ("bare flight", BARE))}
        table = speed_table()
        puts = take_turns({name: partial(put, client, batch, rows // BATCH) for name, client in clients.items()}, options.rounds)
        print("  put: batches of 10,000 rows into a Wolfpack")
        compare(table, puts, "bare flight", ["xump"], 0.3)
        gets = take_turns({name: partial(get, client, rows) for name, client in clients.items()}, options.rounds)
        print("  get: a queue by id")
        compare(table, gets, "bare flight", ["xump"], 0.3)


if __name__ == "__main__":
    main()
