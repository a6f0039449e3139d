"""Rewriters of dead letters: functions, known by a name, that say what a message is where it goes when it cannot be processed.

`create_queue(dead_letter=..., rewriter=NAME)` uses one. Stores keep the name, so a rewriter must be registered before a store is
opened that has such a queue. Those of Xump's own are registered when they are first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable

from xump._names import name_of
from xump.errors import Conflict
from xump_ext.death import Death
from xump_ext.message.message import Message
from xump_ext.message.rewriter import _register, rewriter_names

Rewrite = Callable[[Message, Death], "Message | tuple[Message, Iterable[str]]"]

OWN = {"amqp": "xump_ext.amqp.dead_letters"}
"""Rewriters of Xump's own, and the modules that register them."""


def register_rewriter(name: str, function: Rewrite) -> None:
    """Register a function that rewrites dead letters, so that `create_queue(dead_letter=..., rewriter=name)` uses it.

    Args:
        name: The name, which stores keep.
        function: Called as `function(message, death)` with the message as it was, and a `Death`: why, where and when it died.
            Returns the message that goes to the dead letter queue; or a tuple of it and the names of queues that it must not
            enter on its way from there. It must depend on its arguments alone: a call may ask it more than once for one dead
            letter. If it raises, the engine writes the envelope as without it, and `sys.unraisablehook` gets the error.

    Raises:
        Conflict: There is such a rewriter already.
        TypeError, ValueError: An argument is wrong.

    If it raises, nothing is registered. The rewriter is registered for this process. Cost: O(1); a dead letter costs a call.

    >>> from xump import Engine, register_rewriter
    >>> def count_failures(message, death):
    ...     failures = message.headers.get("failures", 0) + 1
    ...     return message.replace(headers={**message.headers, "failures": failures, f"failed_in_{failures}": death.queue})
    >>> register_rewriter("count failures", count_failures)
    >>> with Engine() as engine:
    ...     failed = engine.create_queue("failed")
    ...     jobs = engine.create_queue("jobs", dead_letter="failed", rewriter="count failures")
    ...     number = engine.publish("jobs", "resize")
    ...     engine.get("jobs").reject()
    ...     [dict(message.headers) for message in failed.browse()]
    [{'failures': 1, 'failed_in_1': 'jobs'}]
    """
    name = name_of(name, "the name of a rewriter")
    if "\0" in name:
        raise ValueError(f"the name of a rewriter must have no zero byte, got {name!r}")
    if not callable(function):
        raise TypeError(f"rewriter {name!r} must be callable as function(message, death), got {type(function).__name__}")
    if name in OWN or name in rewriter_names():
        raise Conflict(f"rewriter {name!r} exists already; there are {', '.join([*OWN, *rewriter_names()])}")
    _register(name, function)


def rewriter_name(value: object) -> str:
    """The name as an exact str. One of Xump's own is registered."""
    name = name_of(value, "rewriter")
    load_own(name)
    return name


def load_own(name: str) -> None:
    """Register a rewriter of Xump's own."""
    if name in OWN:
        importlib.import_module(OWN[name])
