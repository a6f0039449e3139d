"""Exchanges over HTTP: publish as a client of AMQP does, so that bindings decide which queues get the message."""

from __future__ import annotations

from typing import Any

from aiohttp import web

import xump.aio
from xump.broker.envelope import envelope_of, message_of
from xump.broker.errors import ProtocolError
from xump.broker.http.call import Call, answer, number, seconds
from xump.broker.http.cloudevents import CONTENT_TYPE
from xump.broker.http.problems import RETRY_SECONDS, Problem, asking
from xump.broker.http.queues import headers_of
from xump.broker.incoming import Incoming
from xump_ext.message.times import seconds_ns


async def publish(call: Call) -> web.Response:
    """Publish a message to an exchange; answers when it is durable, and says to how many queues it went."""
    name = call.name("exchange")
    call.check("write", name)
    call.only("address", "reply_to", "message_id", "correlation_id", "ttl", "priority")
    call.check_memory()
    try:
        exchange = call.vhost.exchange(name)
    except ProtocolError as error:
        raise Problem(404, str(error)) from None
    if exchange.internal:
        raise Problem(403, f"exchange {name!r} is internal: only other exchanges publish to it")
    address, properties = call.request.query.get("address", ""), _properties(call)
    priority, ttl = properties.get("priority", 0), call.parameter("ttl", _milliseconds)
    body = await call.body()
    with asking():
        message = message_of(address, body, properties, exchange=name)
        assert message.annex is not None
        incoming = Incoming(
            exchange, (address,), message.annex, envelope_of(message).properties, body, priority, ttl)
        if call.engine.pressed:
            await xump.aio.relieved(call.engine)
        [outcome] = call.vhost.publish([incoming])
        await xump.aio.durable(call.engine)
    if outcome.full_store and call.engine.pressed:
        raise Problem(503, f"a store that messages of exchange {name!r} go to makes room", Retry_After=str(RETRY_SECONDS))
    if outcome.full_store:
        raise Problem(507, f"a store that messages of exchange {name!r} go to is full")
    if outcome.refused:
        raise Problem(503, f"a queue that messages of exchange {name!r} go to is full", Retry_After=str(RETRY_SECONDS))
    return answer({"queues": outcome.queues}, 201)


def _milliseconds(text: str) -> int:
    """A number of seconds, as AMQP has it."""
    return round(seconds_ns(seconds(text), "ttl") / 10 ** 6)


def _properties(call: Call) -> dict[str, Any]:
    """The properties of the message in the request, as AMQP names them."""
    headers = headers_of(call.request)
    found: dict[str, Any] = {
        key: value for key in ("reply_to", "message_id", "correlation_id") if (value := call.parameter(key, str)) is not None}
    kind, priority = headers.pop(CONTENT_TYPE, None), call.parameter("priority", number)
    if kind is not None:
        found["content_type"] = kind
    if priority is not None:
        found["priority"] = priority
    if headers:
        found["headers"] = headers
    return found
