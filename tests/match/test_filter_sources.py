"""Filters from dicts and callables; their memory and threads."""

import contextlib
import doctest
import gc
import pickle
import random
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from tests.match.filter_reference import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st

import xump_ext.match.filter
import xump_ext.match.filter_layout
from xump import filters
from xump.conditions import match, where
from xump.errors import InvalidFilter
from xump_ext.match.filter import Filter
from xump_ext.message.message import Message
from tests.match.filter_trees import compiled, messages, names, values


def test_mapping():
    source, tree = filters.compile({"region": "EU", "tier": ["gold", "silver"], "n": (1, 2.5, True, b"x")})
    assert dict(source) == {"region": "EU", "tier": ("gold", "silver"), "n": (1, 2.5, True, b"x")}
    assert filters.equalities(tree) == [("header", "region", "EU")]
    eu = Filter(tree)
    assert eu.evaluate_message(Message(headers={"region": "EU", "tier": "gold", "n": True})) is True
    assert eu.evaluate_message(Message(headers={"region": "EU", "tier": "lead", "n": 1})) is False
    assert eu.evaluate_message(Message(headers={"region": "EU", "tier": "gold"})) is None
    assert repr(where({"a": [1]})) == "where({'a': (1,)})"


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(names, values | st.lists(values, min_size=1, max_size=4), min_size=1, max_size=4), messages)
def test_mapping_means_equality_of_all(mapping, message):
    try:
        tree = filters.compile(mapping)[1]
    except InvalidFilter as error:
        assert "nan" in str(error)
        return
    wanted = [(name, value if isinstance(value, list) else [value]) for name, value in mapping.items()]
    expected = all(any(evaluate(("=", ("header", name), ("literal", v)), message) for v in values) for name, values in wanted)
    assert (Filter(tree).evaluate_message(message) is True) == expected


def test_mappings_are_equal_if_they_select_the_same():
    def form(mapping):
        return filters.compile(mapping)[0]

    assert form({"a": 1, "b": [1, 2]}) == form({"b": {2, 1}, "a": (1.0,)})
    assert hash(form({"a": 1, "b": [1, 2]})) == hash(form({"b": {2, 1}, "a": 1.0}))
    assert form({"a": 1}) != form({"a": True})
    assert form({"a": "x"}) != form({"a": b"x"})
    assert form({"a": [1, 2]}) != form({"a": [1]})
    assert form({"a": 1}) != {"a": 1}
    assert form({"a": {"y", "x", 3, b"z", False}}) == form({"a": {False, b"z", 3, "x", "y"}})
    assert list(form({"a": {"y", "x", "w"}})[0][1]) == ["w", "x", "y"]
    assert pickle.loads(pickle.dumps(form({"a": [1, "x"]}))) == form({"a": [1, "x"]})


def test_values_become_built_in_types():
    class Text(str):
        def __str__(self):
            return "other"

    class Number(int):
        pass

    source, tree = filters.compile({Text("a"): [Text("x"), Number(5)]})
    assert source == filters.compile({"a": ["x", 5]})[0]
    assert [type(value) for value in tree[2]] == [str, int]
    source, _ = filters.compile(Text("a = 1"))
    assert type(source) is str and source == "a = 1"


@pytest.mark.parametrize(("source", "error", "fragment"), [
    ({}, InvalidFilter, "always"),
    ({"a": []}, InvalidFilter, "an empty list selects nothing"),
    ({"a": set()}, InvalidFilter, "'a'"),
    ({"a": 2**63}, InvalidFilter, "64 bits"),
    ({"a": float("nan")}, InvalidFilter, "nan"),
    ({"a": [1, float("nan")]}, InvalidFilter, "nan"),
    ({"a": "\ud800"}, InvalidFilter, "surrogate"),
    ({"\ud800": 1}, InvalidFilter, "surrogate"),
    ({"": 1}, InvalidFilter, "allowed are 1 to 65535"),
    ({"x" * 65536: 1}, InvalidFilter, "65536 bytes"),
    ({f"h{n}": "x" * 60_000 for n in range(20)}, InvalidFilter, "allowed are 1048576"),
    ({"a": None}, TypeError, "IS NULL"),
    ({"a": [None]}, TypeError, "NoneType"),
    ({"a": {"b": 1}}, TypeError, "got dict"),
    ({"a": bytearray(b"x")}, TypeError, "got bytearray"),
    ({"a": range(3)}, TypeError, "got range"),
    ({5: 1}, TypeError, "must be a str, got int"),
    (5, TypeError, "a str, a mapping or a callable, got int"),
    (None, TypeError, "NoneType"),
    (b"a = 1", TypeError, "got bytes"),
])
def test_sources_that_are_refused(source, error, fragment):
    with pytest.raises(error) as raised:
        filters.compile(source)
    assert fragment in str(raised.value)


def test_callable():
    def large(message):
        return len(message.body) > 3

    assert filters.compile(large) == (large, ("call", large))
    assert filters.equalities(("call", large)) == []
    assert evaluate(("call", large), Message(body=b"12345")) is True


def test_equalities():
    def found(text):
        return filters.equalities(filters.compile(text)[1])

    assert found("a = 'x' AND (b = 5 AND 2.5 = c) AND d = TRUE AND sys.address = 'q'") == [
        ("header", "a", "x"), ("header", "b", 5), ("header", "c", 2.5), ("header", "d", True), ("sys", "address", "q")]
    for text in ("a = 1 OR b = 2", "NOT a = 1", "a <> 1", "a = b", "1 = 1", "a + 1 = 2", "a", "a IN (1, 2)", "(a = 1) = TRUE"):
        assert found(text) == [], text
    assert found("sys.size = 5 AND sys.reply_to = 'x'") == []
    assert found("a = 1 AND (b = 1 OR c = 1)") == [("header", "a", 1)]


def test_memory():
    tree = filters.compile("region IN ('EU', 'US') AND name LIKE 'a%' OR note = 'a literal of some forty bytes, all counted'")[1]
    assert sys.getsizeof(Filter(tree)) > sys.getsizeof(Filter(("header", "a"))) > 64
    too_deep = ("header", "a")
    for _ in range(150):
        too_deep = ("not", too_deep)
    message = Message("ä", headers={"region": "EU", "name": "b"})

    def work():
        for _ in range(200):
            Filter(tree).evaluate_message(message)
            for wrong in (("call", len), too_deep, ("and", tree, ("literal", 2**70))):
                with contextlib.suppress(TypeError, ValueError, OverflowError):
                    Filter(wrong)
        gc.collect()

    work()
    tracemalloc.start()
    try:
        work()
        before = tracemalloc.get_traced_memory()[0]
        work()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < sys.getsizeof(Filter(tree)) * 20      # a leak of 200 filters would be ten times that


def test_count():
    assert compiled("n > 5").count([Message(headers={"n": n}) for n in range(10)]) == 4
    assert compiled("sys.delivery_count = 2").count([Message()] * 3, 2) == 3
    with pytest.raises(TypeError):
        compiled("n > 5").count([Message(), None])
    with pytest.raises(TypeError):
        compiled("n > 5").evaluate_message(None)


def test_many_threads_share_a_filter():
    shared = compiled("region IN ('EU', 'US') AND amount > 50")
    wrong = []

    def work(seed):
        chance = random.Random(seed)
        for _ in range(500):
            region, amount = chance.choice(["EU", "US", "AP"]), chance.randrange(100)
            if shared.evaluate_message(Message(headers={"region": region, "amount": amount})) != (region != "AP" and amount > 50):
                wrong.append((region, amount))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_documentation():
    page = Path(__file__).parents[2] / "docs" / "filters.md"
    assert doctest.testfile(str(page), module_relative=False).failed == 0
    for module in (filters, xump_ext.match.filter):
        assert doctest.testmod(module).failed == 0


def test_the_core_is_compiled():
    assert xump_ext.match.filter.__file__.endswith((".so", ".pyd"))


def test_a_function_without_a_hash_is_joined():
    class Rule:
        """Compared by its value, and so without a hash."""

        __hash__ = None

        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return isinstance(other, Rule) and self.n == other.n

        def __call__(self, message):
            return message.headers.get("n") == self.n

    one, two = where(Rule(1)), where(Rule(2))
    assert (match("eq", "a") & one & where(Rule(1)) & two).parts == (match("eq", "a"), one, two)
