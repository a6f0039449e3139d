"""The part of the conformance suite that runs an engine over the store: what a program sees of it, and what a crash leaves."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any
from unittest import SkipTest

from xump import INFINITE, Engine, StoreFull, always, copy_to, deliver, discard, match, move_to
from xump.store_types import register_store, store_types


class EngineConformance:
    """For `StoreConformance`, which knows how the store is made."""

    path_name: str

    def make(self, path: str) -> Any:
        raise NotImplementedError

    def make_small(self, path: str) -> Any | None:
        raise NotImplementedError

    def path(self, tmp_path: Path) -> str:
        raise NotImplementedError

    def small_store(self, tmp_path: Path) -> Any:
        """The store of `make_small`; without one the test is skipped."""
        store = self.make_small(self.path(tmp_path))
        if store is None:
            raise SkipTest("make_small gives no store that holds only a few MiB")
        return store

    def engine(self, tmp_path: Path, small: bool = False) -> Engine:
        """One with the store under the name "store"; a type of store is registered for each class of tests."""
        type_name = f"{type(self).__module__}.{type(self).__qualname__} {id(type(self))}{' small' * small}"
        if type_name not in store_types():
            make = self.make_small if small else self.make
            register_store(type_name, lambda name, path: make(path))
        engine = Engine()
        engine.create_store("store", type_name, path=self.path(tmp_path))
        return engine

    def build(self, engine: Engine) -> None:
        """in ── MOVE ── work ── DELIVER, with copies of some."""
        with engine.building():
            engine.create_queue("copies", store="store")
            engine.create_queue("work", store="store", history_limit=2, limit=50, delivery_limit=9, dead_letter="copies")
            engine.create_queue("in", store="store")
            engine.create_selector("in", when=match("eq", "copy"), do=copy_to("copies"))
            engine.create_selector("in", when=always, do=move_to("work"), credit=INFINITE)
            engine.create_selector("work", when=always, do=deliver("d"), credit=5)

    def test_an_engine_over_it(self, tmp_path: Path) -> None:
        with self.engine(tmp_path) as engine:
            self.build(engine)
            for n in range(10):
                engine.publish("in", "copy" if n % 2 else "plain", b"%d" % n, {"n": n}, reply_to="r", message_id=f"m{n}")
            engine.sync()
            assert [engine.queues[name].durable_id for name in ("in", "work", "copies")] == [10, 10, 5]
            first, second, third = engine.take(3)
            first.ack()
            second.ack()
            third.nack()
            engine.check()
            middle = engine.queues["work"].fetch(6)
        assert middle is not None
        with self.engine(tmp_path) as engine:
            work = engine.queues["work"]
            assert (work.held, work.limit, work.history_limit, work.delivery_limit) == (True, 50, 2, 9)
            assert work.dead_letter == "copies"
            assert (work.ready, work.outstanding, work.history, work.durable_id) == (8, 0, 2, 10)
            assert [message.id for message in work.browse(state="history")] == [1, 2]
            assert [message.body for message in engine.queues["copies"].browse()] == [b"1", b"3", b"5", b"7", b"9"]
            since = datetime.datetime.fromtimestamp(middle.timestamp // 1000 / 1e6, datetime.UTC)
            assert middle.id in [message.id for message in work.browse(since)]
            self.build(engine)
            engine.check()
            deliveries = engine.take(20)
            assert [(one.id, one.redelivered) for one in deliveries][:3] == [(3, True), (4, True), (5, True)]
            assert deliveries[0].delivery_count == 2
            assert [(m.address, m.body, dict(m.headers), m.reply_to, m.message_id) for m in [deliveries[1].message]] == [
                ("copy", b"3", {"n": 3}, "r", "m3")]
            engine.ack(deliveries)
            assert engine.publish("in") == 11 and engine.delete_queue("copies")
            engine.check()
        with self.engine(tmp_path) as engine:
            assert sorted(engine.queues) == ["in", "work"]

    def test_a_crash_of_an_engine_over_it(self, tmp_path: Path) -> None:
        """Synced messages are there, settled ones are not; of those that came later: a beginning, whole calls."""
        for number in range(5):
            child = os.fork()
            if child == 0:
                try:
                    engine = self.engine(tmp_path)
                    self.build(engine)
                    engine.publish_many("in", [("copy", b"%d" % number)] * 4)
                    engine.ack(engine.take(2))
                    engine.sync()
                    for _ in range(number):
                        engine.publish_many("in", [("plain", b"later")] * 3)
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            with self.engine(tmp_path) as engine:
                engine.check()
                bodies = [message.body for message in engine.queues["work"].browse(state="ready")]
                assert bodies.count(b"%d" % number) == 2 and engine.queues["in"].ready == 0
                assert len(bodies) - 2 in range(0, 3 * number + 1, 3), f"{len(bodies)} messages after crash {number}"
                assert engine.queues["copies"].ready == 4 * (number + 1)
                engine.queues["work"].purge()

    def test_a_full_store_under_an_engine(self, tmp_path: Path) -> None:
        store = self.small_store(tmp_path)
        store.close()
        with self.engine(tmp_path, small=True) as engine:
            queue = engine.create_queue("q", store="store")
            held = 0
            try:
                while True:
                    engine.publish("q", body=bytes(9000))
                    held += 1
            except StoreFull as error:
                assert "'q'" in str(error)
            assert queue.ready == held > 10
            engine.check()
            engine.create_selector("q", when=always, do=discard)
            engine.sync()
            engine.check()
            assert queue.ready == 0 and engine.publish("q", body=bytes(9000)) == held + 1
