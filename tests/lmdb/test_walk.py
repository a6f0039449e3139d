"""The walk over pages of an LMDB file. Over a file of LMDB's own it finds everything whole. With any bit flipped, cut anywhere,
or with any nonsense in the file it ends, and gives no record that was not there."""

import random
import struct

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xump.testing import records_by_hand as hand
from xump.stores.lmdb_content import META_KEY
from xump.stores.lmdb_pages import FREE_LIST, MAIN, Pages, Tree
from xump_ext.lmdb.walk import Walk, wrong_record
from xump_ext.records import items

SALT, PAGE = 0xC0FFEE, 4096


class File:
    """A file's bytes, and its meta page."""

    def __init__(self, path):
        with Pages(str(path / "data.mdb")) as pages:
            self.meta = pages.meta
        self.data = (path / "data.mdb").read_bytes()

    def walk(self, data=None, tree=None, mark=MAIN, reached=None):
        """Walks a tree; returns all records, and the damage told."""
        data = self.data if data is None else data
        told, found = [], []
        if reached is None:
            reached = bytearray(-(-len(data) // PAGE))

        def read(buffer, page):
            part = data[page * PAGE : page * PAGE + len(buffer)]
            buffer[: len(part)] = part
            return len(part)

        walk = Walk(tree or (self.meta.main if mark == MAIN else self.meta.free), PAGE, self.meta.last, reached, mark, read,
                    lambda *damage: told.append(damage))
        if mark == FREE_LIST:
            return walk.free_pages(self.meta.transaction), told
        while (records := walk.next_records(SALT, META_KEY)) is not None:
            found.append(bytes(records))
        assert walk.next_records(SALT, META_KEY) is None
        return b"".join(found), told


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A branch, two leaves, values in overflow pages, free pages."""
    path = tmp_path_factory.mktemp("small")
    log = hand.Log(SALT, 0)
    group = log.group(hand.queue(1, "q"), hand.state(1, 1), *(hand.enter(1, id, body=bytes([id]) * 900) for id in range(1, 6)),
                      hand.enter(1, 7, body=b"x" * 5000), hand.enter(1, 8, body=b"y" * 3000), hand.mark(1, 2))
    with lmdb.open(str(path), map_size=1 << 20, sync=False) as environment:
        with environment.begin(write=True) as transaction:
            transaction.put(META_KEY, b"its own")
            transaction.cursor().putmulti(items(group)[0])
        with environment.begin(write=True) as transaction:
            transaction.delete(items(group)[0][6][0])
    file = File(path)
    assert file.meta.main.depth == 2 and file.meta.main.overflows == 3
    file.puts = [put for at, put in enumerate(items(group)[0]) if at != 6]
    return file


def test_what_is_there(small):
    records, told = small.walk()
    assert records == b"".join(record for _, record in small.puts) and not told
    reached = bytearray(len(small.data) // PAGE)
    small.walk(reached=reached)
    (free, beyond), told = small.walk(mark=FREE_LIST, reached=reached)
    assert not told and free and not beyond and reached.count(0) == 2       # the meta pages


def judged(small, data):
    """Whether the walk told of the damage. It must give only records that were there, in their order."""
    records, told = small.walk(data)
    given = items(records)[0]
    assert set(given) <= set(small.puts) and b"".join(record for _, record in given) == records
    assert told or given == small.puts, "something vanished without a word"
    return bool(told)


def test_any_flipped_bit(small):
    data, seen = bytearray(small.data), 0
    for at in range(2 * PAGE, len(data)):
        head = at % PAGE < 64
        for bit in range(8) if head else (random.Random(at).randrange(8),):
            data[at] ^= 1 << bit
            seen += judged(small, data)
            data[at] ^= 1 << bit
    assert seen > len(b"".join(record for _, record in small.puts)) * 0.9


def test_cut_anywhere(small):
    pages = len(small.data) // PAGE
    assert sum(judged(small, small.data[:size]) for size in range(0, len(small.data), 512)) >= 8 * (pages - 3)


@given(st.lists(st.tuples(st.integers(2, 12), st.integers(0, PAGE - 8), st.sampled_from("BHIQ"), st.one_of(
    st.integers(0, 64), st.integers(0, 2**64 - 1), st.sampled_from((4095, 4096, 4097, 65535, 2**31 - 1, 2**31, 2**32 - 1)))),
    min_size=1, max_size=20), st.integers(0, PAGE))
def test_any_nonsense(small, changes, near):
    """Writes numbers at random places, most of them at the beginning of pages."""
    data = bytearray(small.data)
    for page, at, form, number in changes:
        start = page % (len(data) // PAGE) * PAGE + (at if near % 2 else at % 64)
        struct.pack_into("<" + form, data, start, number % 256 ** struct.calcsize(form))
    for mark in (MAIN, FREE_LIST):
        if mark == MAIN:
            judged(small, data)
        else:
            small.walk(data, mark=FREE_LIST)
        for depth in (1, 2, 3, 32):
            small.walk(data, small.meta.main._replace(depth=depth), mark)


def nodes_of(data, page):
    lower = struct.unpack_from("<H", data, PAGE * page + 12)[0]
    return [PAGE * page + at for at in struct.unpack_from(f"<{(lower - 16) // 2}H", data, PAGE * page + 16)]


def test_pages_that_lead_to_themselves(small):
    root = small.meta.main.root
    for depth in (2, 3, 32):
        data = bytearray(small.data)
        for node in nodes_of(data, root):
            struct.pack_into("<HHH", data, node, root, 0, 0)
        _, told = small.walk(data, small.meta.main._replace(depth=depth))
        assert {(page, what) for page, what, _, _ in told} == {(root, "is named twice")}


@pytest.mark.parametrize("number", [0, 1, 10**6, 2**32 - 1, 2**48 - 1])
def test_a_page_that_is_not_there(small, number):
    data = bytearray(small.data)
    node = nodes_of(data, small.meta.main.root)[1]
    data[node : node + 6] = number.to_bytes(6, "little")
    _, told = small.walk(data)
    assert [(page, what[:9]) for page, what, _, _ in told] == [(number, "is named,")]


@pytest.mark.parametrize("size", [0, 1, 4080, 4081, 10**6, 2**31, 2**32 - 1])
@pytest.mark.parametrize("first", [None, 0, 2**64 - 1, 2**63])
def test_a_value_that_is_longer_than_the_file(small, size, first):
    """The same for a file shorter than its pages, or pages elsewhere."""
    data = bytearray(small.data)
    leaves = [page for page in range(2, len(data) // PAGE) if data[PAGE * page + 10] == 2]
    for page in leaves:
        for node in nodes_of(data, page):
            if data[node + 4] == 1:
                struct.pack_into("<HH", data, node, size & 0xFFFF, size >> 16)
                if first is not None:
                    struct.pack_into("<Q", data, node + 8 + data[node + 6], first)
    assert judged(small, data)


def test_trees_that_cannot_be(small):
    for depth in (0, 33, 65535):
        assert [what for _, what, _, _ in small.walk(tree=small.meta.main._replace(depth=depth))[1]] == [
            f"the tree has depth {depth}"]
    empty = Tree(0, 0, 0, 0, 0, 0, 0, 2**64 - 1)
    assert small.walk(tree=empty) == (b"", [])
    assert "and says 0, 3, 0 and 0" in small.walk(tree=empty._replace(leaves=3))[1][0][1]
    for root in (0, 1, 2**63, 2**64 - 2):
        _, told = small.walk(tree=small.meta.main._replace(root=root))
        assert told[0][:2] == (root, f"is named, of {small.meta.last + 1} pages")
    for wrong in ((255, 9, MAIN), (65536, 9, MAIN), (5000, 9, MAIN), (PAGE, 9, 0), (PAGE, 9, 3)):
        with pytest.raises(ValueError, match="allowed are"):
            Walk(empty, wrong[0], wrong[1], bytearray(9), wrong[2], None, None)


def test_errors_of_who_is_called_come_through(small):
    def fails(*_):
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        Walk(small.meta.main, PAGE, 9, bytearray(10), MAIN, fails, print).next_records(SALT, META_KEY)
    with pytest.raises(OSError, match="no disk"):
        Walk(small.meta.main, PAGE, 9, bytearray(10), MAIN, lambda *_: 0, fails).next_records(SALT, META_KEY)


@pytest.mark.parametrize("mixed", [False, True])
def test_reading_is_done_in_large_pieces(tmp_path, mixed):
    """Pages in another order than their keys gain less, but the walk never reads much more than the file."""
    log = hand.Log(SALT, 0)
    puts = items(log.group(*(hand.enter(1, id, body=bytes(100 if id % 50 else 20_000)) for id in range(1, 20_001))))[0]
    order = random.Random(3).sample(puts, len(puts)) if mixed else puts
    with lmdb.open(str(tmp_path), map_size=1 << 26, sync=False) as environment:
        for at in range(0, len(order), 2000):
            with environment.begin(write=True) as transaction:
                transaction.cursor().putmulti(sorted(order[at : at + 2000]), append=not mixed)
    calls, found = [], []
    with Pages(str(tmp_path / "data.mdb")) as pages:
        read = pages._read
        pages._read = lambda buffer, page: calls.append(len(buffer)) or read(buffer, page)
        walk = pages.walk()
        while (records := walk.next_records(SALT, META_KEY)) is not None:
            found.append(bytes(records))
        assert pages.free() > 0 and walk.records == 20_000 and walk.end == log.end
        assert sum(calls) < 3 * pages.bytes and (mixed or len(calls) < pages.bytes / 20_000)
    assert b"".join(found) == b"".join(record for _, record in puts)
    assert all(len(piece) <= (1 << 20) + 20_200 for piece in found)


def test_a_long_list_of_free_pages(tmp_path):
    """Its keys are numbers of transactions, ordered as numbers, not as bytes."""
    with lmdb.open(str(tmp_path), map_size=1 << 27, sync=False) as environment:
        for group in range(300):
            with environment.begin(write=True) as transaction:
                for at in range(20):
                    transaction.put(b"%06d" % (20 * group + at), bytes(2500))
        for group in range(300):
            with environment.begin(write=True) as transaction:
                for at in range(20):
                    transaction.delete(b"%06d" % (20 * group + at))
    with Pages(str(tmp_path / "data.mdb")) as pages:
        assert pages.meta.free.depth > 1
        assert pages.free() > 4000


def test_one_record():
    log = hand.Log(SALT, 0)
    ((key, record),) = items(log.group(hand.enter(1, 1, body=b"x" * 50)))[0]
    assert wrong_record(key, record, SALT) is None
    assert wrong_record(key, record[:-1] + b"?", SALT) == "whose content does not fit its CRC"
    assert wrong_record(key, record, SALT + 1) == "whose head does not fit its CRC"
    assert wrong_record(key, record[:31], SALT) == "of 31 bytes: less than a record's head"
    assert wrong_record(key, record + b"x", SALT) == f"of {len(record)} bytes, which is kept as {len(record) + 1}"
    assert wrong_record(key[:-1] + b"2", record, SALT) == f"which stands under a key that is not its own, {key[:-1].hex()}32"
    for size in range(len(record)):
        assert wrong_record(key, record[:size], SALT)
