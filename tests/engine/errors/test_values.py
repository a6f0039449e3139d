"""Conditions, actions, messages, operators, stores and engines that cannot be made."""

from types import SimpleNamespace

import pytest

from xump import (
    Delivery, Engine, Message, always, bounce_to, copy_to, default, deliver, discard, field, limits, match, move_to,
    overflow, where,
)
from xump.errors import (
    Conflict, InvalidFilter, InvalidPattern,
)
from xump.operators import operator_names, register_operator
from xump.store_types import register_store, store_types
from tests.engine.errors.life import BEYOND, LONG


POSITIONS = {
    "topic": (lambda: match("topic", "a.b*"), InvalidPattern, 3, ["'a.b*'", "'*' at 3", "word of its own"]),
    "topic, at first": (lambda: match("topic", "#a.b"), InvalidPattern, 0, ["'#' at 0"]),
    "topic, two wildcards": (lambda: match("topic", "a.**"), InvalidPattern, 2, ["at 2"]),
    "topic, too many words": (lambda: match("topic", "#." * 1000 + "a"), InvalidPattern, 2000, ["1001 words", "1000"]),
    "field, surrogate": (lambda: match("eq", "a", "headers.\ud800"), InvalidPattern, 8, ["surrogate", "8"]),
    "target field, surrogate": (lambda: field("headers.\ud800"), InvalidPattern, 8, ["surrogate", "8"]),
    "pattern too long": (lambda: match("eq", LONG), InvalidPattern, 65534, ["65536", "65534"]),
    "operator unknown": (lambda: match("like", "a"), InvalidPattern, 0, ["'like'", "eq, topic, prefix"]),
    "field unknown": (lambda: match("eq", "a", "body"), InvalidPattern, 0, ["'body'", "'address'", "headers.NAME"]),
    "field without a name": (lambda: match("eq", "a", "headers."), InvalidPattern, 0, ["'headers.'", "headers.NAME"]),
    "field, destination": (lambda: match("eq", "a", "destination"), InvalidPattern, 0, ["'destination'", "'reply_to'"]),
    "target field unknown": (lambda: field("message_id"), InvalidPattern, 0, ["'message_id'", "'destination'"]),
    "filter ends": (lambda: where("n >"), InvalidFilter, 3, ["value", "at 3", "in the filter 'n >'"]),
    "filter empty": (lambda: where(""), InvalidFilter, 0, ["at 0"]),
    "filter goes on": (lambda: where("n > 1 2"), InvalidFilter, 6, ["at 6", "operator or the end", "'2'"]),
    "filter chains": (lambda: where("1 < n < 3"), InvalidFilter, 6, ["at 6", "chain"]),
    "filter of text": (lambda: where("a AND 'b'"), InvalidFilter, 6, ["AND", "at 6"]),
    "filter not closed": (lambda: where("a = 'b"), InvalidFilter, 4, ["'", "at 4", "not closed"]),
    "filter, parenthesis": (lambda: where("(a = 1"), InvalidFilter, 6, [")", "at 6"]),
    "filter, three equals": (lambda: where("a === 1"), InvalidFilter, 4, ["'='", "at 4"]),
    "filter, octal": (lambda: where("a = 007"), InvalidFilter, 4, ["007", "leading zero"]),
    "filter, name of the system": (lambda: where("sys.body = 1"), InvalidFilter, 0, ["sys.body", "sys.address"]),
    "filter, LIKE": (lambda: where("a LIKE 1"), InvalidFilter, 7, ["string", "at 7"]),
    "filter, ESCAPE": (lambda: where("a LIKE 'b' ESCAPE 'cd'"), InvalidFilter, 18, ["'cd'", "one character"]),
    "filter, IN": (lambda: where("a IN ()"), InvalidFilter, 6, ["literal", "at 6"]),
    "filter too long": (lambda: where("n = " + "1" * 4093), InvalidFilter, 4096, ["4097", "4096"]),
    "filter too deep": (lambda: where("(" * 101 + "TRUE" + ")" * 101), InvalidFilter, 100, ["101 levels", "100"]),
    "filter beyond 64 bits": (lambda: where(f"n = {BEYOND}"), InvalidFilter, 4, [str(BEYOND), "64 bits"]),
    "filter, surrogate": (lambda: where("n = '\ud800'"), InvalidFilter, 5, ["surrogate", "5"]),
    "mapping empty": (lambda: where({}), InvalidFilter, 0, ["empty mapping", "always"]),
    "mapping, no value": (lambda: where({"n": []}), InvalidFilter, 0, ["'n'", "empty list"]),
    "mapping beyond 64 bits": (lambda: where({"n": BEYOND}), InvalidFilter, 0, ["'n'", str(BEYOND), "64 bits"]),
    "mapping, nan": (lambda: where({"n": float("nan")}), InvalidFilter, 0, ["'n'", "nan"]),
    "mapping, name empty": (lambda: where({"": 1}), InvalidFilter, 0, ["0 bytes", "65535"]),
    "mapping, name too long": (lambda: where({LONG: 1}), InvalidFilter, 0, ["65536", "65535"]),
    "mapping too large": (lambda: where({"n": "x" * 2**20}), InvalidFilter, 0, [str(2**20 + 1), str(2**20)]),
}


@pytest.mark.parametrize("case", POSITIONS)
def test_a_text_that_cannot_be_read_says_where(case):
    call, error, position, fragments = POSITIONS[case]
    with pytest.raises(error) as raised:
        call()
    assert raised.type is error and raised.value.position == position, raised.value
    assert [fragment for fragment in fragments if fragment not in str(raised.value)] == [], str(raised.value)


MESSAGE = Message("a", headers={"n": 1})

VALUES = {
    "operator a number": (lambda: match(5, "a"), TypeError, ["operator", "str", "int"]),
    "pattern bytes": (lambda: match("eq", b"a"), TypeError, ["pattern", "str", "bytes"]),
    "field a number": (lambda: match("eq", "a", 5), TypeError, ["field", "str", "int"]),
    "target field a number": (lambda: field(5), TypeError, ["field", "str", "int"]),
    "filter a number": (lambda: where(5), TypeError, ["filter", "str, a mapping or a callable", "int"]),
    "filter None": (lambda: where(None), TypeError, ["filter", "NoneType"]),
    "mapping, name a number": (lambda: where({5: 1}), TypeError, ["name", "str", "int"]),      # type: ignore[dict-item]
    "mapping, None": (lambda: where({"n": None}), TypeError, ["'n'", "NoneType", "IS NULL"]),      # type: ignore[dict-item]
    "mapping, a list in a list": (lambda: where({"n": [[1]]}), TypeError, ["'n'", "list"]),      # type: ignore[list-item]
    "filter a condition": (lambda: where(always), TypeError, ["filter", "Role"]),
    "filter an action": (lambda: where(discard), TypeError, ["filter", "Action"]),
    "always called": (always, TypeError, ["always is a value", "without parentheses"]),
    "discard called": (discard, TypeError, ["discard is a value", "without parentheses"]),
    "a match called": (lambda: match("eq", "a")(MESSAGE), TypeError, ["match('eq', 'a') is a value"]),
    "match without an operator": (lambda: match("sport.#"), TypeError, ["'sport.#' alone", "eq, topic, prefix"]),
    "or": (lambda: match("eq", "a") | where("n = 1"), TypeError, ["a selector for each", "where('... OR ...')"]),
    "or, roles": (lambda: always | default, TypeError, ["a selector for each"]),
    "or, on the left": (lambda: "a" | always, TypeError, ["a selector for each"]),
    "not": (lambda: ~match("eq", "a"), TypeError, ["where('NOT ...')", "when=default"]),
    "always & always": (lambda: always & always, TypeError, ["always", "alone"]),
    "default in a conjunction": (lambda: match("eq", "a") & default, TypeError, ["default", "alone"]),
    "overflow in a conjunction": (lambda: overflow & where("n = 1"), TypeError, ["overflow", "alone"]),
    "conjunction with a str": (lambda: match("eq", "a") & "n", TypeError, ["&", "str", "where(...)"]),  # type: ignore[operator]
    "conjunction with a number": (lambda: match("eq", "a") & 5, TypeError, ["&", "Match", "int"]),  # type: ignore[operator]
    "target a number": (lambda: move_to(5), TypeError, ["target queue", "a name, a Queue or field(...)", "int"]),
    "target with a name": (lambda: move_to(SimpleNamespace(name="q")), TypeError, ["target queue", "SimpleNamespace"]),
    "target without UTF-8": (lambda: move_to("q\ud800"), ValueError, ["target queue", "surrogate", "at 1"]),
    "destination too long": (lambda: deliver("d" * 65535), ValueError, ["destination", "65535", "65534"]),
    "target too long": (lambda: move_to("ä" * 32768), ValueError, ["target queue", "65536", "65534"]),
    "destination without UTF-8": (lambda: deliver("\ud800"), ValueError, ["destination", "surrogate", "at 0"]),
    "target None": (lambda: copy_to(None), TypeError, ["target queue", "NoneType"]),
    "target empty": (lambda: bounce_to(""), ValueError, ["target queue", "empty"]),
    "destination a number": (lambda: deliver(5), TypeError, ["destination", "int"]),
    "destination None": (lambda: deliver(None, "q"), TypeError, ["destination", "NoneType"]),
    "destination empty": (lambda: deliver(""), ValueError, ["destination", "empty"]),
    "target of a delivery a number": (lambda: deliver("d", 5), TypeError, ["target queue", "int"]),
    "message: body a str": (lambda: Message("a", "b"), TypeError, ["body", "str", "encode it"]),
    "message: address None": (lambda: Message(None), TypeError, ["address", "NoneType"]),
    "message: header": (lambda: Message(headers={"n": [1]}), TypeError, ["'n'", "list"]),      # type: ignore[dict-item]
    "message: replaced": (lambda: Message().replace(id=5), TypeError, ["'id'", "address, body"]),    # type: ignore[call-arg]
    "message: replaced by nonsense": (lambda: Message().replace(body="b"), TypeError, ["body", "str"]),
    "a delivery of one's own, uninitialised": (lambda: Delivery.__new__(Delivery), TypeError, ["take()", "deliveries()"]),
    "message: headers of one's own, uninitialised": (
        lambda: type(MESSAGE.headers).__new__(type(MESSAGE.headers)), TypeError, ["Message(headers={...})"]),
    "an engine again": (lambda: Engine.__init__(Engine()), TypeError, ["once"]),
    "message again": (lambda: Message("a").__init__("b"), TypeError, ["immutable", "replace()"]),
    "message: headers of one's own": (type(MESSAGE.headers), TypeError, ["Message(headers={...})"]),
    "clock a number": (lambda: Engine(clock=5), TypeError, ["clock", "callable", "int"]),
    "hop_limit a str": (lambda: Engine(hop_limit="9"), TypeError, ["hop_limit", "int", "str"]),
    "hop_limit a bool": (lambda: Engine(hop_limit=True), TypeError, ["hop_limit", "bool"]),
    "hop_limit 0": (lambda: Engine(hop_limit=0), ValueError, ["hop_limit", "from 1 to 65534", "0"]),
    "hop_limit beyond": (lambda: Engine(hop_limit=65535), ValueError, ["hop_limit", "65534", "65535"]),
    "dead_letter a number": (lambda: Engine(dead_letter=5), TypeError, ["dead_letter", "str", "int"]),
    "dead_letter empty": (lambda: Engine(dead_letter=""), ValueError, ["dead_letter", "empty"]),
    "operator's name a number": (lambda: register_operator(5, str.startswith), TypeError, ["operator", "str", "5"]),
    "operator's name empty": (lambda: register_operator("", str.startswith), ValueError, ["operator", "empty"]),
    "operator no function": (lambda: register_operator("new", 5), TypeError, ["'new'", "callable", "int"]),
    "operator's check no function": (
        lambda: register_operator("new", str.startswith, 5), TypeError, ["'new'", "callable", "int"]),
    "operator built in": (lambda: register_operator("topic", str.startswith), Conflict, ["'topic'", "eq, topic, prefix"]),
    "store's type a number": (lambda: register_store(5, dict), TypeError, ["type", "str", "5"]),
    "store's type empty": (lambda: register_store("", dict), TypeError, ["type", "''"]),
    "store no function": (lambda: register_store("new", 5), TypeError, ["'new'", "callable", "int"]),
    "store built in": (lambda: register_store("ram", dict), Conflict, ["'ram'", "ram"]),
}


@pytest.mark.parametrize("case", VALUES)
def test_what_is_no_value_is_refused(case):
    call, error, fragments = VALUES[case]
    registered = operator_names(), store_types()
    with pytest.raises(error) as raised:
        call()
    assert raised.type is error
    assert [fragment for fragment in fragments if fragment not in str(raised.value)] == [], str(raised.value)
    assert (operator_names(), store_types()) == registered


def test_an_operator_is_registered_once():
    if "errors_once" not in operator_names():
        register_operator("errors_once", str.endswith, lambda pattern: int(pattern) and None)
    with pytest.raises(Conflict, match="'errors_once'.*errors_once"):
        register_operator("errors_once", str.endswith)
    with pytest.raises(InvalidPattern, match="'errors_once' does not accept 'x'.*'x'"):
        match("errors_once", "x")
    assert match("errors_once", "5")


def test_limits_are_allowed_and_one_more_is_not():
    with Engine(hop_limit=65534) as engine:
        queue = engine.create_queue("q", limit=2**62, history_limit=2**62, delivery_limit=65_535)
        selector = engine.create_selector("q", when=match("eq", "x" * limits.pattern_bytes_max), do=deliver("d"), credit=2**62)
        headers = {"n": 2**63 - 1, "m": -2**63, "x" * 65535: b""}
        taken = sum(3 + len(name) for name in headers) + 8 + 8 + 4
        headers["y"] = "z" * (limits.headers_bytes_max - taken - (3 + 1 + 4))
        address = "x" * limits.address_bytes_max
        queue.publish(address, bytes(limits.body_bytes_max), headers, reply_to=address, message_id=address)
        [delivery] = engine.take(2**62)
        assert (dict(delivery.message.headers), len(delivery.message.body)) == (headers, limits.body_bytes_max)
        assert (selector.credit, selector.outstanding) == (2**62, 1)
        engine.check()
        with pytest.raises(ValueError, match=f"headers have {2**20 + 1} bytes"):
            queue.publish(headers=headers | {"y": headers["y"] + "z"})
