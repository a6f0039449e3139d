"""What tests are run over: both engines, the model and the compiled one, with a clock that the test owns."""

import gc
import os
import shutil
import sys
import traceback
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings

from tests.left_threads import pytest_sessionfinish, pytest_unconfigure        # noqa: F401 (pytest finds them here)
from tests.model.engine import ModelEngine
from xump.errors import Closed

# How long a test takes says something about the machine, and nothing about Xump. A test draws the same examples each time; new
# ones are drawn by `make stress` and `make soak`, which print a seed.
settings.register_profile("xump", deadline=None, suppress_health_check=[HealthCheck.too_slow],
                          derandomize=not {"XUMP_RANDOM", "XUMP_STEPS"} & set(os.environ))
settings.load_profile("xump")

if sys.version_info < (3, 11, 8):
    # There two threads that parse at the same time may get a SystemError (python/cpython#106905). Pytest parses what failed and
    # what it rewrites; a thread that logs an exception parses each line of the traceback, only to underline a part of it.
    vars(traceback)["_extract_caret_anchors_from_line_segment"] = lambda segment: None


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """What a test wrote goes once it has passed and its fixtures have ended: all stores of all tests are 20 GB."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    path = getattr(item, "funcargs", {}).get("tmp_path")
    if call.when == "teardown" and path is not None and not item.stash.get(FAILED, False):
        shutil.rmtree(path, ignore_errors=True)     # else it goes with the folder of the whole run, as pytest does it
    return report


class Clock:
    """Stands still until a test moves it."""

    def __init__(self):
        self.now = 1_000_000_000_000

    def __call__(self):
        return self.now

    def tick(self, seconds=1):
        self.now += seconds * 1_000_000_000
        return self.now


@pytest.fixture
def no_garbage():
    """What earlier tests have left to the collector does not go, or say something, while this one counts."""
    gc.collect()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["model", "engine"])
def engine_class(request):
    if request.param == "model":
        return ModelEngine
    import xump

    return xump.Engine


@pytest.fixture
def make(engine_class, clock):
    """Makes engines; whatever a test did with them, their laws hold at its end."""
    engines = []

    def make(**options):
        engines.append(engine_class(clock=clock, **options))
        return engines[-1]

    yield make
    for engine in engines:
        with suppress(Closed):      # by the test
            engine.check()
        engine.close()


@pytest.fixture
def engine(make):
    return make()


@pytest.fixture(scope="module")
def rabbit():
    """The address of RabbitMQ, where it is installed."""
    from tests.broker import rabbitmq

    if not rabbitmq.is_installed():
        pytest.skip("left out: RabbitMQ is not installed (apt-get install rabbitmq-server)")
    with rabbitmq.running() as address:
        yield address
