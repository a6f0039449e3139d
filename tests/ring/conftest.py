import pytest

from tests.ring.ring_faults import Quick
from xump.stores import ring_disk


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Syncs take no time."""
    monkeypatch.setattr(ring_disk, "os", Quick())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.ring"
