"""A worker's side of PPP and MDP, fed frame by frame by a broker written from RFC 6, 7 and 18; the moments are the tests' own."""

import random

import pytest

from xump.zeromq.worker_machine import Over, WorkerMachine

INTERVAL, LIVENESS = 1.0, 3


class Side:
    """A worker's machine, what it sent, and how its broker speaks."""

    def __init__(self, protocol):
        self.protocol = protocol
        head, codes = {"mdp": ([b"", b"MDPW01"], [b"\1", b"\2", b"\3", b"\4", b"\5"]),
                       "mdp2": ([b"MDPW02"], [b"\1", b"\2", b"\4", b"\5", b"\6"]), "ppp": ([], None)}[protocol]
        self.sent, self.has_disconnect = [], codes is not None
        if codes:
            self.ready, self.request, self.reply, self.beat, self.disconnect = ([*head, code] for code in codes)
            self.ready.append(b"s")
        else:
            self.ready, self.request, self.reply, self.beat = [b"\1"], [], [], [b"\2"]
        self.machine = WorkerMachine(
            protocol, b"s", lambda frames: self.sent.append(list(frames)), 0.0, interval=INTERVAL, liveness=LIVENESS)

    def asks(self, *body, client=b"c"):
        return [*self.request, client, b"", *body]

    def new(self):
        sent, self.sent = self.sent, []
        return sent


@pytest.fixture(params=["mdp", "mdp2", "ppp"])
def side(request):
    return Side(request.param)


def test_the_first_word_is_ready_and_it_is_said_once(side):
    assert side.new() == [side.ready]
    for number in range(10):
        assert side.machine.handle(side.asks(b"x"), float(number)) == ((b"c", b""), [b"x"])
        side.machine.reply([b"y"], number + 0.5)
        side.machine.tick(number + 0.9)
    assert side.new() == [[*side.reply, b"c", b"", b"y"]] * 10


def test_it_should_assume_that_it_is_registered_until_it_hears_otherwise(side):
    side.machine.tick(INTERVAL * LIVENESS - 0.1)
    assert side.machine.over is None


def test_a_reply_has_one_address_an_empty_frame_and_the_body(side):
    side.new()
    side.machine.handle(side.asks(b"1", b"", b"\xff", client=b"\0\1"), 0.1)
    side.machine.reply([b"", b"2"], 0.2)
    assert side.new() == [[*side.reply, b"\0\1", b"", b"", b"2"]]
    with pytest.raises(ValueError, match="no request to reply to"):
        side.machine.reply([b"twice"], 0.3)


@pytest.mark.parametrize("stack", [[], [b""], [b"c", b""], [b"proxy", b"c", b""]], ids=len)
def test_a_paranoid_pirate_keeps_the_stack_of_addresses_if_there_is_one(stack):
    side = Side("ppp")
    side.new()
    assert side.machine.handle([*stack, b"1", b"2"], 0.1) == (tuple(stack), [b"1", b"2"])
    side.machine.reply([b"done"], 0.2)
    assert side.new() == [[*stack, b"done"]]
    for wrong in ([b"\1"], [b""], [b"c", b""]):
        assert side.machine.handle(wrong, 0.3) is None


@pytest.mark.parametrize("busy", [False, True])
def test_heartbeats_are_sent_each_interval_in_which_nothing_else_is_sent(side, busy):
    side.new()
    if busy:
        side.machine.handle(side.asks(b"x"), 0.1)
    side.machine.tick(0.9)
    assert side.new() == []
    side.machine.tick(1.0)
    assert side.new() == [side.beat]
    side.machine.handle(side.beat, 1.5)
    assert side.machine.due() == 2.0
    if busy:
        side.machine.reply([b"y"], 1.9)
        assert side.new() == [[*side.reply, b"c", b"", b"y"]]
        side.machine.tick(2.5)
        assert side.new() == []                 # the reply was a sign of life


def test_any_command_but_disconnect_counts_as_a_heartbeat(side):
    side.machine.handle(side.asks(b"x"), 2.9)
    side.machine.tick(3.1)
    assert side.machine.over is None
    side.machine.handle(side.beat, 5.8)
    side.machine.tick(5.9)
    assert side.machine.over is None
    side.machine.tick(8.8)
    assert side.machine.over is Over.SILENT


def test_after_silence_and_after_disconnect_nothing_is_sent(side):
    for end in ("silence", "disconnect") if side.has_disconnect else ("silence",):
        other = Side(side.protocol)
        other.machine.handle(other.asks(b"x"), 0.0)
        if end == "disconnect":
            other.machine.handle(other.disconnect, 0.1)
            assert other.machine.over is Over.SENT_AWAY
        else:
            other.machine.tick(INTERVAL * LIVENESS)
            assert other.machine.over is Over.SILENT
        other.new()
        other.machine.reply([b"late"], 3.2)
        other.machine.tick(10.0)
        other.machine.leave()
        assert other.machine.handle(other.asks(b"y"), 10.0) is None
        assert other.new() == []


def test_a_worker_that_goes_says_so_if_there_is_a_word_for_it(side):
    side.new()
    side.machine.leave()
    assert side.new() == ([side.disconnect] if side.has_disconnect else [])


def test_what_a_broker_must_not_say_is_dropped(side):
    side.machine.handle(side.asks(b"x"), 0.1)
    wrong = [side.asks(b"second"), [], [b""], [b"", b""], [b"x" * 300], [*side.beat, b"more"], [*side.request, b"c", b"no", b"x"]]
    if side.has_disconnect:
        wrong += [side.ready, [*side.reply, b"c", b"", b"x"]]           # a worker's words
        wrong += [[*side.disconnect, b"more"], side.beat[:-1], [*side.request, b"c", b""]]
    for frames in wrong:
        assert side.machine.handle(frames, 0.2) is None
        assert side.machine.over is None
    assert side.machine.dropped == len(wrong)
    side.new()
    side.machine.reply([b"y"], 0.3)
    assert side.new() == [[*side.reply, b"c", b"", b"y"]]


@pytest.mark.parametrize("seed", range(5))
def test_random_frames_never_crash_it(side, seed):
    draw = random.Random(seed)
    words = [b"", b"MDPW01", b"MDPW02", b"\1", b"\2", b"\3", b"\4", b"\5", b"c", b"x"]
    for step in range(300):
        if side.machine.handle([draw.choice(words) for _ in range(draw.randrange(8))], step * 0.01) is not None:
            side.machine.reply([b"y"], step * 0.01)
        if side.machine.over is not None:
            assert side.machine.over is Over.SENT_AWAY and side.has_disconnect
            return
