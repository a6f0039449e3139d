"""Every bit of what LMDB trusts, in a store whose process was killed: its meta pages, its list of free pages, its branches, and
the MARK records. Opening, check and repair see each damaged bit before LMDB uses it; the others do no harm."""

import json
import os
import shutil
import struct
import tempfile
from pathlib import Path

import pytest

from tests.lmdb.small_store import data_of, run_child
from xump.cli import main as cli
from xump.stores.lmdb import LmdbStore
from xump.stores.lmdb_content import META_KEY
from xump.stores.lmdb_files import meta_of
from xump.stores.lmdb_pages import FREE_LIST, MAIN, Pages
from xump.testing import records_by_hand as hand
from xump.testing.driver import Driver
from xump_ext.records import entry_key, kinds


@pytest.fixture
def place(tmp_path):
    """A directory in memory, if there is one: thousands of stores are opened and repaired here, and each is synced."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


STRIDE = 1 if os.environ.get("XUMP_EVERY_BIT") else 5
"""Bytes from one to the next that is damaged, where any may be taken for any other."""


def killed_store(path, groups=7):
    """Leaves a store as the death of its process would, but for the space kept ahead; returns its model."""
    store = LmdbStore("mine", path=path.with_name("open"))
    driver = Driver(store)
    driver.write(hand.queue(1, "jobs", history_limit=None), hand.state(1, 1))
    for group in range(groups):
        first = 20 * group
        driver.write(*(hand.enter(1, first + id, "a.b", bytes([id]) * (10, 100, 300, 3000)[id % 4]) for id in range(1, 21)),
                     hand.mark(1, first + 3, 2, kinds.REDELIVERED), hand.mark(1, first + 4, 1, kinds.HISTORIC),
                     hand.mark(1, first + 18, 3, kinds.REDELIVERED), hand.state(1, first + 21),
                     *([hand.settle(1, first - 15, 9)] if group else []))
        driver.sync()
    shutil.copytree(store.path, path)
    store.close()
    with Pages(str(data_of(path))) as pages:
        os.truncate(data_of(path), (pages.meta.last + 1) * pages.page_bytes)
    return driver.model


def pages_of(path, kind):
    """The numbers of the pages of a kind, and the places of the bytes in use in each."""
    data, found = data_of(path).read_bytes(), {}
    with Pages(str(data_of(path))) as pages:
        walk = pages.walk()
        while walk.next_records(meta_of(str(path)).salt, META_KEY):
            pass
        pages.free()
        for number, reached in enumerate(pages.reached):
            flags, lower, upper = struct.unpack_from("<HHH", data, 4096 * number + 10)
            if (reached, flags) == kind:
                found[number] = [4096 * number + at for at in (*range(lower), *range(upper, 4096))]
    return found


BITS = """
import json, os, sys
from pathlib import Path
import xump.stores.lmdb_space as space
from xump.errors import StoreCorrupt
from xump.stores.lmdb import LmdbStore
from xump.testing import records_by_hand as hand
from xump.testing.driver import Driver

space.AHEAD_ROOM_BYTES = space.GROWTH_BYTES = (64 << 10, 64 << 10)
os.fsync = lambda fd: None
path, places, mended = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
file = path / "data.mdb"
whole, seen, unseen, harmless = file.read_bytes(), 0, [], []

def opened():
    store = LmdbStore("mine", path=path, durability="none")
    try:
        return store, Driver(store)
    except BaseException:
        store.close()
        raise

store, driver = opened()
model = driver.model
store.close()

def used(where):
    '''Opens the store, reads all, writes to many of its pages.'''
    store, driver = opened()
    assert driver.model.says() == model.says(), f"{where}: other messages, and no word of it"
    ids = sorted(id for _, id in driver.model.entries)
    for group in range(3):
        driver.write(*(hand.enter(1, 5000 + 50 * group + id, body=bytes(900)) for id in range(9)),
                     *(hand.settle(1, id) for id in ids[group::7]), *(hand.mark(1, id, 1) for id in ids[3 + group::7]))
    driver.check_fetches()
    store.close()
    report = LmdbStore.check(str(path))
    assert not report.damage, f"{where}: not seen, and then {report.damage}"

def repaired(where):
    report = LmdbStore.repair(str(path))
    store, driver = opened()
    lost = set(model.entries) - set(driver.model.entries)
    assert not lost, f"{where}: {lost} lost: {report}"
    assert driver.model.says()["state", 1] == model.says()["state", 1], f"{where}: ids would be issued again"
    doubtful = report.remains[1].doubtful if report.remains else 0
    back = set(driver.model.entries) - set(model.entries)
    assert len(back) <= doubtful and all(driver.model.says()["mark", key][3] & 1 for key in back), f"{where}: {back} back"
    store.close()
    assert not LmdbStore.check(str(path)).damage

for number, at in enumerate(places):
    for bit in range(8):
        data = bytearray(whole)
        data[at] ^= 1 << bit
        file.write_bytes(data)
        where = f"byte {at}, bit {bit}"
        try:
            damage = LmdbStore.check(str(path)).damage
            told = bool(damage)
        except StoreCorrupt:
            told, damage = True, []
        if not told:
            unseen.append((at, bit))
            if len(unseen) % 40 == 1 or at in mended:
                used(where)
            continue
        if damage and all(one.harmless for one in damage):
            used(where)
            harmless.append((at, bit))
            file.write_bytes(data)
            repaired(where)
            continue
        seen += 1
        if seen % 8 and at not in mended:       # what check sees, opening sees: both read the file by the same walk
            continue
        try:
            store, _ = opened()
            store.close()
        except StoreCorrupt as error:
            assert "run: xump repair" in str(error), f"{where}: {error}"
        else:
            raise AssertionError(f"{where}: check sees it, opening does not")
        if at in mended:
            repaired(where)
        for other in path.parent.glob(path.name + ".*"):
            other.unlink()
print(json.dumps([seen, unseen, harmless]))
"""


def all_bits(path, places, mended):
    seen, unseen, harmless = json.loads(run_child(BITS, path, json.dumps(list(places)), json.dumps(list(mended))))
    return seen, {at for at, _ in unseen}, harmless


def test_of_the_list_of_free_pages(place):
    killed_store(place / "store")
    (number, places), = pages_of(place / "store", (FREE_LIST, 2)).items()
    seen, unseen, _ = all_bits(place / "store", places, places[::23])
    assert seen > 7 * len(places) and len(unseen) < 8, f"unseen in page {number}: {sorted(at % 4096 for at in unseen)}"


def test_of_both_meta_pages(place):
    """The number of the transaction leads back to the messages that were confirmed last; so does any other bit."""
    killed_store(place / "store")
    numbers = [page + at for page in (0, 4096) for at in range(144, 152)]
    rest = [page + at for page in (0, 4096) for at in (*range(16, 24), *range(40, 144))]
    seen, unseen, _ = all_bits(place / "store", numbers + rest[::STRIDE], numbers[::3] + rest[:: 7 * STRIDE])
    assert not unseen & set(numbers)
    with Pages(str(data_of(place / "store"))) as pages:
        newest = 4096 * (pages.meta.transaction & 1)
    # Of the older one LMDB uses nothing; of the newer one, not the two flags that a list of free pages may have.
    assert {at - newest for at in unseen if newest <= at < newest + 4096} <= {44, 45} and seen > 1000 // STRIDE


def test_of_a_number_that_is_two_too_low(place):
    """LMDB itself leaves that after a write that failed. Opening takes the newer tree, where everything is."""
    killed_store(place / "store", 9)
    numbers = [page + at for page in (0, 4096) for at in range(144, 152)]
    seen, unseen, harmless = all_bits(place / "store", numbers, numbers[8:9])
    assert seen == 8 * len(numbers) - len(harmless) and not unseen and harmless == [[4096 + 144, 1]]


def test_meta_pages_that_never_got_there(place):
    """A power loss may leave the older ones in their places: that is no damage. With one group written and not synced, the store
    is as it was before that. With two, pages of the second may lie where the older meta page's tree was."""
    store = LmdbStore("mine", path=place / "store")
    driver = Driver(store)
    driver.write(hand.queue(1, "jobs"), hand.state(1, 1), hand.enter(1, 1))
    past = []
    for id in range(2, 30):
        past.append((data_of(store.path).read_bytes(), driver.model.says()))
        driver.write(hand.enter(1, id, body=bytes(900)), hand.settle(1, id - 1))
        after = data_of(store.path).read_bytes()
        for before, said in past[-2:]:
            (place / "lost").mkdir()
            data_of(place / "lost").write_bytes(before[:8192] + after[8192:])
            assert LmdbStore.check(str(place / "lost")).damage == []
            again = LmdbStore("mine", path=place / "lost")
            assert Driver(again).model.says() == said
            again.close()
            shutil.rmtree(place / "lost")
    store.close()


def test_of_a_branch(place):
    """Also of what says nothing, such as the first key's length: LMDB moves nodes by it."""
    killed_store(place / "store")
    (number, places), = pages_of(place / "store", (MAIN, 1)).items()
    seen, unseen, _ = all_bits(place / "store", places[::STRIDE], places[:: 31 * STRIDE])
    # A key in a branch may be any between those below it. Else only the pad, which LMDB does not use.
    assert not {at - 4096 * number for at in unseen} & {*range(8), *range(10, 16 + 2 * 20)} and seen > 5 * len(places) // STRIDE


# ---- a small record that says much

def places_of_entry(path, key):
    """The bytes of an entry's node, and of its offset in the page."""
    data = data_of(path).read_bytes()
    for start in (4096 * number for number in pages_of(path, (MAIN, 2))):
        lower = struct.unpack_from("<H", data, start + 12)[0]
        for place in range(start + 16, start + lower, 2):
            node = start + struct.unpack_from("<H", data, place)[0]
            if data[node + 8 : node + 8 + struct.unpack_from("<H", data, node + 6)[0]] == key:
                return [place, place + 1, *range(node, node + 8 + 13 + 40)]
    raise AssertionError(f"no entry under {key.hex()}")


@pytest.mark.parametrize("id", [103, 104])
def test_of_a_mark(place, monkeypatch, id):
    """It says that a message was handed out, or is in the history. Lost, the message may have been: so repair marks it."""
    path = place / "store"
    model = killed_store(path)
    places = places_of_entry(path, mark_key(1, id))
    data, found = data_of(path).read_bytes(), []
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    for at in places[: 2 + 8 + 13] + places[2 + 8 + 13 :: STRIDE]:
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            data_of(path).write_bytes(damaged)
            checked, report = LmdbStore.check(str(path)), LmdbStore.repair(str(path))
            assert checked.damage and checked.remains == report.remains
            view = LmdbStore.view(str(path))
            marks = {key: record for key, record in Driver(view).model.marks.items() if key in model.entries}
            gone = set(model.marks) & set(model.entries) - set(marks)
            assert not gone, f"byte {at}, bit {bit}: {gone} have no mark, and are not doubted"
            view.close()
            changed = [key for key in marks if marks[key] != model.marks.get(key)]
            assert all(marks[key][7] & kinds.REDELIVERED and marks[key][32] for key in changed), (at, bit, changed)
            assert report.remains[1].doubtful >= len(changed) and (not changed or not report.remains[1].exact)
            assert (1, id) in changed or marks[1, id] == model.marks[1, id]
            found.append(len(changed))
            for other in place.glob("store.*"):
                other.unlink()
    print([(n, found.count(n)) for n in sorted(set(found))])
    assert sorted(found)[len(found) * 9 // 10] < 7, "one damaged record makes many messages doubtful"


def test_of_the_key_of_a_queue(place, capsys):
    """Commands look at a store with a queue in place of one that is lost. Its number is what the key says, which may be none."""
    path = place / "store"
    killed_store(path)
    key_at = places_of_entry(path, kinds.KEY_QUEUE + entry_key(1, 0)[1:])[2 + 8 : 2 + 8 + 13]
    data = data_of(path).read_bytes()
    for at in key_at:
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            data_of(path).write_bytes(damaged)
            assert cli.main(["stats", str(path)]) == 1
            said = capsys.readouterr().err
            assert "run: xump repair" in said or "to see them all: xump check" in said, (at, bit, said)


def mark_key(queue, id):
    return kinds.KEY_MARK + entry_key(queue, id)[1:]
