"""What is logged once when messages get lost that were perhaps not meant to."""

import logging

import pytest

from tests.rules.seen import stats, worker
from xump import Engine, discard, match


@pytest.fixture
def warned(caplog):
    caplog.set_level(logging.WARNING, "xump")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "xump"]


def test_a_dead_letter_queue_that_does_not_exist_is_named_once(warned):
    with Engine() as engine:
        engine.create_queue("jobs", dead_letter="daed")
        worker(engine, "jobs")
        for _ in range(2):
            engine.publish("jobs", "a")
            [delivery] = engine.take(1)
            delivery.reject()
        assert warned() == [
            "queue 'jobs' dropped a message (rejected), since its dead letter queue 'daed' does not exist: create that queue, or "
            "set another dead_letter; further drops are only counted"]
        assert stats(engine, "jobs")["dropped"] == {"rejected": 2}
        engine.create_queue("daed")
        engine.publish("jobs", "a")
        engine.take(1)[0].reject()
        assert engine.queues["daed"].ready == 1


@pytest.mark.parametrize("options, exists", [({}, False), ({"dead_letter": "jobs"}, False), ({"dead_letter": "dead"}, True)])
def test_none_is_warned_of_where_none_is_missing(warned, options, exists):
    with Engine() as engine:
        engine.create_queue("jobs", **options)
        if exists:
            engine.create_queue("dead")
        worker(engine, "jobs")
        engine.publish("jobs", "a")
        engine.take(1)[0].reject()
        assert warned() == []


def test_what_no_selector_matches_is_warned_of_once_not_twice(warned):
    with Engine() as engine:
        engine.create_queue("jobs", dead_letter="daed")
        engine.create_selector("jobs", when=match("eq", "b"), do=discard)
        engine.publish("jobs", "a")
        assert len(warned()) == 1 and "no selector matches it" in warned()[0]
