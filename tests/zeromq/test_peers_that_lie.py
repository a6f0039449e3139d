"""Peers that say what they must not, too much, or too long: they hold up nobody, and end no server."""

import asyncio
import random
import threading

import pytest
import zmq

from tests.zeromq.test_freelance import Server
from tests.zeromq.test_majordomo import VERSIONS, Broker, Peer
from tests.zeromq.test_pirates import Queue
from tests.zeromq.test_sockets import HOST, endpoint_of
from tests.zeromq.test_titanic import Titanic
from xump.errors import RequestTimeout
from xump.zeromq import Client, LazyPirate, MajordomoBroker, ParanoidPirate, SimplePirate, Worker, aio
from xump.zeromq.freelance import Addressed, FreelanceServer, OneAtATime, Shotgun
from xump.zeromq.limits import REQUEST_BYTES_MAX

TOO_LONG = bytes(REQUEST_BYTES_MAX)             # with what is kept beside it


# ---- what is longer than a message of the engine may be

@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_too_long_is_refused_and_the_next_one_served(version):
    broker, peer = Broker(), Peer(version)
    broker.get(*peer.says("ready", b"s"))
    assert broker.get(*peer.asks(TOO_LONG)) == []
    assert broker.machine.dropped == 1
    assert broker.get(*peer.asks(b"x")) == [peer.says("request", b"c", b"", b"x")]


@pytest.mark.parametrize("kind", [SimplePirate, ParanoidPirate])
def test_a_pirate_refuses_it(kind):
    queue = Queue(kind)
    assert queue.client(b"c", b"", TOO_LONG) == ([], [])
    assert queue.machine.dropped == 1
    assert queue.client(b"c", b"", b"x") == ([], [])
    assert queue.machine.pack.queue.ready == 1


def test_a_server_of_freelance_refuses_it():
    server = Server()
    assert server.get(b"c", b"1", TOO_LONG) == []
    assert server.machine.dropped == 1
    assert server.get(b"c", b"2", b"x") == [[b"c", b"2", b"ok", b"x"]]


def test_titanic_refuses_a_request_and_a_reply_that_are_too_long():
    titanic = Titanic()
    assert titanic.ask(b"request", b"s", TOO_LONG) == [b"500"]
    uuid = titanic.request(b"x")
    titanic.worker("ready", b"s")
    assert titanic.worker("reply", uuid, b"", TOO_LONG) == []
    assert titanic.ask(b"reply", uuid) == [b"500"]
    assert titanic.worker("heartbeat") == []                        # it is still there, and free
    second = titanic.request(b"y")
    assert titanic.others == [titanic.peer.says("request", second, b"", b"y")]


# ---- noise

NOISE = [b"", b"MDPC01", b"MDPW01", b"MDPC02", b"MDPW02", b"MDPC0X", b"MDPW0X", *(bytes([code]) for code in range(8)), b"s", b"t",
         b"mmi.service", b"mmi.no", b"xump.services", b"titanic.request", b"titanic.reply", b"titanic.close", b"c", b"\xff" * 300]


def noise(chance, seen):
    """Frames at random, or a word that a peer could say, whole, cut off or with one frame changed."""
    peer = Peer(chance.choice(VERSIONS))
    frames = chance.choice((
        chance.choices(NOISE, k=chance.randrange(8)), peer.asks(b"x")[1:], peer.says("ready", b"s")[1:],
        peer.says("heartbeat")[1:], peer.says("reply", chance.choice(seen), b"", b"y")[1:], peer.says("disconnect")[1:],
        peer.asks(b"s", b"x", service=b"titanic.request")[1:], peer.asks(chance.choice(seen), service=b"titanic.reply")[1:],
        peer.asks(chance.choice(seen), service=b"titanic.close")[1:]))
    if frames and not chance.randrange(4):
        frames[chance.randrange(len(frames))] = chance.choice(NOISE)
    return frames[:chance.randrange(len(frames))] if frames and not chance.randrange(6) else frames


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", [Broker, Titanic])
def test_noise_never_ends_a_broker_and_leaves_nothing_behind(kind, seed):
    chance, broker = random.Random(f"{kind.__name__} {seed}"), kind()
    seen = [b"c1"]
    for _ in range(600):
        sent = broker.get(b"p%d" % chance.randrange(12), *noise(chance, seen))
        seen += [frame for frames in sent for frame in (*frames[3:5], frames[-1]) if frame]
        del seen[1:-30]
        if not chance.randrange(10):
            broker.pass_time(chance.choice((0.1, 1.0, 2.0)))
    if kind is Titanic:
        for uuid in list(broker.titanic._pending) + list(broker.titanic._replied):
            assert broker.ask(b"close", uuid) == [b"200"]
    for seconds in (4.0, 301.0, 2.0, 2.0):
        broker.pass_time(seconds)
    machine = broker.machine
    assert not (machine.workers or machine.services or machine._by_selector or len(machine._alive))
    assert not any(queue.ready + queue.outstanding + queue.delayed for queue in broker.engine.queues.values())
    if kind is Titanic:
        kept = broker.titanic
        assert not (kept._pending or kept._replied or kept._unkept or kept._at_work or kept._closed or kept._hidden)
    # and it still serves
    peer = Peer("0.2")
    broker.get(*peer.says("ready", b"s"))
    assert broker.get(*peer.asks(b"x")) == [peer.says("request", b"c", b"", b"x")]


# ---- workers

@pytest.mark.parametrize("again", ["part", "reply"])
def test_a_worker_that_answers_twice_reaches_its_client_once(again):
    broker, peer = Broker(), Peer("0.2")
    broker.get(*peer.says("ready", b"s"))
    broker.get(*peer.asks(b"x"))
    assert broker.get(*peer.says("reply", b"c", b"", b"first")) == [[b"c", *peer.final, b"first"]]
    assert broker.get(*peer.says(again, b"c", b"", b"second")) == [peer.says("disconnect")]


@pytest.mark.parametrize(("answer", "error"), [
    ([], "has 0 frames"), ([b""] * 60_000, "has 60000 frames"), ("text", "must return bytes"), ([b"x", 1], "got 1"),
    (None, "NoneType")], ids=["none", "many", "text", "number", "nothing"])
def test_a_function_that_returns_no_reply_ends_its_worker_and_its_server(answer, error, context, serve):
    """A broker would send the worker away, and give the request to the next: for ever."""
    broker = serve(MajordomoBroker(HOST, context=context))
    worker = Worker(broker.endpoints[0], b"s", context=context)
    server = FreelanceServer(HOST, lambda body: answer, context=context)
    errors, threads = [], []
    for run in (lambda: worker.run(lambda body: answer), server.run):
        def raising(run=run):
            try:
                run()
            except (TypeError, ValueError) as raised:
                errors.append(str(raised))
        threads.append(threading.Thread(target=raising))
        threads[-1].start()
    with context.socket(zmq.DEALER) as client:
        client.linger = 0
        client.connect(broker.endpoints[0])
        client.send_multipart([b"MDPC02", b"\1", b"s", b"x"])
        threads[0].join()
    with context.socket(zmq.REQ) as client:
        client.linger = 0
        client.connect(server.endpoints[0])
        client.send(b"x")
        threads[1].join()
    worker.close()
    server.engine.close()
    server.close()
    assert len(errors) == 2 and all(error in said for said in errors), errors


# ---- servers

class Liar:
    """A ROUTER that says the same to all who have come, again and again, and not what they asked for."""

    def __init__(self, socket, *frames):
        self._socket, self._frames, self._ends = socket, frames, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.endpoint = endpoint_of(socket)

    def _run(self):
        self._socket.rcvtimeo, seen = 5, set()
        while not self._ends.is_set():
            try:
                seen.add(self._socket.recv_multipart()[0])
            except zmq.Again:
                for identity in seen:
                    self._socket.send_multipart([identity, *self._frames])

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._ends.set()
        self._thread.join()


LIES = {"garbage": [b"garbage"], "another service's": [b"MDPC02", b"\3", b"other", b"x"], "parts without end": [
    b"MDPC02", b"\2", b"s", b"x"]}


@pytest.mark.parametrize("lie", LIES)
def test_a_client_gives_up_although_its_server_goes_on_saying_something(lie, raw, context):
    with Liar(raw(zmq.ROUTER), *LIES[lie]) as server:
        with Client(server.endpoint, timeout=0.05, retries=2, context=context) as client:
            with pytest.raises(RequestTimeout, match="3 tries"):
                client.request(b"s", b"x")

        async def ask():
            async with aio.Client(server.endpoint, timeout=0.05, retries=2) as client:
                await client.request(b"s", b"x")

        with pytest.raises(RequestTimeout, match="3 tries"):
            asyncio.run(ask())


def test_what_comes_before_the_reply_does_not_shorten_the_time_of_the_next_request(raw, context):
    server = raw(zmq.ROUTER)
    with Client(endpoint_of(server), timeout=60.0, context=context) as client:
        def answer():
            identity = server.recv_multipart()[0]
            for frames in ([b"?"], [b"MDPC02", b"\2", b"s", b"1"], [b"MDPC02", b"\3", b"s", b"2"]):
                server.send_multipart([identity, *frames])
        thread = threading.Thread(target=answer)
        thread.start()
        assert client.request(b"s", b"x") == [b"1", b"2"]
        thread.join()
        assert client._socket.rcvtimeo == 60_000


# ---- what our own clients must not send

@pytest.mark.parametrize(("body", "error"), [((), "a request has 0 frames"), (("text",), "must be bytes, got 'text'")])
def test_a_request_that_is_none_is_refused_by_each_client(body, error, context, raw):
    nowhere = endpoint_of(raw(zmq.ROUTER))
    with LazyPirate(nowhere, context=context) as lazy, Client(nowhere, context=context) as client, \
            OneAtATime(nowhere, context=context) as first, Shotgun(nowhere, context=context) as second, \
            Addressed(nowhere, context=context) as third:
        for ask in (lazy.request, lambda *body: client.request(b"s", *body), first.request, second.request, third.submit):
            with pytest.raises((ValueError, TypeError), match=error):
                ask(*body)


def test_a_client_of_rfc_10_goes_on_after_such_a_request(context, serve):
    server = serve(FreelanceServer(HOST, lambda body: body, context=context))
    with Addressed(*server.endpoints, timeout=60.0, context=context) as client:
        with pytest.raises(TypeError):
            client.submit("text")
        assert client.request(b"x") == [b"x"]


@pytest.mark.parametrize("service", [b"", b"s" * 256, "s"], ids=["empty", "long", "text"])
def test_the_name_of_a_service_is_checked(service, context):
    with Client("tcp://127.0.0.1:9", context=context) as client, pytest.raises((ValueError, TypeError), match="name of a"):
        client.request(service, b"x")


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), float("inf"), 1e12])
def test_a_time_limit_that_is_none_is_refused(timeout):
    for kind in (LazyPirate, Client, OneAtATime, Shotgun, aio.Client, aio.LazyPirate):
        with pytest.raises(ValueError, match="the timeout is"):
            kind("tcp://127.0.0.1:9", timeout=timeout)


@pytest.mark.parametrize("pauses", [(0.0, 1.0), (-1.0, 0.0), (2.0, 1.0), (float("nan"), 1.0), (1.0, float("inf"))])
def test_pauses_of_a_worker_that_are_none_are_refused(pauses):
    with pytest.raises(ValueError, match="back_off is"):
        Worker("tcp://127.0.0.1:9", b"s", back_off=pauses)


# ---- what ends while something is under way

def test_a_client_of_asyncio_that_is_closed_ends_its_requests(raw):
    async def ask():
        client = aio.Client(endpoint_of(raw(zmq.ROUTER)), timeout=60.0)
        asked = asyncio.ensure_future(client.request(b"s", b"x"))
        await asyncio.sleep(0.05)
        client.close()
        with pytest.raises(RequestTimeout, match="was closed before the reply"):
            await asked
        with pytest.raises(ValueError, match="is closed"):
            await client.request(b"s", b"x")
    asyncio.run(ask())


def test_a_client_of_asyncio_closes_the_sockets_that_it_used_again(raw, monkeypatch):
    """Its context would find only those that nothing has collected meanwhile; an open socket that is collected is a warning."""
    server, seen = raw(zmq.REP), []

    async def ask():
        client = aio.LazyPirate(endpoint_of(server), timeout=60.0)
        asked = asyncio.ensure_future(client.request(b"x"))
        await asyncio.to_thread(lambda: server.send(server.recv()))
        assert await asked == [b"x"]
        sockets, destroy = [socket for _, socket in client._idle], client._context.destroy

        def destroyed(linger):
            seen.extend(socket.closed for socket in sockets)
            destroy(linger)

        monkeypatch.setattr(client._context, "destroy", destroyed)
        client.close()
    asyncio.run(ask())
    assert seen == [True]


def test_a_server_that_is_closed_can_be_woken(context):
    """The thread of a store, or of a function, may have something to say at any time."""
    server = MajordomoBroker(HOST, context=context)
    router, woken = server._sockets[0], []

    class Closing:
        def close(self):
            router.close()
            thread = threading.Thread(target=lambda: woken.append(server.wake()), daemon=True)
            thread.start()
            thread.join(20)

    server._sockets = [Closing()]
    server.close()
    assert woken == [None]
    server.engine.close()
