"""The queues of the Simple and of the Paranoid Pirate, fed frame by frame; the moments are the tests' own."""

import random

import pytest

from xump import Engine
from xump.zeromq import ParanoidPirate, SimplePirate
from xump.zeromq.frames import FRAMES_MAX

READY, HEARTBEAT = b"\x01", b"\x02"


class Queue:
    """A machine, with what it sent."""

    def __init__(self, kind, **options):
        self.to_client, self.to_worker, self.now, self.gone = [], [], 100.0, set()
        self.machine = kind(Engine(), self.to_client.append, self.send, **options)

    def send(self, frames):
        if frames[0] in self.gone:
            return False
        self.to_worker.append(frames)
        return True

    def client(self, *frames):
        self.machine.from_client(list(frames), self.now)
        return self.pumped()

    def worker(self, *frames):
        self.machine.from_worker(list(frames), self.now)
        return self.pumped()

    def pass_time(self, seconds):
        self.now += seconds
        self.machine.tick(self.now)
        return self.pumped()

    def pumped(self):
        """(to clients, to workers): what was sent since."""
        self.machine.pump(self.now)
        self.machine.check()
        sent = list(map(list, self.to_client)), list(map(list, self.to_worker))
        self.to_client.clear(), self.to_worker.clear()
        return sent


@pytest.fixture
def simple():
    return Queue(SimplePirate)


@pytest.fixture
def paranoid():
    return Queue(ParanoidPirate, heartbeat=1.0, liveness=3)


# ---- Simple Pirate

def test_a_request_waits_for_a_worker_and_the_reply_finds_its_client(simple):
    assert simple.client(b"c", b"", b"body", b"2") == ([], [])
    assert simple.worker(b"w", b"", READY) == ([], [[b"w", b"", b"c", b"", b"body", b"2"]])
    assert simple.worker(b"w", b"", b"c", b"", b"done") == ([[b"c", b"", b"done"]], [])


def test_what_a_worker_that_is_gone_should_get_goes_to_the_next(simple):
    for name in (b"gone", b"gone too", b"there"):
        simple.worker(name, b"", READY)
    simple.gone |= {b"gone", b"gone too"}
    assert simple.client(b"c", b"", b"x") == ([], [[b"there", b"", b"c", b"", b"x"]])
    assert simple.machine.workers == 1


def test_workers_that_die_with_a_request_are_not_kept_for_ever(simple):
    for number in range(10):
        simple.worker(b"w%d" % number, b"", READY)
        simple.client(b"c", b"", b"x")
        simple.pass_time(10.0)
    assert simple.machine.workers == 10
    simple.now = simple.machine.due()
    simple.pass_time(0.0)
    assert simple.machine.workers == 9
    simple.pass_time(300.0)
    assert (simple.machine.workers, simple.machine.due(), simple.machine.dropped) == (0, None, 10)
    assert not simple.machine.pack.queue.ready and not simple.machine.pack.queue.outstanding


def test_a_reply_that_comes_after_its_limit_says_that_the_worker_is_ready(simple):
    simple.worker(b"w", b"", READY)
    simple.client(b"c", b"", b"x")
    simple.pass_time(300.0)
    assert simple.worker(b"w", b"", b"c", b"", b"late") == ([], [])
    assert simple.client(b"c2", b"", b"y") == ([], [[b"w", b"", b"c2", b"", b"y"]])


def test_the_worker_that_was_served_longest_ago_is_next(simple):
    for name in (b"a", b"b", b"c"):
        simple.worker(name, b"", READY)
    order = []
    for _ in range(6):
        _, [sent] = simple.client(b"client", b"", b"x")
        order.append(sent[0])
        simple.worker(sent[0], b"", b"client", b"", b"y")
    assert order == [b"a", b"b", b"c"] * 2


def test_a_reply_says_that_the_worker_is_ready_again(simple):
    simple.worker(b"w", b"", READY)
    simple.client(b"c", b"", b"1")
    assert simple.client(b"c2", b"", b"2") == ([], [])
    assert simple.worker(b"w", b"", b"c", b"", b"ok") == ([[b"c", b"", b"ok"]], [[b"w", b"", b"c2", b"", b"2"]])


def test_a_worker_that_starts_anew_gets_its_request_again(simple):
    simple.worker(b"w", b"", READY)
    simple.client(b"c", b"", b"1")
    assert simple.worker(b"w", b"", READY) == ([], [[b"w", b"", b"c", b"", b"1"]])
    assert simple.machine.workers == 1


def test_an_unasked_reply_reaches_nobody(simple):
    simple.worker(b"w", b"", READY)
    assert simple.worker(b"w", b"", b"c", b"", b"lie") == ([], [])
    simple.client(b"c", b"", b"1")
    assert simple.worker(b"w", b"", b"other", b"", b"lie") == ([], [])
    assert simple.worker(b"stranger", b"", b"c", b"", b"lie") == ([], [])
    assert simple.worker(b"w", b"", b"c", b"", b"ok") == ([[b"c", b"", b"ok"]], [])
    assert simple.machine.dropped == 3


@pytest.mark.parametrize("stack", [[b"c"], [b"proxy", b"c"], [b"one", b"two", b"c"]], ids=len)
def test_requests_and_replies_have_a_stack_of_addresses(stack):
    """Of a client behind other queues: what they have put before the empty frame comes back as it is."""
    for queue, head, start in ((Queue(SimplePirate), [b""], [b"", READY]), (Queue(ParanoidPirate), [], [READY])):
        queue.worker(b"w", *start)
        assert queue.client(*stack, b"", b"x", b"", b"y") == ([], [[b"w", *head, *stack, b"", b"x", b"", b"y"]])
        assert queue.worker(b"w", *head, *stack, b"", b"", b"done") == ([[*stack, b"", b"", b"done"]], [])


# ---- Paranoid Pirate (RFC 6)

def test_a_worker_must_say_ready_first(paranoid):
    paranoid.client(b"c", b"", b"x")
    assert paranoid.worker(b"w", HEARTBEAT) == ([], [])
    assert paranoid.worker(b"w", b"c", b"", b"reply") == ([], [])
    assert paranoid.machine.workers == 0
    assert paranoid.worker(b"w", READY) == ([], [[b"w", b"c", b"", b"x"]])


def test_a_worker_that_is_told_nothing_else_gets_a_heartbeat_each_interval_busy_or_not(paranoid):
    paranoid.worker(b"idle", READY)
    paranoid.worker(b"busy", READY)
    for _ in range(2):
        [(_, [sent])] = [paranoid.client(b"c", b"", b"x")]
        busy = sent[0]
    for _ in range(5):
        _, sent = paranoid.pass_time(1.0)
        assert sorted(sent) == [[b"busy", HEARTBEAT], [b"idle", HEARTBEAT]]
        paranoid.worker(b"idle", HEARTBEAT)
        paranoid.worker(b"busy", HEARTBEAT)
    assert paranoid.worker(busy, b"c", b"", b"ok") == ([[b"c", b"", b"ok"]], [])


def test_no_heartbeat_where_a_request_was_sent_instead(paranoid):
    paranoid.worker(b"w", READY)
    paranoid.pass_time(0.5)
    paranoid.client(b"c", b"", b"x")
    assert paranoid.pass_time(0.75) == ([], [])
    assert paranoid.pass_time(0.25) == ([], [[b"w", HEARTBEAT]])


def test_a_silent_worker_is_gone_after_its_liveness_and_its_request_goes_on(paranoid):
    paranoid.worker(b"dies", READY)
    paranoid.client(b"c", b"", b"x")
    paranoid.worker(b"lives", READY)
    paranoid.pass_time(2.9)
    paranoid.worker(b"lives", HEARTBEAT)
    assert paranoid.pass_time(0.1)[1] == [[b"lives", b"c", b"", b"x"]]
    assert paranoid.machine.workers == 1
    assert paranoid.worker(b"dies", b"c", b"", b"late") == ([], [])
    assert paranoid.worker(b"lives", b"c", b"", b"ok") == ([[b"c", b"", b"ok"]], [])


def test_a_worker_that_comes_back_is_let_in(paranoid):
    paranoid.worker(b"w", READY)
    paranoid.pass_time(3.0)
    assert paranoid.machine.workers == 0
    paranoid.worker(b"w", READY)
    assert paranoid.client(b"c", b"", b"x") == ([], [[b"w", b"c", b"", b"x"]])


@pytest.mark.parametrize("wrong", [
    [], [b""], [b"", b"x"], [b"c"], [b"c", b""], [b"c", b"x", b"y"], [b"\x03"], [READY, b"x"], [b"another", b"", b"x"],
    [b"c", b"d", b"", b"x"], [b"c", b"", *[b""] * FRAMES_MAX]], ids=lambda frames: repr(frames)[:40])
def test_a_worker_that_says_what_is_not_its_reply_is_forgotten_and_the_next_has_its_request(paranoid, wrong):
    """It takes its request for done. It would be busy for ever, as long as it lives."""
    paranoid.worker(b"wrong", READY)
    paranoid.client(b"c", b"", b"x")
    assert paranoid.worker(b"wrong", *wrong) == ([], [])
    assert paranoid.machine.workers == 0
    assert paranoid.pass_time(1.0) == ([], [])                      # no heartbeat: it sees a dead queue
    assert paranoid.worker(b"next", READY) == ([], [[b"next", b"c", b"", b"x"]])


def test_what_is_no_message_changes_nothing(paranoid):
    paranoid.worker(b"w", READY)
    for frames in ([b"w"], [b"w", b""], [b"w", b"", b""], [b"w", b"\x03"], [b"w", READY, b"x"], [b"w", b"c", b"x", b"y"]):
        assert paranoid.worker(*frames) == ([], []), frames
    for frames in ([b"c"], [b"c", b""], [b"c", b"x"], [b"c", b"x", b"y"]):
        assert paranoid.client(*frames) == ([], []), frames
    assert paranoid.machine.workers == 1
    assert paranoid.machine.dropped == 10


@pytest.mark.parametrize("kind", [SimplePirate, ParanoidPirate])
@pytest.mark.parametrize("seed", range(20))
def test_random_frames_never_crash_and_what_is_asked_is_answered_afterwards(kind, seed):
    queue, chance = Queue(kind), random.Random(seed)
    words = [b"", READY, HEARTBEAT, b"c", b"w", b"\xff" * 300]
    for _ in range(200):
        frames = [chance.choice((b"a", b"b")), *chance.choices(words, k=chance.randrange(6))]
        chance.choice((queue.client, queue.worker))(*frames)
        queue.pass_time(chance.choice((0.0, 0.4, 1.0)))
    start = (READY,) if kind is ParanoidPirate else (b"", READY)
    head = () if kind is ParanoidPirate else (b"",)
    queue.client(b"last", b"", b"question")
    _, sent = queue.worker(b"honest", *start)
    seen = []
    while sent:                         # the requests that came at random are answered, too
        worker, *rest = sent.pop(0)
        if worker == b"honest" and rest != [HEARTBEAT]:
            stack = rest[len(head): rest.index(b"", len(head)) + 1]
            seen.append((stack[0], rest[len(head) + len(stack):]))
            sent += queue.worker(b"honest", *head, *stack, b"answer")[1]
    assert not queue.machine.pack.queue.ready
    assert (b"last", [b"question"]) in seen or queue.machine.pack.queue.outstanding
