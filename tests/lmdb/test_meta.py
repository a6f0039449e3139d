"""A meta page that LMDB could not write: it is left with the number of two transactions before. Opening takes the group that it
leads to, which was begun and not confirmed; so do check, repair and compact."""

import logging
import os
import struct

import pytest

from tests.lmdb.small_store import data_of
from xump.errors import StoreCorrupt
from xump.stores.lmdb import LmdbStore
from xump.stores.lmdb_content import META_KEY, META_MAGIC
from xump.stores.lmdb_meta import left_behind, read_meta
from xump.stores.lmdb_pages import END_AT, MAIN, Pages
from xump.testing import records_by_hand as hand
from xump.testing.driver import Driver

PAGE = 4096


def failed_writes(place, groups=8):
    """Yields stores as they are when the meta page of their last group could not be written, with what they say then."""
    store = LmdbStore("mine", path=place / "open")
    driver = Driver(store)
    driver.write(hand.queue(1, "jobs"), hand.state(1, 1), hand.enter(1, 1))
    for id in range(2, groups):
        before = data_of(store.path).read_bytes()
        driver.write(*(hand.enter(1, 10 * id + n, body=bytes([id]) * (900, 9000)[id & 1]) for n in range(9)),
                     hand.settle(1, 10 * id - 5))
        data = bytearray(data_of(store.path).read_bytes())
        number = max(struct.unpack_from("=Q", data, PAGE * page + END_AT + 8)[0] for page in (0, 1))
        end = PAGE * (number & 1) + END_AT
        data[end : end + 16] = before[end : end + 16]
        path = place / f"failed-{id}"
        path.mkdir()
        data_of(path).write_bytes(data)
        yield path, driver.model.says()
    store.close()


def says(path):
    """What a store says, which is closed before; and again after many groups."""
    store = LmdbStore("mine", path=path)
    driver = Driver(store)
    said = driver.model.says()
    for id in range(1000, 1020):
        driver.write(hand.enter(1, id, body=bytes(3000)), hand.settle(1, id - 7))
    driver.check_fetches()
    store.close()
    assert LmdbStore.check(str(path)).damage == []
    return said


def test_opening_goes_on_with_the_newer_group(tmp_path, caplog):
    for path, said in failed_writes(tmp_path):
        caplog.clear()
        assert says(path) == said
        [told] = [record for record in caplog.records if record.name == "xump"]
        assert told.levelno == logging.WARNING and "meta page" in told.getMessage()


@pytest.mark.parametrize("tool", ["repair", "compact"])
def test_so_do_the_tools(tmp_path, caplog, tool):
    for path, said in failed_writes(tmp_path):
        damage = LmdbStore.check(str(path)).damage
        assert len(damage) == 1 and damage[0].harmless and "meta page" in damage[0].what
        report = getattr(LmdbStore, tool)(str(path))
        assert not report.remains and report.quarantine is None and len(report.damage) == (tool == "repair")
        assert says(path) == said and not [record for record in caplog.records if record.name == "xump"]


def test_not_if_the_newer_tree_is_damaged(tmp_path):
    """It may have been confirmed, where nothing but the page's number is wrong: a flipped bit does that."""
    tried = 0
    for path, _ in failed_writes(tmp_path):
        data, meta = bytearray(data_of(path).read_bytes()), left_behind(str(data_of(path)))
        struct.pack_into("=Q", data, PAGE * (meta.transaction & 1) + END_AT, meta.last)
        for leaf in leaves_of_the_newer_tree(path):
            data[PAGE * leaf + 12] ^= 1     # where the free space of the page begins
            data_of(path).write_bytes(data)
            with pytest.raises(StoreCorrupt, match="xump repair"):
                LmdbStore("mine", path=path)
            assert not all(one.harmless for one in LmdbStore.check(str(path)).damage)
            data[PAGE * leaf + 12] ^= 1
            tried += 1
    assert tried > 10


def leaves_of_the_newer_tree(path):
    """But for the one with the store's own entry: it says which tree is newer."""
    with Pages(str(data_of(path))) as pages:
        pages.meta = left_behind(str(data_of(path)))
        salt, walk = read_meta(pages).salt, pages.walk()
        while walk.next_records(salt, META_KEY):
            pass
        found = [(number, os.pread(pages.fd, PAGE, PAGE * number)) for number, kind in enumerate(pages.reached) if kind == MAIN]
        return [number for number, page in found if page[10] == 2 and META_MAGIC not in page]
