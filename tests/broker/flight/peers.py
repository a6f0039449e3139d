"""A client in a process of its own, that begins a call and then does nothing: `python -m tests.broker.flight.peers URL KIND`."""

import sys
import time

import pyarrow as pa
from pyarrow import flight

from xump.broker import Client

BATCH = pa.record_batch({"address": ["a", "b"]})
NUMBERED = b'{"queue": "full", "producer": "p", "sequence": 0}'
STAGE = b'{"stage": {"run": "run", "partition": 0, "attempt": 0, "target": "jobs"}}'


def begin(client, kind):
    """Begin the call, and return what keeps it open."""
    if kind in ("put", "blocked put"):
        writer, answers = client.do_put(flight.FlightDescriptor.for_path("jobs" if kind == "put" else "full"), BATCH.schema)
        writer.write_batch(BATCH)
        if kind == "put":
            answers.read()
        return writer, answers
    if kind in ("stage", "blocked numbered put"):
        command = STAGE if kind == "stage" else NUMBERED
        writer, answers = client.do_put(flight.FlightDescriptor.for_command(command), BATCH.schema)
        writer.write_batch(BATCH)
        return writer, answers
    ticket = {"browse": b"many", "take": b'{"take": {"queue": "jobs"}, "session": "s"}',
              "take much": b'{"take": {"queue": "many"}, "session": "s", "credit": 1000000}'}[kind]
    reader = client.do_get(flight.Ticket(ticket))
    reader.schema       # noqa: B018 - it has come when this returns
    return reader


def commit(url):
    """Stage, and ask for the commit."""
    with Client(url) as client:
        part = client.stage("run", 0, 0, "jobs", BATCH)
        print("begun", flush=True)
        client.commit("run", "jobs", [part])


if __name__ == "__main__":
    if sys.argv[2] == "commit":
        commit(sys.argv[1])
    kept = begin(flight.connect(sys.argv[1]), sys.argv[2])
    print("begun", flush=True)
    time.sleep(600)
