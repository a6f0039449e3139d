"""CURVE keys at every socket of every system: with them one is served, without or with wrong ones not."""

import asyncio
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq
import zmq.auth

from tests.zeromq.proxy import free_endpoint
from tests.zeromq.test_sockets import HOST, Command
from xump.cli.main import main
from xump.errors import RequestTimeout
from xump.zeromq import Client, FutureClient, Keys, LazyPirate, MajordomoBroker, Pair, PirateBroker, Worker, aio
from xump.zeromq.freelance import Addressed, FreelanceServer, OneAtATime, Shotgun

SERVER, OWN, OTHER = (Keys(*zmq.curve_keypair()) for _ in range(3))
GOOD = Keys(OWN.public, OWN.secret, server=SERVER.public)
STRANGERS = {"no keys": None, "another server's": Keys(OWN.public, OWN.secret, server=OTHER.public)}


@pytest.fixture
def broker(context, serve, work):
    broker = serve(MajordomoBroker(HOST, keys=SERVER, context=context))
    work(Worker(broker.endpoints[0], b"s", keys=GOOD, context=context))
    return broker.endpoints


@pytest.fixture
def queue(context, serve, work):
    queue = serve(PirateBroker(HOST, HOST, keys=SERVER, context=context))
    work(Worker(queue.endpoints[1], protocol="ppp", keys=GOOD, context=context))
    return queue.endpoints[:1]


@pytest.fixture
def servers(context, serve):
    return [serve(FreelanceServer(HOST, lambda body: body, keys=SERVER, context=context)).endpoints[0] for _ in range(2)]


@pytest.fixture
def numbered(context, serve):
    return [serve(FreelanceServer(HOST, lambda body: body, numbered=True, keys=SERVER, context=context)).endpoints[0]]


def once(seconds):
    return {"timeout": seconds, "retries": 0}


def in_asyncio(kind, words):
    async def ask(ends, keys, seconds):
        async with kind(*ends, keys=keys, **once(seconds)) as client:
            return await client.request(*words)
    return lambda *given: asyncio.run(ask(*given))


def future(ends, keys, seconds):
    with FutureClient(*ends, keys=keys, **once(seconds)) as client:
        return client.request(b"s", b"x")


def sync(kind, words, limit):
    def ask(ends, keys, seconds):
        with kind(*ends, keys=keys, **limit(seconds)) as client:
            return client.request(*words)
    return ask


CLIENTS = {
    "Client": ("broker", sync(Client, (b"s", b"x"), once)),
    "FutureClient": ("broker", future),
    "aio.Client": ("broker", in_asyncio(aio.Client, (b"s", b"x"))),
    "LazyPirate": ("queue", sync(LazyPirate, (b"x",), once)),
    "aio.LazyPirate": ("queue", in_asyncio(aio.LazyPirate, (b"x",))),
    "OneAtATime": ("servers", sync(OneAtATime, (b"x",), lambda seconds: {"timeout": seconds, "rounds": 1})),
    "Shotgun": ("numbered", sync(Shotgun, (b"x",), lambda seconds: {"timeout": seconds})),
    "Addressed": ("servers", sync(Addressed, (b"x",), lambda seconds: {"timeout": seconds, "tries": 1})),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_with_keys_is_served_and_one_without_is_not(name, request):
    place, ask = CLIENTS[name]
    ends = request.getfixturevalue(place)
    assert ask(ends, GOOD, 60.0) == [b"x"]
    for keys in STRANGERS.values():
        with pytest.raises(RequestTimeout):
            ask(ends, keys, 0.2)


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("protocol", ["mdp2", "ppp"])
def test_a_worker_without_the_keys_gets_nothing(protocol, stranger, context, serve, work):
    if protocol == "ppp":
        server = serve(PirateBroker(HOST, HOST, keys=SERVER, context=context))
    else:
        server = serve(MajordomoBroker(HOST, keys=SERVER, context=context))
    wrong = work(Worker(server.endpoints[-1], b"s", protocol=protocol, keys=STRANGERS[stranger], heartbeat=0.02, liveness=2,
                        back_off=(0.01, 0.01), context=context), lambda body: [b"stolen"])
    while wrong.connections < 3:                # it finds its broker silent, and tries again
        threading.Event().wait(0.01)
    assert server.machine.workers == 0


@pytest.mark.parametrize("stranger", STRANGERS)
def test_the_link_of_a_pair_has_keys_of_its_own(stranger, context):
    """A server that hears its peer with other keys hears nothing; with the right ones they agree on their states."""
    keys = [Keys(SERVER.public, SERVER.secret, server=OTHER.public), Keys(OTHER.public, OTHER.secret, server=SERVER.public)]
    links = [free_endpoint(), free_endpoint()]
    wrong = STRANGERS[stranger]
    with ExitStack() as ends:
        def start(at, keys):
            pair = Pair(("primary", "backup")[at], links[at], links[1 - at], heartbeat=0.1, keys=keys)
            server = MajordomoBroker(HOST, keys=SERVER, context=context, pair=pair)
            changed = threading.Event()
            server.star.changed = lambda state: changed.set()
            thread = threading.Thread(target=server.run)
            thread.start()
            for step in (server.engine.close, server.close, thread.join, server.stop):
                ends.callback(step)
            return changed

        primary = start(0, keys[0])
        listener = ends.enter_context(context.socket(zmq.SUB))
        listener.linger, listener.rcvtimeo = 0, 300
        if wrong is not None:
            wrong.put(listener, serves=False)
        listener.subscribe(b"")
        listener.connect(links[0])
        with pytest.raises(zmq.Again):
            listener.recv()                     # three heartbeats
        assert not primary.is_set()
        backup = start(1, keys[1])
        assert primary.wait(60) and backup.wait(60)


@pytest.mark.parametrize("system", ["simple-pirate", "paranoid-pirate", "freelance"])
def test_the_command_line_of_the_others(system, tmp_path, context, raw):
    for name in ("server", "own"):
        zmq.auth.create_certificates(tmp_path, name)
    given = ["--certificate", str(tmp_path / "server.key_secret")]
    public, secret = zmq.auth.load_certificate(tmp_path / "own.key_secret")
    keys = Keys(public, secret, zmq.auth.load_certificate(tmp_path / "server.key")[0])
    server = Command(system, HOST, *([] if system == "freelance" else [HOST]), *given)
    first, *rest = server.said.split(" is ready at ")[1].strip().split(" and ")
    if system == "paranoid-pirate":
        worker = Command("worker", *rest, "any", "--protocol", "ppp", "--certificate", str(tmp_path / "own.key_secret"),
                         "--server-certificate", str(tmp_path / "server.key"), "--", "cat")
    with LazyPirate(first, keys=keys, timeout=60.0, context=context) as client:
        if system == "simple-pirate":
            ready = threading.Thread(target=answer_once, args=(context, rest[0], keys))
            ready.start()
            assert client.request(b"x") == [b"x"]
            ready.join()
        else:
            assert client.request(b"x") == [b"x"]
    if system == "paranoid-pirate":
        assert worker.end() == 0
    assert server.end() == 0


def answer_once(context, endpoint, keys):
    with context.socket(zmq.REQ) as worker:
        worker.linger = 1000
        keys.put(worker, serves=False)
        worker.connect(endpoint)
        worker.send(b"\1")
        worker.send_multipart(worker.recv_multipart())


BROKEN = {"none": None, "empty": b"", "short": b'metadata\ncurve\n    public-key = "short"\n', "binary": b"\xff\x00"}


@pytest.mark.parametrize("text", BROKEN)
@pytest.mark.parametrize("option", ["--certificate", "--server-certificate", "--peer-certificate"])
def test_a_broken_certificate_is_named(text, option, tmp_path, capsys):
    path, good = tmp_path / "broken.key", zmq.auth.create_certificates(tmp_path, "good")[1]
    if BROKEN[text] is not None:
        path.write_bytes(BROKEN[text])
    own = [] if option == "--certificate" else ["--certificate", good]
    words = {"--certificate": ["majordomo", HOST], "--server-certificate": ["worker", "tcp://127.0.0.1:9", "s"],
             "--peer-certificate": ["majordomo", free_endpoint(), "--binary-star", free_endpoint(), "--role", "primary"]}[option]
    assert main(["zeromq", *words, *own, option, str(path), *(["--", "cat"] if words[0] == "worker" else [])]) == 2
    assert f"{path} cannot be read as a CURVE certificate" in capsys.readouterr().err


def test_keys_of_two_pairs_are_named(tmp_path, capsys):
    first, second = (Path(zmq.auth.create_certificates(tmp_path, name)[1]).read_text().split("secret-key") for name in "ab")
    mixed = tmp_path / "mixed.key_secret"
    mixed.write_text(first[0] + "secret-key" + second[1])
    assert main(["zeromq", "majordomo", HOST, "--certificate", str(mixed)]) == 2
    said = capsys.readouterr().err
    assert str(mixed) in said and "does not belong to the secret one" in said


@pytest.mark.parametrize(("keys", "error"), [
    ((b"short", OWN.secret), "public key must be 40 characters of Z85"), ((OWN.public, b"short"), "secret key must be 40"),
    ((OWN.public, OWN.secret, b"~" * 40), "server key must be 40"), ((OWN.public, OTHER.secret), "does not belong to"),
    ((OWN.public.decode(), OWN.secret), "public key must be bytes, got str"),
], ids=["public", "secret", "server", "mixed", "text"])
def test_keys_that_are_none_are_refused_and_not_told(keys, error):
    with pytest.raises((ValueError, TypeError), match=error) as raised:
        Keys(*keys)
    assert OWN.secret.decode() not in str(raised.value)
