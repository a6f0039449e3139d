"""The table that finds a page of a queue's index by its number."""

import random
from pathlib import Path

import pytest

from tests.compiled import compiled


@pytest.fixture(scope="module")
def homes():
    return compiled(Path(__file__).with_name("indexing.pyx")).homes


def looks(places, size):
    """How many pages are met, on the average, until one is found: each is a miss of the cache."""
    taken, total = set(), 0
    for place in places:
        assert 0 <= place < size
        while place in taken:
            place = (place + 1) % size
            total += 1
        taken.add(place)
    return 1 + total / len(places)


@pytest.mark.parametrize("size", [1 << bits for bits in range(3, 18)])
def test_neighbours_have_places_of_their_own(homes, size):
    """A table is half full at most."""
    draw = random.Random(size)
    for first in (0, 1, 1_000, draw.getrandbits(30), draw.getrandbits(58)):
        assert looks(homes(range(first, first + size // 2), size), size) < 1.5


@pytest.mark.parametrize("size", [1 << 10, 1 << 14, 1 << 17])
@pytest.mark.parametrize("step", [2, 3, 8, 16, 64, 144, 377, 1_000, 1_024, 10_946, 1 << 17, 121_393])
def test_every_nth_is_found_soon(homes, size, step):
    """Fibonacci numbers are the worst for this hash."""
    assert looks(homes(range(7, 7 + step * (size // 2), step), size), size) < 30


def test_any_are_spread_as_by_chance(homes):
    size = 1 << 14
    assert looks(homes(random.Random(1).sample(range(1 << 40), size // 2), size), size) < 1.6
