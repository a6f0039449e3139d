"""The window of message ids, driven by itself and compared with a list that is searched from its end."""

import hashlib
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.compiled import compiled

EVER = 2**63 - 1


@pytest.fixture(scope="module")
def module():
    return compiled(Path(__file__).with_name("windows.pyx"))


@pytest.fixture(scope="module")
def counting():
    return compiled(Path(__file__).with_name("scheduling.pyx"))


# ---- the hash

KEY = bytes(range(16))
TEXTS = [bytes(range(size)) for size in range(64)]


def test_the_hash_is_the_published_one(module):
    """As OpenSSL computes it for the first and last of the 64 texts of its authors' vectors, and a digest of all 64."""
    low, high = (int.from_bytes(KEY[at:at + 8], "little") for at in (0, 8))
    hashes = [module.hashed(low, high, text) for text in TEXTS]
    assert hashes[0].hex() == "e77ebcb22788a5befd62db6add303001"
    assert hashes[1].hex() == "fc6f370460d3eda85e0573cc2b2ff063"
    assert hashes[63].hex() == "4c5800e34efe426f079f6b0aa75260ad"
    assert hashlib.sha256(b"".join(hashes)).hexdigest() == "58cbba5178d829c27ef56e1b54bdf3db60957320e97f2fd6c8b270a7eecc0cca"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl computes it, too")
@pytest.mark.parametrize("size", [0, 5, 36, 1_000])
def test_the_hash_is_that_of_openssl(module, size):
    chance = random.Random(size)
    key, text = chance.randbytes(16), chance.randbytes(size)
    command = ["openssl", "mac", "-macopt", f"hexkey:{key.hex()}", "-macopt", "size:16", "-macopt", "c-rounds:1",
               "-macopt", "d-rounds:3", "SIPHASH"]
    theirs = subprocess.run(command, input=text, capture_output=True, check=True).stdout.decode().strip().lower()
    assert module.hashed(int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little"), text).hex() == theirs


# ---- the window

class Listed:
    """What the window is compared with: records of (text, id, time)."""

    def __init__(self, span, limit):
        self.span, self.limit, self.records = span, limit, []

    def find(self, text, now):
        newest = self.records[max(len(self.records) - self.limit, 0):]
        return next((id for other, id, time in reversed(newest) if other == text and time > now - self.span), 0)

    def add(self, text, id, time):
        self.records.append((text, id, max(time, self.records[-1][2] if self.records else time)))

    def trim(self, now):
        last = 0
        while self.records and (len(self.records) > self.limit or self.records[0][2] <= now - self.span):
            last = self.records.pop(0)[1]
        return last


def compare(window, model, texts, now):
    window.check()
    assert window.records() == [(id, time) for _, id, time in model.records]
    for text in texts:
        assert window.find(text, now) == model.find(text, now)


@pytest.mark.parametrize("limit", [1, 5, 40, 300])
@pytest.mark.parametrize("span", [30, 1_000, EVER])
@pytest.mark.parametrize("bits", [3, 64])
def test_random_programs(module, limit, span, bits):
    """Calls of many additions, of which some fail; a clock that runs backwards now and then. With few bits, buckets overflow."""
    chance = random.Random(f"{limit}, {span}, {bits}")
    window, model = module.Window(span, limit, bits), Listed(span, limit)
    texts = [b"id %d" % number for number in range(2 * limit + 3)]
    now, id = 1_000_000, 0
    for _ in range(300):
        mark, before = window.mark(), (list(model.records), id)
        for _ in range(chance.choice((1, 1, 3, 3 * limit, 50))):
            now += chance.choice((0, 0, 1, 3, -2, chance.randrange(40)))
            text = chance.choice(texts)
            found = window.find(text, now)
            assert found == model.find(text, now)
            if not found:
                id += chance.choice((1, 1, 5))
                window.add(text, id, now)
                model.add(text, id, now)
        if chance.random() < 0.3:
            window.undo_to(mark)
            model.records, id = before
        else:
            assert window.trim(now) == model.trim(now)
        compare(window, model, chance.sample(texts, 3), now)
    compare(window, model, texts, now)
    copy = window.copy()
    compare(copy, model, texts, now)
    assert window.trim(EVER) == (model.trim(EVER) if span < EVER else 0)


def test_a_window_that_grows_and_shrinks_again(module):
    """Over many sizes of the table, with look-ups while one table follows another."""
    window, model, chance = module.Window(EVER, 20_000), {}, random.Random(2)
    for id in range(1, 50_001):
        text = b"%d" % id
        assert window.find(text, id) == 0
        window.add(text, id, id)
        model[id] = text
        window.trim(id)
        known = chance.randrange(max(id - 19_999, 1), id + 1)
        assert window.find(b"%d" % known, id) == known
        assert window.find(b"%d" % (id - 20_000), id) == 0
        if id % 5_000 == 0:
            window.check()
    assert window.bytes() < 48 * 20_000
    short = window.copy()
    small = module.Window(1_000, 20_000)
    for id in range(1, 20_001):
        small.add(b"%d" % id, id, id)
    assert small.trim(20_500) == 19_500         # at once; it leaves the tables with the next additions
    for id in range(20_001, 40_001):
        small.add(b"%d" % id, id, id)
        small.trim(id)
        assert small.find(b"%d" % (id - 999), id) == (id - 999 if id - 999 > 19_500 else 0)
        assert small.find(b"%d" % (id - 1_000), id) == 0
        if id % 1_000 == 0:
            small.check()
    assert small.bytes() < 100_000
    assert small.trim(EVER) == 40_000
    assert small.bytes() < 1_000
    assert short.bytes() < 48 * 20_000


def test_what_a_failed_call_pushed_out_is_known_again(module):
    window = module.Window(EVER, 2)
    window.add(b"a", 1, 1)
    window.add(b"b", 2, 1)
    mark = window.mark()
    window.add(b"c", 3, 1)              # now "a" is not among the newest two, and enters once more
    assert window.find(b"a", 1) == 0
    window.add(b"a", 4, 1)
    assert window.find(b"a", 1) == 4
    window.undo_to(mark)
    assert (window.find(b"a", 1), window.find(b"b", 1), window.find(b"c", 1)) == (1, 2, 0)
    window.check()


@pytest.mark.usefixtures("no_garbage")
def test_nothing_of_a_window_is_left(module, counting):
    before = counting.cells_in_use()
    window = module.Window(EVER, 10_000)
    for id in range(1, 30_000):
        window.add(b"%d" % id, id, id)
        window.trim(id)
        if id % 100 == 0:
            mark = window.mark()
            for more in range(50):
                window.add(b"more %d" % more, id + more, id)
            window.undo_to(mark)
    window.close()
    assert counting.cells_in_use() == before
