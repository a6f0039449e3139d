"""A kind of durable store, each in turn, alone or in a folder for two of them."""

import pytest

from tests.durability.log_in_memory import LOGS
from tests.durability.one_store import KINDS
from xump import Engine


@pytest.fixture(params=["ring", "lmdb"])
def kind(request):
    return request.param


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "stores"
    folder.mkdir()
    return folder


@pytest.fixture
def empty_shelves():
    LOGS.clear()


@pytest.fixture(params=KINDS)
def opened(request, tmp_path):
    """Opens engines over one store, `d`."""
    def opened(path="store"):
        engine = Engine()
        engine.create_store("d", request.param, path=str(tmp_path / path), **KINDS[request.param])
        return engine

    opened.kind, opened.path = request.param, tmp_path / "store"
    return opened
