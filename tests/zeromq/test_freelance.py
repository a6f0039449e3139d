"""Freelance: servers and clients of the three models, each opposite peers of raw sockets, written from the guide and RFC 10."""

import asyncio
import random
import threading

import pytest
import zmq

from tests.zeromq.proxy import free_endpoint
from tests.zeromq.test_sockets import HOST, Asked, Command, answer_until, endpoint_of
from xump import Engine
from xump.errors import RequestTimeout
from xump.zeromq.freelance import Addressed, Agent, Freelance, FreelanceServer, OneAtATime, Shotgun
from xump.zeromq.sockets import bind

# ---- the server's machine


class Server:
    """A machine that is done at once, with what it sent."""

    def __init__(self, **options):
        self.sent, self.bodies, self.held = [], [], None
        self.machine = Freelance(Engine(), self.sent.append, self.start, **options)

    def start(self, delivery, body):
        self.bodies.append(body)
        if self.held is None:
            self.machine.reply(delivery, [b"ok", *body])
        else:
            self.held.append((delivery, body))

    def get(self, *frames):
        self.machine.handle(list(frames), 0.0)
        self.machine.pump(0.0)
        self.machine.engine.check()
        sent = list(map(list, self.sent))
        self.sent.clear()
        return sent


def test_a_ping_is_answered_by_pong():
    assert Server().get(b"c", b"PING") == [[b"c", b"PONG"]]


@pytest.mark.parametrize("control", [b"1", b"\x00\xff", b"PONG", b"x" * 1000])
def test_a_reply_has_the_control_frame_of_its_request(control):
    assert Server().get(b"c", control, b"body", b"") == [[b"c", control, b"ok", b"body", b""]]


def test_a_req_client_is_answered_with_its_empty_frame_and_a_shotgun_with_its_number():
    assert Server().get(b"c", b"", b"body") == [[b"c", b"", b"ok", b"body"]]
    assert Server(numbered=True).get(b"c", b"", b"17", b"body") == [[b"c", b"", b"17", b"ok", b"body"]]
    assert Server(numbered=True).get(b"c", b"17", b"body") == [[b"c", b"17", b"ok", b"body"]]


@pytest.mark.parametrize("frames", [[b"c"], [b"c", b""], [b"c", b"x"], [b"c", b"PONG"], [b"c", b"", b"17"]])
def test_what_is_no_request_is_dropped(frames):
    server = Server(numbered=True)
    assert server.get(*frames) == []
    assert server.machine.dropped == 1


def test_so_many_requests_are_at_work_as_there_are_hands():
    server = Server(at_once=2)
    server.held = []
    for number in (b"1", b"2", b"3"):
        server.get(b"c", number, number)
    assert server.bodies == [[b"1"], [b"2"]]
    server.machine.reply(server.held[1][0], [b"done"])
    server.machine.pump(0.0)
    assert server.sent == [[b"c", b"2", b"done"]]
    assert server.bodies[2:] == [[b"3"]]


def test_a_server_that_is_not_the_active_one_of_its_pair_is_not_there():
    server = Server()
    server.machine.admits = lambda: False
    assert server.get(b"c", b"PING") == server.get(b"c", b"1", b"x") == server.get(b"c", b"", b"x") == []


@pytest.mark.parametrize("seed", range(10))
def test_random_frames_never_crash_a_server(seed):
    chance, server = random.Random(seed), Server(numbered=bool(seed % 2))
    for _ in range(300):
        frames = [b"c", *chance.choices([b"", b"PING", b"PONG", b"1", b"\xff" * 99], k=chance.randrange(5))]
        for said in server.get(*frames):
            assert said[1] in (frames[1], b"PONG")


# ---- RFC 10's client, fed with moments

class Client:
    """An agent of servers a, b and c, and what it sent."""

    def __init__(self, **options):
        self.now, self.sent, self.gone, self.done = 100.0, [], set(), []
        self.agent = Agent([b"a", b"b", b"c"], self.send, self.now, ping=2.0, ttl=6.0, timeout=3.0, **options)

    def send(self, frames):
        if frames[0] in self.gone:
            return False
        self.sent.append(list(frames))
        return True

    def at(self, moment):
        self.now = 100.0 + moment
        self.agent.tick(self.now)
        return self.pop()

    def ask(self, *body):
        self.agent.request(body, self.done.append, self.now)
        return self.pop()

    def hear(self, *frames):
        self.agent.handle(list(frames), self.now)
        return self.pop()

    def pop(self):
        sent = list(self.sent)
        self.sent.clear()
        return sent


@pytest.fixture
def client():
    client = Client()
    assert client.at(0) == [[b"a", b"PING"], [b"b", b"PING"], [b"c", b"PING"]]
    return client


def test_requests_go_to_live_servers_in_turn(client):
    for name in (b"a", b"b"):
        client.hear(name, b"PONG")
    assert [client.ask(b"x")[0][0] for _ in range(4)] == [b"a", b"b", b"a", b"b"]
    client.hear(b"c", b"PONG")
    assert client.agent.alive(client.now)[0] == b"c"


def test_a_request_waits_for_a_live_server(client):
    assert client.ask(b"x") == []
    assert client.hear(b"b", b"PONG") == [[b"b", b"1", b"x"]]
    assert client.hear(b"b", b"1", b"done", b"") == []
    assert client.done == [[b"done", b""]]


def test_a_server_that_says_nothing_is_pinged_and_one_that_speaks_is_not(client):
    client.hear(b"a", b"PONG")
    client.at(1.5)
    client.hear(b"a", b"?")
    assert client.at(2.0) == [[b"b", b"PING"], [b"c", b"PING"]]
    assert client.at(3.5) == [[b"a", b"PING"]]


def test_a_server_that_is_silent_for_its_time_to_live_is_dead_and_comes_back(client):
    for name in (b"a", b"b"):
        client.hear(name, b"PONG")
    client.at(5.0)
    client.hear(b"b", b"PONG")
    client.at(6.0)
    assert client.agent.alive(client.now) == [b"b"]
    client.hear(b"a", b"PONG")
    assert set(client.agent.alive(client.now)) == {b"a", b"b"}


def test_the_request_of_a_server_that_dies_goes_to_the_next(client):
    client.hear(b"a", b"PONG")
    client.at(5.0)
    client.hear(b"b", b"PONG")
    assert client.ask(b"x") == [[b"a", b"1", b"x"]]
    assert [b"b", b"1", b"x"] in client.at(6.0)
    client.hear(b"b", b"1", b"done")
    assert client.done == [[b"done"]]


def test_a_request_that_is_over_its_time_is_asked_again_and_given_up_in_the_end(client):
    client.hear(b"a", b"PONG"), client.hear(b"b", b"PONG")
    assert client.ask(b"x") == [[b"a", b"1", b"x"]]
    assert [b"b", b"1", b"x"] in client.at(3.0)
    assert client.done == []
    client.at(6.0)
    assert client.done == [None]
    client.hear(b"a", b"1", b"late")
    assert client.done == [None]


def test_the_answer_of_the_server_that_was_asked_first_counts_and_the_second_is_ignored(client):
    client.hear(b"a", b"PONG"), client.hear(b"b", b"PONG")
    client.ask(b"x")
    client.at(3.0)
    client.hear(b"a", b"1", b"late")
    client.hear(b"b", b"1", b"again")
    assert client.done == [[b"late"]]


def test_a_server_without_a_connection_is_not_asked_and_is_pinged_again_soon(client):
    for name in (b"a", b"b"):
        client.hear(name, b"PONG")
    client.gone |= {b"a", b"c"}
    assert client.ask(b"x") == [[b"b", b"1", b"x"]]
    client.at(2.0)
    client.gone.clear()
    assert [b"c", b"PING"] in client.at(2.05)


@pytest.mark.parametrize("frames", [
    [b"a"], [b"stranger", b"PONG"], [b"stranger", b"1", b"x"], [b"a", b"99", b"x"], [b"a", b"", b""]])
def test_what_is_no_answer_to_a_request_is_ignored(client, frames):
    client.ask(b"x")
    client.hear(*frames)
    assert client.done == []


@pytest.mark.parametrize("wrong", [{"ping": 6.0}, {"ttl": 1.0}, {"timeout": 0.0}, {"tries": 0}])
def test_wrong_options_of_a_client_are_refused(wrong):
    with pytest.raises(ValueError, match="allowed are"):
        Agent([b"a"], print, 0.0, **wrong)
    with pytest.raises(ValueError, match="allowed are"):
        Agent([], print, 0.0)


# ---- over sockets

def test_a_raw_router_of_rfc_10_finds_the_server_by_its_endpoint(context, serve, raw):
    server = serve(FreelanceServer(HOST, lambda body: [b"ok", *body], context=context))
    [endpoint] = server.endpoints
    client = bind(context, zmq.ROUTER, HOST)
    client.router_mandatory = True
    client.connect(endpoint)
    client.rcvtimeo = 60_000
    while True:
        try:
            client.send_multipart([endpoint.encode(), b"PING"])
            break
        except zmq.ZMQError:                    # the connection is on its way
            continue
    assert client.recv_multipart() == [endpoint.encode(), b"PONG"]
    client.send_multipart([endpoint.encode(), b"17", b"body"])
    assert client.recv_multipart() == [endpoint.encode(), b"17", b"ok", b"body"]
    client.close()


def test_one_at_a_time_goes_to_the_next_server_and_stays_there(context, raw):
    dead, alive = raw(zmq.ROUTER), raw(zmq.REP)
    with OneAtATime(endpoint_of(dead), endpoint_of(alive), timeout=0.2, rounds=1000, context=context) as client:
        asked = Asked(lambda: client.request(b"hello"))
        assert answer_until(asked, alive, b"ok") == [b"ok"]


def test_a_shotgun_takes_the_first_answer_and_no_late_one(context, raw):
    slow, fast, dead = raw(zmq.ROUTER), raw(zmq.ROUTER), raw(zmq.ROUTER)
    nowhere = endpoint_of(dead)
    dead.close()
    with Shotgun(endpoint_of(slow), nowhere, endpoint_of(fast), timeout=60.0, context=context) as client:
        for turn in (b"1", b"2"):
            asked = Asked(lambda turn=turn: client.request(turn))
            identity, empty, number, body = slow.recv_multipart()
            assert (empty, body) == (b"", turn)
            other, _, also, _ = fast.recv_multipart()
            assert also == number
            fast.send_multipart([other, b"", b"not " + number, b"wrong"])
            fast.send_multipart([other, b"", number, b"fast " + turn])
            assert asked.end() == [b"fast " + turn]
            slow.send_multipart([identity, b"", number, b"late"])


def test_a_shotgun_without_servers_gives_up(context, raw):
    with Shotgun(endpoint_of(raw(zmq.ROUTER)), timeout=0.05, context=context) as client:
        with pytest.raises(RequestTimeout, match=r"within 0\.05 seconds"):
            client.request(b"x")


def test_a_shotgun_does_not_wait_for_a_server_that_went_between_poll_and_send(context):
    with Shotgun(free_endpoint(), context=context) as client:
        [socket] = client._sockets
        assert not client._messages[socket].send([b"", b"1", b"x"])


def test_a_shotgun_with_our_server(context, serve):
    servers = [serve(FreelanceServer(HOST, lambda body: body, numbered=True, context=context)) for _ in range(3)]
    with Shotgun(*(server.endpoints[0] for server in servers), timeout=60.0, context=context) as client:
        for number in range(50):
            assert client.request(b"%d" % number) == [b"%d" % number]


def test_the_addressed_model_with_servers_that_end(context, serve):
    done = []
    servers = [
        serve(FreelanceServer(HOST, lambda body, at=at: [b"%d" % at, *body], context=context, threads=2)) for at in range(3)]
    ends = [server.endpoints[0] for server in servers]
    with Addressed(*ends, context=context, ping=0.05, ttl=1.0, timeout=0.5, tries=1000) as client:
        while len({client.request(b"x")[0] for _ in range(6)}) < 3:
            done.append("not all are known yet")
        servers[0].stop()
        servers[1].stop()
        assert [client.request(b"%d" % n)[1] for n in range(20)] == [b"%d" % n for n in range(20)]

        async def ask():
            return await asyncio.gather(*(asyncio.wrap_future(client.submit(b"%d" % n)) for n in range(50)))

        assert [reply[1] for reply in asyncio.run(ask())] == [b"%d" % n for n in range(50)]


def test_the_addressed_model_with_raw_servers_of_rfc_10(context):
    server = context.socket(zmq.ROUTER)
    endpoint = free_endpoint()
    server.linger, server.rcvtimeo, server.routing_id = 0, 60_000, endpoint.encode()
    server.bind(endpoint)
    with Addressed(endpoint, context=context, timeout=60.0) as client:
        identity, ping = server.recv_multipart()
        assert ping == b"PING"
        server.send_multipart([identity, b"PONG"])
        asked = Asked(lambda: client.request(b"hello"))
        while len(said := server.recv_multipart()) == 2:
            server.send_multipart([identity, b"PONG"])
        assert said[2:] == [b"hello"]
        server.send_multipart([identity, said[1], b"ok"])
        assert asked.end() == [b"ok"]
    server.close()


def test_a_client_that_is_closed_ends_its_requests(context, raw):
    client = Addressed(endpoint_of(raw(zmq.ROUTER)), context=context)
    future = client.submit(b"x")
    client.close()
    with pytest.raises(RequestTimeout, match="closed"):
        future.result()
    with pytest.raises(ValueError, match="closed"):
        client.submit(b"x")


def test_a_function_that_raises_ends_its_server(context, raw):
    def fails(body):
        raise LookupError("no")

    server = FreelanceServer(HOST, fails, context=context)
    errors = []

    def run():
        try:
            server.run()
        except LookupError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    raw(zmq.REQ, server.endpoints[0]).send(b"x")
    thread.join()
    server.close()
    server.engine.close()
    assert errors == ["no"]


@pytest.mark.parametrize("more", [[], ["--threads", "2"], ["--threads", "2", "--"]], ids=" ".join)
def test_the_command_line_of_freelance_without_a_command_answers_with_the_request(context, more):
    server = Command("freelance", HOST, *more)
    with OneAtATime(server.said.split()[-1], timeout=60.0, context=context) as client:
        assert client.request(b"hello", b"you") == [b"hello", b"you"]
    assert server.end() == 0


def test_the_command_line_of_freelance(context):
    server = Command("freelance", HOST, "--threads", "2", "--", "tr", "a-z", "A-Z")
    endpoint = server.said.split()[-1]
    with OneAtATime(endpoint, timeout=60.0, context=context) as client:
        assert client.request(b"hello") == [b"HELLO"]
    with Addressed(endpoint, timeout=60.0, context=context) as client:
        assert client.request(b"hello") == [b"HELLO"]
    assert server.end() == 0
