"""Filters: the parser, the compiled evaluator, and what they promise.

Three oracles: `filter_reference`, which shares no code with the core, for every tree and message; SQLite, which was not written
by us, where the dialects agree; and the parser itself, which must read back what was written from a tree.
"""

import contextlib
import doctest
import gc
import pickle
import random
import sqlite3
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
from xump import limits
from xump.filters import syntax as filter_syntax
from xump import filters
from xump.conditions import where
from xump.errors import InvalidFilter
from xump_ext.match.filter import Filter
from xump_ext.message.message import Message, _rebuild

# ---- messages and trees

NAMES = ["a", "b", "n", "size", "region", "$x_1", "größe", "two words", 'quo"te', "like", "sys", "sys.address"]
INTEGERS = [0, 1, -1, 2, 3, 7, 10, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)]
REALS = [0.0, -0.0, 0.5, 1.0, -1.5, 3.0, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 1e19, -1e300, 1e308, 5e-324]
STRINGS = ["", "a", "b", "ab", "aab", "EU", "eu", "a%b", "a_b", "ä", "äb", "\U0001f600", "it's", "x\ny", "\\", "1"]
ODD = [float("nan"), float("inf"), float("-inf"), b"", b"a", b"\xff\xfe"]
PATTERNS = ["", "%", "_", "a%", "%b", "%a%", "_b", "a_b", "__", "%_", "_%_", "%%", "a%%b%", "ä%", "%\U0001f600"]
ESCAPING = ["a!%b", "a!_b", "!!%", "%!_"]

texts = st.one_of(st.sampled_from(STRINGS), st.text(st.sampled_from("abä%_!'"), max_size=6))
integers = st.one_of(st.sampled_from(INTEGERS), st.integers(-(2**63), 2**63 - 1))
reals = st.one_of(st.sampled_from(REALS), st.floats(allow_nan=False, allow_infinity=False))
written = st.one_of(st.booleans(), integers, reals, texts)
values = st.one_of(written, st.sampled_from(ODD))
names = st.sampled_from(NAMES)
header = names.map(lambda name: ("header", name))
envelope = st.sampled_from(list(filter_syntax.SYSTEM)).map(lambda name: ("sys", name))

messages = st.builds(
    lambda address, body, headers, reply_to, timestamp: _rebuild(
        address, body, headers, reply_to, None, None, 1, timestamp, 0, None, None, 0),
    texts, st.binary(max_size=10), st.dictionaries(names, values, max_size=8), st.none() | texts, st.integers(0, 2**63 - 1),
)


def literals_of(value):
    return value.map(lambda v: ("literal", v))


def lists_of(value, size=12):
    return st.lists(value, min_size=1, max_size=size).map(tuple)


@st.composite
def patterns(draw):
    """A pattern, and its escape character if it needs one."""
    pattern = draw(st.sampled_from(PATTERNS + ESCAPING) | st.text(st.sampled_from("ab%_ä"), max_size=8))
    return (pattern, "!") if "!" in pattern else (pattern, draw(st.sampled_from([None, "!", "\\", "'"])))


def any_trees():
    """Trees of any shape, also those that the parser refuses because of their types."""

    def grow(tree):
        binary = st.sampled_from(["and", "or", "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/"])
        return st.one_of(
            st.tuples(binary, tree, tree),
            st.tuples(st.sampled_from(["not", "neg", "is null"]), tree),
            st.tuples(st.just("in"), tree, lists_of(values)),
            st.tuples(tree, patterns()).map(lambda both: ("like", both[0], *both[1])),
            st.tuples(st.just("between"), tree, tree, tree),
        )

    return st.recursive(st.one_of(literals_of(values), header, envelope), grow, max_leaves=12)


def typed_trees(number, string, flag, literal_numbers, literal_strings, literal_any):
    """Trees that the parser accepts, over these leaves."""

    def arithmetic(tree):
        return st.tuples(st.sampled_from("+-*/"), tree, tree) | st.tuples(st.just("neg"), tree)

    numbers = st.recursive(number, arithmetic, max_leaves=6)
    anything = numbers | string

    def logic(tree):
        return st.tuples(st.sampled_from(["and", "or"]), tree, tree) | st.tuples(st.sampled_from(["not", "is null"]), tree)

    predicates = st.one_of(
        flag,
        st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numbers, numbers),
        st.tuples(st.sampled_from(["=", "<>"]), string, string),
        st.tuples(st.just("in"), numbers, lists_of(literal_numbers)),
        st.tuples(st.just("in"), string, lists_of(literal_strings)),
        st.tuples(st.just("in"), anything, lists_of(literal_any)),
        st.tuples(string, patterns()).map(lambda both: ("like", both[0], *both[1])),
        st.tuples(st.just("between"), numbers, numbers, numbers),
        st.tuples(st.just("is null"), anything),
    )
    return st.recursive(predicates, logic, max_leaves=6)


written_trees = typed_trees(
    header | literals_of(integers | reals) | envelope.filter(lambda tree: filter_syntax.SYSTEM[tree[1]] == filter_syntax.NUMBER),
    header | literals_of(texts) | envelope.filter(lambda tree: filter_syntax.SYSTEM[tree[1]] == filter_syntax.TEXT),
    header | literals_of(st.booleans()), integers | reals, texts, written,
)

# ---- from a tree to text

LEVEL = {"or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "*": 6, "/": 6, "neg": 7, "literal": 8, "header": 8, "sys": 8}


def tokens_of(tree, level=1):
    """What a tree is written as, in as few parentheses as it takes to be read back as the same tree."""
    own = LEVEL.get(tree[0], 4)
    tokens = tokens_within(tree, own)
    return tokens if own >= level else ["(", *tokens, ")"]


def tokens_within(tree, own):
    operation, *operands = tree
    if operation == "literal":
        return [literal_text(operands[0])]
    if operation == "header":
        return [name_text(operands[0])]
    if operation == "sys":
        return ["sys." + operands[0]]
    if operation == "not":
        return ["not", *tokens_of(operands[0], 3)]
    if operation == "neg":
        # A sign before a number belongs to the number.
        return ["-", *tokens_of(operands[0], 9 if operands[0][0] == "literal" else 7)]
    if operation == "is null":
        return [*tokens_of(operands[0], 5), "is", "null"]
    if operation == "in":
        return [*tokens_of(operands[0], 5), "in", "(" + ", ".join(map(literal_text, operands[1])) + ")"]
    if operation == "like":
        escape = [] if operands[2] is None else ["escape", literal_text(operands[2])]
        return [*tokens_of(operands[0], 5), "like", literal_text(operands[1]), *escape]
    if operation == "between":
        return [*tokens_of(operands[0], 5), "between", *tokens_of(operands[1], 5), "and", *tokens_of(operands[2], 5)]
    # AND and OR are read as balanced lists: nested ones need parentheses to stay as they are.
    left = own if own >= 5 else own + 1
    return [*tokens_of(operands[0], left), operation, *tokens_of(operands[1], own + 1)]


def literal_text(value):
    if isinstance(value, bool):
        return str(value)
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def name_text(name):
    plain = name.replace("$", "_").isidentifier() and name.upper() not in filter_syntax.KEYWORDS
    return name if plain else '"' + name.replace('"', '""') + '"'


def text_of(tree, chance=None):
    """The text of a tree; a `random.Random` varies capitals and spaces."""
    tokens = tokens_of(tree)
    if chance is None:
        return " ".join(tokens)
    for at, token in enumerate(tokens):
        if token.upper() in filter_syntax.KEYWORDS:
            tokens[at] = chance.choice([token, token.upper(), token.title()])
    return "".join(token + chance.choice([" ", "\n", " \t "]) for token in tokens)


def compiled(source):
    return Filter(filters.compile(source)[1])


# ---- the oracles


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
plain = st.text(st.sampled_from("abABä%_!"), max_size=5)
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


# ---- what it means, by example

HEADERS = {
    "n": 7, "zero": 0, "big": 2**53 + 1, "max": 2**63 - 1, "min": -(2**63), "f": 2.5, "whole": 7.0, "nan": float("nan"),
    "inf": float("inf"), "region": "EU", "empty": "", "raw": b"EU", "yes": True, "no": False, "umlaut": "größe", "lines": "a\nb",
}
MESSAGE = _rebuild("jobs.öl", b"12345", HEADERS, None, None, None, 9, 1_700_000_000_000_000_000, 0, None, None, 0)

EXAMPLES = [
    # text, True / False / None
    ("n = 7 AND region = 'EU'", True),
    ("yes", True), ("no", False), ("n", None), ("region", None), ("missing", None), ("TRUE", True), ("NOT yes", False),
    ("NOT n", None),
    ("missing = 1", None), ("NOT missing = 1", None), ("missing = 1 OR yes", True), ("missing = 1 AND no", False),
    ("missing IS NULL", True), ("n IS NULL", False), ("n IS NOT NULL", True), ("n / zero IS NULL", True), ("nan IS NULL", False),
    ("missing = missing", None), ("missing <> 1", None), ("n = '7'", None), ("n <> '7'", None), ("yes = 1", None),
    ("region = raw", None),
    ("yes = TRUE", True), ("yes <> FALSE", True), ("yes = no", False), ("yes > no", None), ("(n > 5) = yes", True),
    ("raw = raw", True),
    ("region < 'F'", None), ("region >= empty", None), ("region BETWEEN 'A' AND 'Z'", None), ("raw > raw", None),
    ("n = 7.0", True), ("whole = 7", True), ("n < 7.5", True), ("7.5 > n", True), ("n >= 6.5", True), ("f > 2", True),
    ("2 < f", True),
    ("big = 9007199254740992.0", False), ("big > 9007199254740992.0", True), ("big = 9007199254740994.0", False),
    ("9007199254740994.0 > big", True), ("max = 9223372036854775808.0", False), ("max < 9223372036854775808.0", True),
    ("min = -9223372036854775808.0", True), ("min > -9.3e18", True), ("max < inf", True), ("min > -inf", True),
    ("-0.5 < zero", True),
    ("nan = nan", None), ("nan <> 1", None), ("nan > 1", None), ("1 < nan", None), ("nan IN (1, 2)", None), ("inf = inf", True),
    ("max + 1 = 0", None), ("max + 1 IS NULL", True), ("-min = min", None), ("min - 1 < 0", None), ("max * 2 < 0", None),
    ("min / -1 > 0", None), ("max + 1.0 > 9.2e18", True), ("zero - 1 = -1", True), ("min = -9223372036854775808", True),
    ("7 / 2 = 3", True), ("-7 / 2 = -3", True), ("7 / 2.0 = 3.5", True), ("n / zero = 1", None), ("n / 0.0 > 1", None),
    ("region + 1 = 1", None), ("raw * 2 = 1", None), ("-region = 1", None), ("yes + 1 = 2", None), ("+n = 7", True),
    ("+region = 'EU'", None),
    ("2 + 3 * 4 = 14", True), ("(2 + 3) * 4 = 20", True), ("10 - 4 - 3 = 3", True), ("2 - -3 = 5", True), ("- - n = 7", True),
    ("100 / 10 / 5 = 2", True), ("-n * 2 = -14", True), ("0x1F = 31", True), ("5L = 5", True), ("7. = n", True), (".5 < n", True),
    ("1e1 > n", True), ("-1 + n = 6", True), ("n-1 = 6", True), ("n -1 = 6", True),
    ("NOT n = 7", False), ("NOT n = 7 AND no", False), ("NOT (n = 7 AND no)", True), ("yes OR no AND no", True),
    ("NOT NOT yes", True),
    ("n IN (1, 7)", True), ("n IN (7.0)", True), ("whole IN (1, 7)", True), ("n IN (1, 2)", False), ("n NOT IN (1, 2)", True),
    ("n IN (1, 'a')", None), ("n IN ('a', 7)", True), ("n NOT IN ('a')", None), ("missing IN (1)", None),
    ("missing NOT IN (1)", None),
    ("region IN ('US', 'EU')", True), ("region IN ('eu')", False), ("yes IN (TRUE)", True), ("yes IN (FALSE)", False),
    ("yes IN (1)", None),
    ("f IN (-1.5, +2.5)", True), ("max IN (9223372036854775807, -9223372036854775808)", True), ("inf IN (1)", False),
    ("empty IN ('')", True),
    ("n BETWEEN 1 AND 7", True), ("n NOT BETWEEN 1 AND 6", True), ("n BETWEEN missing AND 6", False),
    ("n BETWEEN missing AND 9", None),
    ("n BETWEEN 1 AND 7 AND no", False), ("n + 1 BETWEEN 2 * 4 AND 8", True),
    ("region LIKE 'E%'", True), ("region LIKE 'e%'", False), ("region LIKE '_U'", True), ("region LIKE '_'", False),
    ("region LIKE 'EU_'", False),
    ("region LIKE ''", False), ("empty LIKE ''", True), ("empty LIKE '%'", True), ("empty LIKE '_'", False), ("n LIKE '7'", None),
    ("raw LIKE 'EU'", None), ("missing LIKE '%'", None), ("missing NOT LIKE '%'", None), ("region NOT LIKE 'U%'", True),
    ("umlaut LIKE 'gr__e'", True), ("umlaut LIKE 'gr_e'", False), ("umlaut LIKE '%ß_'", True), ("umlaut LIKE '_____'", True),
    ("umlaut LIKE '%_____'", True), ("umlaut LIKE '%______'", False), ("lines LIKE 'a%b'", True), ("lines LIKE 'a_b'", True),
    ("'a%b' LIKE 'a!%b' ESCAPE '!'", True), ("'axb' LIKE 'a!%b' ESCAPE '!'", False), ("'a_b' LIKE 'a\\_b' ESCAPE '\\'", True),
    ("'a!b' LIKE 'a!!b' ESCAPE '!'", True), ("'50%' LIKE '%%' ESCAPE '%'", False), ("'50%' LIKE '50%%' ESCAPE '%'", True),
    ("sys.address = 'jobs.öl'", True), ("sys.address LIKE 'jobs.__'", True), ("sys.address LIKE 'jobs.%'", True),
    ("sys.reply_to IS NULL", True),
    ("sys.reply_to = ''", None), ("sys.size = 5", True), ("sys.delivery_count = 3", True),
    ("sys.timestamp > 1699999999999999999", True),
    ('"n" = 7', True), ('"sys.address" IS NULL', True), ("true and Not FALSE", True), ("\n\tn\r=\f7 ", True),
]


@pytest.mark.parametrize(("text", "expected"), EXAMPLES)
def test_examples(text, expected):
    tree = filters.compile(text)[1]
    assert evaluate(tree, MESSAGE, 3) is expected
    assert Filter(tree).evaluate_message(MESSAGE, 3) is expected


def test_address_and_reply_to_that_are_no_ascii():
    by_address = compiled("sys.address LIKE 'ö%' AND sys.reply_to = '€'")
    for _ in range(3):
        assert by_address.evaluate_message(Message("öl", reply_to="€")) is True
    assert by_address.evaluate_message(Message("öl", reply_to="$")) is False


def test_long_lists_are_searched():
    numbers = [str(n) for n in range(-300, 300, 3)]
    in_numbers = compiled(f"n IN ({','.join(numbers)})")
    in_words = compiled({"n": [f"w{n}" for n in range(1000)] + ["", "ü"]})
    mixed = Filter(("in", ("header", "n"), (*range(20), *(n + 0.5 for n in range(20)), *map(str, range(20)), True, b"x")))
    for n in range(-310, 310):
        assert in_numbers.evaluate_message(Message(headers={"n": n})) is (str(n) in numbers)
        assert in_numbers.evaluate_message(Message(headers={"n": float(n)})) is (str(n) in numbers)
        assert in_words.evaluate_message(Message(headers={"n": f"w{n * 4}"})) is (0 <= n * 4 < 1000)
    for value, expected in [(7, True), (7.5, True), (7.25, None), ("19", True), ("20", None), (True, True), (b"x", True)]:
        assert mixed.evaluate_message(Message(headers={"n": value})) is expected, value
    assert in_words.evaluate_message(Message(headers={"n": "ü"})) is True
    assert Filter(("in", ("header", "n"), (float("nan"), 1))).evaluate_message(Message(headers={"n": 2})) is None


@pytest.mark.parametrize("count", [15, 16, 17, 40])
def test_more_names_than_slots(count):
    headers = {f"h{n}": n for n in range(count)}
    every = Filter(filters.compile(headers)[1])
    assert every.evaluate_message(Message(headers=headers)) is True
    assert every.evaluate_message(Message(headers={"other": "x", **dict(reversed(headers.items()))})) is True
    assert every.evaluate_message(Message(headers=headers | {"h7": 8})) is False
    del headers["h3"]
    assert every.evaluate_message(Message(headers=headers)) is None


# ---- limits


def test_like_does_not_backtrack_exponentially():
    body = "a" * 60_000
    for pattern in ["%a" * 1_000 + "b", "%" + "a" * 2_000 + "b", "%_" * 500 + "%b", "%" * 3_000 + "b"]:
        assert compiled(f"text LIKE '{pattern}'").evaluate_message(Message(headers={"text": body})) is False
        assert compiled(f"text LIKE '{pattern}'").evaluate_message(Message(headers={"text": body + "b"})) is True


DEEP = {
    "parentheses": lambda n: "(" * n + "a" + ")" * n,
    "not": lambda n: "NOT " * n + "a",
    "signs": lambda n: "-" * (n - 1) + "a > 0",
    "sums to the left": lambda n: "a" + " + 1" * (n - 1) + " > 0",
    "sums to the right": lambda n: "0 < " + "(a + " * (n - 1) + "1" + ")" * (n - 1),
    "comparisons": lambda n: "(" * (n - 1) + "a" + " = TRUE)" * (n - 1) + " = TRUE",
    "between": lambda n: "0 < a" if n < 2 else "1 BETWEEN 1 AND " + "(-" * (n - 1) + "a" + ")" * (n - 1),
    "all at once": lambda n: "(NOT " * n + "a" + ")" * n,
}


@pytest.mark.parametrize("kind", DEEP)
def test_100_levels(kind):
    deepest = DEEP[kind](100)
    tree = filters.compile(deepest)[1]
    for headers in ({}, {"a": True}, {"a": 5}):
        message = Message(headers=headers)
        assert Filter(tree).evaluate_message(message) is evaluate(tree, message)
    for levels in (101, 102, 400):
        text = DEEP[kind](levels)
        if len(text) <= limits.filter_chars_max:
            with pytest.raises(InvalidFilter, match="levels .* allowed are 100") as error:
                filters.compile(text)
            assert 0 <= error.value.position < len(text)


def test_long_lists_are_not_deep():
    for operator in ("AND", "OR"):
        tree = filters.compile(f" {operator} ".join(["a"] * 500))[1]
        assert Filter(tree).evaluate_message(Message(headers={"a": True})) is True
        assert Filter(tree).evaluate_message(Message(headers={"a": False})) is False


def test_conjuncts_keep_their_order():
    for count in range(1, 40):
        text = " AND ".join(f"h{n} = {n}" for n in range(count))
        assert filters.equalities(filters.compile(text)[1]) == [("header", f"h{n}", n) for n in range(count)]


def test_the_deepest_filter_needs_little_stack():
    """A thread with the smallest stack that Python starts in."""
    tree = filters.compile(DEEP["sums to the right"](100))[1]
    answers = []
    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=lambda: answers.append(Filter(tree).evaluate_message(Message(headers={"a": 1}))))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert answers == [True]


def test_one_limit():
    assert limits.filter_depth_max == xump_ext.match.filter_layout.filter_depth_max == 100
    tree = ("header", "a")
    for _ in range(100):
        tree = ("not", tree)
    Filter(tree)
    with pytest.raises(ValueError, match="100 levels"):
        Filter(("not", tree))


def test_4096_characters():
    text = "a = '" + "x" * (limits.filter_chars_max - 6) + "'"
    assert compiled(text).evaluate_message(Message(headers={"a": text[5:-1]})) is True
    with pytest.raises(InvalidFilter, match="4097 characters, allowed are 4096") as error:
        filters.compile(text + " ")
    assert error.value.position == 4096


# ---- what is refused

ERRORS = [
    # text, position, what the message says
    ("", 0, "expected a value at 0, got the end"),
    ("  ", 2, "got the end"),
    ("a =", 3, "expected a value"),
    ("a = = 1", 4, "got '='"),
    ("a b", 2, "expected an operator or the end at 2, got 'b'"),
    ("(a", 2, "expected an operator or )"),
    ("a)", 1, "got ')'"),
    ("()", 1, "expected a value"),
    ("a = 'x", 4, "not closed"),
    ("a = 'it''s", 4, "not closed"),
    ('"a = 1', 0, "not closed"),
    ('"" = 1', 0, "empty header name"),
    ("a === 1", 4, "got '='"),
    ("a =! 1", 3, "unexpected '!'"),
    ("headers. = 1", 7, "headers.user.name"),
    ("a; DROP TABLE x", 1, "unexpected ';'"),
    ("a = 1 % 2", 6, "unexpected '%'"),
    ("a.b = 1", 1, "double quotes"),
    ("a =\u00a01", 3, "unexpected '\\xa0'"),
    ("a = \u0663", 4, "unexpected"),
    ("a = '\ud800'", 5, "lone surrogate at 5"),
    ("a = NULL", 4, "IS NULL"),
    ("NULL = a", 0, "IS NULL"),
    ("a IS 5", 5, "expected NULL"),
    ("a IS NOT 5", 9, "expected NULL"),
    ("a NOT IS NULL", 6, "expected IN, LIKE or BETWEEN"),
    ("a NOT = 5", 6, "expected IN, LIKE or BETWEEN"),
    ("a NOT 'IN' (1)", 6, "expected IN, LIKE or BETWEEN"),
    ("a NOT", 5, "expected IN, LIKE or BETWEEN"),
    ("a = NOT b", 4, "expected a value"),
    ("AND a", 0, "got 'AND'"),
    ("a AND", 5, "expected a value"),
    ("a OR OR b", 5, "got 'OR'"),
    ("a = b = c", 6, "do not chain"),
    ("1 < a < 5", 6, "do not chain"),
    ("a IS NULL IS NULL", 10, "do not chain"),
    ("a IN 1", 5, "expected ("),
    ("a IN ()", 6, "expected a literal"),
    ("a IN (1, )", 9, "expected a literal"),
    ("a IN (1 2)", 8, "expected )"),
    ("a IN (b)", 6, "expected a literal"),
    ("a IN (NULL)", 6, "IS NULL"),
    ("a IN (-'x')", 6, "expected a literal"),
    ("a BETWEEN 1", 11, "expected AND"),
    ("a BETWEEN 1 OR 2", 12, "expected AND"),
    ("a LIKE 5", 7, "expected a string"),
    ("a LIKE b", 7, "expected a string"),
    ("a LIKE 'x' ESCAPE 'ab'", 18, "one character, got 'ab'"),
    ("a LIKE 'x' ESCAPE ''", 18, "one character"),
    ("a LIKE 'x' ESCAPE 5", 18, "expected a string"),
    ("a LIKE 'x!' ESCAPE '!'", 7, "must stand before"),
    ("a LIKE '!x' ESCAPE '!'", 7, "must stand before"),
    ("a LIKE '!!!x' ESCAPE '!'", 7, "must stand before"),
    ("5 LIKE 'x'", 0, "LIKE needs a string at 0, got a number"),
    ("sys.size LIKE 'x'", 0, "LIKE needs a string"),
    ("a + 1 LIKE 'x'", 0, "LIKE needs a string"),
    ("5", 0, "a filter needs a boolean at 0, got a number"),
    ("'x'", 0, "got a string"),
    ("sys.address", 0, "got a string"),
    ("a + 1", 0, "got a number"),
    ("NOT 5", 4, "NOT needs a boolean at 4, got a number"),
    ("a AND 'x'", 6, "AND needs a boolean"),
    ("a OR (b + 1)", 5, "OR needs a boolean"),
    ("'a' + 1 = 2", 0, "+ needs a number at 0, got a string"),
    ("1 + 'a' = 2", 4, "+ needs a number"),
    ("a * (b = 1) = 2", 4, "* needs a number at 4, got a boolean"),
    ("-'a' = 2", 1, "- needs a number"),
    ("+TRUE = 2", 1, "+ needs a number at 1, got a boolean"),
    ("a / sys.address = 2", 4, "/ needs a number"),
    ("a = 9223372036854775808", 4, "does not fit in 64 bits"),
    ("a = -9223372036854775809", 4, "does not fit in 64 bits"),
    ("a = 1 - 9223372036854775808", 8, "does not fit in 64 bits"),
    ("a IN (99999999999999999999)", 6, "does not fit in 64 bits"),
    ("a = 0xFFFFFFFFFFFFFFFF", 4, "does not fit in 64 bits"),
    ("a = 1e999", 4, "beyond a 64-bit float"),
    ("a = 007", 4, "leading zero"),
    ("a = 1x", 4, "not a number"),
    ("a = 1e", 4, "not a number"),
    ("sys.adress = 'x'", 0, "sys.adress at 0; there are sys.address, sys.reply_to, sys.timestamp, sys.size, sys.delivery_count"),
    ("a AND sys. = 1", 6, "unknown name sys."),
]


@pytest.mark.parametrize(("text", "position", "fragment"), ERRORS)
def test_errors(text, position, fragment):
    with pytest.raises(InvalidFilter) as error:
        filters.compile(text)
    assert fragment in str(error.value)
    assert error.value.position == position


VALID = [
    "region IN ('EU', 'US') AND amount > 50 AND type = 'order'",
    "NOT (\"a.5\" = 1) OR b NOT LIKE 'x!%%' ESCAPE '!' AND -c * 2 <= +3.5e-1",
    "sys.size NOT BETWEEN 0x10 AND 1L + 2 / .5 OR sys.address IS NOT NULL AND TRUE",
    "((a <> -9223372036854775808) = FALSE) OR $d_1 NOT IN (1, -2.5, 'it''s', TRUE)",
]


def check(text):
    """Read a text that may be damaged: it is a filter on which both evaluators agree, or an error within the text."""
    try:
        source, tree = filters.compile(text)
    except InvalidFilter as error:
        assert 0 <= error.position <= len(text)
        assert str(error)
    else:
        assert source == text
        assert Filter(tree).evaluate_message(MESSAGE) is evaluate(tree, MESSAGE)


@pytest.mark.parametrize("text", VALID)
def test_truncated_everywhere(text):
    filters.compile(text)
    for end in range(len(text)):
        check(text[:end])
        check(text[end:])


@pytest.mark.parametrize("text", VALID)
def test_every_character_mutated(text):
    for at in range(len(text) + 1):
        check(text[:at] + text[at + 1:])
        for character in "'\"()-.,5eN_ =%\0é\ud800":
            check(text[:at] + character + text[at:])
            check(text[:at] + character + text[at + 1:])


words = [*filter_syntax.KEYWORDS, *filter_syntax.BINDING, "(", ")", ",", "a", "'x'", "5"]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40) | st.lists(st.sampled_from(sorted(words))).map(" ".join))
def test_any_text(text):
    check(text)


@settings(max_examples=100, deadline=None)
@given(written_trees, st.data())
def test_any_prefix(tree, data):
    text = text_of(tree)
    check(text[: data.draw(st.integers(0, len(text)))])


@pytest.mark.parametrize("tree", [
    ("call", len), (), ("literal",), None, "a = 1", ("and", ("header", "a")), ("xor", ("header", "a"), ("header", "b")),
    ("header", 5), ("header", ""), ("literal", None), ("literal", [1]), ("literal", 2**64), ("sys", "id"), ("in", ("header", "a"),
    ()),
    ("in", ("header", "a"), [1]), ("like", ("header", "a"), "x!", "!"), ("literal", "\ud800"), ("not", ("not", 5)), (["a"], 1),
])
def test_trees_that_are_none(tree):
    with pytest.raises((TypeError, ValueError, IndexError, OverflowError)):
        Filter(tree)


# ---- mappings and callables


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


# ---- memory


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


# ---- the documentation


def test_documentation():
    page = Path(__file__).parents[2] / "docs" / "filters.md"
    assert doctest.testfile(str(page), module_relative=False).failed == 0
    for module in (filters, xump_ext.match.filter):
        assert doctest.testmod(module).failed == 0


def test_the_core_is_compiled():
    assert xump_ext.match.filter.__file__.endswith((".so", ".pyd"))
