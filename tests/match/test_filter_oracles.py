"""Filters beside two oracles: an evaluator in plain Python, and SQLite."""

import sqlite3

from tests.match.filter_reference import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st

from xump import filters
from xump_ext.match.filter import Filter
from xump_ext.message.message import Message
from tests.match.filter_trees import any_trees, compiled, literals_of, messages, plain, text_of, typed_trees, written_trees


@settings(max_examples=800, deadline=None)
@given(any_trees(), messages, st.integers(0, 2**32 - 1))
def test_compiled_agrees_with_reference(tree, message, delivery_count):
    assert Filter(tree).evaluate_message(message, delivery_count) is evaluate(tree, message, delivery_count)


@settings(max_examples=300, deadline=None)
@given(written_trees, messages, st.randoms(use_true_random=False))
def test_text_is_read_back_as_its_tree(tree, message, chance):
    text = text_of(tree, chance)
    source, read = filters.compile(text)
    assert source == text
    assert repr(read) == repr(tree)         # 1 == 1.0 == True, but not as text
    assert Filter(read).evaluate_message(message) is evaluate(tree, message)


SQL_COLUMNS = {"n1": "number", "n2": "number", "f1": "number", "s1": "string", "s2": "string"}
small = st.integers(-20, 20) | st.sampled_from([0.5, -1.25, 3.0, 1e10])

sql_number = st.sampled_from([("header", name) for name, type in SQL_COLUMNS.items() if type == "number"]) | literals_of(small)
sql_string = st.sampled_from([("header", name) for name, type in SQL_COLUMNS.items() if type == "string"]) | literals_of(plain)
sql_flag = st.tuples(st.just("<"), sql_number, sql_number)
sql_trees = typed_trees(sql_number, sql_string, sql_flag, small, plain, st.nothing())
sql_headers = st.fixed_dictionaries({}, optional={
    name: small if type == "number" else plain for name, type in SQL_COLUMNS.items()
})
connection = sqlite3.connect(":memory:", check_same_thread=False)
connection.execute("PRAGMA case_sensitive_like = ON")


@settings(max_examples=300, deadline=None)
@given(sql_trees, sql_headers)
def test_sqlite_agrees(tree, headers):
    """Where the dialects agree: SQLite orders text, compares unlike types, has ints for bools, turns int overflow into a float
    and NaN into NULL, and lets an escape character stand before anything. None of that is in these trees."""
    text = text_of(tree)
    columns = ", ".join(f"? AS {name}" for name in SQL_COLUMNS)
    (answer,) = connection.execute(
        f"SELECT {text} FROM (SELECT {columns})", [headers.get(name) for name in SQL_COLUMNS]).fetchone()
    expected = None if answer is None else bool(answer)
    assert compiled(text).evaluate_message(Message(headers=headers)) is expected, text


@settings(max_examples=200, deadline=None)
@given(written_trees, messages)
def test_equalities_hold_for_all_that_is_selected(tree, message):
    if evaluate(tree, message) is True:
        for kind, name, value in filters.equalities(tree):
            assert evaluate(("=", (kind, name), ("literal", value)), message) is True
