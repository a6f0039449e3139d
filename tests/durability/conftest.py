"""A kind of durable store, each in turn, and a folder for two of them."""

import pytest


@pytest.fixture(params=["ring", "lmdb"])
def kind(request):
    return request.param


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "stores"
    folder.mkdir()
    return folder
