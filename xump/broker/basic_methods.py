"""The methods of messages that are not rows of the codec, of confirms and of transactions."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

from pamqp import commands

from xump.broker.consumers import Consumer
from xump.broker.ending import shutdown
from xump.broker.errors import ProtocolError, precondition, refused
from xump.broker.methods import Call, encode
from xump.broker.queue_arguments import unknown_to
from xump.broker.queues import REPLY_TO
from xump.broker.tables import INTEGERS, TYPE_NAMES
from xump_ext.engine.taking import put_back

if TYPE_CHECKING:
    from xump.broker.channel import Channel
    from xump.broker.queues import BrokerQueue


def qos(channel: Channel, call: Call) -> None:
    """basic.qos: of the channel, or of consumers that come from now on."""
    if call.prefetch_size:
        raise ProtocolError(540, f"prefetch_size!=0 ({call.prefetch_size})")
    if call.global_ or channel.connection.takes_qos_by_the_book:
        channel.resize(call.prefetch_count)
    else:
        channel.prefetch = call.prefetch_count
        channel.resize(0)
    channel.answer(encode(commands.Basic.QosOk))


def consume(channel: Channel, call: Call) -> None:
    """basic.consume."""
    if channel.connection.broker.is_ending:
        raise shutdown()
    name = call.queue or channel.last_queue
    if call.queue != REPLY_TO:            # each client may have its own replies
        channel.connection.check("read", "queue", name)
    tag = call.consumer_tag or f"amq.ctag-{base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip('=')}"
    if tag in channel.consumers:
        raise ProtocolError(530, f"attempt to reuse consumer tag '{tag}'")
    if call.queue == REPLY_TO:
        queue, priority = _reply_queue(channel, call), 0        # its arguments mean nothing there, as in RabbitMQ
    else:
        queue = channel.queue(call.queue)
        priority = _priority(call, queue)
        if queue.exclusive_consumer or (call.exclusive and (len(queue.consumers) or queue.consumers.single_active)):
            raise refused(f"{queue.what} in exclusive use")
    consumer = Consumer(channel, queue, tag, call.no_ack, call.exclusive, channel.prefetch, priority, call.arguments)
    channel.consumers[tag] = consumer
    channel.vhost.add_consumer(consumer)
    if not call.nowait:
        channel.answer(encode(commands.Basic.ConsumeOk, consumer_tag=tag))
    channel.answers.add(lambda: channel.vhost.begin_consumer(consumer))


def _priority(call: Call, queue: BrokerQueue) -> int:
    """The priority of a consumer, if its arguments are good."""
    if "x-stream-offset" in call.arguments:
        raise unknown_to("x-stream-offset", queue.what, "quorum" if queue.is_quorum else "classic")
    priority = call.arguments.get("x-priority")
    if priority is None:
        return 0
    if priority.kind not in INTEGERS:
        raise precondition(f"invalid arg 'x-priority' for {queue.what}: \"expected integer, got {TYPE_NAMES[priority.kind]}\"")
    return int(priority.value)


def _reply_queue(channel: Channel, call: Call) -> BrokerQueue:
    """Direct reply-to: a queue of this consumer, whose name nobody can guess, and which goes with it."""
    if channel.reply_queue is not None:
        raise precondition("reply consumer already set")
    if not call.no_ack:
        raise precondition("reply consumer cannot acknowledge")
    name = f"{REPLY_TO}.{base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip('=')}"
    channel.reply_queue = channel.vhost.declare_queue(name, False, channel.connection, True, {})
    return channel.reply_queue


def cancel(channel: Channel, call: Call) -> None:
    """basic.cancel: what was delivered stays valid."""
    consumer = channel.consumers.get(call.consumer_tag)
    if not call.nowait:
        channel.answer(encode(commands.Basic.CancelOk, consumer_tag=call.consumer_tag))
    if consumer is not None:
        channel.remove(consumer)


def get(channel: Channel, call: Call) -> None:
    """basic.get."""
    name = call.queue or channel.last_queue
    channel.connection.check("read", "queue", name)
    queue: BrokerQueue = channel.queue(call.queue)
    if queue.is_quorum and queue.consumers.single_active:
        raise ProtocolError(405, f"cannot obtain access to locked {queue.what}. basic.get operations are not supported by quorum "
                                 "queues with single active consumer")
    channel.vhost.used(queue)
    delivery = channel.vhost.get(queue)
    if delivery is None:
        channel.answer(encode(commands.Basic.GetEmpty))
        return
    left = queue.handle.ready
    channel.answers.add(
        lambda: channel.got(delivery, call.no_ack, left, queue.is_quorum),
        undo=lambda: put_back(channel.vhost.engine, [delivery]))
    channel.connection.flush_soon()


def recover(channel: Channel, call: Call) -> None:
    """basic.recover."""
    recover_async(channel, call)
    channel.answer(encode(commands.Basic.RecoverOk))


def recover_async(channel: Channel, call: Call) -> None:
    """basic.recover-async."""
    if not call.requeue:
        raise ProtocolError(540, "requeue=false")
    channel.recover()


def flow(channel: Channel, call: Call) -> None:
    """channel.flow."""
    if not call.active:
        raise ProtocolError(540, "active=false")
    channel.answer(encode(commands.Channel.FlowOk, active=True))


def confirm_select(channel: Channel, call: Call) -> None:
    """confirm.select."""
    if channel.transactional:
        raise precondition("cannot switch from tx to confirm mode")
    channel.confirming = True
    if not call.nowait:
        channel.answer(encode(commands.Confirm.SelectOk))


def tx_select(channel: Channel, call: Call) -> None:
    """tx.select."""
    if channel.confirming:
        raise precondition("cannot switch from confirm to tx mode")
    channel.transactional = True
    channel.answer(encode(commands.Tx.SelectOk))


def tx_commit(channel: Channel, call: Call) -> None:
    """tx.commit."""
    _check_transactional(channel)
    channel.commit(encode(commands.Tx.CommitOk))


def tx_rollback(channel: Channel, call: Call) -> None:
    """tx.rollback."""
    _check_transactional(channel)
    channel.transaction.rollback()
    channel.answer(encode(commands.Tx.RollbackOk))


def _check_transactional(channel: Channel) -> None:
    if not channel.transactional:
        raise precondition("channel is not transactional")
