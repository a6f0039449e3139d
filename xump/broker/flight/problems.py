"""Errors, as Flight says them: a status, and as details the name of the error and its text in JSON, for `xump.broker.Client`."""

from __future__ import annotations

import json
import logging
from typing import Any

from pyarrow import ArrowException, flight

from xump.errors import XumpError

logger = logging.getLogger("xump")


class Refused(Exception):
    """The user may not do this."""


class Unknown(Exception):
    """The user is not known, or the password is wrong."""


class Gone(Exception):
    """The client is gone, or the broker ends: the call is over, and its result does not matter."""


KINDS: tuple[tuple[type[Exception], type[flight.FlightError]], ...] = (
    (Refused, flight.FlightUnauthorizedError), (Unknown, flight.FlightUnauthenticatedError), (Gone, flight.FlightCancelledError))
"""Statuses that Flight has for errors; all others are `FlightServerError`."""

TEXT_BYTES_MAX = 1000
"""The text of an error has about so many bytes at most: it is sent four times, in trailers of 8 KiB."""

THEIRS = (XumpError, ValueError, TypeError, KeyError, TimeoutError, Refused, Unknown, Gone, ArrowException)
"""Errors that say what the caller did, or what state the broker is in. Any other one is a defect, and logged."""


def problem(error: Exception, **more: Any) -> flight.FlightError:
    """The error, as Flight says it; `more`: further details."""
    if isinstance(error, flight.FlightError):
        return error
    if isinstance(error, THEIRS):
        name, text = name_of(error), text_of(error)
    else:
        logger.error("a call over Flight raised", exc_info=error)
        name, text = "Defect", "the broker has a defect; its log says more"
    text = short(text)
    details = json.dumps({"error": name, "text": text, **more}, ensure_ascii=False).encode()
    kind = next((kind for ours, kind in KINDS if isinstance(error, ours)), flight.FlightServerError)
    return kind(text, details)


def short(text: str) -> str:
    """A text that fits into the trailers of an answer, without halves of surrogate pairs.

    >>> short("\\ud800"), len(short("x" * 5000))
    ('\\\\ud800', 1003)
    """
    whole = text.encode(errors="backslashreplace")
    return whole.decode() if len(whole) <= TEXT_BYTES_MAX else whole[:TEXT_BYTES_MAX].decode(errors="ignore") + "..."


def name_of(error: Exception) -> str:
    """The name of the class that a client raises: that of Xump's tree, or of a built-in one."""
    for kind in type(error).__mro__:
        if kind.__module__ in (__name__, "xump.errors", "builtins"):
            return kind.__name__
    return type(error).__name__


def text_of(error: Exception) -> str:
    """The text of an error. `str` of a KeyError has quotes around it."""
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
