"""The HTTP description against the server: schemathesis makes requests out of it, and looks at the answers."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from schemathesis.specs.openapi.checks import positive_data_acceptance

from xump.broker.http.routes import ROUTES

MEANINGS = ("PUT /queues/{queue}", "POST /queues/{queue}", "PUT /webhooks/{webhook}", "POST /hub")
"""Where what fits the schema may still be refused: a URL that leads to this machine, properties that exclude each other."""


@pytest.mark.parametrize(("method", "path"), [(route.method, route.path) for route in ROUTES], ids=str)
def test_every_answer_is_as_described(engine, web, method, path):
    for name in ("a", "b"):
        engine.create_queue(name).publish("x")
    described = schemathesis.openapi.from_url(f"{web.url}openapi.json")[path][method]

    @settings(max_examples=20, deadline=None, derandomize=True, phases=[Phase.generate], database=None,
              suppress_health_check=list(HealthCheck))
    @given(described.as_strategy())
    def requests(case):
        case.call_and_validate(
            timeout=None, excluded_checks=[positive_data_acceptance] if f"{method} {path}" in MEANINGS else [])

    requests()
    engine.check()
