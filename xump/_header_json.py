"""Values of headers in JSON, which has neither bytes nor floats that are no finite numbers: these are objects.

    {"base64": "/w=="}          bytes
    {"float": "nan"}            a float: nan, inf or -inf

No header has a dict, so that such an object is told from a text. The command line writes and reads it so, and HTTP.
"""

from __future__ import annotations

import base64
import math
from typing import Any

FLOATS = {str(value): value for value in (math.nan, math.inf, -math.inf)}


def encoded(value: Any) -> Any:
    """The value as JSON has it.

    >>> encoded(b"\\xff"), encoded(float("-inf")), encoded("nan")
    ({'base64': '/w=='}, {'float': '-inf'}, 'nan')
    """
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def decoded(value: Any) -> Any:
    """The inverse of `encoded`. Raises ValueError for another object.

    >>> decoded({"base64": "/w=="}), decoded({"float": "-inf"}), decoded(3)
    (b'\\xff', -inf, 3)
    """
    if not isinstance(value, dict):
        return value
    [(kind, text)] = value.items() if len(value) == 1 else [(None, None)]
    if kind == "float" and isinstance(text, str) and text in FLOATS:
        return FLOATS[text]
    if kind == "base64" and isinstance(text, str):
        return base64.b64decode(text, validate=True)
    raise ValueError(f'an object must be bytes, {{"base64": "/w=="}}, or {{"float": "nan"}}, "inf" or "-inf", got {value!r}')
