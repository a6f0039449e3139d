"""A short run of the fuzzer, the same each time."""

from tests.amqp.fuzz import run


def test_mutated_frames_are_read_the_same_way_however_they_are_cut():
    assert run(seed=1, streams=2000) == 2000
