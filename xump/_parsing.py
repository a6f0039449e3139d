"""Parses files and answers that others wrote: whatever is wrong with a text, the error is a ValueError.

The parsers of Python's library recurse: of a text that nests deeper than its stack they raise RecursionError.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any


def toml_of(raw: bytes) -> dict[str, Any]:
    """The tables of a TOML file. Raises ValueError.

    >>> toml_of(b"version = 1")
    {'version': 1}
    """
    found: dict[str, Any] = _parsed(lambda: tomllib.loads(raw.decode()))
    return found


def json_of(raw: bytes) -> Any:
    """The value of a text in JSON. Raises ValueError.

    >>> json_of(b"[1, 2]")
    [1, 2]
    """
    return _parsed(lambda: json.loads(raw))


def _parsed(parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except RecursionError:
        raise ValueError("it is nested too deeply to be read") from None
