"""The handshake, and the other methods of channel 0: who the client is, what both sides agree on, and the virtual host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pamqp import commands

from xump.broker.errors import ProtocolError
from xump.broker.methods import Call, encode
from xump.broker.tables import BadTable, Table, Typed, decode_table, text

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.broker.connection import Connection
    from xump.broker.users import User

FRAME_MIN = 4096

CAPABILITIES = (
    "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify", "connection.blocked",
    "consumer_priorities", "authentication_failure_close", "per_consumer_qos", "direct_reply_to",
)


def start(broker: Broker) -> bytes:
    """connection.start."""
    properties: Table = {
        "capabilities": Typed("F", {name: Typed("t", True) for name in CAPABILITIES}),
        "cluster_name": text(broker.name),
        "product": text(broker.product),
        "version": text(broker.version),
        "platform": text("Python"),
    }
    mechanisms = "PLAIN AMQPLAIN EXTERNAL" if broker.tls else "PLAIN AMQPLAIN"
    return encode(
        commands.Connection.Start, version_major=0, version_minor=9, server_properties=properties, mechanisms=mechanisms,
        locales="en_US")


def carry_out(connection: Connection, call: Call) -> None:
    """A method of channel 0."""
    step = STEPS.get((connection.state, call.kind))
    if step is not None:
        step(connection, call)
    elif call.kind is commands.Connection.Close:
        connection.closed_by_client()
    elif call.kind is commands.Connection.UpdateSecret and connection.state == "running":
        _update_secret(connection, call)
    elif connection.state == "running":
        raise ProtocolError(504, "unexpected method in connection state running")
    else:
        raise ProtocolError(503, f"{call.kind.name} came before connection.open")


def _start_ok(connection: Connection, call: Call) -> None:
    connection.client = call.client_properties
    name, password = _credentials(connection, call.mechanism, call.response)
    broker, here = connection.broker, connection.broker.is_loopback(connection)

    def checked(user: User | None) -> None:
        """This is the user; None: there is none with that password."""
        _logged_in(connection, call.mechanism, user)

    if password is None or broker.users.was_right(name, password):
        checked(broker.users.authenticate(name, password, here))
    else:
        connection.do_later(None, broker.passwords.check(
            lambda users: users.authenticate(name, password, here), lambda: connection.state == "start"), checked)


def _logged_in(connection: Connection, mechanism: str, user: User | None) -> None:
    if user is None:
        if connection.capable("authentication_failure_close"):
            said = f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
            raise ProtocolError(403, said, 0)
        connection.abort()
        return
    connection.user = user
    limits = connection.limits
    connection.state = "tune"
    connection.send(0, encode(
        commands.Connection.Tune, channel_max=limits.channel_max, frame_max=limits.frame_max, heartbeat=limits.heartbeat))


def _credentials(connection: Connection, mechanism: str, response: bytes) -> tuple[str, str | None]:
    """Name and password; no password: a certificate says who it is."""
    if mechanism == "PLAIN":
        parts = response.split(b"\0")
        if len(parts) != 3 or parts[0]:         # to act for another user is not possible
            raise ProtocolError(406, "PLAIN: the response must be name and password, each after a zero byte")
        return parts[1].decode(errors="replace"), parts[2].decode(errors="replace")
    if mechanism == "AMQPLAIN":
        try:
            table = decode_table(response)
            return table["LOGIN"].value.decode(), table["PASSWORD"].value.decode()
        except (BadTable, KeyError, AttributeError, UnicodeDecodeError):
            raise ProtocolError(406, "AMQPLAIN: the response must be a table with LOGIN and PASSWORD") from None
    if mechanism == "EXTERNAL" and connection.broker.tls:
        return _certificate_name(connection), None
    raise ProtocolError(503, f"unknown authentication mechanism '{mechanism}'")


def _certificate_name(connection: Connection) -> str:
    """The common name in the client's certificate."""
    certificate = connection.transport.get_extra_info("peercert") or {}
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


def _tune_ok(connection: Connection, call: Call) -> None:
    limits = connection.limits
    _agree("frame_max", FRAME_MIN, limits.frame_max, call.frame_max)
    _agree("channel_max", 1, limits.channel_max, call.channel_max)
    connection.decoder.tune(call.frame_max)
    connection.output.tune(call.frame_max)
    connection.channel_max = call.channel_max
    connection.heartbeat = call.heartbeat
    connection.state = "open"


def _agree(name: str, least: int, most: int, given: int) -> None:
    no_limit = " (no limit)" if name == "channel_max" and given == 0 else ""
    if given and given < least:
        raise ProtocolError(530, f"negotiated {name} = {given}{no_limit} is lower than the minimum allowed value ({least})", TUNE)
    if given == 0 or given > most:
        raise ProtocolError(530, f"negotiated {name} = {given}{no_limit} is higher than the maximum allowed value ({most})", TUNE)


TUNE = 10 << 16 | 30


def _open(connection: Connection, call: Call) -> None:
    name = call.virtual_host
    vhost = connection.broker.vhosts.get(name)
    if vhost is None:
        raise ProtocolError(530, f"vhost {name} not found")
    if not connection.user.may_enter(name):
        raise ProtocolError(530, f"access to vhost '{name}' refused for user '{connection.user.name}'")
    connection.vhost = vhost
    connection.logged_in()
    connection.send(0, encode(commands.Connection.OpenOk))


def _update_secret(connection: Connection, call: Call) -> None:
    """The password anew: the user must still be one."""
    before = connection.user

    def renewed(user: User | None) -> None:
        """This is the user; None: the password is wrong."""
        if user is None:
            raise ProtocolError(530, f"New secret was refused for user '{before.name}'")
        connection.user = user
        connection.send(0, encode(commands.Connection.UpdateSecretOk))

    connection.do_later(None, connection.broker.passwords.check(
        lambda users: users.renew(before, call.new_secret), lambda: connection.state == "running"), renewed)


STEPS = {
    ("start", commands.Connection.StartOk): _start_ok,
    ("tune", commands.Connection.TuneOk): _tune_ok,
    ("open", commands.Connection.Open): _open,
}
