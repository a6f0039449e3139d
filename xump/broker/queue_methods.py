"""The methods of queues."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

from pamqp import commands

from xump.broker.errors import ProtocolError, locked, not_found, precondition
from xump.broker.exchange_methods import check_name, check_not_default, without_breaks
from xump.broker.exchanges import Destination, check_binding
from xump.broker.methods import Call, encode
from xump.broker.purging import is_large, purge as purge_queue
from xump.broker.queue_arguments import COMPARED, UNKNOWN, check_arguments, check_equivalent, check_field, queue_type
from xump.broker.queues import REPLY_TO, is_for_replies

if TYPE_CHECKING:
    from xump.broker.channel import Channel
    from xump.broker.queues import BrokerQueue


def declare(channel: Channel, call: Call) -> None:
    """queue.declare."""
    call.queue = without_breaks(call.queue)
    if is_for_replies(call.queue):
        _declare_for_replies(channel, call)
        return
    queue = _passive(channel, call) if call.passive else _declare(channel, call)
    channel.last_queue = queue.name
    channel.vhost.used(queue)
    if not call.nowait:
        channel.answer(encode(
            commands.Queue.DeclareOk, queue=queue.name, message_count=queue.handle.ready, consumer_count=len(queue.consumers)),
            durable=not call.passive and queue.stored)


def _declare_for_replies(channel: Channel, call: Call) -> None:
    """Clients that answer ask so whether the other one still waits: each such declaration is passive, and what is there has a
    consumer."""
    if call.queue != REPLY_TO and channel.vhost.find_queue(call.queue) is None:
        raise not_found(f"queue '{call.queue}' in vhost '{channel.vhost.name}'")
    channel.last_queue = call.queue
    if not call.nowait:
        channel.answer(encode(commands.Queue.DeclareOk, queue=call.queue, consumer_count=1))


def _passive(channel: Channel, call: Call) -> BrokerQueue:
    queue = channel.vhost.queue(call.queue)
    channel.check_owner(queue)
    return queue


def _declare(channel: Channel, call: Call) -> BrokerQueue:
    vhost = channel.vhost
    name = call.queue or f"amq.gen-{base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip('=')}"
    durable = call.durable and not call.exclusive
    channel.connection.check("configure", "queue", name)
    vhost.check_is_clients(name, declared=True)
    existing = vhost.find_queue(name)
    what = f"queue '{name}' in vhost '{vhost.name}'"
    if existing is not None:
        _check_same(channel, existing, durable, call)
        return existing
    if call.queue:
        check_name("queue", name)
    check_arguments(what, call.arguments, call.durable, call.exclusive, call.auto_delete)
    exchange = call.arguments.get("x-dead-letter-exchange")
    if exchange is not None:
        channel.connection.check("read", "queue", name)
        channel.connection.check("write", "exchange", exchange.value.decode(errors="replace"))
    return vhost.declare_queue(
        name, durable, channel.connection if call.exclusive else None, call.auto_delete, call.arguments)


def _check_same(channel: Channel, existing: BrokerQueue, durable: bool, call: Call) -> None:
    if existing.owner is not (channel.connection if call.exclusive else None):      # before all else, as in RabbitMQ
        raise locked(existing.what)
    check_field(existing.what, "durable", existing.durable, durable)
    check_field(existing.what, "auto_delete", existing.auto_delete, call.auto_delete)
    unknown = UNKNOWN[queue_type(existing.arguments)]
    check_equivalent(
        existing.what, tuple(name for name in COMPARED if name not in unknown), existing.arguments, call.arguments)


def delete(channel: Channel, call: Call) -> None:
    """queue.delete."""
    name = without_breaks(call.queue) or channel.last_queue
    channel.connection.check("configure", "queue", name)
    channel.vhost.check_is_clients(name)
    queue = None if is_for_replies(name) else channel.vhost.find_queue(name)
    kept = queue is not None and queue.stored

    def deleted(count: int) -> None:
        """It has gone, with so many messages."""
        if not call.nowait:
            channel.answer(encode(commands.Queue.DeleteOk, message_count=count), durable=kept)

    if queue is None:
        deleted(0)
    else:
        channel.check_owner(queue)
        if call.if_unused and len(queue.consumers):
            raise precondition(f"{queue.what} in use")
        if call.if_empty and queue.handle.ready:
            raise precondition(f"{queue.what} not empty")
        if is_large(queue.handle):
            channel.connection.do_later(
                channel, purge_queue(queue.handle),
                lambda count: channel.vhost.delete_queue(queue, lambda rest: deleted(count + rest)))
        else:
            channel.vhost.delete_queue(queue, deleted)


def purge(channel: Channel, call: Call) -> None:
    """queue.purge."""
    name = call.queue or channel.last_queue
    channel.connection.check("read", "queue", name)
    queue = channel.queue(call.queue)

    def purged(count: int) -> None:
        """So many messages have gone."""
        if not call.nowait:
            channel.answer(encode(commands.Queue.PurgeOk, message_count=count), durable=queue.stored and count > 0)

    if is_large(queue.handle):
        channel.connection.do_later(channel, purge_queue(queue.handle), purged)
    else:
        purged(queue.handle.purge())


def bind(channel: Channel, call: Call) -> None:
    """queue.bind."""
    name, exchange, key = _bound(channel, call)
    source = channel.vhost.exchange(exchange)
    channel.queue(name)
    check_binding(source, call.arguments)
    kept = channel.vhost.bindings.bind(source, Destination("queue", name), key, call.arguments)
    if not call.nowait:
        channel.answer(encode(commands.Queue.BindOk), durable=kept)


def unbind(channel: Channel, call: Call) -> None:
    """queue.unbind."""
    name, exchange, key = _bound(channel, call)
    queue = channel.vhost.find_queue(name)
    if queue is not None:
        channel.check_owner(queue)
    kept = channel.vhost.bindings.unbind(exchange, Destination("queue", name), key, call.arguments)
    channel.answer(encode(commands.Queue.UnbindOk), durable=kept)


def _bound(channel: Channel, call: Call) -> tuple[str, str, str]:
    """The queue, the exchange and the key that are meant: without queue and key, the queue that was declared last, and its
    name."""
    name, exchange, key = without_breaks(call.queue), without_breaks(call.exchange), call.routing_key
    if not name:
        if not channel.last_queue:
            raise ProtocolError(404, "no previously declared queue")
        name = channel.last_queue
        key = key or name
    channel.connection.check("write", "queue", name)
    check_not_default(exchange)
    channel.connection.check("read", "exchange", exchange)
    return name, exchange, key
