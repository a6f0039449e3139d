"""The methods of exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pamqp import commands

from xump.broker.errors import ProtocolError, precondition, refused
from xump.broker.exchanges import DELAYED, DELAYED_TYPE, TYPES, Destination, Exchange, check_binding
from xump.broker.methods import Call, encode
from xump.broker.queue_arguments import check_equivalent, check_field, wrong_type
from xump.broker.tables import Table

if TYPE_CHECKING:
    from xump.broker.channel import Channel


def declare(channel: Channel, call: Call) -> None:
    """exchange.declare."""
    name = without_breaks(call.exchange)
    vhost = channel.vhost
    if call.passive:
        check_not_default(name)
        vhost.exchange(name)
    else:
        if call.exchange_type not in (*TYPES, DELAYED):
            wrong = "unknown" if call.exchange_type else "invalid"
            raise ProtocolError(503, f"{wrong} exchange type '{call.exchange_type}'")
        check_not_default(name)
        channel.connection.check("configure", "exchange", name)
        what = f"exchange '{name}' in vhost '{vhost.name}'"
        existing = vhost.exchanges.get(name)
        if existing is None:
            check_name("exchange", name)
            _check_alternate(channel, name, what, call.arguments)
            _check_delayed(call)
            if call.durable:
                vhost.note_durable(f"exchange {name!r}")
            vhost.bindings.declare(Exchange(
                name, call.exchange_type, call.durable, call.auto_delete, call.internal, call.arguments))
        else:
            _check_same(existing, what, call)
    if not call.nowait:
        kept = not call.passive and vhost.bindings.keeps(vhost.exchanges[name])
        channel.answer(encode(commands.Exchange.DeclareOk), durable=kept)


def _check_same(existing: Exchange, what: str, call: Call) -> None:
    check_field(what, "type", existing.type, call.exchange_type)
    check_field(what, "durable", existing.durable, call.durable)
    check_field(what, "auto_delete", existing.auto_delete, call.auto_delete)
    check_field(what, "internal", existing.internal, call.internal)
    check_equivalent(what, ("alternate-exchange", DELAYED_TYPE), existing.arguments, call.arguments)


def _check_delayed(call: Call) -> None:
    given = call.arguments.get(DELAYED_TYPE)
    if call.exchange_type == DELAYED and (given is None or given.kind != "S" or given.value not in map(str.encode, TYPES)):
        raise precondition(f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type: {', '.join(TYPES)}")


def _check_alternate(channel: Channel, name: str, what: str, arguments: Table) -> None:
    alternate = arguments.get("alternate-exchange")
    if alternate is None:
        return
    if alternate.kind != "S":
        raise wrong_type("alternate-exchange", what, alternate)
    channel.connection.check("read", "exchange", name)
    channel.connection.check("write", "exchange", alternate.value.decode(errors="replace"))


def delete(channel: Channel, call: Call) -> None:
    """exchange.delete."""
    name = without_breaks(call.exchange)
    check_not_default(name)
    if name.startswith("amq."):
        raise refused(f"deletion of system exchange '{name}' in vhost '{channel.vhost.name}' not allowed")
    channel.connection.check("configure", "exchange", name)
    exchange = channel.vhost.exchanges.get(name)
    kept = exchange is not None and channel.vhost.bindings.keeps(exchange)
    if exchange is not None:
        if call.if_unused and exchange.bindings:
            raise precondition(f"exchange '{name}' in vhost '{channel.vhost.name}' in use")
        channel.vhost.bindings.delete(exchange)
    if not call.nowait:
        channel.answer(encode(commands.Exchange.DeleteOk), durable=kept)


def bind(channel: Channel, call: Call) -> None:
    """exchange.bind."""
    name, destination = _both(channel, call)
    source = channel.vhost.exchange(name)
    channel.vhost.exchange(destination)
    check_binding(source, call.arguments)
    kept = channel.vhost.bindings.bind(source, Destination("exchange", destination), call.routing_key, call.arguments)
    if not call.nowait:
        channel.answer(encode(commands.Exchange.BindOk), durable=kept)


def unbind(channel: Channel, call: Call) -> None:
    """exchange.unbind."""
    source, destination = _both(channel, call)
    kept = channel.vhost.bindings.unbind(source, Destination("exchange", destination), call.routing_key, call.arguments)
    if not call.nowait:
        channel.answer(encode(commands.Exchange.UnbindOk), durable=kept)


def _both(channel: Channel, call: Call) -> tuple[str, str]:
    """Source and destination, if the user may bind them."""
    source, destination = without_breaks(call.source), without_breaks(call.destination)
    check_not_default(destination)
    channel.connection.check("write", "exchange", destination)
    check_not_default(source)
    channel.connection.check("read", "exchange", source)
    return source, destination


def without_breaks(name: str) -> str:
    """The name of a queue or exchange as declarations and bindings take it: without line breaks, as in RabbitMQ."""
    return name.replace("\r", "").replace("\n", "")


def check_not_default(name: str) -> None:
    """Refuse to change the exchange without a name."""
    if not name:
        raise refused("operation not permitted on the default exchange")


def check_name(what: str, name: str) -> None:
    """Refuse names that the broker keeps for itself."""
    if name.startswith("amq."):
        raise refused(f"{what} name '{name}' contains reserved prefix 'amq.*'")
