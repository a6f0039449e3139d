"""The live page in a browser without a window, and the description of the paths."""

import shutil
import subprocess

import pytest

from tests.broker.http.conftest import Client
from xump import always, deliver
from xump.broker import Broker
from xump.broker.http.routes import ROUTES

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(CHROMIUM is None, reason="left out: it needs Debian's package chromium")
def test_the_page_shows_queues_selectors_and_the_graph(engine, web, tmp_path):
    jobs = engine.create_queue("<b>jobs</b>")
    engine.create_selector(jobs, when=always, do=deliver("worker"), credit=1)
    jobs.publish("a", b"x")
    jobs.publish("b", b"y")
    shown = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--virtual-time-budget=3000",
         "--dump-dom", web.url], capture_output=True, text=True, check=True, timeout=120).stdout
    assert "&lt;b&gt;jobs&lt;/b&gt;" in shown and "<b>jobs</b>" not in shown
    assert "no credit left: 1 messages are not answered yet" in shown
    assert 'src="data:image/svg+xml' in shown and 'id="trouble" role="alert" hidden' in shown


def test_every_path_is_described_and_none_else(engine):
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        document = Client(broker.http.url)("GET", "/openapi.json").json
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in ROUTES}
    for methods in document["paths"].values():
        for operation in methods.values():
            assert operation["summary"].endswith((".", "it.", "before.", "durable."))
