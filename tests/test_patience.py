"""What counts when a test polls with a limit (`patience.py`)."""

import os
from types import SimpleNamespace

import pytest

from tests import patience
from tests.patience import polls


@pytest.mark.parametrize(("takes", "times"), [(0.5, 4), (1.0, 2), (500.0, 2)])
def test_time_in_which_the_process_stands_still_does_not_count(monkeypatch, takes, times):
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + takes))
    monkeypatch.setattr(patience, "time", clock)
    assert len(list(polls(2, 0.5))) == times + 1


def test_what_waited_for_the_disk_is_still_seen(monkeypatch):
    came = []
    monkeypatch.setattr(os, "fsync", came.append)
    assert any(came for _ in polls(1, 0.01))
