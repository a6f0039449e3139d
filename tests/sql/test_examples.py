"""Examples of docs/sql.md that need what the tests have not: FastAPI's names are stood in for, Alembic's operations are given."""

import inspect
import re
import sys
import types
import typing
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import MetaData, inspect as inspected, text

from tests.sql.conftest import count
from xump.sql import Outbox, check, init, tables

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


def test_fastapi(database, made, monkeypatch):
    [block] = [one for one in re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL) if "fastapi" in one]
    stand_in = types.ModuleType("fastapi")
    stand_in.FastAPI, stand_in.Depends, stand_in.Header = FastAPI, Depends, object
    monkeypatch.setitem(sys.modules, "fastapi", stand_in)
    with database.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS orders"))
        connection.execute(text("CREATE TABLE orders (id int)"))
    names = {"database": database}
    exec(compile(block, "docs/sql.md", "exec"), names)
    for key, number in (("a", 1), ("a", 1), ("b", 2)):
        assert names["app"].ask("/orders", {"idempotency-key": key}, number=number) == (201, {"number": number})
    with database.connect() as connection:
        assert connection.execute(text("SELECT id FROM orders ORDER BY id")).scalars().all() == [1, 2]
    assert count(database, made.outbox) == 2


def test_alembic(database):
    """What a migration does, with the connection that `op.get_bind()` gives; and what autogenerate compares."""
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
