"""Examples of docs/sql.md with FastAPI, Alembic and Celery, and with a table that you partition.

Where FastAPI and Alembic are not installed (they are in the extra `test`), what an example uses of them is stood in for.
"""

import asyncio
import importlib.util
import inspect
import re
import sys
import types
import typing
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import MetaData, create_engine, event, inspect as inspected, text

from tests.sql.conftest import count, until
from xump.sql import Inbox, Outbox, Tasks, check, init, tables

PAGE = Path(__file__).parent.parent.parent / "docs" / "sql.md"


class FastAPI:
    """Calls a function as FastAPI does: headers by the names of arguments, dependencies opened before and ended after."""

    def __init__(self):
        self.paths = {}

    def post(self, path, status_code):
        return lambda function: self.paths.setdefault(path, (function, status_code))[0]

    def ask(self, path, headers, **query):
        function, status = self.paths[path]
        named, opened = dict(query), []
        for name, parameter in inspect.signature(function).parameters.items():
            if isinstance(parameter.default, Depends):
                opened.append(contextmanager(parameter.default.function)())
                named[name] = opened[-1].__enter__()
            elif typing.get_origin(parameter.annotation) is typing.Annotated:
                named[name] = headers[name.replace("_", "-")]
        answer = function(**named)
        for one in opened:
            one.__exit__(None, None, None)
        return status, answer


class Depends:
    def __init__(self, function, scope):
        assert scope == "function"
        self.function = function


def block_with(word, kind="py"):
    blocks = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    [found] = [one for one in blocks if word in one]
    return compile(found, "docs/sql.md", "exec")


@pytest.fixture
def orders(database):
    with database.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS orders"))
        connection.execute(text("CREATE TABLE orders (id int)"))
    yield
    with database.begin() as connection:
        connection.execute(text("DROP TABLE orders"))


@pytest.mark.parametrize("fastapi", ["stand-in", *(["fastapi"] if importlib.util.find_spec("fastapi") else [])])
def test_fastapi(database, made, orders, monkeypatch, fastapi):
    if fastapi == "stand-in":
        stand_in = types.ModuleType("fastapi")
        stand_in.FastAPI, stand_in.Depends, stand_in.Header = FastAPI, Depends, object
        monkeypatch.setitem(sys.modules, "fastapi", stand_in)
    names = {"database": database}
    exec(block_with("fastapi"), names)

    def ask(key, number):
        if fastapi == "stand-in":
            return names["app"].ask("/orders", {"idempotency-key": key}, number=number)
        answer = asyncio.run(posted(names["app"], key, number))
        return answer.status_code, answer.json() if answer.is_success else None

    for key, number in (("a", 1), ("a", 1), ("b", 2)):
        assert ask(key, number) == (201, {"number": number})
    assert (there(database), count(database, made.outbox)) == ([1, 2], 2)
    if fastapi == "fastapi":            # the commit comes before the answer
        def fails(connection):
            raise RuntimeError("the disk is full")

        event.listen(database, "commit", fails)
        assert ask("c", 3) == (500, None)
        event.remove(database, "commit", fails)
        assert (there(database), count(database, made.outbox)) == ([1, 2], 2)


async def posted(app, key, number):
    import httpx

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        return await client.post("/orders", params={"number": number}, headers={"Idempotency-Key": key})


def there(database):
    with database.connect() as connection:
        return sorted(connection.execute(text("SELECT id FROM orders")).scalars())


@pytest.fixture
def logging_as_it_is():
    """Celery would set the level of the root logger for all tests that come."""
    from celery.signals import setup_logging

    def nothing(**named): ...

    setup_logging.connect(nothing)
    yield
    setup_logging.disconnect(nothing)


def test_celery(database, logging_as_it_is):
    """What the relay sent is run by a worker of Celery, and what comes twice has its effect once."""
    from celery.contrib.testing.worker import start_worker
    from kombu import Connection

    with Connection("memory://") as broker:         # one for the process: the test of the docs left a message there
        broker.default_channel.queue_purge("celery")
    inbox, ran = Inbox(), []
    names = {"database": database, "Outbox": Outbox, "init": init}
    exec(block_with("from celery", "python"), names)
    celery, to_celery = names["celery"], names["to_celery"]

    @celery.task(name="shop.confirm", bind=True, shared=False)
    def confirm(self, number):
        with database.begin() as connection, inbox.once(connection, source="celery", message_id=self.request.id) as fresh:
            ran.append((number, fresh))

    with database.begin() as connection:
        to_celery.publish(connection, "celery", "shop.confirm", b"[20]", message_id="confirm 20")
        connection.execute(names["celery_tables"].slot.update().values(until=0))        # the first relay has ended
        connection.execute(names["celery_tables"].relay.delete())
    assert to_celery.relay(names["ToCelery"](), engine=database).step() == 1
    with start_worker(celery, pool="solo", perform_ping_check=False, shutdown_timeout=60):
        until(lambda: len(ran) == 2)
    assert ran == [(20, True), (20, False)]
    names["celery_tables"].metadata.drop_all(database)


MIGRATION = """
import xump.sql
from alembic import op

revision, down_revision = "1", None

def upgrade():
    xump.sql.init(op.get_bind(), xump.sql.tables(prefix="migrated_"))

def downgrade():
    xump.sql.tables(prefix="migrated_").metadata.drop_all(op.get_bind())
"""
ENVIRONMENT = """
from alembic import context
from sqlalchemy import MetaData
from xump.sql import tables

target_metadata = MetaData()
tables(prefix="migrated_", metadata=target_metadata)
context.configure(connection=context.config.attributes["connection"], target_metadata=target_metadata)
with context.begin_transaction():
    context.run_migrations()
"""


def with_alembic(database, tmp_path, work):
    from alembic import command
    from alembic.config import Config

    (tmp_path / "versions").mkdir(exist_ok=True)
    (tmp_path / "env").with_suffix(".py").write_text(ENVIRONMENT)
    (tmp_path / "versions" / "first").with_suffix(".py").write_text(MIGRATION)
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    with database.begin() as connection:
        config.attributes["connection"] = connection
        work(command, config)


def alembic_finds_nothing_to_change(database, tmp_path):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with_alembic(database, tmp_path, lambda command, config: command.upgrade(config, "head"))
    mine = MetaData()
    made = tables(prefix="migrated_", metadata=mine)
    with database.begin() as connection:
        check(connection, made)
        Outbox(tables=made).publish(connection, "orders")
        ours = {"include_name": lambda name, kind, parents: kind != "table" or name.startswith("migrated_")}
        assert compare_metadata(MigrationContext.configure(connection, opts=ours), mine) == []
        # The comparison itself: without the tables in its metadata, Alembic would drop them.
        assert {each[1].name for each in compare_metadata(MigrationContext.configure(connection, opts=ours), MetaData())
                if each[0] == "remove_table"} == set(mine.tables)
    with_alembic(database, tmp_path, lambda command, config: command.downgrade(config, "base"))
    with database.begin() as connection:
        assert not [name for name in inspected(connection).get_table_names() if name.startswith("migrated_")]
        connection.execute(text("DROP TABLE alembic_version"))


def test_alembic(database, tmp_path):
    """The migration creates the tables, Alembic finds nothing to change then, and the downgrade takes them away."""
    if importlib.util.find_spec("alembic"):
        alembic_finds_nothing_to_change(database, tmp_path)


def test_what_a_migration_does(database):
    """With the connection that `op.get_bind()` gives; and what autogenerate compares."""
    mine = MetaData()
    made = tables(prefix="migrated_", metadata=mine)
    with database.begin() as bind:
        init(bind, made)
        check(bind, made)
        Outbox(tables=made).publish(bind, "orders")
    with database.connect() as connection:
        there = {name for name in inspected(connection).get_table_names() if name.startswith("migrated_")}
        assert there == set(mine.tables)
        for name in there:
            assert {column["name"] for column in inspected(connection).get_columns(name)} == set(mine.tables[name].columns.keys())
    with database.begin() as bind:
        made.metadata.drop_all(bind)
    with database.connect() as connection:
        assert not [name for name in inspected(connection).get_table_names() if name.startswith("migrated_")]


def test_partitions(postgres_url):
    """Finished tasks by month, in a table that was there before the others: kept, dead, revived and forgotten as in any other."""
    database = create_engine(postgres_url)
    made = tables(schema="by_month")
    [statements] = re.findall(r"^  ```sql\n(.*?)^  ```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    with database.begin() as connection:
        connection.execute(text("DROP SCHEMA IF EXISTS by_month CASCADE"))
        connection.execute(text("CREATE SCHEMA by_month"))
        connection.execute(text("SET LOCAL search_path = by_month"))
        connection.exec_driver_sql(statements)
        init(connection, made)
    tasks = Tasks(database, tables=made, keep=1000)
    tasks.task("fine")(str)
    tasks.task("own", transaction=True)(lambda connection: None)
    tasks.task("fails", max_attempts=1)(int)
    with database.begin() as connection:
        for name, payload in (("fine", []), ("own", []), ("fails", ["x"])):
            tasks.enqueue(connection, name, payload)
    assert tasks.worker().drain() == 2
    with database.begin() as connection:
        [dead] = tasks.dead(connection)
        assert len(tasks.revive(connection, [dead["id"]])) == 1
        in_2027 = 1_800_000_000_000_000
        connection.execute(made.done.update().values(finish_time=in_2027))
        assert connection.execute(text("SELECT count(*) FROM by_month.xump_task_done_2027_01")).scalar_one() == 2
        connection.execute(made.done.update().where(made.done.c.name == "own").values(finish_time=0))
    tasks.worker().drain()
    tasks.cleaner().step()
    with database.begin() as connection:
        assert sorted(connection.execute(text("SELECT name FROM by_month.xump_task_done")).scalars()) == ["fails", "fine"]
        connection.execute(text("DROP SCHEMA by_month CASCADE"))
    database.dispose()
