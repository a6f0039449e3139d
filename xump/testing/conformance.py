"""The conformance suite: tests that every back-end must pass.

    from xump.testing import StoreConformance

    class TestMine(StoreConformance):
        def make(self, path):
            return MyStore("mine", path=path)

That is a file of tests for pytest. The suite drives the store by the contract alone (`xump_ext.store`), with groups of records
that it makes itself, and compares what comes back with a model that is a few dicts; then an engine runs over it. `make_small`, if
given, makes a store that is soon full: without it, what happens then is not tried.
"""

from __future__ import annotations

import json
import os
import random
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xump.errors import ForkedError, StoreCorrupt, StoreFailed, StoreFull, StoreLocked
from xump.testing import records_by_hand as hand
from xump.testing.driver import Driver, Model, Program, content, position_of, records_in, same
from xump.testing.engine import EngineConformance
from xump_ext.records import kinds
from xump_ext.store import DURABILITIES, Demand


@contextmanager
def raises(*errors: type[BaseException], say: str = "") -> Iterator[None]:
    try:
        yield
    except errors as error:
        assert say in str(error), f"the error should say {say!r}: {error}"
    else:
        raise AssertionError(f"no {' or '.join(error.__name__ for error in errors)} was raised")


@contextmanager
def disk_says_no() -> Iterator[None]:
    """No file of this process can be written to, as if the disk was full: writes raise OSError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def everything(folder: Path) -> dict[str, bytes | None]:
    """Every file in a folder, and what is in it; None for folders."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def in_child(call: Callable[[], Any]) -> Any:
    """The result of `call` in a forked child, or the text of its exception."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            try:
                answer = call()
            except BaseException as error:
                answer = f"{type(error).__name__}: {error}"
            os.write(writer, json.dumps(answer).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0, "the child died"
    return json.loads(text)


class StoreConformance(EngineConformance):
    """The tests of a back-end: derive a class from this one, and override `make`."""

    seeds = range(8)
    """Random programs."""
    program_steps = 60
    big_bytes = 64 << 20
    """The size of the largest body that is tried."""
    path_name = "store"

    def make(self, path: str) -> Any:
        """An open store at that path, which it makes if nothing is there."""
        raise NotImplementedError("override make: def make(self, path): return MyStore('mine', path=path)")

    def make_small(self, path: str) -> Any | None:
        """Return an open store at `path` that holds only a few MiB; None skips the tests of a full store."""
        return None

    # ---- how the tests go about it

    def path(self, tmp_path: Path) -> str:
        return str(tmp_path / self.path_name)

    @contextmanager
    def opened(self, tmp_path: Path, model: Model | None = None, small: bool = False) -> Iterator[Driver]:
        """A driver of the store; what is in the store must be what the model says."""
        store: Any = self.make_small(self.path(tmp_path)) if small else self.make(self.path(tmp_path))
        try:
            driver = Driver(store)
            if model is not None:
                same(store.salt, model.salt, "the salt")
                same(driver.model.says(), model.says(), "after opening again")
                driver.check_fetches(sorted(model.entries)[:: max(1, len(model.entries) // 100)])
            yield driver
        finally:
            store.close()

    def a_few(self, driver: Driver, messages: int = 10, body: bytes = b"body") -> None:
        driver.write(hand.queue(1, "jobs", limit=7, dead_letter="dead"), hand.state(1, 1),
                     hand.queue(2, "größer", auto_delete=True), hand.state(2, 1))
        driver.write(*(hand.enter(1, id, f"a.{id}", body, timestamp=id) for id in range(1, messages + 1)),
                     hand.state(1, messages + 1))
        driver.sync()

    # ---- opening and closing

    def test_an_empty_store(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            store = driver.store
            assert driver.model.says() == {}
            assert isinstance(type(store).type, str) and type(store).type and type(store).durable is True
            assert isinstance(store.name, str) and store.durability in DURABILITIES and store.group_ms >= 0
            assert 0 <= store.salt < 2**32 and store.cut == 0
            assert isinstance(store.stats(), dict) and json.dumps(store.stats())
            assert isinstance(store.room(), int) and store.room() > 0
            with raises(KeyError):
                store.fetch(1, 1, 0)
        with self.opened(tmp_path, driver.model) as again:
            assert again.model.says() == {}

    def test_two_stores_have_their_own_salts(self, tmp_path: Path) -> None:
        salts = set()
        for name in "abc":
            (tmp_path / name).mkdir()
            with self.opened(tmp_path / name) as driver:
                salts.add(driver.store.salt)
        assert len(salts) == 3

    def test_what_was_written_is_there_again(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            self.a_few(driver)
            driver.check_fetches()
        for _ in range(3):
            with self.opened(tmp_path, driver.model) as again:
                assert len(again.model.entries) == 10

    def test_closing_is_idempotent(self, tmp_path: Path) -> None:
        store = self.make(self.path(tmp_path))
        Driver(store)
        store.close()
        store.close()
        with self.opened(tmp_path):
            pass

    def test_one_process_owns_it_once(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            self.a_few(driver)
            with raises(StoreLocked, say=str(os.getpid())):
                self.make(self.path(tmp_path))
            told = in_child(lambda: self.make(self.path(tmp_path)))
            assert told.startswith("StoreLocked") and str(os.getpid()) in told, told
            with raises(StoreLocked):
                type(driver.store).check(self.path(tmp_path))
            driver.write(hand.settle(1, 1))
        with self.opened(tmp_path, driver.model):
            pass

    def test_the_child_has_no_part_in_it(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            self.a_few(driver)
            batch = hand.batch(hand.Log(driver.store.salt, driver.log.end), hand.settle(1, 1))

            def child() -> list[str]:
                told = []
                for call in (lambda: driver.store.write(batch), driver.store.sync, lambda: driver.store.fetch(1, 1, 0)):
                    try:
                        told.append(f"no error: {call()!r}")
                    except ForkedError:
                        told.append("ForkedError")
                driver.store.close()
                return told

            assert in_child(child) == ["ForkedError"] * 3
            driver.write(hand.settle(1, 1))
            driver.sync()
            driver.check_fetches()
        with self.opened(tmp_path, driver.model):
            pass

    # ---- what is kept

    def test_positions_go_on(self, tmp_path: Path) -> None:
        ends = []
        model = None
        for round in range(4):
            with self.opened(tmp_path, model) as driver:
                ends.append(driver.store.end)
                if round == 0:
                    self.a_few(driver)
                else:
                    driver.write(hand.settle(1, round, 1))
                ends.append(driver.log.end)
                model = driver.model
        assert ends == sorted(ends), f"positions went back: {ends}"

    def test_random_programs(self, tmp_path: Path) -> None:
        for seed in self.seeds:
            print(f"seed {seed}")
            (tmp_path / str(seed)).mkdir()
            self.run_program(tmp_path / str(seed), random.Random(seed), self.program_steps)

    def run_program(self, tmp_path: Path, choose: random.Random, steps: int, small: bool = False) -> int:
        """Groups at random, closed and opened in between; returns how often something was moved."""
        program, model, carried = Program(choose), None, 0
        while steps > 0:
            with self.opened(tmp_path, model, small) as driver:
                for _ in range(choose.randrange(1, 20)):
                    records = program.group()
                    driver.write(*records)
                    if choose.random() < 0.3:
                        driver.sync()
                    if choose.random() < 0.3:
                        driver.check_fetches(choose.sample(sorted(driver.model.entries), min(3, len(driver.model.entries))))
                    steps -= 1
                model, carried = driver.model, carried + driver.carried
        with self.opened(tmp_path, model, small):
            pass
        return carried

    def test_fetching(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            self.a_few(driver, 300)
            driver.write(hand.enter(2, 1, body=b"other queue"), hand.settle(1, 5), hand.settle(1, 300))
            driver.check_fetches()
            for queue, id in ((1, 5), (1, 300), (1, 301), (2, 2), (7, 1), (1, 2**63)):
                with raises(KeyError):
                    driver.store.fetch(queue, id, 0)
        with self.opened(tmp_path, driver.model) as again:
            again.check_fetches()

    def test_fetching_in_order_and_what_comes_along(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            self.a_few(driver, 3000, bytes(100))
            seen: dict[tuple[int, int], bytes] = {}
            for id in range(1, 3001):
                if (1, id) not in seen:
                    seen = {(queue, number): record for queue, number, record in driver.fetch(1, id)}
                same(content(seen[1, id]), content(driver.model.entries[1, id]), f"message {id}")

    def test_what_is_not_synced_can_be_fetched(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            driver.write(hand.queue(1, "q"), hand.state(1, 1), hand.enter(1, 1, body=b"new"))
            driver.check_fetches()

    def test_sizes(self, tmp_path: Path) -> None:
        """Contents of every size near those at which something may change."""
        with self.opened(tmp_path) as driver:
            driver.write(hand.queue(1, "q"), hand.state(1, 1))
            choose = random.Random(1)
            sizes = [size + near for size in (0, 512, 2000, 4096, 8192, 65536) for near in range(-24, 25, 8) if size + near >= 0]
            sizes += [choose.randrange(20000) for _ in range(50)]
            for id, size in enumerate(sizes, 1):
                driver.write(hand.enter(1, id, body=choose.randbytes(size)))
            driver.check_fetches()
        with self.opened(tmp_path, driver.model) as again:
            again.check_fetches()

    def test_a_big_message(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            body = random.Random(2).randbytes(1 << 20) * (self.big_bytes >> 20)
            driver.write(hand.queue(1, "q"), hand.state(1, 1), hand.enter(1, 1, body=b"small"), hand.enter(1, 2, body=body),
                         hand.enter(1, 3, body=b"small"))
            driver.sync()
            driver.check_fetches()
        with self.opened(tmp_path, driver.model) as again:
            again.check_fetches()
            again.write(hand.settle(1, 2))
        with self.opened(tmp_path, again.model) as last:
            assert sorted(last.model.entries) == [(1, 1), (1, 3)]

    def test_many_queues(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            driver.write(*(record for number in range(1, 301)
                           for record in (hand.queue(number, f"Straße {number} ☃", history_limit=None), hand.state(number, 2))),
                         *(hand.enter(number, 1, f"é{number}", body=b"x" * number) for number in range(300, 0, -1)))
            driver.write(hand.queue(2**32 - 1, "last"), hand.state(2**32 - 1, 2**64 - 1), hand.enter(2**32 - 1, 2**64 - 2))
            driver.check_fetches()
        with self.opened(tmp_path, driver.model) as again:
            again.check_fetches()

    def test_queues_come_and_go(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            self.a_few(driver)
            driver.write(hand.settle(1, 1, 10), hand.gone(1))
            driver.write(hand.queue(3, "jobs"), hand.state(3, 1), hand.enter(3, 1))
            driver.write(hand.queue(2, "größer", limit=1), hand.state(2, 5))
        with self.opened(tmp_path, driver.model) as again:
            assert sorted(again.model.queues) == [2, 3] and sorted(again.model.entries) == [(3, 1)]

    def test_marks_and_runs(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            self.a_few(driver, 1000)
            driver.write(*(hand.mark(1, id, 1, kinds.REDELIVERED) for id in range(1, 601)))
            driver.write(*(hand.mark(1, id, 2, kinds.HISTORIC) for id in range(1, 500, 3)), hand.settle(1, 1, 300, marked=True))
            # In one group: entered, marked and settled.
            driver.write(hand.enter(1, 1001), hand.mark(1, 1001, 1), hand.settle(1, 1001, marked=True), hand.enter(1, 1002),
                         hand.settle(1, 400, 200, marked=True))
        with self.opened(tmp_path, driver.model) as again:
            assert min(again.model.entries) == (1, 301) and (1, 1001) not in again.model.entries
            again.write(hand.settle(1, 301, 99, marked=True), hand.settle(1, 600, marked=True), hand.settle(1, 601, 400),
                        hand.settle(1, 1002))
        with self.opened(tmp_path, again.model) as last:
            assert not last.model.entries

    def test_fetching_while_it_is_written(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            self.a_few(driver, 200, bytes(300))
            stop, wrong = threading.Event(), []

            def read() -> None:
                choose = random.Random(3)
                try:
                    while not stop.is_set():
                        id = choose.randrange(1, 201)
                        position = position_of(driver.model.entries[1, id])
                        try:
                            _, data = driver.store.fetch(1, id, position)
                        except (KeyError, StoreCorrupt):    # it was carried forward meanwhile; the engine keeps that out
                            if position_of(driver.model.entries[1, id]) == position:
                                raise
                            continue
                        first = next(records_in(data, driver.model.salt))
                        assert first[2:4] == (1, id)
                        assert driver.store.room() >= 0
                        stop.wait(0.0005)       # else they leave the writer no turn
                except BaseException as error:
                    wrong.append(error)

            readers = [threading.Thread(target=read) for _ in range(3)]
            for reader in readers:
                reader.start()
            try:
                for id in range(1, 101):
                    driver.write(*(hand.enter(2, 100 * id + at, body=bytes(at * 10)) for at in range(50)))
                    driver.write(hand.settle(2, 100 * id, 50))
                    driver.sync()
            finally:
                stop.set()
                for reader in readers:
                    reader.join()
            assert not wrong, wrong[0]
        with self.opened(tmp_path, driver.model):
            pass

    # ---- what goes wrong

    def test_a_write_that_raises_leaves_nothing_and_poisons(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            self.a_few(driver)
            refused = driver.batch(*(hand.enter(1, id, body=bytes(10_000)) for id in range(11, 100)), hand.settle(1, 1, 10))
            with disk_says_no(), raises(StoreFailed, OSError):
                driver.store.write(refused)
                driver.store.sync()
            for _ in range(2):
                with raises(StoreFailed):
                    driver.store.write(driver.batch(hand.settle(1, 1)))
                with raises(StoreFailed):
                    driver.store.sync()
        with self.opened(tmp_path, driver.model) as again:
            again.write(hand.enter(1, 11))
            again.sync()
        with self.opened(tmp_path, again.model):
            pass

    def test_what_is_no_group_is_refused(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            self.a_few(driver)
            with raises(TypeError, AttributeError):
                driver.store.write(None)
            driver.write(hand.settle(1, 1))
        with self.opened(tmp_path, driver.model):
            pass

    def test_a_full_store_can_be_emptied(self, tmp_path: Path) -> None:
        store = self.small_store(tmp_path)
        store.close()
        model = None
        for round in range(3):
            with self.opened(tmp_path, model, small=True) as driver:
                if round == 0:
                    driver.write(hand.queue(1, "q"), hand.state(1, 1))
                first, id = driver.room(), 1000 * round
                sizes = random.Random(round)
                while True:
                    batch = [hand.enter(1, id + at, body=sizes.randbytes(sizes.choice((10, 100, 3000, 9000))))
                             for at in range(1, 4)]
                    lengths = [len(hand.packed(record, 0, 0)) for record in batch]
                    if driver.room(max(lengths)) < 100 + sum(lengths):
                        break
                    driver.write(*batch)
                    id += len(batch)
                assert driver.room() < first, "room does not get less"
                driver.sync()
            # Opened again, it is as full; each message is settled by a group of its own, in no order.
            with self.opened(tmp_path, driver.model, small=True) as driver:
                ids = sorted(driver.model.entries)
                random.Random(round).shuffle(ids)
                for _, one in ids[: len(ids) if round == 2 else len(ids) * 3 // 4]:
                    driver.write(hand.settle(1, one), hand.state(1, id + 1, settled=one))
                driver.sync()
                assert driver.room() > first // 4, f"room is {driver.room()} after all was settled; it was {first}"
                model = driver.model

    def test_old_messages_among_many_that_go(self, tmp_path: Path) -> None:
        """Far more goes through a small store than there is room in it, while some stays."""
        store = self.small_store(tmp_path)
        room = store.room()
        store.close()
        with self.opened(tmp_path, small=True) as driver:
            driver.write(hand.queue(1, "old"), hand.state(1, 1), hand.queue(2, "new"), hand.state(2, 1))
            driver.write(*(hand.enter(1, id, body=bytes(1000)) for id in range(1, 21)), hand.mark(1, 3, 2))
            written, id = 0, 1
            while written < 4 * room:
                driver.write(*(hand.enter(2, id + at, body=bytes(2000)) for at in range(20)), hand.state(2, id + 20))
                driver.write(hand.settle(2, id, 20))
                written, id = written + 40_000, id + 20
            driver.check_fetches()
        with self.opened(tmp_path, driver.model, small=True) as again:
            assert len(again.model.entries) == 20

    # ---- maintenance

    def test_a_store_without_damage(self, tmp_path: Path) -> None:
        path = self.path(tmp_path)
        with self.opened(tmp_path) as driver:
            self.a_few(driver, 500, bytes(500))
            driver.write(hand.settle(1, 100, 300), hand.mark(1, 1, 1))
        kind, told = type(driver.store), []
        for tool in (kind.check, kind.repair, kind.compact, kind.check):
            report = tool(path, lambda done, all: told.append((done, all)))
            assert report.damage == [] and report.quarantine is None and report.cut == 0, f"{tool.__name__}: {report}"
            assert report.records >= len(driver.model.says()) and report.bytes > 0, f"{tool.__name__}: {report}"
            with self.opened(tmp_path, driver.model):
                pass
        assert all(0 <= done <= all for done, all in told), "progress(done, all) goes beyond all"

    def test_tools_where_no_store_is(self, tmp_path: Path) -> None:
        store = self.make(str(tmp_path / "other"))
        store.close()
        (tmp_path / "file").write_bytes(b"something else")
        (tmp_path / "directory").mkdir()
        for name in ("nothing", "file", "directory"):
            for tool in (type(store).check, type(store).repair, type(store).compact):
                with raises(StoreCorrupt):
                    tool(str(tmp_path / name))
        assert sorted(os.listdir(tmp_path)) == sorted(["directory", "file", *(n for n in os.listdir(tmp_path) if "other" in n)])
        assert os.listdir(tmp_path / "directory") == [] and (tmp_path / "file").read_bytes() == b"something else"

    def test_recognising(self, tmp_path: Path) -> None:
        store = self.make(self.path(tmp_path))
        kind = type(store)
        assert kind.recognises(self.path(tmp_path)), "an open store, with nothing in it, is not recognised"
        store.close()
        with self.opened(tmp_path) as driver:
            self.a_few(driver)
            assert kind.recognises(self.path(tmp_path)), "an open store is not recognised"
        (tmp_path / "file").write_bytes(b"something else")
        (tmp_path / "empty").touch()
        (tmp_path / "directory").mkdir()
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "file").write_bytes(b"something else")
        before = everything(tmp_path)
        assert kind.recognises(self.path(tmp_path)), "a store is not recognised"
        for name in ("nothing", "file", "empty", "directory", "folder", "file/nothing"):
            assert not kind.recognises(str(tmp_path / name)), f"{name} is taken for a store"
        assert everything(tmp_path) == before, "recognising changed something"

    def test_looking_changes_nothing(self, tmp_path: Path) -> None:
        with self.opened(tmp_path) as driver:
            self.a_few(driver, 300, bytes(500))
            driver.write(hand.settle(1, 100, 100), hand.mark(1, 1, 1))
            with raises(StoreLocked, say=str(os.getpid())):
                type(driver.store).view(self.path(tmp_path))
        kind, path = type(driver.store), self.path(tmp_path)
        before = everything(tmp_path)
        kind.check(path)
        assert everything(tmp_path) == before, "check changed something"
        for _ in range(2):
            self.look(kind, path, driver.model)
            assert everything(tmp_path) == before, "looking changed something"
        for name in ("nothing", "other"):
            with raises(StoreCorrupt):
                kind.view(str(tmp_path / name)).close()
            assert everything(tmp_path) == before, f"looking at {name}, which is not there, left something"
        with self.opened(tmp_path, driver.model):
            pass

    def test_looking_at_what_a_killed_process_left(self, tmp_path: Path) -> None:
        path = self.path(tmp_path)
        with self.opened(tmp_path) as driver:
            self.a_few(driver)
            kind = type(driver.store)

        def child() -> None:
            with self.opened(tmp_path) as driver:
                driver.write(hand.enter(1, 11, body=b"last"), hand.settle(1, 1))
                driver.sync()
                os._exit(0)

        pid = os.fork()
        if pid == 0:
            try:
                child()
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0, "the child could not write"
        before = everything(tmp_path)
        store = kind.view(path)
        try:
            seen = Driver(store)
            assert sorted(seen.model.entries) == [(1, id) for id in range(2, 12)]
            seen.check_fetches()
        finally:
            store.close()
        assert everything(tmp_path) == before, "looking changed something"
        with self.opened(tmp_path, seen.model):
            pass

    def look(self, kind: Any, path: str, model: Model) -> None:
        """Readers see what the model says, also when something was written, which is forgotten."""
        store = kind.view(path)
        try:
            driver = Driver(store)
            same(driver.model.says(), model.says(), "what is seen")
            driver.check_fetches()
            store.write(driver.batch(hand.settle(1, 1), hand.enter(1, 1000, body=b"forgotten")))
            store.sync()
            assert store.oldest(Demand(0, 0, 0, 0)) is None and store.room() > 0
            with raises(StoreLocked):
                self.make(path)
        finally:
            store.close()

    def test_making_one_on_a_full_disk_leaves_nothing(self, tmp_path: Path) -> None:
        with disk_says_no(), raises(StoreFull, StoreFailed, OSError):
            self.make(self.path(tmp_path)).close()
        assert os.listdir(tmp_path) == [], f"left over: {os.listdir(tmp_path)}"
        with self.opened(tmp_path):
            pass
