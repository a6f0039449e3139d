"""More scripts: what arguments, names and frames may be, and queues that are full."""

import struct

from tests.broker.steps import Connect, bind, confirms, consume, do, exchange, get, nack, publish, queue, raw, wait

DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
QUORUM = {"x-queue-type": "quorum"}
TEN_YEARS = 315_360_000_000
REPLY_TO = "amq.rabbitmq.reply-to"
REFUSING = {"x-max-length-bytes": 5, "x-overflow": "reject-publish"}


def content(*frames):
    """A message for q of which these frames are the rest."""
    return [queue(), do("basic.publish", exchange="", routing_key="q"), raw(b"".join(
        bytes((kind, 0, 1)) + len(payload).to_bytes(4, "big") + payload + b"\xCE" for kind, payload in frames)), get()]


def header(size, flags=0, weight=0, rest=b""):
    return 2, struct.pack(">HHQH", 60, weight, size, flags) + rest


ARGUMENTS = {
    **{f"{kind}: {name}": [queue(durable=True, args={"x-queue-type": kind, name: value})]
       for kind in ("classic", "quorum") for name, value in (
           ("x-delivery-limit", 2), ("x-quorum-initial-group-size", 2), ("x-max-age", "5D"), ("x-initial-cluster-size", 3),
           ("x-stream-max-segment-size-bytes", 3), ("x-max-in-memory-length", 5), ("x-max-in-memory-bytes", 5),
           ("x-queue-leader-locator", "client-local"), ("x-max-priority", 5), ("x-queue-mode", "lazy"), ("x-queue-version", 2),
           ("x-ha-policy", "all"), ("x-stream-offset", 5), ("x-dead-letter-strategy", "at-least-once"))},
    "what it is of no number": [queue(args={"x-max-length": -1, "x-delivery-limit": 5})],
    "two that are unknown": [queue(args={"x-delivery-limit": 5, "x-max-age": "1D"})],
    "unknown before exclusive": [queue(exclusive=True, durable=True, args={**QUORUM, "x-max-priority": 5})],
    "unknown and again": [queue(), queue(args={"x-delivery-limit": 5})],
    "another limit of deliveries": [
        queue(durable=True, args={**QUORUM, "x-delivery-limit": 3}), queue(durable=True, args={**QUORUM, "x-delivery-limit": 4})],
    "a limit of deliveries that is a text": [queue(durable=True, args={**QUORUM, "x-delivery-limit": "1"}),
        publish(), consume(), wait(), nack(1), wait(), nack(2), wait()],
    "a negative limit of deliveries": [queue(durable=True, args={**QUORUM, "x-delivery-limit": -1})],
    "an unknown locator": [queue(durable=True, args={**QUORUM, "x-queue-leader-locator": "magic"})],
    "an unknown strategy": [queue(durable=True, args={**QUORUM, "x-dead-letter-strategy": "magic"})],
    "a group of 0": [queue(durable=True, args={**QUORUM, "x-quorum-initial-group-size": 0})],
    "unknown versions": [queue(args={"x-queue-version": 3})],
    "version 0": [queue(args={"x-queue-version": 0})],
    "a transient stream": [queue(args={"x-queue-type": "stream"})],
    "a quorum queue that deletes itself": [queue(durable=True, auto_delete=True, args=QUORUM)],
    "classic, then quorum": [queue(durable=True, args={"x-queue-type": "classic"}), queue(durable=True, args=QUORUM)],
    "of no type, then quorum": [queue(durable=True), queue(durable=True, args=QUORUM)],
    "quorum, then of no type": [queue(durable=True, args=QUORUM), queue(durable=True)],
    **{f"{value} of {kind}": [queue(args={name: value})]
       for name in ("x-message-ttl",) for kind, value in (("bool", True), ("double", 5.5), ("list", [1]), ("void", None))},
    "no dead letter exchange": [queue(args={"x-dead-letter-exchange": None})],
    "a dead letter key of a number": [queue(args={"x-dead-letter-exchange": "e", "x-dead-letter-routing-key": 1})],
    "the longest ttl": [queue(args={"x-message-ttl": ("l", TEN_YEARS)})],
    "a ttl beyond": [queue(args={"x-message-ttl": ("l", TEN_YEARS + 1)})],
    "the longest expires": [queue(args={"x-expires": ("l", TEN_YEARS)})],
    "an expires beyond": [queue(args={"x-expires": ("l", TEN_YEARS + 1)})],
    "the longest expiration": [queue(), publish(expiration=str(TEN_YEARS)), get()],
    "an expiration beyond": [queue(), publish(expiration=str(TEN_YEARS + 1)), wait()],
    "expirations that are numbers": [queue(), *(publish(expiration=text) for text in ("+50000", "0050000")), get(), get(),
        publish(expiration="-0"), get()],
    "an expiration after a space": [queue(), publish(expiration=" 5"), wait()],
    "an empty expiration": [queue(), publish(expiration=""), wait()],
    "an expiration with a point": [queue(), publish(expiration="5.5"), wait()],
    "a bad expiration that goes nowhere": [exchange(kind="fanout"), publish(to="e", expiration="a"), wait()],
    "a consumer of a stream": [queue(), consume(args={"x-stream-offset": "first"})],
    "a consumer of a stream of a quorum queue": [queue(durable=True, args=QUORUM), consume(args={"x-stream-offset": "first"})],
    "credit and other arguments of a consumer": [
        queue(), consume(args={"x-credit": {"credit": 1, "drain": False}, "x-cancel-on-ha-failover": True, "x-mine": 1})],
    "a priority that is no number": [queue(), consume(args={"x-priority": 5.0})],
    "a negative priority": [queue(), consume(no_ack=True), consume(tag="d", args={"x-priority": -5}, no_ack=True), publish(),
        publish(), wait(2)],
}

NAMES = {
    "line breaks in names": [queue("a\nb\r\n"), queue("ab", passive=True), queue("ab\n", passive=True), exchange("e\r\n"),
        exchange("e\n", passive=True), bind("ab\n", "e\n"), publish("k", to="e"), get("ab"),
        do("queue.unbind", queue="ab\n", exchange="e\n", routing_key="k"), publish("k", to="e"), get("ab"),
        do("queue.delete", queue="ab\n"), queue("ab", passive=True)],
    "line breaks in names of exchanges": [exchange(), exchange("f"), do("exchange.bind", destination="e\n", source="f\n"),
        do("exchange.unbind", destination="e\n", source="f\n"), do("exchange.delete", exchange="e\n"), exchange(passive=True)],
    "a name of line breaks": [queue("\n")],
    "line breaks where names count as they are": [queue(), do("queue.purge", queue="q\n")],
    "consume with a line break": [queue(), consume("q\n")],
    "get with a line break": [queue(), get("q\n")],
    "publish with a line break": [queue(), publish("q\n", mandatory=True), wait()],
    "publish to an exchange with a line break": [exchange(), publish("q", to="e\n"), wait()],
    "an exchange called amq.default": [exchange("amq.default", "direct", durable=True)],
    "amq.default, passive": [exchange("amq.default", passive=True)],
    "delete amq.default": [do("exchange.delete", exchange="amq.default")],
    "publish to amq.default": [publish(to="amq.default"), wait()],
    "bind to amq.default": [queue(), bind(source="amq.default")],
    "the reply-to declared": [queue(REPLY_TO), queue(REPLY_TO, durable=True)],
    "get from the reply-to": [get(REPLY_TO)],
    "delete the reply-to": [do("queue.delete", queue=REPLY_TO)],
    "purge the reply-to": [do("queue.purge", queue=REPLY_TO)],
    "bind the reply-to": [exchange(), bind(REPLY_TO)],
    "a reply-to of nobody": [queue(f"{REPLY_TO}.abc", passive=True)],
    "publish to a reply-to of nobody": [publish(f"{REPLY_TO}.abc", mandatory=True), wait()],
    "publish to the reply-to": [publish(REPLY_TO, mandatory=True), wait()],
    "the reply-to of each channel": [consume(REPLY_TO, "r", no_ack=True, exclusive=True),
        consume(REPLY_TO, "s", no_ack=True, on="a2")],
    "a longer reply-to": [queue(), publish(reply_to=f"{REPLY_TO}.x"), get()],
    "the reply-to without a tag": [consume(REPLY_TO, "", no_ack=True)],
}

FRAMES = {
    "bodies without bytes": content(header(2), (3, b""), (3, b"a"), (3, b""), (3, b"b")),
    "more body than said": content(header(1), (3, b"ab")),
    "a weight": [*content(header(0, weight=1))[:-1], wait()],
    "flags without a meaning": content(header(0, flags=3)),
    "closeok of a client": [do("channel.closeok"), queue()],
    "cancelok of a client": [do("basic.cancelok", consumer_tag="x"), wait()],
    "flowok of a client": [do("channel.flowok", active=True), wait()],
    "getempty of a client": [do("basic.getempty"), wait()],
    "connection.close on a channel": [do("connection.close", on="a1"), wait()],
    "tuneok again": [do("connection.tuneok", on="a0", channel_max=5, frame_max=8192), wait()],
    "open again": [do("connection.open", on="a0", virtual_host="/"), wait()],
    "startok again": [do("connection.startok", on="a0"), wait()],
    "blocked by a client": [do("connection.blocked", on="a0"), wait()],
    "closeok of a connection that is open": [do("connection.closeok", on="a0"), wait()],
    "close a channel that was not opened": [do("channel.close", on="a9"), wait()],
    "no limit of channels": [Connect(channel_max=0)],
    "no limit of frames": [Connect(frame_max=0)],
    "a number above channel_max": [Connect(channel_max=4), do("channel.open", on="a9"), queue(on="a9")],
    "more than channel_max": [Connect(channel_max=3), do("channel.open", on="a4"), wait()],
    "EXTERNAL without TLS": [Connect(mechanism="EXTERNAL")],
    "no vhost": [Connect(vhost="")],
}

BOUNDS = {
    "a single active consumer, exclusive": [queue(args={"x-single-active-consumer": True}), consume(exclusive=True)],
    "get beside a single active consumer": [queue(args={"x-single-active-consumer": True}), consume(), publish(), wait(),
        publish(), get()],
    "get from a quorum queue with one": [queue(durable=True, args={**QUORUM, "x-single-active-consumer": True}), get()],
    "the next active consumer is the one of the highest priority": [
        queue(args={"x-single-active-consumer": True}), consume(no_ack=True), consume(tag="d", no_ack=True),
        consume(tag="e", args={"x-priority": 5}, no_ack=True), publish(), wait(), do("basic.cancel", consumer_tag="c"), publish(),
        wait()],
    "get from a quorum queue": [
        queue(durable=True, args=QUORUM), do("confirm.select"), publish(headers={"a": 1}), confirms(1), get(no_ack=False),
        nack(1), get(no_ack=False), do("channel.close"), get(on="a2")],
    "at most 5 bytes, and 6": [queue(args={"x-max-length-bytes": 5}), publish(body="a"), publish(body="b" * 6), get()],
    "5 bytes of 5, and none": [queue(args={"x-max-length-bytes": 5}), publish(body="aaaaa"), publish(body=""), get(), get()],
    "4 of at most 10": [queue(args={"x-max-length-bytes": 10}), *(publish(body=letter * 4) for letter in "abc"), get(), get(),
        get()],
    "too large, and dead": [queue("dead"), queue(args={**DEAD, "x-max-length-bytes": 5}), publish(body="aaaaaa"), get(),
        get("dead")],
    "by messages and by bytes": [queue(args={"x-max-length-bytes": 5, "x-max-length": 2}),
        *(publish(body=body) for body in ("a", "b", "c", "ddddd", "e")), get(), get(), get()],
    "bytes that are refused": [queue(args=REFUSING), do("confirm.select"), *(publish(body=body) for body in ("abc", "abc", "a")),
        confirms(3), get(), get(), get()],
    "all bytes, and none": [queue(args=REFUSING), do("confirm.select"), *(publish(body=body) for body in ("abcde", "", "a")),
        confirms(3), get(), get(), get()],
    "refused, for it is too large": [queue(args=REFUSING), do("confirm.select"), publish(body="abcdef"), confirms(1), get()],
    "refused in a transaction": [queue(args=REFUSING), do("tx.select"), publish(body="abc"), publish(body="ab"), do("tx.commit"),
        get(), get()],
    "none, refused": [queue(args={"x-max-length": 0, "x-overflow": "reject-publish"}), do("confirm.select"), publish(),
        consume(no_ack=True), publish(), confirms(2)],
    "none, for whoever waits": [queue(args={"x-max-length": 0}), publish(), get(), consume(no_ack=True), publish(), wait()],
    "no bytes, for whoever waits": [queue(args={"x-max-length-bytes": 0}), publish(), get(), publish(body=""), get(),
        consume(no_ack=True), publish(), wait()],
    "none, and dead": [queue("dead"), queue(args={**DEAD, "x-max-length": 0}), publish(body="a"), get(), get("dead")],
    "none, and given back": [queue("dead"), queue(args={**DEAD, "x-max-length": 0}), consume(), publish(body="a"), wait(),
        do("basic.cancel", consumer_tag="c"), nack(1), get(), get("dead")],
    "none, beyond a prefetch": [queue("dead"), queue(args={**DEAD, "x-max-length": 0}), do("basic.qos", prefetch_count=1),
        consume(), publish(body="a"), wait(), publish(body="b"), get(), get("dead")],
    "none, and no time": [queue("dead"), queue(args={**DEAD, "x-max-length": 0, "x-message-ttl": 0}), publish(body="a"), get(),
        get("dead")],
    "full, and given back": [queue(args={"x-max-length": 1}), publish(body="a"), get(no_ack=False), publish(body="b"), nack(1),
        get(), get(), get()],
    "full and refusing, and given back": [queue(args={"x-max-length": 1, "x-overflow": "reject-publish"}), publish(body="a"),
        get(no_ack=False), publish(body="b"), nack(1), get(), get(), get()],
    "no priority is the lowest": [queue(args={"x-max-priority": 5}), publish(body="a"), publish(body="b", priority=0),
        publish(body="c", priority=1), get(), get(), get()],
    "priorities of 0": [queue(args={"x-max-priority": 0}), publish(body="a", priority=3), publish(body="b"), get(), get()],
    "priorities of 255": [queue(args={"x-max-priority": 255}), publish(body="a", priority=3), publish(body="b", priority=255),
        get(), get()],
}
