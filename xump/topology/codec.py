"""Encodes conditions, actions, credit and store options as plain values that TOML can hold, and decodes them.

    when     "always", "default", "overflow"
             {match = "topic", pattern = "flight.#"}        and field = "reply_to" or "headers.NAME", if not the address
             {where = "size > 100"}                         or {where = {region = "EU", tier = ["gold", "silver"]}}
             {all = [ … ]}                                  one or more of the tables above, joined
    do       {copy_to = "q"}, {move_to = "q"}, {bounce_to = "q"}, {deliver = "d"}, {deliver = "d", queue = "q"}, "discard"
    a name   "q", or {field = "headers.NAME"}: the message names it
    group    {field = "headers.NAME"}: the field whose value orders messages
    credit   a number, or "INFINITE"
    bytes    {hex = "00ff"}, where a filter compares a header with them

Decoding is strict: a ValueError or TypeError says what was given and what is allowed. A value that the API refuses raises the
error of the API. `xump.topology.schema` reads the tables of stores, queues and selectors around these values.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any

from xump.actions import VERBS, Action, Field, deliver, discard, field
from xump.conditions import All, Condition, Match, Role, Where, always, default, match, overflow, where
from xump_ext.infinite import INFINITE, Infinite
from xump_ext.message.times import seconds_ns, seconds_of

CONDITIONS = {condition.name: condition for condition in (always, default, overflow)}
TARGETED = {f"{name}_to": partial(Action, name) for name, verb in VERBS.items() if verb.queue}

WHEN = ('allowed are "always", "default", "overflow", {match = OPERATOR, pattern = TEXT}, {where = FILTER} and '
        "{all = [one or more of these tables]}")
DO = ("allowed are {copy_to = QUEUE}, {move_to = QUEUE}, {bounce_to = QUEUE}, {deliver = DESTINATION}, with queue = QUEUE or "
      'not, and "discard"')


class NotEncodable(ValueError):
    """A value that has no plain form: a Python function, for example."""


# ---- conditions

def encode_condition(when: Condition) -> Any:
    """Encode a condition as a plain value. Raises `NotEncodable` for a condition with a Python function in it.

    >>> encode_condition(match("eq", "audit") & where("size > 100"))
    {'all': [{'match': 'eq', 'pattern': 'audit'}, {'where': 'size > 100'}]}
    """
    if isinstance(when, Role):
        return when.name
    if isinstance(when, Match):
        encoded = {"match": when.operator, "pattern": when.pattern}
        return encoded if when.field == "address" else encoded | {"field": when.field}
    if isinstance(when, All):
        return {"all": [encode_condition(part) for part in when.parts]}
    if isinstance(when, Where) and isinstance(when.source, (str, tuple)):
        source = when.source
        return {"where": source if isinstance(source, str) else {name: _encode_header(value) for name, value in source}}
    raise NotEncodable(f"{when!r} filters by a Python function, which cannot be written as text; create that selector in the "
                       "program")


def decode_condition(encoded: object) -> Condition:
    """Decode a condition: the inverse of `encode_condition`.

    >>> decode_condition({"match": "topic", "pattern": "flight.#"})
    match('topic', 'flight.#')
    """
    if isinstance(encoded, str) and encoded in CONDITIONS:
        return CONDITIONS[encoded]
    if isinstance(encoded, Mapping):
        if "match" in encoded:
            _only(encoded, {"match", "pattern", "field"}, "when", WHEN)
            if "pattern" not in encoded:
                raise ValueError(f"when = {shown(encoded)}: a match needs a pattern")
            return match(encoded["match"], encoded["pattern"], encoded.get("field", "address"))
        if "where" in encoded:
            _only(encoded, {"where"}, "when", WHEN)
            return _decode_filter(encoded["where"])
        if "all" in encoded:
            _only(encoded, {"all"}, "when", WHEN)
            return _decode_all(encoded["all"])
    names = [*CONDITIONS, "match", "where", "all", "pattern", "field"]
    raise ValueError(f"when = {shown(encoded)}: {_unknown(encoded, names)}{WHEN}")


def _decode_all(parts: object) -> Condition:
    if not isinstance(parts, (list, tuple)) or not parts:
        raise ValueError(f"when = {{all = {shown(parts)}}}: all takes a list of one or more tables")
    first, *others = [decode_condition(part) for part in parts]
    for other in others or [first]:         # a condition joined with itself is a list of one, and not equal to the condition
        first = first & other
    return first


def _decode_filter(source: object) -> Where:
    if isinstance(source, str):
        return where(source)
    if isinstance(source, Mapping):
        return where({name: _decode_header(value) for name, value in source.items()})
    raise TypeError(f"where = {shown(source)}: a filter is a text, or a table of headers and their values")


def _encode_header(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_encode_header(v) for v in value]
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _decode_header(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_decode_header(v) for v in value]
    if isinstance(value, Mapping):
        if set(value) != {"hex"} or not isinstance(value["hex"], str):
            raise ValueError(f'{shown(value)}: a table in a filter is bytes, {{hex = "00ff"}}')
        try:
            return bytes.fromhex(value["hex"])
        except ValueError:
            raise ValueError(f'{shown(value)}: bytes are pairs of hexadecimal digits, as in {{hex = "00ff"}}') from None
    return value


# ---- actions

def encode_action(do: Action) -> Any:
    """Encode an action as a plain value.

    >>> encode_action(deliver("desk", queue=field("headers.office")))
    {'deliver': 'desk', 'queue': {'field': 'headers.office'}}
    """
    if do.verb == "discard":
        return "discard"
    if do.verb != "deliver":
        return {f"{do.verb}_to": encode_name(do.queue)}
    encoded = {"deliver": encode_name(do.destination)}
    return encoded if do.queue is None else encoded | {"queue": encode_name(do.queue)}


def decode_action(encoded: object) -> Action:
    """Decode an action: the inverse of `encode_action`.

    >>> decode_action({"move_to": "wolf-1"})
    move_to('wolf-1')
    """
    if isinstance(encoded, str) and encoded == "discard":
        return discard
    if isinstance(encoded, Mapping):
        if "deliver" in encoded:
            _only(encoded, {"deliver", "queue"}, "do", DO)
            return deliver(_decode_name(encoded["deliver"]), _decode_name(encoded["queue"]) if "queue" in encoded else None)
        for verb, action in TARGETED.items():
            if verb in encoded:
                _only(encoded, {verb}, "do", DO)
                return action(_decode_name(encoded[verb]))
    raise ValueError(f"do = {shown(encoded)}: {_unknown(encoded, [*TARGETED, 'deliver', 'discard', 'queue'])}{DO}")


def encode_name(name: str | Field | None) -> Any:
    """Encode a name, or the field that names it."""
    return {"field": name.name} if isinstance(name, Field) else name


def _decode_name(encoded: object) -> str | Field:
    if isinstance(encoded, str):
        return encoded
    if isinstance(encoded, Mapping) and set(encoded) == {"field"}:
        return field(encoded["field"])
    raise ValueError(f'{shown(encoded)} is not a name: allowed are a text, and {{field = "headers.NAME"}}')


def decode_group(encoded: object) -> Field:
    """Decode the field that orders the messages of a queue.

    >>> decode_group({"field": "headers.customer"})
    field('headers.customer')
    """
    if isinstance(encoded, Field):
        return encoded
    if isinstance(encoded, Mapping) and set(encoded) == {"field"}:
        return field(encoded["field"])
    raise ValueError(f'group = {shown(encoded)}: allowed is {{field = "headers.NAME"}}, or another field')


# ---- credit, times, options

def encode_credit(credit: int | Infinite) -> int | str:
    """Encode credit: a number, or "INFINITE"."""
    return "INFINITE" if credit is INFINITE else int(credit)


def decode_credit(encoded: object) -> int | Infinite:
    """Decode credit: the inverse of `encode_credit`."""
    if isinstance(encoded, str) and encoded == "INFINITE":
        return INFINITE
    if isinstance(encoded, bool) or not isinstance(encoded, int):
        raise TypeError(f'credit = {shown(encoded)}: allowed are a number and "INFINITE"')
    return encoded


def decode_ack_timeout(encoded: object) -> float | None:
    """Decode an `ack_timeout`, as a selector has it."""
    return None if encoded is None else seconds_of(seconds_ns(encoded, "ack_timeout"))


def decode_whole(encoded: object) -> int | None:
    """Decode a whole number, which may be left out."""
    if encoded is not None and (isinstance(encoded, bool) or not isinstance(encoded, int)):
        raise TypeError(f"{shown(encoded)} is no whole number")
    return encoded


def decode_window(encoded: object) -> str | None:
    """Decode the name of a window, which may be left out."""
    if encoded is not None and (not isinstance(encoded, str) or not encoded):
        raise TypeError(f"window must be the name of a window, got {shown(encoded)}")
    return encoded


def encode_option(value: Any) -> Any:
    """Encode an option of a store as a plain value; a path becomes text. Raises `NotEncodable` for what TOML cannot hold."""
    if isinstance(value, (bool, int, float, str, datetime.datetime, datetime.date, datetime.time)):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, (list, tuple)):
        return [encode_option(v) for v in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: encode_option(v) for name, v in value.items()}
    raise NotEncodable(f"{value!r} cannot be written as text")


def _only(encoded: Mapping[Any, Any], allowed: set[str], key: str, said: str) -> None:
    for name in encoded:
        if name not in allowed:
            raise ValueError(f"{key} = {shown(encoded)}: {name!r} does not belong there; {said}")


def _unknown(encoded: object, names: list[str]) -> str:
    """The words of an error about a key or text that is not one of these names, with the name that is most like it."""
    given = [encoded] if isinstance(encoded, str) else list(encoded) if isinstance(encoded, Mapping) else []
    for name in given:
        if isinstance(name, str) and name not in names:
            like = get_close_matches(name, names, 1)
            return f"unknown {shown(name)}{f' (did you mean {shown(like[0])}?)' if like else ''}; "
    return ""


def shown(value: object) -> str:
    """A value as TOML writes it, shortened.

    >>> shown([1, True, "a"]), shown(-(1 << 64))
    ('[1, true, "a"]', '-0x10000000000000000')
    """
    text = _toml(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_toml(part)}" for name, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return f"{value:#x}"            # Python refuses to write thousands of decimal digits
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
