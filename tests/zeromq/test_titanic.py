"""Titanic (RFC 9), fed frame by frame, over a store in RAM or on disk; and by a model of it."""

import itertools
import random
import re
import threading

import pytest

from tests.patience import PATIENCE
from tests.zeromq.test_majordomo import VERSIONS, Broker, Peer
from xump.zeromq.majordomo import ServiceRule


class Titanic(Broker):
    """A broker with Titanic, and how its clients ask."""

    def __init__(self, version="0.2", path=None, disk=(), **options):
        super().__init__(**options)
        self.peer = Peer(version)
        self.woken = threading.Semaphore(0)
        store = "ram" if path is None else self.engine.create_store("disk", "ring", path=str(path), min_bytes=0, **dict(disk))
        self.titanic = self.machine.open_titanic(store, self.woken.release)

    def told(self, sent):
        """What was sent, once it is not nothing: the disk has to write first."""
        while not sent:
            assert self.woken.acquire(timeout=PATIENCE)
            sent = self.pumped()
        return sent

    def pumped(self):
        return super().pumped() + super().pumped()      # in RAM what was done is durable at once, and said the next time

    def ask(self, service, *body):
        """The body of the reply, or None; what else was sent is in `others`."""
        self.others = self.get(*self.peer.asks(*body, service=b"titanic." + service))
        head = [b"c", *(frame if frame != b"s" else b"titanic." + service for frame in self.peer.final)]
        replies = [sent[len(head):] for sent in self.others if sent[:len(head)] == head]
        self.others = [sent for sent in self.others if sent[:len(head)] != head]
        return replies[0] if replies else None

    def request(self, *body, service=b"s"):
        status, uuid = self.ask(b"request", service, *body)
        assert status == b"200"
        return uuid

    def worker(self, name, *rest, worker=b"w"):
        return self.get(*self.peer.says(name, *rest, worker=worker))


@pytest.fixture(params=VERSIONS)
def titanic(request):
    return Titanic(version=request.param)


# ---- what the RFC says

def test_a_request_is_accepted_with_a_uuid_of_32_hex_digits_and_no_two_are_alike(titanic):
    uuids = [titanic.request(b"x") for _ in range(300)]
    assert len(set(uuids)) == 300
    assert all(re.fullmatch(rb"[0-9A-Fa-f]{32}", uuid) for uuid in uuids)


def test_a_request_is_done_by_a_worker_of_its_service_and_the_reply_can_be_fetched_again_and_again(titanic):
    uuid = titanic.request(b"one", b"")
    assert titanic.ask(b"reply", uuid) == [b"300"]
    assert titanic.worker("ready", b"s") == [titanic.peer.says("request", uuid, b"", b"one", b"")]
    assert titanic.ask(b"reply", uuid) == [b"300"]
    assert titanic.worker("reply", uuid, b"", b"done", b"") == []
    for _ in range(3):
        assert titanic.ask(b"reply", uuid) == [b"200", b"done", b""]


def test_parts_of_a_reply_are_one_reply():
    titanic = Titanic()
    uuid = titanic.request(b"x")
    titanic.worker("ready", b"s")
    titanic.worker("part", uuid, b"", b"1")
    assert titanic.ask(b"reply", uuid) == [b"300"]
    titanic.worker("reply", uuid, b"", b"2")
    assert titanic.ask(b"reply", uuid) == [b"200", b"1", b"2"]


def test_close_is_always_200_and_what_is_closed_is_unknown(titanic):
    uuid = titanic.request(b"x")
    titanic.worker("ready", b"s")
    titanic.worker("reply", uuid, b"", b"done")
    for _ in range(2):
        assert titanic.ask(b"close", uuid) == [b"200"]
        assert titanic.ask(b"reply", uuid) == [b"400"]
    for unknown in (b"", b"\xff", b"0" * 32, bytes(10_000)):
        assert titanic.ask(b"close", unknown) == [b"200"]
        assert titanic.ask(b"reply", unknown) == [b"400"]
    assert not list(titanic.titanic.requests.browse()) and not list(titanic.titanic.replies.browse())


def test_a_request_that_is_closed_before_a_worker_has_it_is_not_done(titanic):
    uuid = titanic.request(b"x")
    assert titanic.ask(b"close", uuid) == [b"200"]
    assert titanic.worker("ready", b"s") == []
    assert titanic.ask(b"reply", uuid) == [b"400"]


@pytest.mark.parametrize("dies", [False, True])
def test_a_request_that_is_closed_while_a_worker_has_it_leaves_nothing(titanic, dies):
    uuid = titanic.request(b"x")
    titanic.worker("ready", b"s")
    for _ in range(2):
        assert titanic.ask(b"close", uuid) == [b"200"]
        assert titanic.ask(b"reply", uuid) == [b"400"]
        assert not list(titanic.titanic.requests.browse())      # the disk knows nothing of it, either
    other = titanic.request(b"y")
    assert titanic.others == []                                 # the worker is still at work
    sent = titanic.worker(*(("disconnect",) if dies else ("reply", uuid, b"", b"done")))
    assert titanic.ask(b"reply", uuid) == [b"400"]
    given = [titanic.peer.says("request", other, b"", b"y")]
    assert sent == ([] if dies else given)
    assert titanic.worker("ready", b"s", worker=b"w2") == (
        [titanic.peer.says("request", other, b"", b"y", worker=b"w2")] if dies else [])
    assert len(list(titanic.titanic.requests.browse())) == 1 and not list(titanic.titanic.replies.browse())


def test_a_request_without_a_body_or_for_a_service_that_cannot_be_is_refused(titanic):
    assert titanic.ask(b"request", b"s") == [b"500"]
    for name in (b"", b"s" * 256, b"mmi.service", b"titanic.request", b"xump.mine"):
        assert titanic.ask(b"request", name, b"x") == [b"500"], name


def test_a_request_that_a_worker_dies_with_goes_to_the_next(titanic):
    uuid = titanic.request(b"x")
    titanic.worker("ready", b"s")
    titanic.pass_time(4.0)
    assert titanic.worker("ready", b"s", worker=b"w2") == [titanic.peer.says("request", uuid, b"", b"x", worker=b"w2")]
    titanic.worker("reply", uuid, b"", b"done", worker=b"w2")
    assert titanic.ask(b"reply", uuid) == [b"200", b"done"]


def test_the_broker_says_that_the_services_are_there_and_keeps_their_names(titanic):
    [sent] = titanic.get(*titanic.peer.asks(b"titanic.reply", service=b"mmi.service"))
    assert sent[-1] == b"200"
    assert titanic.worker("ready", b"titanic.close") == [titanic.peer.says("disconnect")]


def test_without_titanic_a_worker_may_have_its_services(titanic):
    peer, broker = titanic.peer, Broker()
    assert broker.get(*peer.says("ready", b"titanic.request")) == []
    assert broker.get(*peer.asks(b"x", service=b"titanic.request")) == [peer.says("request", b"c", b"", b"x")]


# ---- how long things are kept

def test_requests_of_titanic_outlive_the_limit_of_others():
    titanic = Titanic(rule=ServiceRule(request_ttl=10.0))
    uuid = titanic.request(b"kept")
    titanic.get(*titanic.peer.asks(b"dropped"))
    titanic.pass_time(1000.0)
    assert titanic.worker("ready", b"s") == [titanic.peer.says("request", uuid, b"", b"kept")]


def test_a_reply_ends_when_it_is_over_its_time():
    titanic = Titanic()
    uuid = titanic.request(b"x")
    titanic.worker("ready", b"s")
    titanic.worker("reply", uuid, b"", b"done")
    titanic.worker("disconnect")
    titanic.pass_time(6 * 86_400)
    assert titanic.ask(b"reply", uuid) == [b"200", b"done"]
    titanic.pass_time(86_401)
    assert titanic.ask(b"reply", uuid) == [b"400"]
    titanic.pass_time(2.0)
    assert titanic.titanic._replied == {}


@pytest.mark.parametrize("rule", [ServiceRule(redispatch=False), ServiceRule(delivery_limit=1, dead_letter="dead")])
def test_a_request_that_the_rule_gives_up_is_answered_by_500(rule):
    titanic = Titanic(rules={b"s": rule})
    uuid = titanic.request(b"x")
    titanic.worker("ready", b"s")
    titanic.worker("disconnect")
    assert titanic.ask(b"reply", uuid) == [b"500"]
    assert titanic.ask(b"close", uuid) == [b"200"]
    assert titanic.ask(b"reply", uuid) == [b"400"]


# ---- on the disk

def test_nothing_is_said_before_it_is_on_the_disk(monkeypatch):
    titanic = Titanic()
    waiting = []
    monkeypatch.setattr(type(titanic.engine), "when_durable", lambda engine, call: waiting.append(call))
    assert titanic.ask(b"request", b"s", b"x") is None
    waiting.pop()(None)
    [[*_, status, uuid]] = titanic.pumped()
    assert status == b"200"
    titanic.worker("ready", b"s")
    titanic.worker("reply", uuid, b"", b"done")
    assert titanic.ask(b"reply", uuid) == [b"300"], "the reply is not on the disk"
    waiting.pop()(None)
    titanic.pumped()
    assert titanic.ask(b"reply", uuid) == [b"200", b"done"]
    assert titanic.ask(b"close", uuid) is None
    waiting.pop()(None)
    [[*_, status]] = titanic.pumped()
    assert status == b"200"


def test_while_a_write_is_awaited_what_comes_is_for_the_next_one(monkeypatch):
    titanic = Titanic()
    waiting = []
    monkeypatch.setattr(type(titanic.engine), "when_durable", lambda engine, call: waiting.append(call))
    for number in range(5):
        assert titanic.ask(b"request", b"s", b"%d" % number) is None
    first, = waiting
    first(None)
    assert [frames[-2] for frames in titanic.pumped()] == [b"200"]
    _, second = waiting
    second(None)
    assert [frames[-2] for frames in titanic.pumped()] == [b"200"] * 4
    assert len(waiting) == 2


def test_a_store_that_fails_ends_the_broker(monkeypatch):
    titanic = Titanic()
    monkeypatch.setattr(type(titanic.engine), "when_durable", lambda engine, call: call(OSError("the disk is away")))
    with pytest.raises(OSError, match="away"):
        titanic.ask(b"request", b"s", b"x")


def test_a_full_store_refuses_requests_and_keeps_those_that_it_has(tmp_path):
    titanic = Titanic(path=tmp_path / "ring", disk={"max_bytes": 1 << 20, "segment_bytes": 1 << 16})
    accepted = []
    while True:
        [[*_, uuid]] = titanic.told(titanic.get(*titanic.peer.asks(b"s", bytes(50_000), service=b"titanic.request")))
        if uuid == b"500":
            break
        accepted.append(uuid)
    assert 5 < len(accepted) < 20
    sent = titanic.worker("ready", b"s")
    for uuid in accepted:
        sent = titanic.told([frames for frames in sent if frames[0] == b"w"])
        assert sent[0][3] == uuid
        sent = titanic.worker("reply", uuid, b"", b"done")
    titanic.engine.close()


def full(path, **options):
    """A broker whose store has no room for anything, and what it has accepted before."""
    titanic, accepted = Titanic(path=path, disk={"max_bytes": 1 << 20, "segment_bytes": 1 << 16}, **options), []
    for size in (50_000, 50):
        while (said := answer(titanic, b"request", b"s", bytes(size))) != [b"500"]:
            accepted.append(said[1])
    return titanic, accepted


def answer(titanic, service, *body):
    """As `ask`, and waits for the disk."""
    said = titanic.ask(service, *body)
    while said is None:
        assert titanic.woken.acquire(timeout=PATIENCE)
        said = next((sent[4:] for sent in titanic.pumped() if sent[0] == b"c"), None)
    return said


def close(titanic, *uuids):
    for uuid in uuids:
        assert answer(titanic, b"close", uuid) == [b"200"]


def until_replied(titanic, uuid):
    while (reply := titanic.ask(b"reply", uuid)) == [b"300"]:
        assert titanic.woken.acquire(timeout=PATIENCE)
    return reply


@pytest.mark.parametrize("rule", [ServiceRule(), ServiceRule(redispatch=False), ServiceRule(delivery_limit=1)],
                         ids=["redispatch", "no redispatch", "limit"])
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
def test_a_reply_that_has_no_room_waits_for_it_and_the_work_is_not_done_again(tmp_path, rule, leaves):
    titanic, accepted = full(tmp_path / "ring", rule=rule)
    first, second, *others = accepted
    assert titanic.worker("ready", b"s")[0][3] == first
    assert titanic.worker("reply", first, b"", bytes(60_000)) == []                # nothing more is given to it
    titanic.pass_time(1.0)
    assert titanic.ask(b"reply", first) == [b"300"]
    if leaves:
        titanic.worker("disconnect")
    [request] = titanic.worker("ready", b"s", worker=b"next")
    assert request[3] == second
    close(titanic, *others[:8])
    assert until_replied(titanic, first) == [b"200", bytes(60_000)]
    titanic.engine.close()


def test_a_reply_that_has_no_room_can_be_closed(tmp_path):
    titanic, (first, *_) = full(tmp_path / "ring")
    titanic.worker("ready", b"s")
    titanic.worker("reply", first, b"", bytes(60_000))
    close(titanic, first)
    assert titanic.ask(b"reply", first) == [b"400"]
    assert first not in {message.message_id.encode() for message in titanic.titanic.requests.browse()}
    titanic.engine.close()


@pytest.mark.parametrize("rule", [ServiceRule(redispatch=False), ServiceRule(delivery_limit=1)], ids=["no redispatch", "limit"])
def test_a_request_is_given_up_although_the_store_is_full(tmp_path, rule):
    titanic, (first, *others) = full(tmp_path / "ring", rule=rule)
    titanic.worker("ready", b"s")
    titanic.worker("disconnect")
    assert titanic.ask(b"reply", first) == [b"500"]
    close(titanic, *others[:8])
    titanic.pass_time(1.0)
    assert until_replied(titanic, first) == [b"500"]
    assert first in {message.message_id.encode() for message in titanic.titanic.replies.browse()}
    close(titanic, first)
    assert titanic.ask(b"reply", first) == [b"400"]
    titanic.engine.close()


def test_the_parts_of_a_reply_may_have_no_more_frames_than_one_reply(tmp_path):
    titanic = Titanic()
    uuid = titanic.request(b"x")
    titanic.worker("ready", b"s")
    half = [b""] * 40_000
    assert titanic.worker("part", uuid, b"", *half) == []
    assert titanic.worker("reply", uuid, b"", *half) == [titanic.peer.says("disconnect")]
    assert titanic.worker("ready", b"s", worker=b"next") == [titanic.peer.says("request", uuid, b"", b"x", worker=b"next")]
    titanic.worker("reply", uuid, b"", *half, worker=b"next")
    assert titanic.ask(b"reply", uuid) == [b"200", *half]


def test_after_a_restart_everything_is_there(tmp_path):
    first, uuids = Titanic(path=tmp_path / "ring"), {}
    for name, service in ((b"waits", b"absent"), (b"at work", b"s"), (b"replied", b"s2"), (b"closed", b"absent")):
        [[*_, uuids[name]]] = first.told(first.get(*first.peer.asks(service, name, service=b"titanic.request")))
    assert len(first.worker("ready", b"s")) == 1
    first.worker("ready", b"s2", worker=b"w2")
    first.worker("reply", uuids[b"replied"], b"", b"done", worker=b"w2")
    first.told(first.get(*first.peer.asks(uuids[b"closed"], service=b"titanic.close")))
    first.engine.close()

    second = Titanic(path=tmp_path / "ring")
    assert second.ask(b"reply", uuids[b"replied"]) == [b"200", b"done"]
    assert second.ask(b"reply", uuids[b"closed"]) == [b"400"]
    for name, service in ((b"waits", b"absent"), (b"at work", b"s")):
        assert second.ask(b"reply", uuids[name]) == [b"300"]
        assert second.worker("ready", service, worker=name) == [
            second.peer.says("request", uuids[name], b"", name, worker=name)]
    second.engine.close()


# ---- a model

@pytest.mark.parametrize("seed", range(30))
def test_requests_and_workers_at_random_agree_with_a_model(seed):
    chance, titanic = random.Random(seed), Titanic()
    state, at_work, workers = {}, {}, set()
    names = itertools.count()

    def take_in(sent):
        for frames in sent:
            if frames[0] in workers and frames[2] == b"\2":
                uuid = frames[3]
                assert state[uuid] == "pending" and uuid not in at_work.values(), "given to two workers, or closed"
                assert frames[0] not in at_work
                at_work[frames[0]] = uuid

    for _ in range(300):
        what = chance.choice(("request", "request", "ready", "reply", "reply", "die", "lie", "close", "look"))
        free, busy = sorted(workers - at_work.keys()), sorted(at_work)
        if what == "request":
            state[titanic.request(b"x")] = "pending"
            take_in(titanic.others)
        elif what == "ready" and len(workers) < 4:
            workers.add(name := b"w%d" % next(names))
            take_in(titanic.worker("ready", b"s", worker=name))
        elif what == "reply" and busy:
            uuid = at_work.pop(name := chance.choice(busy))
            if state[uuid] == "pending":
                state[uuid] = "replied"
            take_in(titanic.worker("reply", uuid, b"", b"for " + uuid, worker=name))
        elif what in ("die", "lie") and free + busy:
            name = chance.choice(free + busy)
            workers.discard(name)
            at_work.pop(name, None)
            take_in(titanic.worker(*(("disconnect",) if what == "die" else ("reply", b"?", b"", b"x")), worker=name))
        elif what == "close" and state:
            uuid = chance.choice(sorted(state))
            state[uuid] = "closed"
            assert titanic.ask(b"close", uuid) == [b"200"]
        elif what == "look" and state:
            uuid = chance.choice(sorted(state))
            expected = {"pending": [b"300"], "replied": [b"200", b"for " + uuid], "closed": [b"400"]}[state[uuid]]
            assert titanic.ask(b"reply", uuid) == expected
    for uuid, is_in in state.items():
        expected = {"pending": [b"300"], "replied": [b"200", b"for " + uuid], "closed": [b"400"]}[is_in]
        assert titanic.ask(b"reply", uuid) == expected

