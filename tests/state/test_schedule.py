"""The schedule, driven by itself and compared with a dict that is sorted each time somebody asks."""

import random
from pathlib import Path

import pytest

from tests.compiled import compiled

EXPIRY, DELAY, RETRY = 0, 1, 2
HOUR = 3_600 * 10**9
NOW = 1_700_000_000 * 10**9
LAST = 2**63 - 2        # one later is never


@pytest.fixture(scope="module")
def module():
    return compiled(Path(__file__).with_name("scheduling.pyx"))


class Sorted:
    """What the schedule is compared with."""

    def __init__(self):
        self.due = {}

    def first(self):
        """The key of the first, which ends with its number."""
        return min(((due, timer != EXPIRY, sequence) for sequence, (due, timer) in self.due.items()), default=None)

    def pop(self, until):
        first = self.first()
        if first is None or first[0] > until:
            return None
        del self.due[first[2]]
        return first[2]


class Both:
    """The schedule and its model: each call goes to both."""

    def __init__(self, module):
        self.real, self.model = module.Schedule(), Sorted()

    def add(self, sequence, due, timer=DELAY):
        due = max(min(due, LAST), -LAST)
        self.real.add(sequence, due, timer)
        self.model.due[sequence] = (due, timer)

    def cancel(self, sequence):
        self.real.cancel(sequence)
        self.model.due.pop(sequence, None)

    def leave(self, sequence):
        self.real.leave(sequence)
        self.model.due.pop(sequence, None)

    def pop(self, until):
        popped = self.real.pop(until)
        assert popped == self.model.pop(until)
        return popped

    def next(self):
        first = self.model.first()
        assert self.real.next() == (first and first[0])

    def drain(self):
        """All, in order; the schedule is not used any more."""
        order = sorted(self.model.due, key=lambda sequence: (self.model.due[sequence][0], self.model.due[sequence][1] != EXPIRY,
                                                             sequence))
        assert [self.real.pop(LAST) for _ in order] == order
        assert self.real.pop(LAST) is None
        assert self.real.next() is None
        self.real.check()


SPANS = {
    "all at once": lambda chance: 0,
    "few moments": lambda chance: chance.randrange(5),
    "an hour": lambda chance: chance.randrange(HOUR),
    "two clusters": lambda chance: chance.choice((0, 100 * HOUR)) + chance.randrange(1_000),
    "every scale": lambda chance: int(2 ** chance.uniform(0, 61)),
    "before 1970 too": lambda chance: chance.randrange(-4 * NOW, 4 * NOW),
}


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("seed", range(4))
def test_random_programs(module, span, seed):
    chance = random.Random(seed)
    both, now, born = Both(module), NOW, 0
    alive = []
    for step in range(3_000):
        act = chance.random()
        if act < 0.5 or not alive:
            born += 1
            alive.append(born)
            both.add(born, now + SPANS[span](chance), chance.choice((EXPIRY, DELAY, RETRY)))
        elif act < 0.6:
            both.add(chance.choice(alive), now + SPANS[span](chance), chance.choice((EXPIRY, DELAY, RETRY)))
        elif act < 0.7:
            both.cancel(chance.choice(alive))
        elif act < 0.75:
            both.leave(alive.pop(chance.randrange(len(alive))))
        elif act < 0.8:
            now += chance.choice((-1, 1, 1, 2)) * SPANS[span](chance) // 8         # a clock may run backwards
            now = max(min(now, LAST), -LAST)
        elif act < 0.9:
            both.next()
        else:
            both.pop(now)
        if step % 100 == 0:
            both.real.check()
    both.drain()
    both.real.close()


PATTERNS = {
    "ascending": lambda n, chance: [NOW + 1_000 * i for i in range(n)],
    "descending": lambda n, chance: [NOW - 1_000 * i for i in range(n)],
    "random": lambda n, chance: [NOW + chance.randrange(HOUR) for _ in range(n)],
    "equal": lambda n, chance: [NOW] * n,
    "two clusters": lambda n, chance: [NOW + chance.choice((0, 10**15)) + chance.randrange(100) for _ in range(n)],
    "from both ends": lambda n, chance: [NOW + (-1) ** i * i * 1_000 for i in range(n)],
    "every scale": lambda n, chance: [NOW + int(2 ** chance.uniform(0, 61)) for _ in range(n)],
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_many(module, pattern):
    """So many that leaves are divided, on the way in and on the way out, and the tree has many levels."""
    count = 100_000
    both = Both(module)
    dues = PATTERNS[pattern](count, random.Random(1))
    for sequence, due in enumerate(dues):
        both.add(sequence, due)
    both.real.check()
    order = sorted(range(count), key=lambda sequence: (dues[sequence], sequence))
    assert [both.real.pop(LAST) for _ in range(count // 2)] == order[: count // 2]
    both.real.check()
    both.model.due = {sequence: (dues[sequence], DELAY) for sequence in order[count // 2:]}
    for sequence in order[:1_000]:      # earlier than all that is left
        both.add(sequence, dues[sequence])
    both.real.check()
    both.drain()
    both.real.close()


def test_expiries_come_first_within_a_moment_and_then_the_oldest(module):
    both = Both(module)
    for sequence in (5, 1, 4, 2, 3):
        both.add(sequence, NOW, EXPIRY if sequence in (3, 4) else RETRY)
    assert [both.pop(NOW - 1), *(both.pop(NOW) for _ in range(6))] == [None, 3, 4, 1, 2, 5, None]
    both.add(1, NOW, DELAY)
    both.add(2, NOW, DELAY)
    both.add(2, NOW, EXPIRY)            # the same moment, and another place in it
    assert [both.pop(NOW), both.pop(NOW), both.pop(NOW)] == [2, 1, None]
    both.real.close()


def test_one_may_be_scheduled_for_the_same_moment_again_and_again(module):
    both = Both(module)
    for _ in range(1_000):
        both.add(1, NOW)
        both.cancel(1)
    both.add(1, NOW)
    both.add(1, NOW)
    assert both.pop(NOW) == 1
    assert both.pop(NOW) is None
    assert both.real.items() <= 64
    both.real.close()


def test_what_is_stale_is_dropped_when_it_is_more_than_half(module):
    both = Both(module)
    for sequence in range(50_000):
        both.add(sequence, NOW + sequence % 777 * HOUR)
    both.next()
    for sequence in range(0, 50_000, 2):
        both.cancel(sequence)
    for sequence in range(1, 50_000, 4):
        both.leave(sequence)
    assert both.real.items() == 50_000
    assert both.real.pop(NOW - 1) is None       # looks
    assert both.real.items() == 12_500
    both.real.check()
    both.drain()
    both.real.close()


def test_room_is_reserved_for_many_at_once(module):
    both = Both(module)
    for count in (1, 100, 64, 5_000, 3):
        both.real.reserve(count)
        for _ in range(count):
            sequence = len(both.model.due)
            both.real.put(sequence, NOW + sequence * 7_919 % 1_000, DELAY)
            both.model.due[sequence] = (NOW + sequence * 7_919 % 1_000, DELAY)
        both.real.check()
    both.next()
    both.drain()
    both.real.close()


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize("first", ["entries", "schedule"])
def test_nothing_is_left(module, first):
    before = module.cells_in_use()
    both, chance = Both(module), random.Random(3)
    for sequence in range(40_000):
        both.add(sequence, NOW + chance.randrange(HOUR))
    for sequence in range(0, 40_000, 3):
        both.add(sequence, NOW + chance.randrange(HOUR))
    for sequence in range(0, 40_000, 5):
        both.leave(sequence)
    for _ in range(1_000):
        both.real.pop(NOW + HOUR)
    if first == "schedule":             # what ends later is not in it any more
        both.real.free()
    both.real.close()
    assert module.cells_in_use() == before

