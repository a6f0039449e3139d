"""Conditions, actions, credit and store options as plain values that TOML can hold, and back.

    when     "always", "default", "overflow"
             {match = "topic", pattern = "flight.#"}        and field = "reply_to" or "headers.NAME", if not the address
             {where = "size > 100"}                         or {where = {region = "EU", tier = ["gold", "silver"]}}
             {all = [ … ]}                                  one or more of the tables above, joined
    do       {copy_to = "q"}, {move_to = "q"}, {bounce_to = "q"}, {deliver = "d"}, {deliver = "d", queue = "q"}, "discard"
    a name   "q", or {field = "headers.NAME"}: the message names it
    credit   a number, or "INFINITE"
    bytes    {hex = "00ff"}, where a filter compares a header with them

Reading is strict: a `ValueError` or TypeError says what was given and what is allowed, and whatever the API itself refuses is
refused in its words. What stands around these values, tables of stores, queues and selectors, belongs to `xump.topology`.
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

ROLES = {condition.name: condition for condition in (always, default, overflow)}
TARGETED = {f"{name}_to": partial(Action, name) for name, verb in VERBS.items() if verb.queue}

WHEN = ('allowed are "always", "default", "overflow", {match = OPERATOR, pattern = TEXT}, {where = FILTER} and '
        "{all = [one or more of these tables]}")
DO = ("allowed are {copy_to = QUEUE}, {move_to = QUEUE}, {bounce_to = QUEUE}, {deliver = DESTINATION}, with queue = QUEUE or "
      'not, and "discard"')


class NoSpelling(ValueError):
    """A value that has no spelling: a callable."""


# ---- conditions

def spell_condition(when: Condition) -> Any:
    """A condition as a plain value. Raises `NoSpelling` for one that has a callable in it.

    >>> spell_condition(match("eq", "audit") & where("size > 100"))
    {'all': [{'match': 'eq', 'pattern': 'audit'}, {'where': 'size > 100'}]}
    """
    if isinstance(when, Role):
        return when.name
    if isinstance(when, Match):
        spelled = {"match": when.operator, "pattern": when.pattern}
        return spelled if when.field == "address" else spelled | {"field": when.field}
    if isinstance(when, All):
        return {"all": [spell_condition(part) for part in when.parts]}
    if isinstance(when, Where) and isinstance(when.source, (str, tuple)):
        source = when.source
        return {"where": source if isinstance(source, str) else {name: _spell_header(value) for name, value in source}}
    raise NoSpelling(f"{when!r} is a callable, which only the program itself can give")


def read_condition(spelled: object) -> Condition:
    """The condition of a plain value; the inverse of `spell_condition`.

    >>> read_condition({"match": "topic", "pattern": "flight.#"})
    match('topic', 'flight.#')
    """
    if isinstance(spelled, str) and spelled in ROLES:
        return ROLES[spelled]
    if isinstance(spelled, Mapping):
        if "match" in spelled:
            _only(spelled, {"match", "pattern", "field"}, "when", WHEN)
            if "pattern" not in spelled:
                raise ValueError(f"when = {_shown(spelled)}: a match needs a pattern")
            return match(spelled["match"], spelled["pattern"], spelled.get("field", "address"))
        if "where" in spelled:
            _only(spelled, {"where"}, "when", WHEN)
            return _read_filter(spelled["where"])
        if "all" in spelled:
            _only(spelled, {"all"}, "when", WHEN)
            return _read_all(spelled["all"])
    raise ValueError(f"when = {_shown(spelled)}: {_meant(spelled, [*ROLES, 'match', 'where', 'all', 'pattern', 'field'])}{WHEN}")


def _read_all(parts: object) -> Condition:
    if not isinstance(parts, (list, tuple)) or not parts:
        raise ValueError(f"when = {{all = {_shown(parts)}}}: all takes a list of one or more tables")
    first, *others = [read_condition(part) for part in parts]
    for other in others or [first]:         # what was joined with itself is one part, and not equal to that
        first = first & other
    return first


def _read_filter(source: object) -> Where:
    if isinstance(source, str):
        return where(source)
    if isinstance(source, Mapping):
        return where({name: _read_header(value) for name, value in source.items()})
    raise TypeError(f"where = {_shown(source)}: a filter is a text, or a table of headers and what they equal")


def _spell_header(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_spell_header(v) for v in value]
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _read_header(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_read_header(v) for v in value]
    if isinstance(value, Mapping):
        if set(value) != {"hex"} or not isinstance(value["hex"], str):
            raise ValueError(f'{_shown(value)}: a table in a filter is bytes, {{hex = "00ff"}}')
        return bytes.fromhex(value["hex"])
    return value


# ---- actions

def spell_action(do: Action) -> Any:
    """An action as a plain value.

    >>> spell_action(deliver("desk", queue=field("headers.office")))
    {'deliver': 'desk', 'queue': {'field': 'headers.office'}}
    """
    if do.verb == "discard":
        return "discard"
    if do.verb != "deliver":
        return {f"{do.verb}_to": _spell_name(do.queue)}
    spelled = {"deliver": _spell_name(do.destination)}
    return spelled if do.queue is None else spelled | {"queue": _spell_name(do.queue)}


def read_action(spelled: object) -> Action:
    """The action of a plain value; the inverse of `spell_action`.

    >>> read_action({"move_to": "wolf-1"})
    move_to('wolf-1')
    """
    if isinstance(spelled, str) and spelled == "discard":
        return discard
    if isinstance(spelled, Mapping):
        if "deliver" in spelled:
            _only(spelled, {"deliver", "queue"}, "do", DO)
            return deliver(_read_name(spelled["deliver"]), _read_name(spelled["queue"]) if "queue" in spelled else None)
        for verb, action in TARGETED.items():
            if verb in spelled:
                _only(spelled, {verb}, "do", DO)
                return action(_read_name(spelled[verb]))
    raise ValueError(f"do = {_shown(spelled)}: {_meant(spelled, [*TARGETED, 'deliver', 'discard', 'queue'])}{DO}")


def _spell_name(name: str | Field | None) -> Any:
    return {"field": name.name} if isinstance(name, Field) else name


def _read_name(spelled: object) -> str | Field:
    if isinstance(spelled, str):
        return spelled
    if isinstance(spelled, Mapping) and set(spelled) == {"field"}:
        return field(spelled["field"])
    raise ValueError(f'{_shown(spelled)} is no name: allowed are a text, and {{field = "headers.NAME"}}')


# ---- credit, options

def spell_credit(credit: int | Infinite) -> int | str:
    """A number, or "INFINITE"."""
    return "INFINITE" if credit is INFINITE else int(credit)


def read_credit(spelled: object) -> int | Infinite:
    """The inverse of `spell_credit`."""
    if isinstance(spelled, str) and spelled == "INFINITE":
        return INFINITE
    if isinstance(spelled, bool) or not isinstance(spelled, int):
        raise TypeError(f'credit = {_shown(spelled)}: allowed are a number and "INFINITE"')
    return spelled


def spell_option(value: Any) -> Any:
    """A store's option as a plain value; a path becomes text. Raises `NoSpelling` for what TOML cannot hold."""
    if isinstance(value, (bool, int, float, str, datetime.datetime, datetime.date, datetime.time)):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, (list, tuple)):
        return [spell_option(v) for v in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: spell_option(v) for name, v in value.items()}
    raise NoSpelling(f"{value!r} cannot be written as text")


def _only(spelled: Mapping[Any, Any], allowed: set[str], key: str, said: str) -> None:
    for name in spelled:
        if name not in allowed:
            raise ValueError(f"{key} = {_shown(spelled)}: {name!r} does not belong there; {said}")


def _meant(spelled: object, names: list[str]) -> str:
    """What is wrong with a key, or with a text, that is not one of these names, and which name is like it."""
    given = [spelled] if isinstance(spelled, str) else list(spelled) if isinstance(spelled, Mapping) else []
    for name in given:
        if isinstance(name, str) and name not in names:
            like = get_close_matches(name, names, 1)
            return f"unknown {_shown(name)}{f', meant is perhaps {like[0]}' if like else ''}; "
    return ""


def _shown(value: object) -> str:
    """As it would stand in TOML, shortened."""
    text = _toml(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_toml(part)}" for name, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
