"""Where servers may be bound: IPv4, IPv6 and the paths of `ipc://`; not for other machines by accident, and not over a file."""

import os
import socket
import threading

import pytest
import zmq

import xump
from benchmarks.ports import free_port
from tests.zeromq.test_sockets import HOST, Command
from xump.zeromq import Client, FutureClient, LazyPirate, MajordomoBroker, Pair, PirateBroker, Worker
from xump.zeromq.freelance import Addressed, FreelanceServer, OneAtATime, Shotgun
from xump.zeromq.sockets import bind

HOST_6 = "tcp://[::1]:*"


@pytest.mark.parametrize("endpoint", [
    "tcp://*:*", "tcp://0.0.0.0:*", "tcp://[::]:*", "tcp://127.0.0.1:1;0.0.0.0:5555", "tcp://127.0.0.1:1;tcp://*:5555",
    "tcp://127.0.0.1.example:5555", "tcp://lo:5555", "tcp://[::ffff:127.0.0.1]:5555", "tcp://[::1]:1;0.0.0.0:5555"])
def test_other_machines_are_not_let_in_by_accident(context, endpoint):
    with pytest.raises(ValueError, match="open to other machines"):
        MajordomoBroker(endpoint, context=context)
    with pytest.raises(ValueError, match="open to other machines"):
        PirateBroker(HOST, endpoint, context=context)
    with pytest.raises(ValueError, match="open to other machines"):
        MajordomoBroker(HOST, context=context, pair=Pair("primary", endpoint, "tcp://127.0.0.1:9"))


@pytest.mark.parametrize(("option", "make"), [
    ("prefix", MajordomoBroker),
    ("name", lambda endpoint, **options: PirateBroker(HOST, endpoint, **options)),
    ("name", lambda endpoint, **options: FreelanceServer(endpoint, list, **options))])
def test_two_servers_of_one_engine_have_names_of_their_own(context, option, make):
    """Else they would hand out each other's requests."""
    with xump.Engine() as engine:
        options = {"engine": engine, "context": context}
        first = make(HOST, **options)
        selectors = len(engine.selectors)
        with pytest.raises(ValueError, match=f"close that one first, or give this one another {option}="):
            make(HOST, **options)
        assert len(engine.selectors) == selectors
        with make(HOST, **options, **{option: "another"}), pytest.raises(zmq.ZMQError):
            make(first.endpoints[-1], **options, **{option: "a third"})     # in use: it keeps no name
        with make(HOST, **options, **{option: "a third"}):
            pass
        first.close()
        with make(HOST, **options):
            pass


@pytest.mark.parametrize(("one", "other"), [("mdp/", "mdp/admin/"), ("mdp/admin/", "mdp/"), ("mdp/", ""), ("", "mdp/")])
def test_no_service_of_one_broker_is_one_of_another(context, one, other):
    """Clients choose the names of services, which follow the prefix: `admin/wipe` of the one would be `wipe` of the other."""
    with xump.Engine() as engine:
        first = MajordomoBroker(HOST, engine=engine, context=context, prefix=one)
        with pytest.raises(ValueError, match="requests of another server"):
            MajordomoBroker(HOST, engine=engine, context=context, prefix=other)
        with MajordomoBroker(HOST, engine=engine, context=context, prefix="other/") if one else first:
            pass
        first.close()


@pytest.mark.parametrize("endpoint", ["tcp://*:*", "tcp://0.0.0.0:*", "tcp://[::]:*"])
def test_and_are_if_that_is_said(context, endpoint):
    bind(context, zmq.ROUTER, endpoint, public=True).close()


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def hosts():
    """IPv6 where this machine has it; and paths."""
    return [HOST_6, "ipc"] if has_ipv6() else ["ipc"]


@pytest.fixture(params=hosts())
def places(request, tmp_path):
    """Two endpoints."""
    return [f"ipc://{tmp_path}/{name}" for name in "ab"] if request.param == "ipc" else [request.param] * 2


def test_majordomo(places, context, serve, work):
    broker = serve(MajordomoBroker(places[0], context=context))
    work(Worker(broker.endpoints[0], b"echo", context=context))
    with Client(broker.endpoints[0], timeout=60.0, context=context) as client:
        assert client.request(b"echo", b"x") == [b"x"]
    with FutureClient(broker.endpoints[0], timeout=60.0) as client:
        assert client.request(b"echo", b"x") == [b"x"]


def test_the_paranoid_pirate(places, context, serve, work):
    queue = serve(PirateBroker(*places, context=context))
    work(Worker(queue.endpoints[1], protocol="ppp", context=context))
    with LazyPirate(queue.endpoints[0], timeout=60.0, context=context) as client:
        assert client.request(b"x") == [b"x"]


def test_freelance(places, context, serve):
    numbered = [serve(FreelanceServer(place, lambda body: body, numbered=True, context=context)) for place in places]
    endpoints = [server.endpoints[0] for server in numbered]
    with Shotgun(*endpoints, timeout=60.0, context=context) as client:
        assert client.request(b"x") == [b"x"]
    with Addressed(*endpoints, timeout=60.0, context=context) as client:
        assert {client.submit(b"x").result()[0] for _ in range(4)} == {b"x"}
    with OneAtATime(*endpoints, timeout=60.0, context=context) as client:
        assert client.request(b"number", b"x") == [b"number", b"x"]


def test_a_pair(places, context):
    """Its link, too."""
    links = places if places[0].startswith("ipc") else [f"tcp://[::1]:{free_port()}" for _ in range(2)]
    active = threading.Event()
    servers = [MajordomoBroker(HOST, context=context, pair=Pair(role, links[at], links[1 - at], heartbeat=0.1))
               for at, role in enumerate(("primary", "backup"))]
    servers[0].star.changed = lambda state: active.set()
    threads = [threading.Thread(target=server.run) for server in servers]
    for thread in threads:
        thread.start()
    assert active.wait(60)
    for server, thread in zip(servers, threads, strict=True):
        server.stop()
        thread.join()
        server.engine.close()
        server.close()


# ---- paths

def test_two_brokers_at_one_path(context, tmp_path, serve):
    """libzmq would let the second have it, and the first go on without clients."""
    endpoint = f"ipc://{tmp_path}/broker"
    broker = serve(MajordomoBroker(endpoint, context=context))
    with pytest.raises(zmq.ZMQError, match="Address already in use"):
        MajordomoBroker(endpoint, context=context)
    with Client(*broker.endpoints, timeout=60.0, context=context) as client:
        assert client.request(b"mmi.service", b"x") == [b"404"]


def test_a_file_that_is_no_socket_is_not_deleted(context, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("kept")
    with pytest.raises(ValueError, match="is a file, and no socket"):
        MajordomoBroker(f"ipc://{precious}", context=context)
    assert precious.read_text() == "kept"


def test_the_socket_that_a_killed_broker_left_is_no_hindrance(tmp_path, context):
    endpoint = f"ipc://{tmp_path}/broker"
    first = Command("majordomo", endpoint)
    assert first.end(9) == -9
    assert os.path.exists(tmp_path / "broker")
    second = Command("majordomo", endpoint)
    with Client(endpoint, timeout=60.0, context=context) as client:
        assert client.request(b"mmi.service", b"x") == [b"404"]
    assert second.end() == 0
