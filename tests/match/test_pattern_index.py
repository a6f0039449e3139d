"""The match index against matchers that are too simple to be wrong, in any order of adding and removing."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from xump_ext.match.equality_index import EqualityIndex
from xump_ext.match.pattern_index import MatchIndex
from xump_ext.message.message import Message
from xump_ext.match.prefix import PrefixIndex
from xump_ext.match.topic import TopicTrie

# ---- topics


def words_of(text: str) -> list[str]:
    return text.split(".") if text else []


def topic_matches(pattern: list[str], words: list[str]) -> bool:
    """What a topic pattern means, in as few words as it can be said. Exponential in the number of `#`."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return topic_matches(pattern[1:], words) or (bool(words) and topic_matches(pattern, words[1:]))
    return bool(words) and pattern[0] in ("*", words[0]) and topic_matches(pattern[1:], words[1:])


# Words on both sides of the eight bytes that are read at once, equal in their first eight, with and without NUL, and empty.
WORDS = ["a", "b", "", "é", "日本", "seven77", "eight888", "eight889", "eight888x", "a\0", "\0", "x" * 16, "x" * 17, "a*", "#a"]
words = st.sampled_from(WORDS)
addresses = st.lists(words, max_size=6).map(".".join)
patterns = st.lists(st.one_of(st.sampled_from("*#"), words), max_size=6).map(".".join)
few_words = st.sampled_from(["a", "b", ""])
tangled = st.lists(st.sampled_from(["*", "#", "#", "a", "b", ""]), max_size=7).map(".".join)
items = st.integers(0, 5)


def with_single_hashes(pattern):
    """`#` one after another are one: patterns that differ only in their number are the same."""
    words = words_of(pattern)
    return tuple(word for at, word in enumerate(words) if word != "#" or words[at - 1:at] != ["#"])


@given(st.lists(st.tuples(patterns, items), max_size=12), st.lists(addresses, max_size=6))
@example([("*.#.*.a", 0), ("*.#.#.*.a", 0)], ["a.a.a"])
@example([("#", 0), ("#.#", 0), ("#.#.#", 0), ("a.#", 1), ("a.#.#", 1), ("a.#.##", 2), ("a.#.", 3)], ["", "a", "a.##", "a."])
def test_topics_match_as_the_simple_matcher_says(pairs, values):
    trie = TopicTrie()
    for pattern, item in pairs:
        trie.add(pattern, item)
    trie.check()
    for value in values:
        given_once = {(with_single_hashes(pattern), item) for pattern, item in pairs}
        expected = sorted(item for words, item in given_once if topic_matches(words, words_of(value)))
        assert trie.match_list(value) == expected


@given(st.lists(tangled, max_size=20, unique=True), st.lists(st.lists(few_words, max_size=8).map(".".join), max_size=5))
@example(["#.#", "#.#.#", "#.*", "*.#", "#"], ["", "a", "a.b"])
def test_many_hashes_match_each_pattern_once(tangle, values):
    trie = TopicTrie()
    for item, pattern in enumerate(tangle):
        trie.add(pattern, item)
    for value in values:
        assert trie.match_list(value) == [i for i, p in enumerate(tangle) if topic_matches(words_of(p), words_of(value))]


@pytest.mark.parametrize(
    "pattern, yes, no",
    [
        ("#", ["", "a", "a.b", "..."], []),
        ("*", ["a", "a*", "é"], ["", "a.b", "."]),
        ("a.#", ["a", "a.b", "a.", "a.b.c"], ["", "b", "ab", "b.a"]),
        ("#.a", ["a", "b.a", ".a", "a.a"], ["", "a.b"]),
        ("a.*.b", ["a.x.b", "a..b"], ["a.b", "a.x.y.b"]),
        ("a.#.b", ["a.b", "a.x.b", "a.b.b"], ["a", "b", "a.b.c"]),
        ("", [""], ["a", "."]),
        (".", ["."], ["", ".."]),
        ("*.*", ["a.b", "."], ["a", ""]),
        ("#.*", ["a", "a.b", "."], [""]),
    ],
)
def test_what_wildcards_mean(pattern, yes, no):
    index = MatchIndex()
    index.add("topic", pattern, 7)
    assert {value: index.match_list(value) for value in yes} == {value: [7] for value in yes}
    assert {value: index.match_list(value) for value in no} == {value: [] for value in no}


def test_many_hashes_do_not_take_exponential_time():
    trie = TopicTrie()
    trie.add("#.a.#.a.#.a.#.a.#.b", 1)
    trie.add(".".join(["#", "a"] * 20 + ["b"]), 2)
    trie.add(".".join(["#", "*"] * 20), 3)
    trie.add("#." * 200 + "#", 4)
    assert trie.match_list(".".join("a" * 60)) == [3, 4]
    assert trie.match_list(".".join("a" * 60 + "b")) == [1, 2, 3, 4]
    assert trie.match_list(".".join("a" * 4 + "b")) == [1, 4]
    trie.check()


def test_a_hash_after_a_hash_adds_nothing():
    trie, plain = TopicTrie(), TopicTrie()
    assert trie.add("a.#.#.#.b", 1) and plain.add("a.#.b", 1) and not trie.add("a.#.b", 1) and not trie.add("a.#.#.b", 1)
    assert trie.counts() == plain.counts()
    assert trie.add("#.#.#", 2) and not trie.add("#.#", 2) and trie.add("#.*.#.#", 3) and trie.add("#.#.*", 4)
    trie.check()
    for value, items in {"": [2], "a": [2, 3, 4], "a.b": [1, 2, 3, 4], "a.x.y.b": [1, 2, 3, 4], "b.a": [2, 3, 4]}.items():
        assert trie.match_list(value) == items
    for pattern, item in (("a.#.#.b", 1), ("#.#", 2), ("#.*.#", 3), ("#.#.#.*", 4)):
        assert trie.remove(pattern, item)
    assert not any(trie.counts().values())


def test_the_longest_addresses_and_patterns():
    longest = "." * 65535
    held = [longest, ".".join(["*"] * 65536), "#.*." + "." * 200 + ".#", ".".join(["*", ""] * 32768), "#.x" + longest[2:]]
    trie = TopicTrie()
    for item, pattern in enumerate(held):
        assert trie.add(pattern, item)
    trie.check()
    assert trie.match_list(longest) == [0, 1, 2, 3]
    assert trie.match_list(longest[1:]) == [2]
    assert trie.match_list("x" * 65535) == []
    for item, pattern in enumerate(held):
        assert trie.remove(pattern, item)
    assert not any(trie.counts().values())


def test_the_clock_of_a_trie_may_wrap():
    trie = TopicTrie()
    trie.add("#.a.#.b", 1)
    trie.add("#.#", 2)
    assert trie.match_list("x.a.b") == [1, 2]
    for clock in range(0xFFFFFFFF - 30, 0xFFFFFFFF):
        trie.clock = clock
        assert trie.match_list("x.a.b") == [1, 2]
        assert trie.match_list("x.b.a") == [2]
        assert trie.clock < clock or clock < 0xFFFFFFF0
        trie.check()


# ---- prefixes

texts = st.text(alphabet="ab.é日\0", max_size=12)


@given(st.lists(st.tuples(texts, items), max_size=12), st.lists(texts, max_size=8))
def test_prefixes_match_as_startswith_says(pairs, values):
    index = PrefixIndex()
    for pattern, item in pairs:
        index.add(pattern, item)
    index.check()
    for value in values:
        assert index.match_list(value) == sorted(i for p, i in set(pairs) if value.startswith(p))


# ---- the whole index


def simple_matches(operator: str, pattern: str, value: str) -> bool:
    if operator == "eq":
        return pattern == value
    if operator == "prefix":
        return value.startswith(pattern)
    if operator == "topic":
        return topic_matches(words_of(pattern), words_of(value))
    return pattern in value


def held_as(operator: str, pattern: str, item: int) -> tuple[str, str, int]:
    return operator, ".".join(with_single_hashes(pattern)) if operator == "topic" else pattern, item


operators = st.sampled_from(["eq", "topic", "topic", "prefix", "contains"])


class MatchMachine(RuleBasedStateMachine):
    """Add and remove in any order; the index is its set of (operator, pattern, item), topics with single hashes.

    Topics that differ only in the number of `#` after one another are one pattern to an item. No queue sees that: each condition
    is an item of its own.
    """

    @initialize()
    def start(self):
        self.index = MatchIndex()
        self.held: set[tuple[str, str, int]] = set()

    @rule(operator=operators, pattern=patterns, item=items)
    def add(self, operator, pattern, item):
        new = self.index.add(operator, pattern, item, (lambda p, v: p in v) if operator == "contains" else None)
        assert new == (held_as(operator, pattern, item) not in self.held)
        self.held.add(held_as(operator, pattern, item))

    @rule(operator=operators, pattern=patterns, item=items)
    def remove(self, operator, pattern, item):
        assert self.index.remove(operator, pattern, item) == (held_as(operator, pattern, item) in self.held)
        self.held.discard(held_as(operator, pattern, item))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove_one_held(self, data):
        triple = data.draw(st.sampled_from(sorted(self.held)))
        assert self.index.remove(*triple)
        self.held.remove(triple)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), item=items)
    def add_to_one_held(self, data, item):
        operator, pattern, _ = data.draw(st.sampled_from(sorted(self.held)))
        assert self.index.add(operator, pattern, item) == ((operator, pattern, item) not in self.held)
        self.held.add((operator, pattern, item))

    @rule(value=addresses)
    def match(self, value):
        assert self.index.match_list(value) == sorted(i for o, p, i in self.held if simple_matches(o, p, value))

    @rule()
    def remove_all(self):
        for triple in sorted(self.held):
            assert self.index.remove(*triple)
            self.index.check()
        self.held.clear()

    @invariant()
    def lawful(self):
        if not hasattr(self, "held"):
            return
        self.index.check()
        assert len(self.index) == len(self.held) == self.index.counts()["items"]
        if not self.held:
            assert not any(self.index.counts().values())


TestMatchMachine = MatchMachine.TestCase
TestMatchMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_pattern_is_held_once_however_many_hashes_it_is_written_with():
    machine = MatchMachine()
    machine.start()
    for operator, pattern in (("topic", "#.#"), ("topic", "a.#.#"), ("eq", "#.#")):
        machine.add(operator, pattern, 0)
    for operator, pattern in (("topic", "#"), ("topic", "a.#"), ("eq", "#"), ("eq", "#.#")):
        machine.add(operator, pattern, 0)
        machine.match("#.#")
        machine.remove(operator, pattern, 0)
        machine.lawful()
    assert not machine.held


def test_tables_grow_and_shrink():
    index = MatchIndex()
    empty_bytes = sys.getsizeof(index)
    held = {}
    for i in range(20_000):
        kinds = [("eq", f"a{i}"), ("topic", f"a.{i % 97}.*.w{i}"), ("prefix", f"p{i}"), ("topic", f"x{i % 50}.#")]
        held[i] = kinds[i % 4]
        assert index.add(*held[i], i)
    index.check()
    full_bytes = sys.getsizeof(index)
    assert full_bytes - empty_bytes < 150 * len(held)
    assert index.match_list("a.10.any.w9613") == [9613]
    assert index.match_list("x3.y.z") == [i for i in range(20_000) if held[i] == ("topic", "x3.#")]
    for i in [*range(0, 20_000, 2), *range(1, 19_900, 2)]:
        assert index.remove(*held[i], i)
        assert not index.remove(*held[i], i)
        if i % 1999 == 0:
            index.check()
    index.check()
    assert sys.getsizeof(index) - empty_bytes < (full_bytes - empty_bytes) // 4
    for i in range(19_901, 20_000, 2):
        assert index.remove(*held[i], i)
    index.check()
    assert not any(index.counts().values())
    assert sys.getsizeof(index) == empty_bytes


@given(st.lists(st.integers(0, 40), max_size=120))
def test_many_items_behind_one_pattern(toggles):
    index, held = MatchIndex(), set()
    for item in toggles:
        for operator, pattern in [("eq", "a"), ("topic", "a"), ("topic", "#"), ("topic", "*"), ("prefix", "")]:
            if item in held:
                assert index.remove(operator, pattern, item)
                assert not index.remove(operator, pattern, item)
            else:
                assert index.add(operator, pattern, item)
                assert not index.add(operator, pattern, item)
        held ^= {item}
        index.check()
        assert index.match_list("a") == sorted(list(held) * 5)
        assert index.counts()["blocks"] == (5 if len(held) > 1 else 0)


def test_a_surrogate_in_a_pattern_matches_no_text_that_utf8_can_express():
    index = MatchIndex()
    for operator in ("eq", "topic", "prefix"):
        index.add(operator, "\ud83d", 1)
    index.add("topic", "#.\ud83d.*", 2)
    assert index.match_list("\U0001f600") == index.match_list("") == []
    assert index.match_list("\ud83d") == [1, 1, 1]


def test_a_registered_operator_that_raises_does_not_match():
    def fussy(pattern, value):
        if value == "bad":
            raise ValueError(pattern)
        return pattern in value

    index = MatchIndex()
    index.add("fussy", "a", 3, fussy)
    index.add("fussy", "a", 1)
    index.add("eq", "bad", 2)
    assert index.match_list("bad") == [2]
    assert [(operator, pattern, type(error)) for operator, pattern, error in index.errors] == [("fussy", "a", ValueError)]
    index.errors.clear()
    assert index.match_list("say") == [1, 3]
    assert index.errors == []
    index.check()


def test_a_registered_operator_is_called_once_per_pattern_with_the_texts():
    calls = []
    index = MatchIndex()
    for item in range(3):
        index.add("spy", "é", item, lambda *arguments: calls.append(arguments))
    assert index.match_list("日本") == []
    assert calls == [("é", "日本")]


def test_an_operator_may_change_the_index_while_it_is_asked():
    index = MatchIndex()

    def leave(pattern, value):
        index.remove("leave", "a", 1)
        return True

    index.add("leave", "a", 1, leave)
    index.add("leave", "b", 2, leave)
    index.match_list("x")
    index.check()
    assert index.match_list("x") == [2]


def test_what_add_refuses_changes_nothing():
    index = MatchIndex()
    with pytest.raises(TypeError, match="'regex' is not built in"):
        index.add("regex", "a", 1)
    for arguments in [(None, "a", 1), ("eq", None, 1), ("eq", b"a", 1), ("eq", "a", "1")]:
        with pytest.raises(TypeError):
            index.add(*arguments)
    for item in (-1, 2**32):
        with pytest.raises(OverflowError):
            index.add("eq", "a", item)
    index.check()
    assert not any(index.counts().values())
    assert index.add("eq", "a", 2**32 - 1)
    assert index.match_list("a") == [2**32 - 1]


# ---- equality of headers

INTS = [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 5e-324, 1e300, 2.0**53, 2.0**63, -(2.0**63), math.inf, -math.inf, math.nan]
NUMBERS = [*INTS, *FLOATS]
TEXTS = ["", "1", "True", "é", b"", b"1", b"\xc3\xa9", True, False]
BEYOND = [2**63, 2**63 + 1, 2**70, -(2**64), 10**300, 10**400, int(1e300), "\ud83d"]
names = st.sampled_from(["region", "tier", "é", "a"])
values = st.one_of(st.sampled_from(NUMBERS + TEXTS), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=3))
conditions = st.one_of(values, st.sampled_from(BEYOND))


def simple_equal(wanted, value) -> bool:
    """Python's own equality is exact between int and float; only bool is set apart."""
    return isinstance(wanted, bool) == isinstance(value, bool) and wanted == value


def is_nan(value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def same_condition(one, other) -> bool:
    return simple_equal(one, other) or (is_nan(one) and is_nan(other))


@given(
    st.lists(st.tuples(names, conditions, items), max_size=12), st.lists(st.dictionaries(names, values, max_size=4), max_size=6)
)
def test_headers_are_equal_as_python_says(triples, messages):
    index, held = EqualityIndex(), []
    for name, wanted, item in triples:
        old = any(n == name and i == item and same_condition(w, wanted) for n, w, i in held)
        assert index.add(name, wanted, item) is not old
        if not old:
            held.append((name, wanted, item))
    index.check()
    for headers in messages:
        expected = sorted(i for n, w, i in held if n in headers and simple_equal(w, headers[n]))
        assert index.match_list(Message(headers=headers)) == expected
    for name, wanted, item in held:
        assert index.remove(name, wanted, item)
        assert not index.remove(name, wanted, item)
        index.check()
    assert len(index) == 0 and not any(index.counts().values())


class EqualityMachine(RuleBasedStateMachine):
    """Add and remove in any order; over values that differ in Python's eyes, the index is a set."""

    @initialize()
    def start(self):
        self.index = EqualityIndex()
        self.held: set[tuple[str, str, int]] = set()

    @rule(name=names, wanted=st.sampled_from(["EU", b"EU", 7, 7.5, True]), item=items)
    def toggle(self, name, wanted, item):
        triple = (name, wanted, item)
        if triple in self.held:
            assert self.index.remove(*triple)
        else:
            assert not self.index.remove(*triple)
            assert self.index.add(*triple)
        self.held ^= {triple}

    @rule(headers=st.dictionaries(names, st.sampled_from(["EU", b"EU", 7, 7.5, True, 7.0, 1]), max_size=4))
    def match(self, headers):
        expected = sorted(i for n, w, i in self.held if n in headers and simple_equal(w, headers[n]))
        assert self.index.match_list(Message("a", b"body", headers)) == expected

    @invariant()
    def lawful(self):
        if not hasattr(self, "held"):
            return
        self.index.check()
        assert len(self.index) == len(self.held)
        if not self.held:
            assert not any(self.index.counts().values())


TestEqualityMachine = EqualityMachine.TestCase
TestEqualityMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_every_number_against_every_other():
    for wanted in NUMBERS + TEXTS + BEYOND:
        index = EqualityIndex()
        assert index.add("n", wanted, 1)
        for value in NUMBERS + TEXTS:
            hit = index.match_list(Message(headers={"other": wanted if wanted not in BEYOND else 0, "n": value}))
            assert hit == ([1] if simple_equal(wanted, value) else []), (wanted, value)
        assert index.remove("n", wanted, 1)
        assert not any(index.counts().values())


def test_a_look_up_of_many_conditions():
    index = EqualityIndex()
    for i in range(10_000):
        index.add(f"name{i % 100}", [i, str(i), i + 0.5][i % 3], i)
    index.check()
    headers = {"name30": 630.0, "name31": "631", "name32": 632.5, "name33": 33, "name34": 634.0, "name": 0}
    assert index.match_list(Message(headers=headers)) == [33, 630, 631, 632]
    for i in range(10_000):
        assert index.remove(f"name{i % 100}", [i, str(i), i + 0.5][i % 3], i)
    index.check()
    assert not any(index.counts().values())


def test_what_equality_refuses_changes_nothing():
    index = EqualityIndex()
    for wanted in (None, [], object()):
        with pytest.raises(TypeError, match="a header is compared with"):
            index.add("a", wanted, 1)
        with pytest.raises(TypeError, match="a header is compared with"):
            index.remove("a", wanted, 1)
    with pytest.raises(TypeError):
        index.match_list({"a": 1})
    index.check()
    assert not any(index.counts().values())
