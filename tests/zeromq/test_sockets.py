"""Brokers, clients and workers over real sockets; the peers opposite are raw sockets, written from the RFCs."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import zmq
import zmq.auth

from xump.cli.main import main
from xump.errors import RequestTimeout
from xump.zeromq import Client, FutureClient, Keys, LazyPirate, MajordomoBroker, PirateBroker, Worker, aio

HOST = "tcp://127.0.0.1:*"


def endpoint_of(socket):
    return socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()


# ---- brokers, with raw peers

def test_a_req_client_and_a_dealer_worker_of_majordomo(context, serve, raw):
    broker = serve(MajordomoBroker(HOST, context=context))
    client, worker = raw(zmq.REQ, broker.endpoints[0]), raw(zmq.DEALER, broker.endpoints[0])
    worker.send_multipart([b"", b"MDPW01", b"\1", b"echo"])
    client.send_multipart([b"MDPC01", b"echo", b"hello"])
    *head, address, empty, body = worker.recv_multipart()
    assert (head, empty, body) == ([b"", b"MDPW01", b"\2"], b"", b"hello")
    worker.send_multipart([b"", b"MDPW01", b"\3", address, b"", b"bye"])
    assert client.recv_multipart() == [b"MDPC01", b"echo", b"bye"]


def test_workers_hear_heartbeats_and_the_end_of_the_broker(context, serve, raw):
    broker = serve(MajordomoBroker(HOST, context=context, heartbeat=0.05, liveness=1000))
    worker = raw(zmq.DEALER, broker.endpoints[0])
    worker.send_multipart([b"MDPW02", b"\1", b"echo"])
    assert worker.recv_multipart() == [b"MDPW02", b"\5"]
    broker.stop()
    while (said := worker.recv_multipart()) == [b"MDPW02", b"\5"]:
        pass
    assert said == [b"MDPW02", b"\6"]


def test_a_simple_pirate_with_req_peers(context, serve, raw):
    queue = serve(PirateBroker(HOST, HOST, paranoid=False, context=context))
    client, worker = raw(zmq.REQ, queue.endpoints[0]), raw(zmq.REQ, queue.endpoints[1])
    worker.send(b"\1")
    client.send_multipart([b"a", b"b"])
    address, *rest = worker.recv_multipart()
    assert rest == [b"", b"a", b"b"]
    worker.send_multipart([address, b"", b"done"])
    assert client.recv_multipart() == [b"done"]


def test_a_paranoid_pirate_with_raw_peers(context, serve, raw):
    queue = serve(PirateBroker(HOST, HOST, context=context, heartbeat=0.05, liveness=1000))
    client, worker = raw(zmq.REQ, queue.endpoints[0]), raw(zmq.DEALER, queue.endpoints[1])
    worker.send(b"\1")
    assert worker.recv_multipart() == [b"\2"]
    client.send(b"hello")
    while len(said := worker.recv_multipart()) == 1:
        assert said == [b"\2"]
    worker.send_multipart([said[0], b"", b"bye"])
    assert client.recv_multipart() == [b"bye"]


def test_garbage_from_the_network_does_not_stop_a_broker(context, serve, raw):
    broker = serve(MajordomoBroker(HOST, context=context))
    vandal = raw(zmq.DEALER, broker.endpoints[0])
    for frames in ([b""], [b"", b""], [b"MDPC02"], [b"", b"MDPW01", b"\3"], [os.urandom(100)] * 30, [b"MDPW02", b"\4", b"", b""]):
        vandal.send_multipart(frames)
    vandal.send_multipart([b"", b"MDPC01", b"mmi.service", b"x"])
    assert vandal.recv_multipart() == [b"", b"MDPC01", b"mmi.service", b"404"]
    assert broker.machine.dropped == 6


# ---- our worker, with raw brokers

@pytest.mark.parametrize(("protocol", "head"), [("mdp", [b"", b"MDPW01"]), ("mdp2", [b"MDPW02"]), ("ppp", [])])
def test_a_worker_beats_while_it_works_and_reopens_when_it_is_sent_away(context, raw, work, protocol, head):
    broker = raw(zmq.ROUTER)
    code = {"mdp": [b"\1", b"\2", b"\3", b"\4", b"\5"], "mdp2": [b"\1", b"\2", b"\4", b"\5", b"\6"]}.get(protocol)
    ready, beat = ([*head, code[0], b"s"], [*head, code[3]]) if code else ([b"\1"], [b"\2"])
    request, reply = ([*head, code[1]], [*head, code[2]]) if code else ([], [])
    enough = threading.Event()

    def function(body):
        enough.wait()                       # works until the test has seen enough heartbeats
        return [b"answer", *body]

    work(Worker(endpoint_of(broker), b"s", protocol=protocol, heartbeat=0.02, liveness=100_000, context=context), function)
    identity, *said = broker.recv_multipart()
    assert said == ready
    broker.send_multipart([identity, *request, b"client", b"", b"x"])
    for _ in range(3):
        assert broker.recv_multipart() == [identity, *beat]
    enough.set()
    while (said := broker.recv_multipart()[1:]) == beat:
        pass
    assert said == [*reply, b"client", b"", b"answer", b"x"]
    if code:
        broker.send_multipart([identity, *head, code[4]])
        while (again := broker.recv_multipart())[1:] == beat:
            assert again[0] == identity
        assert again[1:] == ready
        assert again[0] != identity, "a new socket"


def test_a_worker_that_is_sent_away_with_the_first_word_comes_back_at_once_and_then_pauses(context, raw, work):
    """As one that registers a reserved service is. It must not ask as fast as it can."""
    broker = raw(zmq.ROUTER)
    worker = work(Worker(endpoint_of(broker), b"mmi.mine", back_off=(0.05, 60.0), context=context))
    moments = []
    for _ in range(4):
        identity, *ready = broker.recv_multipart()
        moments.append(time.monotonic())
        assert ready == [b"MDPW02", b"\1", b"mmi.mine"]
        broker.send_multipart([identity, b"MDPW02", b"\6"])
    assert moments[3] - moments[1] >= 0.05 + 0.1
    assert worker.connections == 4


READY = {"ppp": [b"\1"], "mdp": [b"", b"MDPW01", b"\1", b"s"], "mdp2": [b"MDPW02", b"\1", b"s"]}


@pytest.mark.parametrize("protocol", READY)
def test_a_worker_comes_back_when_its_broker_falls_silent(protocol, context, raw, work):
    broker = raw(zmq.ROUTER)
    work(Worker(endpoint_of(broker), b"s", protocol=protocol, heartbeat=0.02, liveness=2, back_off=(0.01, 0.02), context=context))
    seen = []
    while len(seen) < 2:
        identity, *said = broker.recv_multipart()
        if said == READY[protocol]:
            seen.append(identity)
    assert seen[0] != seen[1], "a new socket"


def test_a_worker_whose_function_raises_leaves_and_another_gets_the_request(context, serve, work):
    broker = serve(MajordomoBroker(HOST, context=context))
    breaks = Worker(broker.endpoints[0], b"s", context=context)

    def fails(body):
        work(Worker(broker.endpoints[0], b"s", context=context), lambda body: [b"second"])
        raise LookupError("first")

    seen = []

    def run(worker):
        try:
            worker.run(fails)
        except LookupError as error:
            seen.append(str(error))

    thread = threading.Thread(target=run, args=(breaks,))
    thread.start()
    with Client(broker.endpoints[0], timeout=60.0, context=context) as client:
        assert client.request(b"s", b"x") == [b"second"]
    thread.join()
    breaks.close()
    assert seen == ["first"]


# ---- our clients

@pytest.mark.parametrize("version", ["0.1", "0.2"])
@pytest.mark.parametrize("protocol", ["mdp", "mdp2"])
def test_majordomo_all_ours(context, serve, work, version, protocol):
    broker = serve(MajordomoBroker(HOST, context=context))
    work(Worker(broker.endpoints[0], b"echo", protocol=protocol, context=context))
    with Client(broker.endpoints[0], version=version, timeout=60.0, context=context) as client:
        for number in range(20):
            assert client.request(b"echo", b"%d" % number, b"") == [b"%d" % number, b""]
        assert client.request(b"mmi.service", b"echo") == [b"200"]
        assert client.tries == 21


class Asked:
    """A client's request in a thread of its own: what came of it."""

    def __init__(self, ask):
        self.answers = []
        self.thread = threading.Thread(target=lambda: self.answers.append(ask()))
        self.thread.start()

    def end(self):
        self.thread.join()
        return self.answers[0]


def answer_until(asked, server, body):
    """Answer whatever comes to a ROUTER or REP until the client has its reply."""
    server.rcvtimeo = 10
    while asked.thread.is_alive():
        try:
            *head, _ = server.recv_multipart()
            server.send_multipart([*head, body])
        except zmq.Again:
            continue
    return asked.end()


def test_a_lazy_pirate_asks_again_over_a_fresh_socket_and_ignores_the_late_reply(context, raw):
    server = raw(zmq.ROUTER)
    with LazyPirate(endpoint_of(server), timeout=0.05, retries=10_000, context=context) as client:
        asked = Asked(lambda: client.request(b"question"))
        first = server.recv_multipart()
        while (second := server.recv_multipart())[0] == first[0]:
            pass
        assert first[1:] == second[1:] == [b"", b"question"]
        server.send_multipart([first[0], b"", b"late"])
        assert answer_until(asked, server, b"now") == [b"now"]
        assert client.tries >= 2


def test_a_lazy_pirate_gives_up_after_its_tries(context, raw):
    with LazyPirate(endpoint_of(raw(zmq.ROUTER)), timeout=0.01, retries=3, context=context) as client:
        with pytest.raises(RequestTimeout, match="4 tries of 0.01 seconds"):
            client.request(b"question")
        assert client.tries == 4


def test_a_lazy_pirate_goes_to_the_next_server(context, raw):
    dead, alive = raw(zmq.ROUTER), raw(zmq.REP)
    with LazyPirate(endpoint_of(dead), endpoint_of(alive), timeout=0.2, retries=1000, context=context) as client:
        asked = Asked(lambda: client.request(b"hello"))
        assert dead.recv_multipart()[1:] == [b"", b"hello"]
        assert answer_until(asked, alive, b"hello!") == [b"hello!"]


@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_many_requests_at_once_each_gets_its_own_reply(context, serve, work, version):
    broker = serve(MajordomoBroker(HOST, context=context))
    for _ in range(3):
        work(Worker(broker.endpoints[0], b"echo", context=context))

    async def ask():
        async with aio.Client(broker.endpoints[0], version=version, timeout=60.0, in_flight=20) as client:
            return await asyncio.gather(*(client.request(b"echo", b"%d" % number) for number in range(200)))

    assert asyncio.run(ask()) == [[b"%d" % number] for number in range(200)]


def test_many_requests_at_once_from_threads(context, serve, work):
    broker = serve(MajordomoBroker(HOST, context=context))
    for _ in range(3):
        work(Worker(broker.endpoints[0], b"echo", context=context))
    with FutureClient(broker.endpoints[0], timeout=60.0, in_flight=20) as client:
        futures = [client.submit(b"echo", b"%d" % number, b"") for number in range(200)]
        assert client.request(b"mmi.service", b"echo") == [b"200"]
        assert [future.result(60) for future in futures] == [[b"%d" % number, b""] for number in range(200)]


def test_the_request_of_a_future_is_asked_again_over_a_fresh_socket(raw):
    server = raw(zmq.ROUTER)
    with FutureClient(endpoint_of(server), timeout=0.05, retries=10_000, version="0.1") as client:
        future = client.submit(b"echo", b"x")
        first = server.recv_multipart()
        assert first[1:] == [b"", b"MDPC01", b"echo", b"x"]
        while (second := server.recv_multipart())[0] == first[0]:
            pass
        server.send_multipart([first[0], b"", b"MDPC01", b"echo", b"late"])
        while not future.done():
            server.send_multipart([second[0], b"", b"MDPC01", b"echo", b"now"])
            if server.poll(20):
                second = server.recv_multipart()
        assert future.result() == [b"now"]


def test_futures_end_with_their_client(raw):
    client = FutureClient(endpoint_of(raw(zmq.ROUTER)), in_flight=1)
    out, waiting, given_up, wrong = (client.submit(b"s", b"x"), client.submit(b"s", b"x"), client.submit(b"s", b"x"),
                                     client.submit(b"s"))
    given_up.cancel()
    with pytest.raises(ValueError, match="a request has 0 frames"):
        wrong.result()
    client.close()
    for future in (out, waiting):
        with pytest.raises(RequestTimeout, match="was closed before the reply came"):
            future.result()
    assert given_up.cancelled() or isinstance(given_up.exception(), RequestTimeout)
    with pytest.raises(ValueError, match="is closed"):
        client.submit(b"s", b"x")
    client.close()
    with pytest.raises(ValueError, match="at least one endpoint"):
        FutureClient()


@pytest.mark.parametrize(("given", "error", "said"), [
    ({"retries": -1}, ValueError, "retries must be from 0 to 2147483647, got -1"),
    ({"retries": 1.5}, TypeError, "retries must be an int, got float 1.5"),
    ({"in_flight": 0}, ValueError, "in_flight must be from 1 to 65000, got 0"),
    ({"in_flight": True}, TypeError, "in_flight must be an int, got bool True"),
])
def test_counts_that_are_none_are_refused(given, error, said):
    for kind in (FutureClient,) if "in_flight" in given else (LazyPirate, Client, FutureClient):
        with pytest.raises(error, match=said):
            kind("tcp://127.0.0.1:5555", **given)


def test_an_asyncio_request_that_is_lost_is_asked_again(raw):
    server = raw(zmq.ROUTER)

    async def ask():
        async with aio.LazyPirate(endpoint_of(server), timeout=0.05, retries=10_000) as client:
            return await client.request(b"x")

    asked = Asked(lambda: asyncio.run(ask()))
    first = server.recv_multipart()
    while server.recv_multipart()[0] == first[0]:
        pass
    assert answer_until(asked, server, b"y") == [b"y"]


# ---- who may come

def test_with_keys_only_who_has_them_is_served(context, serve, work):
    (public, secret), (own, own_secret) = zmq.curve_keypair(), zmq.curve_keypair()
    broker = serve(MajordomoBroker(HOST, keys=Keys(public, secret), context=context))
    keys = Keys(own, own_secret, server=public)
    work(Worker(broker.endpoints[0], b"echo", keys=keys, context=context))
    with Client(broker.endpoints[0], keys=keys, timeout=60.0, context=context) as client:
        assert client.request(b"echo", b"x") == [b"x"]
    with Client(broker.endpoints[0], timeout=0.1, retries=0, context=context) as stranger:
        with pytest.raises(RequestTimeout):
            stranger.request(b"echo", b"x")
    with pytest.raises(ValueError, match="public key of its server"):
        Client(broker.endpoints[0], keys=Keys(own, own_secret), context=context).request(b"echo", b"x")


def test_a_frame_that_is_too_long_ends_its_connection_and_nothing_else(context, serve, raw, monkeypatch):
    monkeypatch.setattr("xump.zeromq.sockets.FRAME_BYTES_MAX", 100_000)
    broker = serve(MajordomoBroker(HOST, context=context))
    attacker, client = raw(zmq.DEALER, broker.endpoints[0]), raw(zmq.DEALER, broker.endpoints[0])
    watch = attacker.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    attacker.send_multipart([b"MDPC02", b"\1", b"mmi.service", b"x" * 100_001])
    assert watch.poll(60_000)
    attacker.disable_monitor()
    watch.close()
    client.send_multipart([b"MDPC02", b"\1", b"mmi.service", b"x" * 100_000])
    assert client.recv_multipart() == [b"MDPC02", b"\3", b"mmi.service", b"404"]


# ---- the command line

class Command:
    """`xump zeromq …`, started; its ready line is read."""

    def __init__(self, *words):
        self.process = subprocess.Popen([sys.executable, "-m", "xump", "zeromq", *words], stdout=subprocess.PIPE, text=True)
        self.said = self.process.stdout.readline()

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.stdout.close()
        return self.process.wait()


def test_the_command_line(tmp_path, context):
    _, broker_keys = zmq.auth.create_certificates(tmp_path, "broker")
    _, own_keys = zmq.auth.create_certificates(tmp_path, "own")
    broker = Command("majordomo", HOST, "--heartbeat", "1", "--liveness", "3", "--certificate", broker_keys)
    assert broker.said.startswith("xump: majordomo is ready at tcp://127.0.0.1:")
    endpoint = broker.said.split()[-1]
    worker = Command("worker", endpoint, "upper", "--certificate", own_keys, "--server-certificate", str(tmp_path / "broker.key"),
                     "--", "tr", "a-z", "A-Z")
    public, secret = zmq.auth.load_certificate(own_keys)
    keys = Keys(public, secret, zmq.auth.load_certificate(tmp_path / "broker.key")[0])
    with Client(endpoint, keys=keys, timeout=60.0, context=context) as client:
        assert client.request(b"upper", b"hello") == [b"HELLO"]
    assert worker.end() == 0
    assert broker.end(signal.SIGINT) == 0


@pytest.mark.parametrize("protocol", ["simple-pirate", "paranoid-pirate"])
def test_the_command_line_of_pirates(protocol, context, raw):
    queue = Command(protocol, HOST, HOST)
    frontend, backend = queue.said.split(" is ready at ")[1].strip().split(" and ")
    client = raw(zmq.REQ, frontend)
    client.send(b"hello")
    if protocol == "paranoid-pirate":
        worker = Command("worker", backend, "any", "--protocol", "ppp", "--", "tr", "a-z", "A-Z")
        assert client.recv() == b"HELLO"
        assert worker.end() == 0
    else:
        worker = raw(zmq.REQ, backend)
        worker.send(b"\1")
        address, _, body = worker.recv_multipart()
        worker.send_multipart([address, b"", body.upper()])
        assert client.recv() == b"HELLO"
    assert queue.end() == 0


def test_the_command_line_refuses_what_is_wrong():
    def said(*words):
        done = subprocess.run([sys.executable, "-m", "xump", "zeromq", *words], capture_output=True, text=True, check=False)
        assert done.stdout == ""
        return done.returncode, done.stderr

    code, error = said("majordomo", "tcp://*:*")
    assert (code, "or allow it (public=True; on the command line --insecure)" in error) == (2, True)
    code, error = said("majordomo", HOST, "--heartbeat", "0")
    assert (code, "more than 0" in error) == (2, True)
    code, error = said("majordomo", HOST, "--certificate", "/nowhere")
    assert (code, "/nowhere" in error) == (2, True)


@pytest.mark.parametrize(("words", "error"), [
    (["majordomo", "nonsense"], "'nonsense' is no endpoint; tcp://127.0.0.1:5555"),
    (["majordomo", "tcp://127.0.0.1:99999"], "'99999', and must be a number below 65536"),
    (["majordomo", "tcp://127.0.0.1"], "must be a number below 65536"),
    (["majordomo", HOST, "--request-ttl", "-1"], "request_ttl is -1.0 seconds, and must be 0 or more"),
    (["majordomo", HOST, "--request-ttl", "nan"], "request_ttl is nan seconds"),
    (["majordomo", HOST, "--liveness", "0"], "the liveness is 0"),
    (["majordomo", HOST, "--titanic", "/nowhere/at/all"], "there is no directory '/nowhere/at'"),
    (["majordomo", "tcp://127.0.0.1:9", "--binary-star", "tcp://127.0.0.1:9", "--role", "primary"], "cannot be its own peer"),
    (["majordomo", HOST, "--role", "primary"], "go with --binary-star PEER"),
    (["paranoid-pirate", HOST, HOST, "--request-ttl", "-1"], "-1"),
    (["freelance", HOST, "--threads", "0"], "threads is 0"),
    (["worker", "nonsense", "s", "--", "cat"], "'nonsense' is no endpoint"),
    (["worker", "tcp://127.0.0.1:9", "", "--", "cat"], "the name of a service has 1 to 255 bytes, this one has 0"),
    (["worker", "tcp://127.0.0.1:9", "n" * 256, "--", "cat"], "1 to 255 bytes, this one has 256"),
], ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "")
def test_a_command_says_what_is_wrong_before_it_says_that_it_is_ready(words, error, capsys):
    assert main(["zeromq", *words]) == 2
    said = capsys.readouterr()
    assert (said.out, error in said.err) == ("", True), said.err


def test_a_worker_that_is_closed_may_be_stopped_again(context):
    worker = Worker("tcp://127.0.0.1:9", b"echo", context=context)
    worker.stop()
    worker.run(list)
    worker.close()
    worker.stop()
    worker.close()
