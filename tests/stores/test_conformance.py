"""The suite for stores over the smallest store that keeps the contract; and over stores that break it, which the suite must
find."""

import random
import unittest

import pytest

from tests.stores.toy_store import ToyStore
from xump.errors import StoreFailed
from xump.testing import StoreConformance


class TestToy(StoreConformance):
    def make(self, path):
        return ToyStore("toy", path)

    def make_small(self, path):
        return ToyStore("toy", path, max_bytes=1 << 20)


class Forgetful(ToyStore):
    """Forgets the settlings of the last group."""

    def keep(self, group):
        before = dict(self.entries)
        super().keep(group)
        self.entries = before | self.entries


class Torn(ToyStore):
    """Keeps a group that it could not write."""

    def write(self, batch):
        try:
            super().write(batch)
        except StoreFailed:
            self.keep(bytes(batch))
            raise

    def close(self):
        self.failed = False
        super().close()


class Careless(ToyStore):
    """Goes on after a failure."""

    failed = property(lambda self: False, lambda self, value: None)


class Shared(ToyStore):
    """Fetches the message before, whatever the position and id."""

    def fetch(self, queue, id, position):
        return super().fetch(queue, max(1, id - 1), position)


class Rewinding(ToyStore):
    """Begins its positions anew when it is opened."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.end = 0


BROKEN = {
    Forgetful: "test_marks_and_runs", Torn: "test_a_write_that_raises_leaves_nothing_and_poisons",
    Careless: "test_a_write_that_raises_leaves_nothing_and_poisons", Shared: "test_fetching", Rewinding: "test_positions_go_on",
}


@pytest.mark.parametrize("store", BROKEN, ids=lambda store: store.__name__)
def test_a_broken_store_is_found(store, tmp_path):
    class Suite(StoreConformance):
        def make(self, path):
            return store("broken", path)

    with pytest.raises(Exception):      # noqa: B017 - however it shows
        getattr(Suite(), BROKEN[store])(tmp_path)


def test_records_are_copied_forward(tmp_path):
    """The toy gives old groups by `oldest`, and the driver copies the live records forward."""
    assert TestToy().run_program(tmp_path, random.Random(1), 60) > 0


def test_what_needs_a_small_store_is_skipped_without_one(tmp_path):
    class Without(StoreConformance):
        def make_small(self, path):
            return None

    for name in ("test_a_full_store_can_be_emptied", "test_old_messages_among_many_that_go", "test_a_full_store_under_an_engine"):
        with pytest.raises(unittest.SkipTest, match="make_small gives no store"):
            getattr(Without(), name)(tmp_path)
