"""The fixture `xump_broker`, by the recipes of docs/testing.md, which run as the tests that they are."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = dict(re.findall(r"^```python\n# a test with (\w+)\n(.*?)^```$", (ROOT / "docs" / "testing.md").read_text(),
                          re.MULTILINE | re.DOTALL))
LIBRARIES = {"pika", "aio_pika", "celery", "kombu", "faststream", "dramatiq"}

CLEAN = """
import pika, pytest

@pytest.mark.parametrize("turn", range(5))
def test_nothing_of_another_test_is_there(xump_broker, turn):
    connection = pika.BlockingConnection(pika.URLParameters(str(xump_broker)))
    channel = connection.channel()
    channel.exchange_declare("news", "fanout")
    assert channel.queue_declare("jobs").method.message_count == 0
    channel.basic_publish("", "jobs", b"left")
    channel.basic_consume("jobs", lambda *_: None)
    assert "jobs" in xump_broker.engine.queues
    assert xump_broker.broker.connections and xump_broker.port in range(1, 65536) and xump_broker.host == "127.0.0.1"
    # it leaves its connection open
"""


def run(folder, name, code):
    """pytest on this file, apart, with the plugin and no other, and without the options of who tests."""
    file = f"test_{name}.py"
    Path(folder, file).write_text(code)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xump.pytest_plugin", "-p", "no:cacheprovider", file]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe(tmp_path, name):
    done = run(tmp_path, name, RECIPES[name])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_there_is_a_recipe_for_each_library():
    assert set(RECIPES) == LIBRARIES


def test_each_test_has_a_broker_of_its_own(tmp_path):
    done = run(tmp_path, "clean", CLEAN)
    assert done.returncode == 0 and "5 passed" in done.stdout, done.stdout + done.stderr


def test_pytest_finds_the_plugin_and_it_imports_nothing_of_the_broker():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"xump": "xump.pytest_plugin"}
    code = "import sys, xump.pytest_plugin; print([name for name in sys.modules if name.startswith(('xump.broker', 'pamqp'))])"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "[]\n"
