"""The broker answers as RabbitMQ 3.10.8 does, frame by frame: to each script of `scripts.py`, what `answers.json` has.

Where RabbitMQ is installed, `test_the_answers_are_those_of_rabbitmq` asks it again.
"""

import json

import pytest

from tests.broker.raw_client import run
from tests.broker.record import recorded
from tests.broker.scripts import SCRIPTS
from tests.patience import PATIENCE

ANSWERS = recorded()


def test_each_script_has_an_answer():
    assert list(ANSWERS) == list(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_broker_answers_as_rabbitmq(broker, name):
    assert json.loads(json.dumps(run(SCRIPTS[name], broker.address))) == ANSWERS[name]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_answers_are_those_of_rabbitmq(rabbit, name):
    assert json.loads(json.dumps(run(SCRIPTS[name], rabbit, PATIENCE))) == ANSWERS[name]
