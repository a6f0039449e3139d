"""`python -m tests.broker.record` starts the RabbitMQ that is installed, and writes down what it answers to the scripts."""

import json
import sys
from pathlib import Path

from tests.broker import rabbitmq
from tests.broker.raw_client import run
from tests.broker.scripts import SCRIPTS

ANSWERS = Path(__file__).with_name("answers.json")


def recorded():
    return json.loads(ANSWERS.read_text())


def main():
    if not rabbitmq.is_installed():
        sys.exit("RabbitMQ is not installed: apt-get install rabbitmq-server")
    with rabbitmq.running() as address:
        answers = {}
        for name, script in SCRIPTS.items():
            try:
                answers[name] = run(script, address)
            except OSError as error:
                sys.exit(f"{name}: {error}")
    lines = [f"{json.dumps(name)}: [\n  " + ",\n  ".join(json.dumps(one) for one in said) + "]" for name, said in answers.items()]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
