"""Executors on two hosts, speculation among them: an attempt that loses leaves nothing."""

from tests.spark import cluster
from tests.spark.conftest import numbers


def test_a_speculative_attempt_wins_on_another_host(served, tmp_path):
    with cluster.running(tmp_path) as master:
        cluster.drive(master, "speculating", served.url, str(tmp_path), "10000")
    assert (tmp_path / "stopped 1-0").exists() and (tmp_path / "ended 1-1").exists(), "no second attempt was run"
    assert numbers(served.queue) == list(range(10_000))
    assert list(served.engine.queues) == ["q"]
