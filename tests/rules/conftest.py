"""What the rules of time, order, duplicates and bounds are tested on."""

import pytest

import xump
from tests.model.engine import ModelEngine


class Compiled(xump.Engine):
    """The compiled engine. The model has no threads: what waits in one is begun here, and looked at later."""

    def publish_waiting(self, queue, address="", body=b"", headers=None, *, reply_to=None, message_id=None, **terms):
        terms = {name: terms.get(name) for name in ("correlation_id", "delay", "at", "ttl", "expires")} | {
            "priority": terms.get("priority", 0)}
        return self._publish_later([], lambda: None, queue, address, body, headers, reply_to, message_id, *terms.values())

    def request_waiting(self, queue, address="", body=b"", headers=None):
        return self._requested(queue, address, body, headers, lambda: None)


ENGINES = {"model": ModelEngine, "engine": Compiled}


@pytest.fixture(params=ENGINES)
def engine_of(request, clock):
    """Makes engines with the test's clock, whose laws hold at its end."""
    engines = []

    def engine_of(**options):
        engines.append(ENGINES[request.param](clock=clock, **options))
        return engines[-1]

    yield engine_of
    for engine in engines:
        engine.check()
        engine.close()


@pytest.fixture
def engine(engine_of):
    return engine_of()
