"""Celery and kombu against the broker, by command: `python -m tests.broker.celery_app`. The tests do not require
them: `pip install celery`.

It starts a broker and a worker, runs tasks with results over `rpc://`, a retry, a group, tasks for later beyond the prefetch, and
kombu's SimpleQueue, and says how long each took.
"""

import os
import subprocess
import sys
import time

URL = "XUMP_BROKER_URL"


def application():
    import celery

    app = celery.Celery("tests.broker.celery_app", broker=os.environ.get(URL, "memory://"), backend="rpc://")
    app.conf.update(task_acks_late=True, worker_prefetch_multiplier=2, task_default_queue="celery", result_expires=60)

    @app.task(name="add")
    def add(one, two):
        return one + two

    @app.task(name="flaky", bind=True, max_retries=3)
    def flaky(self):
        if self.request.retries < 2:
            raise self.retry(countdown=0.1)
        return self.request.retries

    return app


if os.environ.get(URL):
    app = application()


def timed(what, count, do):
    started = time.perf_counter()
    do()
    print(f"{what}: {count} in {time.perf_counter() - started:.2f} s", flush=True)


def check(app, url):
    import celery
    import kombu

    add, flaky = app.tasks["add"], app.tasks["flaky"]

    def many():
        results = [add.delay(number, 1) for number in range(1000)]
        assert [result.get(timeout=60) for result in results] == [number + 1 for number in range(1000)]

    def later():
        results = [add.apply_async((number, 1), countdown=1) for number in range(50)]
        assert [result.get(timeout=60) for result in results] == [number + 1 for number in range(50)]

    def simple():
        with kombu.Connection(url) as connection, connection.SimpleQueue("simple") as queue:
            for number in range(100):
                queue.put({"number": number})
            for number in range(100):
                message = queue.get(timeout=60)
                assert message.payload == {"number": number}
                message.ack()

    timed("tasks", 1000, many)
    timed("a group", 100, lambda: celery.group(add.s(number, 1) for number in range(100)).apply_async().get(timeout=60))
    timed("retries", 1, lambda: flaky.delay().get(timeout=60))
    timed("tasks for later, beyond the prefetch", 50, later)
    timed("kombu's SimpleQueue", 100, simple)


def main():
    import xump
    from xump.broker import Broker

    given = sys.argv[1] if len(sys.argv) > 1 else None
    with xump.Engine(hop_limit=1024) as engine, Broker(engine, amqp="127.0.0.1:0") as broker:
        url = given or f"amqp://guest:guest@{broker.address[0]}:{broker.address[1]}//"
        os.environ[URL] = url
        worker = subprocess.Popen([
            sys.executable, "-m", "celery", "-A", "tests.broker.celery_app", "worker", "--concurrency", "2", "--loglevel",
            "WARNING"])
        try:
            check(application(), url)
        finally:
            worker.terminate()
            worker.wait(60)
        engine.check()


if __name__ == "__main__":
    main()
