"""The pytest plugin: the fixture `xump_broker`, a broker of its own for each test.

pytest loads this module wherever Xump is installed, so it imports nothing before a test asks for the fixture.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xump.engine import Engine

STOP_SECONDS = 0.05
"""So long clients that a test has left open may take to answer at its end."""


@dataclass(frozen=True)
class RunningBroker:
    """A broker that runs in a thread of the test's process."""

    amqp_url: str
    """Where clients connect to: `amqp://guest:guest@127.0.0.1:PORT/`."""
    host: str
    """The host in it."""
    port: int
    """The port in it."""
    engine: Engine
    """The engine with the queues: look at `engine.stats()`, or publish beside the clients."""
    broker: Any
    """The `xump.broker.Broker` itself."""

    def __str__(self) -> str:
        return self.amqp_url


@pytest.fixture
def xump_broker() -> Iterator[RunningBroker]:
    """A broker for clients of RabbitMQ, with an engine of its own: nothing of one test is there in the next. It listens on a free
    port of this machine; `xump_broker.amqp_url` says which. Clients that the test leaves open are disconnected at its end."""
    from xump import Engine

    module = importlib.import_module("xump.broker")     # it needs the extra `broker`, which not everybody has
    with Engine(hop_limit=1024) as engine, module.Broker(engine, amqp="127.0.0.1:0") as broker:
        host, port = broker.address
        try:
            yield RunningBroker(f"amqp://guest:guest@{host}:{port}/", host, port, engine, broker)
        finally:
            broker.close(STOP_SECONDS)
