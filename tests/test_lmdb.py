"""The store `lmdb`."""

from xump.stores.lmdb import LmdbStore
from xump.testing import StoreConformance


class TestLmdb(StoreConformance):
    def make(self, path):
        return LmdbStore("mine", path=path)

    def make_small(self, path):
        return LmdbStore("mine", path=path, max_bytes=1 << 20)
