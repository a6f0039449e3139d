"""The broker's Arrow Flight listener: many messages at once, as columns.

    server.py       listens, and ends
    calls.py        the calls that are open; those of clients that say nothing any more end
    access.py       who may call what
    problems.py     errors as Flight says them
    put.py          publishes batches, and answers each when it is durable
    room.py         publishes as many rows as there is room for, and so on
    producers.py    batches that are sent again enter once
    browse.py       reads a queue by id, slice by slice
    take.py         takes messages with credit
    actions.py      the one table of the other calls
    staging.py      what becomes visible whole: stage, commit, abort
    decisions.py    what of that is remembered in the target
    leases.py       queues that last as long as somebody says so
    buffers.py      keeps the memory in which batches come and go
    entering.py     lets in step by step what was committed

docs/flight.md says what a client sends.
"""

from xump.broker.flight.buffers import import_pyarrow

import_pyarrow()
