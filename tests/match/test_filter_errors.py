"""Filters that are refused say where and why."""

import pytest
from tests.match.filter_reference import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st

from xump.filters import syntax as filter_syntax
from xump import filters
from xump.errors import InvalidFilter
from xump_ext.match.filter import Filter
from tests.match.filter_trees import MESSAGE, text_of, written_trees


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
    ("a.b = 1", 1, "write headers.user.name, or \"user.name\" in double quotes, for a name with a dot"),
    ("SYS.size > 1", 3, "for a name with a dot"),
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
