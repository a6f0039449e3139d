"""Which permissions clients need that do not speak AMQP: those of Flight and HTTP. `users.py` has the permissions themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xump.broker.exchange_graph import PREFIX
from xump.broker.queues import is_for_replies

if TYPE_CHECKING:
    from xump.broker.vhost import Vhost


STAGING = "xump.staging/"
"""The names of queues begin so that hold what is staged over Flight."""


def is_staged(queue: str) -> bool:
    """Whether it is the name of a queue with staged messages: the broker keeps these to itself."""
    return queue.startswith(STAGING)


def is_kept_to_itself(queue: str) -> bool:
    """Whether it is the name of a queue that the broker, or one client of AMQP, keeps to itself: others read it never, however
    much they may read."""
    return is_staged(queue) or is_for_replies(queue)


def topology_of(vhost: Vhost) -> dict[str, Any]:
    """The topology of a virtual host, without such queues."""
    found: dict[str, Any] = vhost.engine.topology()
    queues = {name: queue for name, queue in found.get("queues", {}).items() if not is_kept_to_itself(name)}
    selectors = [selector for selector in found.get("selectors", []) if not is_kept_to_itself(selector["source"])]
    return found | {"queues": queues, "selectors": selectors}


def why_not(vhost: Vhost, permission: str, queue: str) -> str | None:
    """Why clients that do not speak AMQP may not do to a queue what this permission is for; None: it is not the queue of an
    exchange, nor staged, nor one that a connection has for itself; or they only publish to it, for which they need the
    permission to write to the exchange."""
    if is_staged(queue):
        return f"queue {queue!r} is for staged messages, which the broker keeps to itself: no other name begins with {STAGING!r}"
    if is_for_replies(queue) and permission != "write":
        return f"queue {queue!r} is for the replies to one client of AMQP: others only publish to it"
    if permission == "configure" and vhost.is_exclusive(queue):
        return f"queue {queue!r} is exclusive to a connection of AMQP, and goes with it"
    if not queue.startswith(PREFIX) or permission == "read":
        return None
    name = queue.removeprefix(PREFIX)
    exchange = vhost.exchanges.get(name)
    if permission == "write" and (exchange is None or not exchange.internal):
        return None
    return f"exchange {name!r} is for clients of AMQP: here one can only publish, and not to an internal one"


def why_not_take(vhost: Vhost, queue: str) -> str | None:
    """Why such clients may not take messages out of a queue that they may read; None: they may."""
    if vhost.is_exclusive(queue):
        return f"queue {queue!r} is exclusive to a connection of AMQP, which alone takes from it"
    return None


RESERVED = ("amq.", "xump.")
"""Destinations that begin so are those of the broker's own consumers."""

ANY_QUEUE, ANY_DESTINATION = "any queue", "any destination"
"""The names for which a user needs permission who lets messages name queues, or destinations: all names are allowed, or these are
not. Other queues may come later."""


def why_not_deliver(destination: str) -> str | None:
    """Why clients may neither take from a destination nor let selectors deliver there; None: they may, if their permissions for
    its name say so."""
    if destination.startswith(RESERVED):
        return f"destination {destination!r} is a consumer's own: choose a name that begins with none of {', '.join(RESERVED)}"
    return None


def needed_beside_queues(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The permissions that a topology needs for windows, to configure, and for destinations, to write. Where the message names
    the destination, that may be any."""
    for name in as_dict(given.get("windows")):
        yield "configure", name
    selectors = given.get("selectors")
    for selector in selectors if isinstance(selectors, list) else []:
        do, window = as_dict(as_dict(selector).get("do")), as_dict(selector).get("window")
        if isinstance(window, str):
            yield "configure", window
        if "deliver" in do:
            yield "write", do["deliver"] if isinstance(do["deliver"], str) else ANY_DESTINATION


def needed(given: Mapping[str, Any], queues: list[str]) -> Iterator[tuple[str, str]]:
    """The permissions that a topology needs; what is malformed in it, `Engine.apply` refuses. A selector whose target is named by
    the message may lead to any queue."""
    for name, properties in as_dict(given.get("queues")).items():
        yield "configure", name
        letters = as_dict(properties).get("dead_letter")
        if isinstance(letters, str):
            yield "write", letters
    selectors = given.get("selectors")
    for selector in selectors if isinstance(selectors, list) else []:
        source, do = as_dict(selector).get("source"), as_dict(as_dict(selector).get("do"))
        if isinstance(source, str):
            yield "configure", source
            yield "read", source
        for target in [do[name] for name in ("copy_to", "move_to", "bounce_to", "queue") if name in do]:
            for name in [target] if isinstance(target, str) else [ANY_QUEUE, *queues]:
                yield "write", name


def as_dict(given: object) -> dict[str, Any]:
    """A dict, or an empty one."""
    return given if isinstance(given, dict) else {}
