"""`xump sql`, as processes: tables created, rows relayed, tasks run, workers started and ended, and SIGTERM."""

import signal
import subprocess
import sys

import pytest

import xump
from tests.sql.conftest import count, engine_of
from xump.broker import Broker
from xump.cli.main import main
from xump.sql import Outbox, Tasks

MODULE = """
from sqlalchemy import create_engine
from xump.sql import Tasks, configure_sqlite

tasks = Tasks(configure_sqlite(create_engine({url!r})))

@tasks.task()
def note(number):
    print("note", number, flush=True)
"""


def command(*arguments, cwd=None):
    return subprocess.Popen([sys.executable, "-m", "xump", "sql", *arguments], cwd=cwd, stdout=subprocess.PIPE, text=True)


def test_init_and_what_is_wrong(tmp_path, capsys):
    url = f"sqlite:///{tmp_path}/new.db"
    assert main(["sql", "relay", url, "amqp://localhost"]) == 1
    assert "there is no table xump_version" in capsys.readouterr().err
    assert main(["sql", "init", url]) == 0
    assert main(["sql", "init", url]) == 0
    for wrong, said in [(["init", "nonsense"], "URL"), (["relay", url, "file:///x"], "amqp://"),
                        (["init", "firebird://there/is/none"], "firebird"), (["init", "sqlite+aiosqlite://"], "is for asyncio"),
                        (["init", url, "--prefix", "A"], "prefix must"), (["worker", "there_is_no_such_module"], "No module"),
                        (["worker", ".x"], "no module"),
                        (["worker", ""], "no module")]:
        assert main(["sql", *wrong]) != 0
        assert said in capsys.readouterr().err


def test_a_worker(sqlite_url, tmp_path):
    (tmp_path / "shop_tasks").with_suffix(".py").write_text(MODULE.format(url=sqlite_url))
    database = engine_of(sqlite_url)
    with database.begin() as connection:
        for number in range(2):
            Tasks(database).enqueue(connection, "note", number)
    worker = command("worker", "shop_tasks:tasks", cwd=tmp_path)
    try:
        assert [worker.stdout.readline() for _ in range(3)] == ["Ready.\n", "note 0\n", "note 1\n"]
        worker.send_signal(signal.SIGTERM)
        assert worker.stdout.read() == "The worker has finished 2 tasks; 0 attempts failed.\n"
        assert worker.wait() == 0
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
    database.dispose()


def test_a_scaler(sqlite_url, tmp_path, made):
    """Its worker runs a task; it ends with its scaler."""
    (tmp_path / "shop_tasks").with_suffix(".py").write_text(MODULE.format(url=sqlite_url))
    database = engine_of(sqlite_url)
    with database.begin() as connection:
        Tasks(database).enqueue(connection, "note", 1)
    scaler = command("scaler", "shop_tasks", "--maximum", "2", "--concurrency", "3", cwd=tmp_path)
    try:
        assert sorted(scaler.stdout.readline() for _ in range(3)) == ["Ready.\n", "Ready.\n", "note 1\n"]
        assert count(database, made.worker, made.worker.c.places == 3) == 1
        scaler.send_signal(signal.SIGTERM)
        assert scaler.stdout.read() == "The worker has finished 1 tasks; 0 attempts failed.\n"
        assert scaler.wait() == 0
    finally:
        scaler.terminate()
        scaler.wait()
        scaler.stdout.close()
    assert count(database, made.worker) == 0
    database.dispose()


def test_a_relay(sqlite_url, made):
    database = engine_of(sqlite_url)
    with xump.Engine() as engine, Broker(engine, amqp="127.0.0.1:0") as broker:
        import pika

        host, port = broker.address
        url = f"amqp://guest:guest@{host}:{port}/%2F"
        connecting = pika.BlockingConnection(pika.URLParameters(url))
        channel = connecting.channel()
        channel.queue_declare("orders")
        with database.begin() as connection:
            Outbox().publish(connection, "orders", body=b"1")
        relay = command("relay", sqlite_url, url)
        try:
            body = next(body for _, _, body in channel.consume("orders", auto_ack=True))
            assert body == b"1"
            relay.send_signal(signal.SIGTERM)
            assert relay.wait() == 0
        finally:
            relay.kill()
            relay.wait()
            relay.stdout.close()
            connecting.close()
    assert count(database, made.outbox) == 0
    database.dispose()


@pytest.mark.parametrize("url", ["shop", "postgres://there/is/none"])
def test_a_url_that_is_none(url, capsys):
    assert main(["sql", "init", url]) == 2
    assert "write a URL such as sqlite:///file.db, or postgresql+psycopg://" in capsys.readouterr().err


def test_without_a_driver(sqlite_url, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "MySQLdb", None)
    assert main(["sql", "init", "mysql://there/is/none"]) != 0
    assert "the driver of mysql:// is not installed" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "pika", None)
    assert main(["sql", "relay", sqlite_url, "amqp://localhost"]) != 0
    assert "pip install pika" in capsys.readouterr().err


def test_without_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "xump.sql.commands", None)
    assert main(["sql", "init", "sqlite://"]) != 0
    assert "pip install 'xump[sql]'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["sql"])
