"""What filters mean, by example; their limits."""

import threading

import pytest
from tests.match.filter_reference import evaluate

import xump_ext.match.filter
import xump_ext.match.filter_layout
from xump import limits
from xump import filters
from xump.errors import InvalidFilter
from xump_ext.match.filter import Filter
from xump_ext.message.message import Message
from tests.match.filter_trees import MESSAGE, compiled


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
