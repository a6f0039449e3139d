"""The Majordomo broker, fed frame by frame by peers written from RFC 7, RFC 18 and RFC 8; the moments are the tests' own."""

import itertools
import random
from collections import Counter

import pytest

from xump import Engine
from xump.zeromq import Majordomo
from xump.zeromq.frames import FRAMES_MAX
from xump.zeromq.majordomo import ServiceRule, machine
from xump_ext.zeromq.packing import pack

SECOND = 1_000_000_000


class Broker:
    """A machine over an engine, both with the clock of the test, and what it sent."""

    def __init__(self, **options):
        self.now, self.sent = 100.0, []
        self.engine = Engine(clock=lambda: int(self.now * SECOND))
        self.engine.create_queue("dead")
        self.machine = Majordomo(self.engine, self.sent.append, heartbeat=1.0, liveness=3, **options)

    def get(self, *frames):
        """A message comes in; returns what went out."""
        self.machine.handle(list(frames), self.now)
        return self.pumped()

    def pass_time(self, seconds):
        self.now += seconds
        self.machine.tick(self.now)
        return self.pumped()

    def pumped(self):
        self.machine.pump(self.now)
        self.machine.check()
        sent = list(map(list, self.sent))
        self.sent.clear()
        return sent


class Peer:
    """How a client and a worker of a version speak, from the tables of the RFCs."""

    def __init__(self, version):
        self.client = {"0.1": [b"", b"MDPC01"], "0.2": [b"MDPC02", b"\1"], "0.2 REQ": [b"", b"MDPC02", b"\1"],
                       "majortomo": [b"", b"MDPC02", b"\2"], "libmdp": [b"", b"MDPC0X"]}[version]
        self.final = {"0.1": [b"", b"MDPC01", b"s"], "0.2": [b"MDPC02", b"\3", b"s"], "0.2 REQ": [b"", b"MDPC02", b"\3", b"s"],
                      "majortomo": [b"", b"MDPC02", b"\4"], "libmdp": [b"", b"MDPC0X", b"\2", b"s"]}[version]
        self.partial = {"0.2": [b"MDPC02", b"\2", b"s"], "0.2 REQ": [b"", b"MDPC02", b"\2", b"s"],
                        "majortomo": [b"", b"MDPC02", b"\3"], "libmdp": [b"", b"MDPC0X", b"\2", b"s"]}.get(version)
        self.worker = {"0.1": [b"", b"MDPW01"], "0.2": [b"MDPW02"], "0.2 REQ": [b"MDPW02"],
                       "majortomo": [b"", b"MDPW02"], "libmdp": [b"", b"MDPW0X"]}[version]
        names = ["ready", "request", "reply", "heartbeat", "disconnect"]
        if version not in ("0.1", "libmdp"):
            names.insert(2, "part")
        self.codes = {name: bytes([at]) for at, name in enumerate(names, 1)}

    def asks(self, *body, client=b"c", service=b"s"):
        return [client, *self.client, service, *body]

    def says(self, name, *rest, worker=b"w"):
        return [worker, *self.worker, self.codes[name], *rest]


VERSIONS = ["0.1", "0.2", "0.2 REQ", "majortomo", "libmdp"]


@pytest.fixture(params=VERSIONS)
def peer(request):
    return Peer(request.param)


@pytest.fixture
def broker():
    return Broker()


# ---- requests and replies

@pytest.mark.parametrize(("asks", "works"), [(one, other) for one in VERSIONS for other in VERSIONS])
def test_every_client_is_served_by_every_worker_each_in_its_own_form(broker, asks, works):
    client, worker = Peer(asks), Peer(works)
    assert broker.get(*worker.says("ready", b"s")) == []
    assert broker.get(*client.asks(b"body", b"")) == [worker.says("request", b"c", b"", b"body", b"")]
    assert broker.get(*worker.says("reply", b"c", b"", b"done", b"")) == [[b"c", *client.final, b"done", b""]]


def test_a_broker_should_queue_requests_for_absent_services(broker, peer):
    for number in (b"1", b"2"):
        assert broker.get(*peer.asks(number)) == []
    assert broker.get(*peer.says("ready", b"s")) == [peer.says("request", b"c", b"", b"1")]
    # The worker is not to wait for its next request until the reply to the last one is sent.
    assert broker.get(*peer.says("reply", b"c", b"", b"ok")) == [
        peer.says("request", b"c", b"", b"2"), [b"c", *peer.final, b"ok"]]


def test_requests_for_absent_services_expire_wherever_they_stand_in_the_queue():
    peer, broker = Peer("0.1"), Broker(rule=ServiceRule(request_ttl=10.0))
    broker.get(*peer.asks(b"old"))
    broker.pass_time(6.0)
    broker.get(*peer.asks(b"new"))
    broker.pass_time(5.0)
    assert broker.get(*peer.says("ready", b"s")) == [peer.says("request", b"c", b"", b"new")]


def test_a_service_without_workers_and_requests_ends(broker, peer):
    broker.get(*peer.says("ready", b"s"))
    broker.get(*peer.asks(b"x", service=b"absent"))
    assert sorted(broker.engine.queues) == ["dead", "mdp/absent", "mdp/s"]
    broker.get(*peer.says("disconnect"))
    broker.pass_time(301.0)
    broker.pass_time(1.0)
    assert list(broker.engine.queues) == ["dead"]
    assert broker.machine.services == {}
    assert broker.machine.due() is None


def test_a_broker_should_be_fair_among_the_workers_of_a_service(broker, peer):
    for name in (b"a", b"b", b"c"):
        broker.get(*peer.says("ready", b"s", worker=name))
    served = Counter()
    for _ in range(30):
        [sent] = broker.get(*peer.asks(b"x"))
        served[sent[0]] += 1
        broker.get(*peer.says("reply", b"c", b"", b"y", worker=sent[0]))
    assert served == {b"a": 10, b"b": 10, b"c": 10}


def test_a_broker_should_serve_clients_fairly_the_first_that_asks_first(broker, peer):
    """ROUTER sockets take from clients in turn, and what they took is served in that order."""
    asked = [(client, b"%d" % number) for number in range(3) for client in (b"a", b"b", b"a")]
    for client, body in asked:
        broker.get(*peer.asks(body, client=client))
    served = []
    sent = broker.get(*peer.says("ready", b"s"))
    while len(served) < len(asked):
        [[client, _, body]] = [frames[-3:] for frames in sent if frames[0] == b"w"]
        served.append((client, body))
        sent = broker.get(*peer.says("reply", client, b"", b"done"))
    assert served == asked


def test_a_worker_has_one_request_at_a_time(broker, peer):
    broker.get(*peer.says("ready", b"s"))
    assert len(broker.get(*peer.asks(b"1"))) == 1
    assert broker.get(*peer.asks(b"2")) == []


# ---- parts (RFC 18)

@pytest.mark.parametrize("version", ["0.2", "0.2 REQ", "majortomo", "libmdp"])
def test_parts_go_to_the_client_as_they_come(broker, version):
    peer, worker = Peer(version), Peer("0.2" if version == "libmdp" else version)
    broker.get(*worker.says("ready", b"s"))
    broker.get(*peer.asks(b"x"))
    assert broker.get(*worker.says("part", b"c", b"", b"1")) == [[b"c", *peer.partial, b"1"]]
    assert broker.get(*worker.says("part", b"c", b"", b"2")) == [[b"c", *peer.partial, b"2"]]
    assert broker.get(*worker.says("reply", b"c", b"", b"3")) == [[b"c", *peer.final, b"3"]]


@pytest.mark.parametrize("version", ["0.2", "0.2 REQ", "majortomo", "libmdp"])
@pytest.mark.parametrize("end", ["disconnect", "silence"])
def test_no_worker_goes_on_with_a_reply_that_another_one_began(version, end):
    """The client would take the parts of both for one reply. It asks once more: then it knows no part."""
    broker = Broker()
    client, worker = Peer(version), Peer("0.2" if version == "libmdp" else version)
    broker.get(*worker.says("ready", b"s", worker=b"dies"))
    broker.get(*client.asks(b"x"))
    assert broker.get(*worker.says("part", b"c", b"", b"1", worker=b"dies")) == [[b"c", *client.partial, b"1"]]
    if end == "disconnect":
        broker.get(*worker.says("disconnect", worker=b"dies"))
    else:
        broker.pass_time(3)
    assert broker.get(*worker.says("ready", b"s")) == []
    assert len(broker.get(*client.asks(b"x", client=b"c2"))) == 1
    assert broker.get(*worker.says("reply", b"c2", b"", b"2")) == [[b"c2", *client.final, b"2"]]
    broker.get(*worker.says("disconnect"))
    assert broker.machine.engine.queues["mdp/s"].ready == 0


def test_a_client_of_one_reply_gets_all_parts_in_it_and_none_of_a_worker_that_died(broker):
    client, worker = Peer("0.1"), Peer("0.2")
    broker.get(*worker.says("ready", b"s", worker=b"dies"))
    broker.get(*client.asks(b"x"))
    assert broker.get(*worker.says("part", b"c", b"", b"lost", worker=b"dies")) == []
    broker.get(*worker.says("disconnect", worker=b"dies"))
    broker.get(*worker.says("ready", b"s"))
    assert broker.get(*worker.says("part", b"c", b"", b"1")) == []
    assert broker.get(*worker.says("reply", b"c", b"", b"2")) == [[b"c", *client.final, b"1", b"2"]]


# ---- heartbeats

def test_workers_get_heartbeats_in_every_state_when_nothing_else_is_sent(broker, peer):
    broker.get(*peer.says("ready", b"s"))
    assert broker.pass_time(1.0) == [peer.says("heartbeat")]
    broker.get(*peer.says("heartbeat"))
    broker.pass_time(0.5)
    broker.get(*peer.asks(b"x"))
    assert broker.pass_time(0.75) == []                             # the request was as good
    assert broker.pass_time(0.25) == [peer.says("heartbeat")]       # and now it is busy


@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_that_is_silent_is_gone(broker, peer, busy):
    broker.get(*peer.says("ready", b"s"))
    if busy:
        broker.get(*peer.asks(b"x"))
    broker.pass_time(2.9)
    assert broker.machine.workers == 1
    assert peer.says("heartbeat") not in broker.pass_time(0.1)
    assert broker.machine.workers == 0
    assert broker.pass_time(5.0) == []                              # to whom is gone nothing is sent, of any type
    again = broker.get(*peer.says("ready", b"s", worker=b"w2"))
    assert again == ([peer.says("request", b"c", b"", b"x", worker=b"w2")] if busy else [])


def test_any_command_but_disconnect_counts_as_a_heartbeat(broker, peer):
    broker.get(*peer.says("ready", b"s"))
    broker.pass_time(2.0)
    broker.get(*peer.asks(b"x"))
    broker.get(*peer.says("reply", b"c", b"", b"y"))
    broker.pass_time(2.0)
    broker.get(*peer.says("heartbeat"))
    broker.pass_time(2.0)
    assert broker.machine.workers == 1


# ---- what workers must not do

def test_a_heartbeat_or_reply_of_an_unknown_worker_is_answered_by_disconnect(broker, peer):
    assert broker.get(*peer.says("heartbeat")) == [peer.says("disconnect")]
    assert broker.get(*peer.says("reply", b"c", b"", b"x")) == [peer.says("disconnect")]
    assert broker.get(*peer.says("disconnect")) == []               # silence: it is none of ours


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("lie", [("ready", b"s"), ("reply", b"someone else", b"", b"x")])
def test_an_unexpected_command_is_answered_by_disconnect_then_silence(broker, peer, busy, lie):
    broker.get(*peer.says("ready", b"s"))
    if busy:
        broker.get(*peer.asks(b"x"))
    assert broker.get(*peer.says(*lie)) == [peer.says("disconnect")]
    assert broker.machine.workers == 0
    assert broker.pass_time(1.0) == []
    assert broker.get(*peer.asks(b"y")) == []
    [sent] = broker.get(*peer.says("ready", b"s", worker=b"w2"))
    assert sent[-1] == (b"x" if busy else b"y")                     # what the liar had is first


def test_a_worker_that_changes_its_version_is_sent_away(broker):
    broker.get(*Peer("0.1").says("ready", b"s"))
    assert broker.get(*Peer("0.2").says("heartbeat")) == [Peer("0.2").says("disconnect")]
    assert broker.machine.workers == 0


@pytest.mark.parametrize("name", [b"mmi.service", b"mmi.mine", b"xump.mine"])
def test_a_worker_that_registers_a_reserved_service_must_be_disconnected(broker, peer, name):
    assert broker.get(*peer.says("ready", name)) == [peer.says("disconnect")]
    assert broker.machine.workers == 0


def test_nothing_is_sent_to_a_worker_after_its_disconnect(broker, peer):
    broker.get(*peer.says("ready", b"s"))
    assert broker.get(*peer.says("disconnect")) == []
    assert broker.get(*peer.asks(b"x")) == []
    assert broker.pass_time(5.0) == []


def test_a_broker_that_goes_tells_its_workers(broker, peer):
    broker.get(*peer.says("ready", b"s"))
    broker.machine.shut()
    assert broker.pumped() == [peer.says("disconnect")]


# ---- what becomes of requests

def test_the_request_of_a_dead_worker_keeps_its_place(broker, peer):
    broker.get(*peer.says("ready", b"s"))
    for number in (b"1", b"2"):
        broker.get(*peer.asks(number))
    broker.get(*peer.says("disconnect"))
    assert broker.get(*peer.says("ready", b"s", worker=b"w2")) == [peer.says("request", b"c", b"", b"1", worker=b"w2")]


def test_a_service_may_say_that_nothing_is_done_twice(peer):
    broker = Broker(rules={b"s": ServiceRule(redispatch=False, dead_letter="dead")})
    broker.get(*peer.says("ready", b"s"))
    broker.get(*peer.asks(b"x"))
    broker.get(*peer.says("disconnect"))
    assert broker.get(*peer.says("ready", b"s", worker=b"w2")) == []
    assert broker.engine.queues["dead"].ready == 1


@pytest.mark.parametrize(("wrong", "error"), [
    ({"request_ttl": -1.0}, "request_ttl is -1.0"), ({"request_ttl": float("nan")}, "request_ttl is nan"),
    ({"request_ttl": float("inf")}, "request_ttl is inf"), ({"delivery_limit": 0}, "delivery_limit is 0"),
])
def test_a_wrong_rule_is_refused_before_a_request_comes(wrong, error):
    with pytest.raises(ValueError, match=error):
        ServiceRule(**wrong)


@pytest.mark.parametrize("rules", [{"rule": ServiceRule(dead_letter="no")}, {"rules": {b"s": ServiceRule(dead_letter="no")}}])
def test_a_rule_needs_its_queue_for_dead_letters_before_a_request_comes(rules):
    with Engine() as engine, pytest.raises(ValueError, match="the queue 'no' for dead letters does not exist"):
        Majordomo(engine, print, **rules)


def test_a_request_that_kills_its_workers_goes_to_the_dead_letters(peer):
    broker = Broker(rule=ServiceRule(delivery_limit=3, dead_letter="dead"))
    broker.get(*peer.asks(b"poison"))
    for number in range(3):
        worker = b"w%d" % number
        assert broker.get(*peer.says("ready", b"s", worker=worker)) == [
            peer.says("request", b"c", b"", b"poison", worker=worker)]
        broker.get(*peer.says("disconnect", worker=worker))
    assert broker.get(*peer.says("ready", b"s")) == []
    assert broker.engine.queues["dead"].ready == 1


# ---- MMI (RFC 8), and what we add

@pytest.mark.parametrize("version", VERSIONS)
def test_mmi(broker, version):
    peer = Peer(version)

    def ask(name, about):
        [sent] = broker.get(*peer.asks(about, service=name))
        assert sent[: len(peer.final) + 1] == [b"c", *[name if frame == b"s" else frame for frame in peer.final]]
        return sent[len(peer.final) + 1:]

    assert ask(b"mmi.service", b"s") == [b"404"]
    broker.get(*peer.asks(b"x"))
    assert ask(b"mmi.service", b"s") == [b"404"]                    # a request is no worker
    assert ask(b"xump.waiting", b"s") == [b"1"]
    broker.get(*peer.says("ready", b"s"))
    assert ask(b"mmi.service", b"s") == [b"200"]
    assert (ask(b"xump.waiting", b"s"), ask(b"xump.workers", b"s"), ask(b"xump.services", b"")) == ([b"0"], [b"1"], [b"s"])
    assert ask(b"mmi.anything", b"s") == ask(b"xump.anything", b"s") == [b"501"]
    broker.get(*peer.says("disconnect"))
    assert ask(b"mmi.service", b"s") == [b"404"]                    # not 200 for ever


# ---- what has no room

@pytest.mark.parametrize(("limit", "value"), [("WAITING_MAX", 3), ("WAITING_BYTES_MAX", 3 * len(pack(1, [b"c", b"x"])))])
def test_requests_above_a_limit_are_refused_and_those_that_wait_are_done(monkeypatch, limit, value):
    monkeypatch.setattr(machine, limit, value)
    broker, peer = Broker(), Peer("0.2")
    for number in range(5):
        assert broker.get(*peer.asks(b"%d" % number)) == []
    assert broker.machine.dropped == 2
    [sent] = broker.get(*peer.says("ready", b"s"))
    assert sent[-1] == b"0"
    broker.get(*peer.asks(b"5"))
    assert broker.machine.dropped == 2                              # there is room again


def test_services_that_clients_may_name_and_workers_are_bounded(monkeypatch):
    monkeypatch.setattr(machine, "SERVICES_MAX", 2)
    monkeypatch.setattr(machine, "WORKERS_MAX", 1)
    broker, peer = Broker(), Peer("0.2")
    for name in (b"1", b"2", b"3"):
        broker.get(*peer.asks(b"x", service=name))
    assert (broker.machine.dropped, list(broker.machine.services)) == (1, [b"1", b"2"])
    assert broker.get(*peer.says("ready", b"3")) == []              # a worker may bring a service
    assert len(broker.get(*peer.asks(b"x", service=b"3"))) == 1
    assert broker.get(*peer.says("ready", b"2", worker=b"w2")) == [peer.says("disconnect", worker=b"w2")]


def test_services_that_clients_have_named_end_though_no_worker_ever_came(monkeypatch):
    monkeypatch.setattr(machine, "SERVICES_MAX", 2)
    broker, peer = Broker(rule=ServiceRule(request_ttl=5.0)), Peer("0.2")
    assert broker.machine.due() is None
    for name in (b"1", b"2"):
        broker.get(*peer.asks(b"x", service=name))
    assert broker.machine.due() <= broker.now
    broker.pass_time(0)
    assert (len(broker.machine.services), broker.machine.due()) == (2, broker.now + 1)
    broker.pass_time(6)
    assert broker.machine.services == {} and broker.machine.due() is None


def test_parts_that_wait_for_the_last_one_are_bounded(monkeypatch):
    """A client of 0.1 takes one reply; a worker of 0.2 could send parts without end."""
    monkeypatch.setattr(machine, "PARTIALS_BYTES_MAX", 1000)
    broker, worker = Broker(), Peer("0.2")
    broker.get(*worker.says("ready", b"s"))
    broker.get(*Peer("0.1").asks(b"x"))
    sent = []
    while not sent:
        sent = broker.get(*worker.says("part", b"c", b"", b"y" * 100))
    assert sent == [worker.says("disconnect")]
    [again] = broker.get(*worker.says("ready", b"s", worker=b"next"))
    assert again[-1] == b"x"


# ---- what is no message

def malformed(peer):
    yield from ([b"p"], [b"p", b""], [b"p", b"", b""], [b"p", b"x"], [b"p", b"", b"MDPX01", b"s", b"x"], [b"p"] * 9)
    yield peer.asks(client=b"p")                                    # no body
    yield peer.asks(b"x", client=b"p", service=b"n" * 256)
    yield peer.asks(b"x", client=b"p", service=b"")
    for name in peer.codes:
        yield peer.says(name, b"1", b"2", b"3", worker=b"p")
    yield [b"p", *peer.worker]
    yield [b"p", *peer.worker, b"\x07"]
    yield [b"p", *peer.worker, b""]
    yield [b"p", *peer.worker, b"\x01\x01", b"s"]
    yield peer.says("ready", worker=b"p")
    yield peer.says("ready", b"", worker=b"p")
    yield peer.says("reply", worker=b"p")
    yield peer.says("reply", b"c", b"", worker=b"p")
    yield peer.says("request", b"c", b"not empty", b"x", worker=b"p")
    yield peer.says("reply", b"c", b"", *[b""] * FRAMES_MAX, worker=b"p")


def test_what_is_malformed_and_comes_from_no_worker_is_dropped(peer):
    for frames in malformed(peer):
        broker = Broker()
        assert broker.get(*frames) == [], frames
        assert broker.machine.dropped == 1, frames
        assert broker.machine.workers == len(broker.machine.services) == 0


@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_that_sends_what_is_malformed_is_invalid_and_its_request_goes_to_the_next(peer, busy):
    """It is told so, and is unknown then: a malformed reply would leave it busy for ever, since it takes its request for done."""
    for frames in malformed(peer):
        broker = Broker()
        broker.get(*peer.says("ready", b"s", worker=b"p"))
        if busy:
            broker.get(*peer.asks(b"x"))
        assert broker.get(*frames) == [peer.says("disconnect", worker=b"p")], frames
        assert (broker.machine.dropped, broker.machine.workers) == (1, 0), frames
        assert broker.get(*peer.says("heartbeat", worker=b"p")) == [peer.says("disconnect", worker=b"p")]
        sent = broker.get(*peer.says("ready", b"s", worker=b"next"))
        assert [frames[-1] for frames in sent] == [b"x"] * busy


@pytest.mark.parametrize("state", ["unknown", "waiting", "busy"])
def test_a_request_from_a_worker_is_valid_and_unexpected(peer, state):
    broker = Broker()
    if state != "unknown":
        broker.get(*peer.says("ready", b"s"))
    if state == "busy":
        broker.get(*peer.asks(b"x"))
    assert broker.get(*peer.says("request", b"c", b"", b"x")) == [peer.says("disconnect")]
    assert broker.machine.workers == 0


# ---- a state machine against a model

class Model:
    """What a broker of one service must do, naively: lists, and the rules of the RFC."""

    def __init__(self):
        self.waiting, self.workers = [], {}         # numbers of requests, in order; worker: [last heard, its request or None]

    def gone(self, worker):
        _, request = self.workers.pop(worker, (0, None))
        if request is not None:
            self.waiting.append(request)
            self.waiting.sort()                     # at its old place


@pytest.mark.parametrize("seed", range(40))
def test_workers_that_come_go_hang_and_lie_against_a_model(seed):
    chance, broker, model = random.Random(seed), Broker(), Model()
    peers = {b"w%d" % number: Peer(chance.choice(VERSIONS)) for number in range(5)}
    answered, numbers = Counter(), itertools.count()
    held = {}                                       # what each worker was given and did not answer, as the worker sees it

    def see(sent):
        for identity, *rest in sent:
            if identity in peers and rest[:-1] and rest[-3:-1] == [b"c", b""]:
                number = int(rest[-1])
                assert model.workers[identity][1] is None
                assert number == model.waiting.pop(0)
                model.workers[identity][1] = held[identity] = number
            elif identity == b"c":
                answered[int(rest[-1])] += 1
            elif rest[-1] == peers[identity].codes["disconnect"]:
                assert identity not in model.workers
                held.pop(identity, None)

    for _ in range(300):
        worker, act = chance.choice(list(peers)), chance.choice(["ask", "ask", "ready", "reply", "beat", "go", "lie", "time"])
        peer = peers[worker]
        if act == "ask":
            number = next(numbers)
            model.waiting.append(number)
            see(broker.get(b"c", b"", b"MDPC01", b"s", b"%d" % number))
        elif act == "ready":
            if worker in model.workers:
                model.gone(worker)
            else:
                model.workers[worker] = [broker.now, None]
            see(broker.get(*peer.says("ready", b"s", worker=worker)))
        elif act == "reply":
            number = held.pop(worker, None)
            if worker not in model.workers or model.workers[worker][1] is None:
                model.gone(worker)
            else:
                model.workers[worker] = [broker.now, None]
            see(broker.get(*peer.says("reply", b"c", b"", b"%d" % (-1 if number is None else number), worker=worker)))
        elif act == "beat":
            if worker in model.workers:
                model.workers[worker][0] = broker.now
            see(broker.get(*peer.says("heartbeat", worker=worker)))
        elif act == "go":
            model.gone(worker)
            held.pop(worker, None)
            see(broker.get(*peer.says("disconnect", worker=worker)))
        elif act == "lie":
            model.gone(worker)
            see(broker.get(*peer.says("reply", b"nobody", b"", b"0", worker=worker)))
        else:
            seconds = chance.choice([0.25, 0.5, 1.0])
            for name, (heard, _) in list(model.workers.items()):
                if heard + 3.0 <= broker.now + seconds:
                    model.gone(name)
            see(broker.pass_time(seconds))
        assert broker.machine.workers == len(model.workers)
        idle = [name for name, (_, request) in model.workers.items() if request is None]
        assert not (idle and model.waiting)
    assert -1 not in answered and set(answered.values()) <= {1}, "no request is answered twice, none that was not asked"
    out = {request for _, request in model.workers.values() if request is not None}
    assert set(range(next(numbers))) == set(answered) | set(model.waiting) | out, "none is lost"
