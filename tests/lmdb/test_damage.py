"""Damage to an `lmdb` store: never a wrong payload, never a silent gap, never the end of the process."""

import json
import os
import random
import struct
from pathlib import Path

import pytest

import xump.stores.lmdb_files as lmdb_files
import xump.stores.lmdb_repair as lmdb_repair
from xump.testing import records_by_hand as hand
from tests.lmdb.small_store import a_store, data_of, run_child
from xump.errors import StoreCorrupt
from xump.stores.lmdb import LmdbStore
from xump.stores.lmdb_content import META_KEY
from xump.stores.lmdb_pages import Pages
from xump.testing.driver import Driver, content, position_of
from xump_ext.records import entry_key, kinds


# ---- anywhere

FLIPS = """
import json, random, sys
from pathlib import Path
from xump.errors import StoreCorrupt, XumpError
from xump.stores.lmdb import LmdbStore
from xump.testing.driver import Driver, content

path, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
says = {}
data, choose, found = bytearray((path / "data.mdb").read_bytes()), random.Random(seed), {}
store = LmdbStore("mine", path=path)
model = Driver(store).model
store.close()

def wrong(driver, old=False, doubtful=()):
    '''The entries that were not there before, or not so. `old`: settled or replaced ones are no wonder. `doubtful`: how many
    messages of each queue may have been marked as redelivered.'''
    expected, got = model.says(), driver.model.says()
    for queue, number in dict(doubtful).items():
        made = [("mark", (of, id)) for what, of, id in (
            (what, *key) for what, key in got.keys() - expected.keys() if what == "mark") if of == queue]
        assert len(made) <= number and all(got[key][3] == 1 for key in made)
        for key in made:
            del got[key]
    return [str((what, key)) for (what, key), said in got.items() if said != expected.get((what, key)) and not (
        old and (what == "state" or (what == "entry" and (what, key) not in expected and key[1] % 20 in (5, 6))))]

for number in range(count):
    # The first pages decide on all, and so do the heads of the others.
    at = choose.choice((choose.randrange(len(data)), choose.randrange(2 * 4096) % 160 + choose.choice((0, 4096)),
                        choose.randrange(len(data) // 4096) * 4096 + choose.randrange(64)))
    bit = 1 << choose.randrange(8)
    data[at] ^= bit
    (path / "data.mdb").write_bytes(data)
    try:
        store = LmdbStore("mine", path=path)
        try:
            driver = Driver(store)
            assert not wrong(driver) and driver.model.says() == model.says(), f"byte {at} bit {bit}: {wrong(driver)[:3]} unseen"
            driver.check_fetches()
            opened = True
        finally:
            store.close()
    except XumpError as error:
        assert type(error) in (StoreCorrupt,) or "another program" in str(error) or "format" in str(error), repr(error)
        opened = False
    try:
        report = LmdbStore.check(str(path))
        assert bool(report.damage) != opened, f"byte {at} bit {bit}: opened {opened}, check said {report.damage}"
    except StoreCorrupt:
        assert not opened
    if not opened:
        report = LmdbStore.repair(str(path))
        assert report.damage, f"byte {at}"
        store = LmdbStore("mine", path=path)
        driver = Driver(store, lenient=True)
        doubtful = {queue: left.doubtful for queue, left in report.remains.items()}
        bad = wrong(driver, any("may have been settled" in note for note in report.notes), doubtful)
        assert not bad, f"byte {at} bit {bit}: {bad[:5]}"
        lost = [key for key in model.says() if key not in driver.model.says()]
        assert not lost or report.quarantine, f"byte {at} bit {bit}: {lost[:5]} vanished"
        assert len(lost) <= 40, f"byte {at} bit {bit}: {len(lost)} lost: {report}"
        driver.check_fetches()
        store.close()
        found[len(lost)] = found.get(len(lost), 0) + 1
    data[at] ^= bit
    for file in path.parent.glob(path.name + ".*"):
        file.unlink()
(path / "data.mdb").write_bytes(data)
print(json.dumps(found))
"""


@pytest.mark.parametrize("seed", range(3))
def test_any_flipped_bit(tmp_path, seed):
    """Never a wrong payload, never a silent gap, never the end of the process; and repair reports every loss."""
    a_store(tmp_path / "store", 6)
    found = json.loads(run_child(FLIPS, tmp_path / "store", seed, 40))
    assert sum(found.values()) > 10, "nothing was ever damaged"
    assert "0" in found or "1" in found


@pytest.mark.parametrize("what", ["root", "metas", "free list", "end of the file"])
def test_great_damage(tmp_path, what):
    """Records come back from pages that nothing leads to any more, and repair says so where it cannot be sure."""
    path = tmp_path / "store"
    model = a_store(path, 40)
    data = bytearray(data_of(path).read_bytes())
    with Pages(str(data_of(path))) as pages:
        root, free = pages.meta.main.root, pages.meta.free.root
    if what == "end of the file":
        del data[len(data) * 3 // 4 :]
    else:
        for page in {"root": [root], "metas": [0, 1], "free list": [free]}[what]:
            data[4096 * page : 4096 * (page + 1)] = random.Random(1).randbytes(4096)
    data_of(path).write_bytes(data)
    with pytest.raises(StoreCorrupt, match=f"run: xump repair {path}"):
        store = LmdbStore("mine", path=path)
        try:
            Driver(store)
        finally:
            store.close()
    assert data_of(path).read_bytes() == data
    report = LmdbStore.repair(str(path))
    assert f"kept as {path}.damaged-1" in report.notes[-1] and (tmp_path / "store.damaged-1").read_bytes() == data
    store = LmdbStore("mine", path=path)
    driver = Driver(store, lenient=True)
    store.close()
    lost = [key for key in model.entries if key not in driver.model.entries]
    assert all(content(driver.model.entries[key]) == content(model.entries[key]) for key in model.entries if key not in lost)
    assert len(driver.model.says()) == report.records
    assert store.end >= model_end(driver.model if what == "end of the file" else model)     # the store's own entry may be lost
    if what == "end of the file":
        assert 0 < len(lost) < len(model.entries) / 2
    else:
        assert not lost
    if what != "end of the file":       # the list of free pages may have been there
        assert any("may have been settled" in note for note in report.notes) == (what == "metas")
        assert all(left.doubtful == (left.messages if what == "metas" else 0) for left in report.remains.values())
    assert LmdbStore.check(str(path)).damage == []


def model_end(model):
    return max(position_of(record) for record in model.entries.values())


def test_cut_anywhere(tmp_path):
    """Opening misses the lost pages at once, unless they were not in use."""
    path = tmp_path / "store"
    model = a_store(path, 4)
    data, refused = data_of(path).read_bytes(), 0
    sizes = [*range(0, 9000, 331), *range(9000, len(data), len(data) // 60), *range(len(data) - 64, len(data), 9)]
    for size in sizes:
        data_of(path).write_bytes(data[:size])
        try:
            store = LmdbStore("mine", path=path)
            try:
                assert Driver(store).model.says() == model.says()
            finally:
                store.close()
        except StoreCorrupt as error:
            assert f"xump repair {path}" in str(error)
            refused += 1
    assert refused > len(sizes) * 0.9


# ---- beside the records

def nodes_of(data, number):
    """Where the nodes of a page begin in the file, by key."""
    at = 4096 * number
    lower = struct.unpack_from("<H", data, at + 12)[0]
    return [at + offset for offset in struct.unpack_from(f"<{(lower - 16) // 2}H", data, at + 16)]


def separator(data, meta, leaves):
    data[nodes_of(data, meta.main.root)[2] + 8 + 12] += 1


def child_twice(data, meta, leaves):
    one, other = nodes_of(data, meta.main.root)[1:3]
    data[other : other + 6] = data[one : one + 6]


def other_key(data, meta, leaves):
    """An id that does not follow the one before at once, as 7 follows 4: it may become one less, and all keys are in order."""
    keys = {entry_key(1, id): entry_key(1, id - 1) for id in range(7, 400, 20)}
    for number in leaves:
        for at in nodes_of(data, number)[1:]:
            if bytes(data[at + 8 : at + 21]) in keys:
                data[at + 8 : at + 21] = keys[bytes(data[at + 8 : at + 21])]
                return


def used_and_free(data, meta, leaves):
    """A page in place of another one of a list, which stays in order."""
    for at in nodes_of(data, meta.free.root):
        count = struct.unpack_from("<Q", data, at + 16)[0]
        free = struct.unpack_from(f"<{count}Q", data, at + 24)
        for number, bounds in enumerate(zip((meta.last + 1, *free), (*free[1:], 1), strict=True)):
            for page in leaves:
                if bounds[0] > page > bounds[1]:
                    data[at + 24 + 8 * number : at + 32 + 8 * number] = struct.pack("<Q", page)
                    return
    raise AssertionError("no such page")


def own_entry(data, meta, leaves):
    (at,) = (at for number in leaves for at in nodes_of(data, number) if data[at + 8 : at + 9] == META_KEY and data[at + 6] == 1)
    data[at + 9 + 16] ^= 1


def in_both_metas(offset, value):
    def change(data, meta, leaves):
        for start in (0, 4096):
            data[start + offset : start + offset + len(value)] = value
    return change


DAMAGES = {
    "not in order": separator, "is named twice": child_twice, "a key that is not its own": other_key,
    "in use and listed as free": used_and_free,
    "trees with flags 0x4": in_both_metas(92, b"\4"), "values of 9 bytes": in_both_metas(88, b"\t"),
    "need not be in the file": in_both_metas(136, struct.pack("<Q", 1500)),
    "do not follow each other": in_both_metas(144, struct.pack("<Q", 8)), "has depth 77": in_both_metas(94, b"M"),
    "own entry, with its salt and position, is damaged": own_entry, "and says": in_both_metas(120, b"\1"),
}


@pytest.mark.parametrize("text", DAMAGES)
def test_damage_that_is_no_records(tmp_path, text):
    """Each is seen when the store is opened, and by check; repair loses nothing."""
    path = tmp_path / "store"
    model = a_store(path, 20)
    data = bytearray(data_of(path).read_bytes())
    with Pages(str(data_of(path))) as pages:
        meta, walk = pages.meta, pages.walk()
        while walk.next_records(model.salt, META_KEY):
            pass
        leaves = [page for page, mark in enumerate(pages.reached)
                  if mark and struct.unpack_from("<Q2xH", data, 4096 * page) == (page, 2)]
    DAMAGES[text](data, meta, leaves)
    data_of(path).write_bytes(data)
    with pytest.raises(StoreCorrupt, match=f"{text}.*run: xump repair"):
        store = LmdbStore("mine", path=path)
        try:
            Driver(store)
        finally:
            store.close()
    assert any(text in found.what for found in LmdbStore.check(str(path)).damage)
    LmdbStore.repair(str(path))
    store = LmdbStore("mine", path=path)
    again = Driver(store).model
    store.close()
    lost = set(model.says()) - set(again.says())        # at most the record with the key of another one
    assert len(lost) <= 1 and lost <= {("entry", (1, id)) for id in range(7, 400, 20)}
    made = {key for key in again.marks if key not in model.marks}
    assert set(again.says()) - {("mark", key) for key in made} <= set(model.says())
    assert not made or text == "and says"       # an entry count cannot be wrong alone


def test_the_newest_group_of_which_the_meta_page_is_lost(tmp_path):
    """Positions lead to its records. Messages that it settled are back, and repair says so; those settled before stay settled."""
    path = tmp_path / "store"
    model = a_store(path, 20)
    data = bytearray(data_of(path).read_bytes())
    newest = max((0, 4096), key=lambda start: struct.unpack_from("<Q", data, start + 144)[0])
    data[newest + 16 : newest + 152] = bytes(136)
    data_of(path).write_bytes(data)
    assert "may have been settled" in LmdbStore.repair(str(path)).notes[0]
    store = LmdbStore("mine", path=path)
    again = Driver(store).model
    store.close()
    assert set(again.entries) - set(model.entries) == {(1, 365), (1, 366)} and set(model.entries) <= set(again.entries)
    made = [key for key in again.marks if key not in model.marks]       # all but those that say so already
    assert set(made) == set(again.entries) - set(model.marks)
    assert again.says()["state", 1] == model.says()["state", 1]
    assert store.end == model_end_of_all(model) + kinds.FIXED_BYTES[kinds.MARK] * len(made)


def model_end_of_all(model):
    records = [*model.queues.values(), *model.states.values(), *model.entries.values(), *model.marks.values()]
    return max(position_of(record) + len(record) for record in records)


def test_uncommitted_records_are_not_taken(tmp_path):
    """A record in a page beyond the last one, of a transaction that did not get to its end."""
    path = tmp_path / "store"
    model = a_store(path, 20)
    data = bytearray(data_of(path).read_bytes())
    with Pages(str(data_of(path))) as pages:
        data[4096 * pages.meta.main.root] ^= 1
    log = hand.Log(model.salt, 1 << 30)
    page = log.group(hand.enter(1, 5000, body=b"never"))[56:]
    data_of(path).write_bytes(data + bytes(16) + page + bytes(4096 - 16 - len(page)))
    LmdbStore.repair(str(path))
    store = LmdbStore("mine", path=path)
    assert Driver(store).model.says() == model.says() and store.end < 1 << 30
    store.close()


# ---- repair

def test_damaged_bytes_are_put_aside(tmp_path):
    """The record byte for byte, and all else as it was."""
    path = tmp_path / "store"
    model = a_store(path, 5)
    data = data_of(path).read_bytes()
    (_, id), record = next(entry for entry in model.entries.items() if entry[0][0] == 1 and len(entry[1]) > 5000)
    at = data.index(record) + 100
    data_of(path).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    damaged = record[:100] + bytes([record[100] ^ 1]) + record[101:]
    for number in (1, 2):
        (found,) = LmdbStore.check(str(path)).damage
        assert (found.queue, found.id, found.position, found.bytes) == (1, id, position_of(record), len(record))
        assert f"message of queue 1, id {id}" in found.what and "content does not fit its CRC" in found.what
        report = LmdbStore.repair(f"{path}/")
        assert report.damage == [found] and report.quarantine == f"{path}.quarantine-{number}"
        kept = Path(report.quarantine).read_bytes()
        assert kept.startswith(b"XumpQuar" + struct.pack("<II", 1, model.salt)) and kept.endswith(damaged)
        assert sorted(os.listdir(tmp_path)) == ["store", *(f"store.quarantine-{n}" for n in range(1, number + 1))]
        store = LmdbStore("mine", path=path)
        driver = Driver(store)
        store.close()
        assert driver.model.says() == {key: said for key, said in model.says().items() if key != ("entry", (1, id))}
        assert LmdbStore.repair(str(path)).damage == []
        data_of(path).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_a_message_that_was_damaged_after_opening(tmp_path):
    """`fetch` gives no wrong payload, and no payload behind it."""
    path = tmp_path / "store"
    store = LmdbStore("mine", path=path)
    driver = Driver(store)
    driver.write(hand.queue(1, "q"), hand.state(1, 1), *(hand.enter(1, id, body=b"%d" % id * 50) for id in range(1, 10)))
    at = data_of(path).read_bytes().rindex(b"5" * 50)
    with open(data_of(path), "r+b") as file:
        file.seek(at)
        file.write(b"6")
    assert [id for _, id, _ in driver.fetch(1, 3)] == [3, 4]
    with pytest.raises(StoreCorrupt, match="message of queue 1, id 5 .*content does not fit"):
        driver.fetch(1, 5)
    driver.check_fetches([(1, 6)])
    store.close()


def test_repair_that_fails_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "store"
    a_store(path, 5)
    data = bytearray(data_of(path).read_bytes())
    with Pages(str(data_of(path))) as pages:
        data[pages.page_bytes * pages.meta.main.root] ^= 1
    data_of(path).write_bytes(data)
    for step in ("build", "_quarantine", "_keep_old", "take_place"):
        before = data_of(path).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(lmdb_repair if step[0] == "_" else lmdb_files, step, lambda *_: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                LmdbStore.repair(str(path))
        assert data_of(path).read_bytes() == before
    assert LmdbStore.repair(str(path)).damage
    LmdbStore("mine", path=path).close()
    assert sorted(os.listdir(path)) == ["data.mdb", "lock.mdb", "owner"]
