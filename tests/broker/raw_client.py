"""A client that does what a script says, frame by frame, and writes down all that the server says.

What differs from run to run is replaced: names that a server has chosen, times. Confirms are written down by their tags, since a
server may confirm several in one frame.
"""

import contextlib
import re
import socket
import struct
import zlib
from typing import Any

from pamqp import commands

from tests.broker.steps import Confirms, Connect, Method, Publish, Raw, Settled, Until, Wait
from tests.patience import tries
from xump.broker.envelope import FLAGS, split
from xump.broker.methods import decode, encode
from xump.broker.tables import Typed, decode_table, encode_table

SECONDS_MAX = 60.0
KINDS: Any = commands.INDEX_MAPPING.values()
METHODS = {kind.name.lower(): kind for kind in KINDS}
CHOSEN = re.compile(r"amq\.(gen|ctag|rabbitmq\.reply-to)([-.])[\w+/=-][\w+/=.-]*")
ACCESS_REQUEST_OK = b"\0\x1e\0\x0b"
"""pamqp does not know it."""
CAPABILITIES = {"consumer_cancel_notify": Typed("t", True), "connection.blocked": Typed("t", True),
                "authentication_failure_close": Typed("t", True)}


def value_of(given):
    """A value of a table: a tuple is a letter and a value, everything else has the usual type."""
    if isinstance(given, tuple):
        return Typed(given[0], table_of(given[1]) if given[0] == "F" else
                     [value_of(one) for one in given[1]] if given[0] == "A" else given[1])
    if isinstance(given, bool):
        return Typed("t", given)
    if isinstance(given, int):
        return Typed("I", given)
    if isinstance(given, str):
        return Typed("S", given.encode())
    if isinstance(given, float):
        return Typed("d", given)
    if isinstance(given, list):
        return Typed("A", [value_of(one) for one in given])
    if isinstance(given, dict):
        return Typed("F", table_of(given))
    return Typed("V", None)


def table_of(given):
    return {name: value_of(value) for name, value in given.items()}


def shown(typed):
    """A value as it is written down."""
    kind, value = typed
    if kind == "F":
        return {name: shown(one) for name, one in sorted(value.items())}
    if kind == "A":
        return [shown(one) for one in value]
    if kind == "T":
        return "a time"
    return f"{kind} {named(value.decode(errors='replace')) if isinstance(value, bytes) else value}"


def named(text):
    return CHOSEN.sub(r"amq.\1\2*", text)


def properties_of(given):
    encoded = {}
    for name, value in given.items():
        if name == "headers":
            encoded[name] = encode_table(table_of(value))
        elif name in ("delivery_mode", "priority"):
            encoded[name] = bytes([value])
        elif name == "timestamp":
            encoded[name] = struct.pack(">Q", value)
        else:
            encoded[name] = bytes([len(value)]) + value.encode()
    flags = sum(1 << FLAGS[name] for name in encoded)
    return struct.pack(">H", flags) + b"".join(encoded[name] for name in FLAGS if name in encoded)


def shown_properties(data):
    found = {}
    for name, encoded in split(data).items():
        if name == "headers":
            found[name] = shown(Typed("F", decode_table(encoded[4:])))
        else:
            found[name] = encoded.decode(errors="replace") if name in ("delivery_mode", "priority", "timestamp") else (
                named(encoded[1:].decode()))
    return found


def shown_body(body):
    return body.decode() if len(body) < 100 else f"{len(body)} bytes, {zlib.crc32(body)}"


class Link:
    """One connection."""

    def __init__(self, name, address, said, seconds=SECONDS_MAX):
        self.name = name
        self.said = said
        self.socket = socket.create_connection(address, seconds)
        self.seconds = seconds
        self.socket.settimeout(seconds)
        self.rest = b""
        self.open = True
        self.confirmed = {}
        self.content = {}           # by channel: a method with content, and what came of it
        self.gone = set()           # channels that the server has closed
        self.names = set()          # queues and exchanges to be deleted
        self.last = None

    def connect(self, step):
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.read_until({"connection.start"}, silent=True)
        self.send(0, "connection.startok", mechanism=step.mechanism, response=step.response, locale="en_US",
                  client_properties={"capabilities": Typed("F", CAPABILITIES)})
        if not self.read_until({"connection.tune"}, silent=True):
            return
        self.send(0, "connection.tuneok", channel_max=step.channel_max, frame_max=step.frame_max, heartbeat=0)
        self.send(0, "connection.open", virtual_host=step.vhost)
        if self.read_until({"connection.openok"}, silent=True):
            for channel in range(1, step.channels + 1):
                self.send(channel, "channel.open")
                self.read_until({"channel.openok"}, silent=True)

    def send(self, channel, method, **fields):
        self.frame(1, channel, encode(METHODS[method], **fields))

    def frame(self, kind, channel, payload):
        self.write(struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xCE")

    def write(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            self.open = False

    def publish(self, step):
        self.send(step.channel, "basic.publish", exchange=step.exchange, routing_key=step.key, mandatory=step.mandatory,
                  immediate=step.immediate)
        body = step.body.encode()
        self.frame(2, step.channel, struct.pack(">HHQ", 60, 0, len(body)) + properties_of(step.properties))
        for at in range(0, len(body), 4088):
            self.frame(3, step.channel, body[at:at + 4088])

    # ---- reading

    def read_until(self, names, silent=False, channel=None):
        """Read until one of these methods has come; False: a close came instead."""
        while self.open:
            found = self.event()
            if found is None:
                continue
            at, name, fields, content = found
            wanted = name in names and channel in (None, at)
            if not (silent and wanted):
                self.note(at, name, fields, content)
            if wanted:
                return True
            if name == "channel.close" and channel == at:
                return False
        return False

    def event(self):
        """The next method, with its content; None: a confirm, or a frame in between."""
        kind, channel, payload = self.read_frame()
        if not self.open:
            return None
        if kind == 8:
            return None
        if kind == 2:
            self.content[channel][1:] = [int.from_bytes(payload[4:12], "big"), payload[12:], b""]
        elif kind == 3:
            self.content[channel][3] += payload
        else:
            if payload[:4] == ACCESS_REQUEST_OK:
                return channel, "access.requestok", {"ticket": int.from_bytes(payload[4:], "big")}, None
            call = decode(payload)
            name = call.kind.name.lower()
            fields = {field: value for field, value in vars(call).items() if field != "kind"}
            if name in ("basic.ack", "basic.nack"):
                self.confirm(channel, name, fields)
                return None
            if name == "channel.close":
                self.gone.add(channel)
                self.send(channel, "channel.closeok")
            if name == "connection.close":
                self.send(0, "connection.closeok")
                self.open = False
            if name not in ("basic.deliver", "basic.return", "basic.getok"):
                return channel, name, fields, None
            self.content[channel] = [(name, fields)]
            return None
        waiting = self.content[channel]
        if len(waiting[3]) < waiting[1]:
            return None
        del self.content[channel]
        return channel, *waiting[0], {"properties": shown_properties(waiting[2]), "body": shown_body(waiting[3])}

    def read_frame(self):
        head = self.read_bytes(7)
        if len(head) < 7:
            self.open = False
            self.said.append([self.name, "the socket is closed"])
            return 0, 0, b""
        kind, channel, size = struct.unpack(">BHI", head)
        return kind, channel, self.read_bytes(size + 1)[:-1]

    def read_bytes(self, size):
        while len(self.rest) < size:
            more = self.received()
            if not more:
                return b""
            self.rest += more
        found, self.rest = self.rest[:size], self.rest[size:]
        return found

    def received(self):
        """Return the next bytes; b"" once the server has closed the connection."""
        each = min(1.0, self.seconds)
        self.socket.settimeout(each)
        try:
            for _ in tries(self.seconds, each):
                with contextlib.suppress(TimeoutError):
                    return self.socket.recv(1 << 16)
        except ConnectionError:
            return b""
        finally:
            self.socket.settimeout(self.seconds)
        raise TimeoutError(f"nothing came for {self.seconds} seconds")

    def confirm(self, channel, name, fields):
        tags = self.confirmed.setdefault(channel, {})
        last = fields["delivery_tag"]
        for tag in range(1 if fields["multiple"] else last, last + 1):      # some before may have been answered, some not
            tags.setdefault(tag, name[6:])

    def note(self, channel, name, fields, content):
        if name == "connection.start":
            fields = {}
        self.last = fields
        shown_fields = {field: shown(Typed("F", value)) if isinstance(value, dict) else
                        named(value.decode() if isinstance(value, bytes) else value) if isinstance(value, str | bytes) else value
                        for field, value in fields.items()}
        self.said.append([f"{self.name}{channel}", name, shown_fields, *([content] if content else [])])


def run(script, address, seconds=SECONDS_MAX):
    """Do what a script says. Returns what the server said. It has so many seconds for each answer."""
    said, links = [], {}
    try:
        for step in script:
            if step.on not in links:
                link = links[step.on] = Link(step.on, address, said, seconds)
                link.connect(step if isinstance(step, Connect) else Connect(on=step.on))
                if isinstance(step, Connect):
                    continue
            carry_out(links[step.on], step)
        for link in links.values():
            if link.open:
                link.send(0, "connection.close")
                link.read_until({"connection.closeok"}, silent=True)
    finally:
        for link in links.values():
            link.socket.close()
        clean_up(script, address, seconds)
    return said


def carry_out(link, step):
    if isinstance(step, Publish):
        link.publish(step)
    elif isinstance(step, Raw):
        link.write(step.data)
    elif isinstance(step, Wait):
        wanted = len(link.said) + step.count
        while link.open and len(link.said) < wanted:
            found = link.event()
            if found is not None:
                link.note(*found)
    elif isinstance(step, Until):
        link.read_until({step.name, "connection.close"})
    elif isinstance(step, Settled):
        link.send(1, "queue.declare", queue=step.queue, passive=True)
        link.read_until({"queue.declareok"}, silent=True)
    elif isinstance(step, Confirms):
        while link.open and len(link.confirmed.get(step.channel, {})) < step.count and step.channel not in link.gone:
            found = link.event()
            if found is not None:
                link.note(*found)
        link.said.append([f"{link.name}{step.channel}", "confirms",
                          [f"{tag} {word}" for tag, word in sorted(link.confirmed.get(step.channel, {}).items())]])
    elif isinstance(step, Method):
        carry_out_method(link, step)


def carry_out_method(link, step):
    kind = METHODS[step.name]
    fields = {name: table_of(value) if isinstance(value, dict) else value for name, value in step.fields.items()}
    link.send(step.channel, step.name, **fields)
    if step.name == "connection.close":
        link.read_until({"connection.closeok"})
        link.open = False
        return
    answers = {answer.lower() for answer in kind.valid_responses} if kind.synchronous else set()
    if answers and not fields.get("nowait"):
        link.read_until(answers, channel=step.channel)


def clean_up(script, address, seconds):
    """Delete what the script has declared."""
    link = Link("z", address, [], seconds)
    with contextlib.closing(link.socket):
        clean_up_by(link, script)


def clean_up_by(link, script):
    link.connect(Connect(on="z"))
    names = {(step.name[:5] == "queue", step.fields.get("queue") or step.fields.get("exchange"))
             for step in script if isinstance(step, Method) and step.name in ("queue.declare", "exchange.declare")}
    for is_queue, name in sorted((kind, name) for kind, name in names if name and not name.startswith("amq.")):
        if is_queue:
            link.send(1, "queue.delete", queue=name)
            ended = link.read_until({"queue.deleteok"}, channel=1)
        else:
            link.send(1, "exchange.delete", exchange=name)
            ended = link.read_until({"exchange.deleteok"}, channel=1)
        if not ended and link.open:
            link.send(1, "channel.open")
            link.read_until({"channel.openok"})
