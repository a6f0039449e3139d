"""Bounds on calls, passwords and connections before anybody has logged in; and users who may no longer do what they are doing."""

import base64
import re
import socket
import threading
import time
from types import SimpleNamespace

import pytest
from pyarrow import flight

from xump.broker import Broker, Client, Limits
from xump.broker.flight import access, connections
from xump.broker.flight.connections import Connections, peers, shut
from xump.broker.flight.interceptor import Interceptor
from xump.broker.flight.problems import Unknown
from xump.broker.flight.server import Flight
from xump.broker.users import User, Users, hash_password

from tests.broker.flight.conftest import until
from tests.broker.flight.test_publish import rows

PUT = SimpleNamespace(method=flight.FlightMethod.DO_PUT)
HANDSHAKE = SimpleNamespace(method=flight.FlightMethod.HANDSHAKE)


def basic(name, password):
    return {"authorization": ["Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()]}


def who(name, *, password="secret", write=".*"):
    patterns = {permission: re.compile(write if permission == "write" else ".*") for permission in ("configure", "write", "read")}
    return User(name, hash_password(password, 2), {"/": patterns})


@pytest.fixture
def guarded(engine):
    """A broker with two users."""
    engine.create_queue("jobs")
    with Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0",
                users=Users({name: who(name) for name in ("anna", "berta")})) as broker:
        yield broker


def test_calls_are_counted_before_their_client_has_said_anything(guarded):
    interceptor = Interceptor(guarded.flight.access, 2)
    inside = [interceptor.start_call(PUT, basic("anna", "secret")) for _ in range(2)]
    with pytest.raises(flight.FlightUnavailableError, match="2 calls are open, which is the limit: try again later"):
        interceptor.start_call(PUT, basic("anna", "secret"))
    inside[0].call_completed(None)
    interceptor.start_call(HANDSHAKE, basic("berta", "secret"))
    assert len(interceptor) == 2


@pytest.mark.parametrize("headers", [{}, basic("anna", "wrong"), {"authorization": ["Bearer x"]},
                                     {"authorization": ["Basic %%%"]}, {"authorization": [b"\xff"]}, basic("nobody", "")])
@pytest.mark.parametrize("call", [PUT, HANDSHAKE])
def test_strangers_are_refused_at_the_door(guarded, headers, call):
    interceptor = Interceptor(guarded.flight.access, 1)
    with pytest.raises(flight.FlightUnauthenticatedError) as caught:
        interceptor.start_call(call, headers)
    assert "Traceback" not in str(caught.value)
    assert len(interceptor) == 0


def test_the_door_counts_what_goes_out(engine, flying, client):
    engine.create_queue("jobs")
    client.publish("jobs", rows("a", "b"))
    other = flight.connect(flying.flight.url)
    for call in (lambda: client.browse("nowhere").read_all(), lambda: client.publish("nowhere", rows("a")),
                 lambda: client.offsets("nowhere"),
                 lambda: list(other.do_exchange(flight.FlightDescriptor.for_path("jobs"))[1]),
                 lambda: other.get_flight_info(flight.FlightDescriptor.for_path("nowhere")),
                 lambda: other.authenticate_basic_token("guest", "wrong")):
        with pytest.raises(Exception, match="nowhere|no do_exchange|user and a password"):
            call()
    with client.take("jobs") as stream:
        next(stream.batches)
        until(lambda: len(flying.flight.interceptor) == 1)      # a call may count until after its answer has come
    list(other.list_flights())
    list(other.list_actions())
    until(lambda: len(flying.flight.interceptor) == 0)


def test_passwords_are_checked_in_a_short_line(guarded):
    found, go_on = access.Access(guarded), threading.Event()
    found.user_of(basic("anna", "secret")["authorization"][0], True)
    users = guarded.users
    guarded.users = SimpleNamespace(
        was_right=users.was_right, authenticate=lambda *given: go_on.wait(30) and users.authenticate(*given))
    said = []

    def log_in():
        try:
            found.user_of(basic("anna", "wrong")["authorization"][0], True)
        except Unknown:
            said.append("refused")

    threads = [threading.Thread(target=log_in) for _ in range(access.CHECKS_MAX + access.CHECKS_WAITING_MAX)]
    for thread in threads:
        thread.start()
    until(lambda: found._checking == len(threads))
    with pytest.raises(flight.FlightUnavailableError, match="18 passwords wait to be checked, which is the limit"):
        found.user_of(basic("berta", "secret")["authorization"][0], True)
    go_on.set()
    for thread in threads:
        thread.join()
    assert said == ["refused"] * len(threads)
    assert found.user_of(basic("berta", "secret")["authorization"][0], True).name == "berta"


def test_which_connections_end():
    kept = Connections(Limits(handshake_seconds=10, flight_idle_seconds=100, flight_connections_max=3))
    stranger, known, busy, late = [("127.0.0.1", number) for number in range(4)]
    kept.called(known, 0)
    assert kept.too_long([stranger, known, busy], {busy}, 1) == set()
    assert kept.too_long([stranger, known, busy], {busy}, 12) == {stranger}
    assert kept.too_long([known, busy], {busy}, 101) == {known}
    assert kept.too_long([busy], set(), 120) == set()                       # seen for the first time without a call
    kept.called(known, 125)
    assert kept.too_long([known, busy, late, stranger], {known}, 126) == {busy}     # too many: the oldest stranger
    assert kept.too_long([("127.0.0.1", number) for number in range(9)], set(), 127) == {
        ("127.0.0.1", number) for number in range(9)} - {known, ("127.0.0.1", 7), ("127.0.0.1", 8)}
    assert kept.too_long([], set(), 128) == set() and not kept._called and not kept._seen


def test_a_connection_without_a_call_ends(flying, client):
    client.queues()
    with socket.create_connection(flying.flight.address) as idle:
        until(lambda: idle.getsockname() in peers(flying.flight.address[1]))
        assert len(peers(flying.flight.address[1])) == 2
        now = time.monotonic()
        flying.flight.look_after(now)
        flying.flight.look_after(now + 11)          # the client has called, so it may be silent for longer
        while idle.recv(1000):
            pass
        until(lambda: len(peers(flying.flight.address[1])) == 1)
    flying.flight.look_after(now + 4000)
    until(lambda: not peers(flying.flight.address[1]))
    assert client.queues() == []


def test_connections_end_when_no_descriptor_is_left(flying, monkeypatch):
    def none_left(*given):
        raise OSError(24, "Too many open files")

    with socket.create_connection(flying.flight.address) as idle:
        until(lambda: peers(flying.flight.address[1]))
        for name in ("listdir", "dup"):
            monkeypatch.setattr(connections.os, name, none_left)
        monkeypatch.setattr(connections.os, "sysconf", lambda name: 4096)
        shut(flying.flight.address[1], None)
        while idle.recv(1000):
            pass


def test_connections_end_until_flight_has_ended():
    """A client may connect between the first time and the end of listening."""
    ended, times = threading.Event(), []

    def shut_all():
        times.append(1)
        if len(times) == 3:
            ended.set()

    Flight._shut(SimpleNamespace(calls=SimpleNamespace(shut_all=shut_all)), SimpleNamespace(shutdown=lambda: ended.wait(5)))
    assert len(times) >= 3


@pytest.mark.parametrize("users", [{}, {"anna": who("anna", write="^news")}], ids=["gone", "other permissions"])
def test_streams_of_users_who_may_not_go_on_end(engine, guarded, users):
    def change(to):
        done = threading.Event()
        guarded.loop.call_soon_threadsafe(lambda: (guarded.change_users(Users(to)), done.set()))
        assert done.wait(30)

    with Client(guarded.flight.url, user="anna", password="secret") as anna:
        stream = anna.take("jobs", credit=5)
        until(lambda: engine.selectors)
        change({"anna": who("anna", password="another")})
        engine.publish("jobs", "a")
        assert next(stream.batches).num_rows == 1                   # a new password is asked for at the next call
        [call] = guarded.flight.calls._open
        change(users)
        with pytest.raises(Unknown, match="user 'anna' has other permissions now, or is none any more"):
            call.check_open()
        until(lambda: len(guarded.flight.calls) == 0 and engine.queues["jobs"].ready == 1)
        stream._reader.cancel()


def test_errors_show_no_traceback(flying):
    client = flight.connect(flying.flight.url)
    descriptor = flight.FlightDescriptor.for_path("nowhere")
    with pytest.raises(flight.FlightServerError, match="there is no do_exchange here: publish by do_put") as caught:
        client.do_exchange(descriptor)[1].read_chunk()
    assert "Traceback" not in str(caught.value)


def test_columns_are_the_same_for_each_queue(engine, flying):
    """Also for one that is not there: the schema of a queue says nothing of it."""
    engine.create_queue("jobs")
    client = flight.connect(flying.flight.url)
    there, nowhere, wrong = [client.get_schema(one).schema for one in (
        flight.FlightDescriptor.for_path("jobs"), flight.FlightDescriptor.for_path("nowhere"),
        flight.FlightDescriptor.for_command(b"{"))]
    assert there == nowhere == wrong == client.do_get(flight.Ticket(b"jobs")).schema


@pytest.mark.parametrize("given, said", [
    (b"[" * 100_000, "the body nests too deeply"),
    (b'{"x": ' * 5000 + b"1" + b"}" * 5000, "the body nests too deeply|no option 'x'"),
    (b'{"' + b"x" * 100_000 + b'": 1}', r"no option 'x{900,1000}\.\.\."), (b'{"\\ud800": 1}', r"no option '\\\\?ud800'"),
    (('{"' + "\N{GRINNING FACE}" * 5000 + '": 1}').encode(), "no option")], ids=range(5))
def test_what_a_client_says_is_no_defect_and_fits_into_an_error(flying, given, said):
    client = flight.connect(flying.flight.url)
    with pytest.raises(flight.FlightServerError, match=said) as caught:
        list(client.do_action(flight.Action("ping", given)))
    assert b'"error": "ValueError"' in caught.value.extra_info
