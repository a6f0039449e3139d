"""A queue that was deleted while the end of it waits for another store: a crash brings it back as it was last."""

import pytest

from tests.durability.log_in_memory import LOGS, Shelf
from tests.durability.two_stores import commit
from xump import INFINITE, Engine, always, move_to
from xump.store_types import register_store


class SweptShelf(Shelf):
    """`old[path]`: so many of its oldest groups are to be copied forward; `begins[path]`: where the log begins then."""

    old, begins = {}, {}

    def oldest(self, demand):
        del demand
        if self.path not in self.old:
            return None
        data = b"".join(self.groups[:self.old.pop(self.path)])
        return 0, len(data), memoryview(data)

    def release(self, position):
        self.begins[self.path] = position

    def scan(self):
        data = b"".join(self.groups)
        yield self.begins.get(self.path, 0), data[self.begins.get(self.path, 0):]

    def room(self):
        return 1 << 40


register_store("swept shelf", SweptShelf)


@pytest.fixture(autouse=True)
def fresh():
    for kept in (LOGS, SweptShelf.old, SweptShelf.begins):
        kept.clear()


def opened(suffix=""):
    engine = Engine()
    for name in "lr":
        engine.create_store(name, "swept shelf", path=name + suffix)
    return engine


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_leaving_queue_has_its_last_state_also_in_a_cleaned_log(is_cleaned):
    with opened() as engine, engine.building():
        for name, store in ("a", "l"), ("b", "r"), ("c", "l"):
            engine.create_queue(name, store=store)
    groups = len(LOGS["l"][0])
    with opened() as engine:
        with engine.building():
            engine.create_selector("a", when=always, do=move_to("b"), credit=INFINITE)
        engine.sync()
        for number in range(5):
            engine.publish("c", f"c{number}")
            engine.get("c").ack()
        engine.sync()
        engine.publish("a", "m")        # on its way to `r`, which is not synced
        engine.delete_queue("c")
        if is_cleaned:
            SweptShelf.old["l"] = groups
        commit(engine, "l")
        commit(engine, "l")
        engine.check()
        for name in "lr":
            written, synced = LOGS[name]
            LOGS[name + " after"] = [list(written[:synced]), synced]
            SweptShelf.begins[name + " after"] = SweptShelf.begins.get(name, 0)
        with opened(" after") as crashed:
            assert crashed.stats()["queues"]["c"]["entered"] == 5
            with crashed.building():
                pass
            assert crashed.publish("c", "new") == 6
