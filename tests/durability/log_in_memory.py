"""Durable stores in memory: a log that knows what was synced, and one that keeps records by key. What a disk would keep is in
`LOGS`, by path."""

from xump import Engine
from xump.store_types import register_store
from xump_ext import records

SALT = 7
LOGS = {}


class Shelf:
    """A store in memory: a list of groups, and how many of them are synced."""

    type = "log shelf"
    durable = True
    group_bytes = 1 << 20
    cut = 0

    def __init__(self, name, *, path, durability="group", bytes_max=1 << 40):
        self.name, self.path, self.durability, self.group_ms, self.salt = name, path, durability, 1e9, SALT
        self.log = LOGS.setdefault(path, [[], 0])       # what is written after a test has put another one there is lost
        self.groups, self.synced = self.log
        self.bytes_max = bytes_max
        self.end = sum(map(len, self.groups))

    def scan(self):
        data = b"".join(self.groups)
        assert records.whole_groups(data, 0, SALT)[2] == "whole"
        if data:
            yield 0, data

    def write(self, group):
        assert group.position == self.end
        self.groups.append(bytes(group))
        self.end += len(group)

    def sync(self):
        self.log[1] = len(self.groups)

    def fetch(self, queue, id, position):
        return position, b"".join(self.groups)[position : position + 4096]

    def room(self):
        return self.bytes_max - self.end

    def oldest(self, demand):
        return None

    def release(self, position):
        raise AssertionError("nothing was given")

    def close(self):
        pass


class KeyShelf(Shelf):
    """A store in memory that finds records by key, as `lmdb` does: it keeps the last MARK of a message."""

    type = "key shelf"

    def __init__(self, name, *, path, durability="group"):
        self.name, self.path, self.durability, self.group_ms, self.salt = name, path, durability, 1e9, SALT
        self.log = LOGS.setdefault(path, [{}, 0])
        self.records, self.end = self.log

    def scan(self):
        yield None, b"".join(record for _, record in sorted(self.records.items()))

    def write(self, group):
        puts, gone = records.items(group)
        self.records.update((key, bytes(record)) for key, record in puts)
        for first, last in gone:
            for key in [key for key in self.records if first <= key <= last]:
                del self.records[key]
        self.log[1] = self.end = self.end + len(group)

    def sync(self):
        """A record counts once it is written: no test of this store loses one."""

    def fetch(self, queue, id, position):
        return position, self.records[records.entry_key(queue, id)]

    def room(self):
        return 1 << 40


register_store("log shelf", Shelf)
register_store("key shelf", KeyShelf)


def two_shelves(**options):
    """An engine over two of them, `left` and `right`."""
    engine = Engine()
    for name in ("left", "right"):
        engine.create_store(name, "log shelf", path=name, **options)
    return engine
