"""What the scripts of `tests/broker/scripts.py` are made of."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Step:
    """Something that a client does on a connection."""

    on: str = "a"


@dataclass
class Connect(Step):
    """Log in. A connection without this step logs in as guest, and opens three channels."""

    mechanism: str = "PLAIN"
    response: bytes = b"\0guest\0guest"
    vhost: str = "/"
    channel_max: int = 2047
    frame_max: int = 131_072
    channels: int = 3


@dataclass
class Method(Step):
    """A method; its answer is waited for, or the end of the channel or connection instead."""

    name: str = ""
    channel: int = 1
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class Publish(Step):
    exchange: str = ""
    key: str = ""
    body: str = "x"
    properties: dict[str, Any] = field(default_factory=dict)
    mandatory: bool = False
    immediate: bool = False
    channel: int = 1


@dataclass
class Raw(Step):
    """Bytes, as they are."""

    data: bytes = b""


@dataclass
class Wait(Step):
    """So many methods come."""

    count: int = 1


@dataclass
class Until(Step):
    """This method comes, or the end of the connection."""

    name: str = ""


@dataclass
class Settled(Step):
    """A queue has done what was sent before, such as a reject. RabbitMQ's queues are processes: another one may be asked before a
    dead letter has come there, and the same one before it has sent it."""

    queue: str = "q"


@dataclass
class Confirms(Step):
    """So many messages are confirmed, one way or the other."""

    count: int = 1
    channel: int = 1


def do(name, *, on="a1", **fields):
    """The method `queue.declare` on channel 1 of connection a, say."""
    return Method(on[0], name, int(on[1:]), fields)


def queue(name="q", *, on="a1", **arguments):
    """queue.declare."""
    bits = {bit: arguments.pop(bit) for bit in ("passive", "durable", "exclusive", "auto_delete", "nowait") if bit in arguments}
    return do("queue.declare", on=on, queue=name, arguments=arguments.pop("args", {}), **bits)


def exchange(name="e", kind="direct", *, on="a1", args=None, **bits):
    """exchange.declare."""
    return do("exchange.declare", on=on, exchange=name, exchange_type=kind, arguments=args or {}, **bits)


def bind(name="q", source="e", key="k", *, on="a1", args=None):
    """queue.bind."""
    return do("queue.bind", on=on, queue=name, exchange=source, routing_key=key, arguments=args or {})


def publish(key="q", body="x", *, on="a1", to="", mandatory=False, immediate=False, **properties):
    return Publish(on[0], to, key, body, properties, mandatory, immediate, int(on[1:]))


def get(name="q", *, on="a1", no_ack=True):
    return do("basic.get", on=on, queue=name, no_ack=no_ack)


def consume(name="q", tag="c", *, on="a1", args=None, **bits):
    return do("basic.consume", on=on, queue=name, consumer_tag=tag, arguments=args or {}, **bits)


def ack(tag, *, on="a1", multiple=False):
    return do("basic.ack", on=on, delivery_tag=tag, multiple=multiple)


def nack(tag, *, on="a1", multiple=False, requeue=True):
    return do("basic.nack", on=on, delivery_tag=tag, multiple=multiple, requeue=requeue)


def reject(tag, *, on="a1", requeue=True):
    return do("basic.reject", on=on, delivery_tag=tag, requeue=requeue)


def until(name, *, on="a"):
    return Until(on, name)


def wait(count=1, *, on="a"):
    return Wait(on, count)


def settled(queue="q", *, on="a"):
    return Settled(on, queue)


def confirms(count, *, on="a1"):
    return Confirms(on[0], count, int(on[1:]))


def raw(data, *, on="a"):
    return Raw(on, data)
