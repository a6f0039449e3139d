"""Which function carries out which method of a channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pamqp import commands

from xump.broker import basic_methods, exchange_methods, queue_methods
from xump.broker.errors import ProtocolError
from xump.broker.methods import Call, Kind

if TYPE_CHECKING:
    from xump.broker.channel import Channel

METHODS: dict[Kind, Callable[[Channel, Call], None]] = {
    commands.Exchange.Declare: exchange_methods.declare,
    commands.Exchange.Delete: exchange_methods.delete,
    commands.Exchange.Bind: exchange_methods.bind,
    commands.Exchange.Unbind: exchange_methods.unbind,
    commands.Queue.Declare: queue_methods.declare,
    commands.Queue.Delete: queue_methods.delete,
    commands.Queue.Purge: queue_methods.purge,
    commands.Queue.Bind: queue_methods.bind,
    commands.Queue.Unbind: queue_methods.unbind,
    commands.Basic.Qos: basic_methods.qos,
    commands.Basic.Consume: basic_methods.consume,
    commands.Basic.Cancel: basic_methods.cancel,
    commands.Basic.Get: basic_methods.get,
    commands.Basic.Recover: basic_methods.recover,
    commands.Basic.RecoverAsync: basic_methods.recover_async,
    commands.Channel.Flow: basic_methods.flow,
    commands.Confirm.Select: basic_methods.confirm_select,
    commands.Tx.Select: basic_methods.tx_select,
    commands.Tx.Commit: basic_methods.tx_commit,
    commands.Tx.Rollback: basic_methods.tx_rollback,
}


def carry_out(channel: Channel, call: Call) -> None:
    """Carry out a method. One that raises `StoreFull` has changed nothing, and may be carried out again."""
    function = METHODS.get(call.kind)
    if function is None:
        raise ProtocolError(503, "unimplemented method")
    function(channel, call)
