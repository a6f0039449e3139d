"""What a damaged store lost, and what of the rest is doubtful: `check` and `repair` count it; nothing done comes back as new."""

import json
import os
import random
import shutil
import stat

import pytest

from tests.durability.unhurried import unhurried
from xump import Engine, always, deliver
from xump.cli import main as cli
from xump.errors import StoreCorrupt, StoreLocked
from xump.stores.lmdb import LmdbStore
from xump.stores.lmdb_content import META_MAGIC
from xump.stores.lmdb_pages import Pages
from xump.stores.ring import RingStore

STORES = {"ring": RingStore, "lmdb": LmdbStore}
OPTIONS = {"ring": {"segment_bytes": 1 << 16, "min_bytes": 1 << 18}, "lmdb": {}}
MESSAGES = 3000
MANY = 1 << 16


@pytest.fixture(params=STORES)
def kind(request):
    return request.param


@pytest.fixture
def path(kind, tmp_path):
    return str(tmp_path / f"orders.{kind}")


def data_file(path):
    return os.path.join(path, "data.mdb") if os.path.isdir(path) else path


def make(kind, path, acked, history_limit=None):
    """jobs: so many messages, of which the first were acked; other: three that nobody took. There are four groups, none so large
    that the store's thread writes it: where records lie in the file depends on the calls alone, not on the time."""
    with Engine() as engine:
        unhurried(engine.create_store("s", kind, path=path))
        engine.create_queue("jobs", store="s", history_limit=history_limit)
        engine.create_queue("other", store="s")
        messages = [(f"job.{n}", b"x" * 200) for n in range(1, MESSAGES + 1)]
        engine.publish_many("jobs", messages[: MESSAGES // 2])
        engine.sync()
        engine.publish_many("jobs", messages[MESSAGES // 2 :])
        engine.publish_many("other", [("o", b"y")] * 3)
        engine.sync()
        engine.create_selector("jobs", when=always, do=deliver("worker"), credit=100)
        for _ in range(acked // 100):
            engine.ack(engine.take(100))
        engine.sync()       # else the store's thread or `close` writes it, and `close` alone in one group with its own records


def pages_in_use(path):
    """How many pages an LMDB file has that are, or were, in use, and their size; behind them is room that it keeps."""
    with Pages(data_file(path)) as pages:
        return pages.meta.last + 1, pages.page_bytes


def zero(path, start, size):
    with open(data_file(path), "r+b") as file:
        file.seek(start)
        file.write(bytes(size))


def flip(path, text, before):
    """A bit so many bytes before a text, which is there once."""
    with open(data_file(path), "r+b") as file:
        data = file.read()
        assert data.count(text) == 1
        file.seek(data.index(text) - before)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def opened(kind, path, name=None):
    """Of jobs: what is ready, as it is taken, by id: whether it is said to be redelivered, and the count; and the history."""
    with Engine() as engine:
        engine.create_store("s", kind, path=path)
        jobs = engine.queues.get(name or next((other for other in engine.queues if other != "other"), "jobs"))
        if jobs is None:
            return {}, set()
        history = {message.id for message in jobs.browse(state="history")}
        assert jobs.ready + len(history) == sum(1 for _ in jobs.browse())
        with engine.building():
            engine.create_selector(jobs.name, when=always, do=deliver("worker"), credit=MANY)
        taken = {delivery.id: (delivery.redelivered, delivery.delivery_count) for delivery in engine.take(MANY)}
        engine.check()
        return taken, history


def repaired(kind, path):
    """The report, which is what check said, and what is there afterwards."""
    store = STORES[kind]
    checked = store.check(path)
    report = store.repair(path)
    assert report.remains == checked.remains
    assert report.lost == checked.lost
    assert store.check(path).damage == []
    left = report.remains.get(1)
    if left is None:        # no record of the queue is left
        assert report.lost and "jobs" not in {remains.name for remains in report.remains.values()}
        assert opened(kind, path) == ({}, set())
        return report, {}, set()
    taken, history = opened(kind, path, left.name)
    assert left.name in ("jobs", "recovered-1")
    assert (left.messages, left.history) == (len(taken) + len(history), len(history))
    return report, taken, history


@pytest.mark.parametrize("history_limit", [None, 0, 50])
@pytest.mark.parametrize("share", [0.5, 0.75, 0.95])
def test_what_was_done_does_not_come_back_as_new(kind, path, history_limit, share):
    """The end of the file is lost, and with it that messages were settled, or went into the history."""
    make(kind, path, MESSAGES, history_limit)
    file = data_file(path)
    if kind == "lmdb":
        count, page_bytes = pages_in_use(path)
        os.truncate(file, int(count * page_bytes * share))
    else:
        with open(file, "rb") as whole:
            used = len(whole.read().rstrip(b"\0"))
        zero(path, int(used * share), used)
    report, taken, history = repaired(kind, path)
    assert all(redelivered and count >= 2 for redelivered, count in taken.values())
    assert (report.remains[1].doubtful if 1 in report.remains else 0) == len(taken)
    assert not set(taken) & history


@pytest.mark.parametrize("acked", [0, 1000])
def test_lmdb_without_its_own_entry(tmp_path, acked):
    """Which lies at the end of the file as often as not. Whose the records are can be computed from them."""
    path = str(tmp_path / "orders.lmdb")
    make("lmdb", path, acked)
    with open(data_file(path), "r+b") as file:
        data = bytearray(file.read())
        at = data.find(META_MAGIC)
        while at >= 0:
            page = at // 4096 * 4096
            data[page : page + 4096] = bytes(4096)
            at = data.find(META_MAGIC, at)
        file.seek(0)
        file.write(data)
    with pytest.raises(StoreCorrupt, match="run: xump repair"):
        opened("lmdb", path)
    report, taken, _ = repaired("lmdb", path)
    assert "records say whose they are" in str(report.damage)
    assert len(taken) > MESSAGES - acked - 50       # less what shared the page
    assert all(redelivered for redelivered, _ in taken.values())
    assert report.remains[2].messages == 3


def test_what_nobody_took_is_new_after_a_record_was_lost(kind, path):
    """A bit of its head or of its content costs a message, which is counted; what it cannot have said is not doubted."""
    make(kind, path, 0)
    flip(path, b"job.1500" + b"x" * 200, 40)
    flip(path, b"job.2000" + b"x" * 200, -100)
    report, taken, _ = repaired(kind, path)
    left = report.remains[1]
    assert (left.lost, left.exact, left.doubtful) == (2, True, 0)
    assert set(taken) == set(range(1, MESSAGES + 1)) - {1500, 2000}
    # These were offered to the selector when the store was closed.
    assert [id for id, (redelivered, _) in taken.items() if redelivered] == list(range(1, 101))
    assert report.remains[2].lost == report.remains[2].doubtful == 0


def test_a_lost_part_is_counted(run, kind, path):
    """Messages in the history, of which a part is lost: they are counted by what the queue's books say, and none comes back."""
    make(kind, path, MESSAGES)
    size = 1 << 16
    with open(data_file(path), "rb") as file:
        at = file.read().index(b"job.900" + b"x" * 200)
    zero(path, at // 4096 * 4096, size)
    status, out, _ = run("check", path)
    assert status == 1
    report, taken, history = repaired(kind, path)
    left = report.remains[1]
    assert taken == {}
    assert (left.messages, left.exact, left.doubtful) == (len(history), True, 0)
    assert left.lost == MESSAGES - len(history) > size // 400
    assert report.lost >= left.lost
    assert (f"  queue 'jobs': {left.messages:,} messages are whole: 0 ready, {left.history:,} in the history; "
            f"{left.lost:,} are lost\n") in out
    assert f"; at least {report.lost:,} records are lost." in out
    assert "  1 other queue has all messages" in out


@pytest.fixture
def run(capsys):
    def run(*arguments):
        status = cli.main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return run


def test_a_lost_root_costs_nothing(run, tmp_path):
    """All records are found again beside the tree, and check says so before repair does it."""
    path = str(tmp_path / "orders")
    make("lmdb", path, 1000)
    with Pages(data_file(path)) as pages:
        zero(path, pages.meta.main.root * pages.page_bytes, pages.page_bytes)
        records = pages.meta.main.entries - 1
    status, out, _ = run("check", path)
    assert status == 1
    assert f"is damaged: 1 fault, beside {records:,} records that are whole.\n" in out
    assert f"{records} whole records are in pages that no sound page leads to\n" in out
    status, out, _ = run("repair", path)
    assert status == 0
    assert "was damaged, and is repaired: 1 fault.\n" in out
    taken, history = opened("lmdb", path)
    assert history == set(range(1, 1001))
    assert set(taken) == set(range(1001, MESSAGES + 1))
    assert [id for id, (redelivered, _) in taken.items() if redelivered] == list(range(1001, 1101))


def test_looking_at_what_is_left_of_a_ring(run, tmp_path):
    """A part in the middle and the end are lost: what is whole is shown as repair leaves it."""
    path = str(tmp_path / "orders")
    make("ring", path, 0)
    with open(path, "rb") as file:
        used = len(file.read().rstrip(b"\0"))
    zero(path, used // 2, 1 << 16)
    zero(path, used - 1000, 1000)
    before = stats_of(run, path)["queues"]
    shown = run("browse", path, "jobs")
    assert run("repair", path)[0] == 0
    status, out, err = run("browse", path, "jobs")
    assert (status, err, shown[1]) == (0, "", out)
    assert {name: numbers["ready"] for name, numbers in before.items()} == {
        name: numbers["ready"] for name, numbers in json.loads(run("stats", path, "--json")[1])["queues"].items()}


def test_a_damaged_page_is_not_looked_past(run, tmp_path):
    """Messages of an lmdb store are read by its map, which a damaged page makes dangerous."""
    path = str(tmp_path / "orders")
    make("lmdb", path, 0)
    with Pages(data_file(path)) as pages:
        zero(path, pages.meta.main.root * pages.page_bytes, pages.page_bytes)
    status, out, err = run("stats", path)
    assert (status, out) == (1, "")
    assert f"run: xump repair {path}\n" in err


def a_life(kind, path, choose):
    """What happened to the messages of jobs: the ids that were handed out, and those that were there in the end, on any page."""
    open_ones, number = [], 0
    handed = set()
    with Engine() as engine:
        engine.create_store("s", kind, path=f"{path}.live", **OPTIONS[kind])
        engine.create_queue("jobs", store="s", history_limit=choose.choice([None, 0, 50]))
        engine.create_selector("jobs", when=always, do=deliver("worker"), credit=choose.choice([10, 100]))
        for _ in range(choose.randrange(5, 40)):
            bodies = [choose.randbytes(choose.choice([0, 40, 72, 300, 3000])) for _ in range(choose.choice([1, 5, 60]))]
            engine.publish_many("jobs", [(f"job.{number + n}", body) for n, body in enumerate(bodies)])
            number += len(bodies)
            open_ones += engine.take(choose.randrange(80))
            handed |= {delivery.id for delivery in open_ones}
            choose.shuffle(open_ones)
            engine.ack([open_ones.pop() for _ in range(choose.randrange(len(open_ones) + 1))])
        engine.sync()
        there = {message.id for message in engine.queues["jobs"].browse()}
        if choose.random() < 0.4:       # as a crash leaves it
            (shutil.copytree if kind == "lmdb" else shutil.copy)(f"{path}.live", path)
    if not os.path.exists(path):
        os.rename(f"{path}.live", path)
    return handed, there


def harm(path, choose):
    with open(data_file(path), "r+b") as file:
        data = file.read()
        used = len(data.rstrip(b"\0"))
        for _ in range(choose.choice([1, 1, 2, 4])):
            at = choose.randrange(8192, used)
            what = choose.choice([bytes([data[at] ^ 16]), bytes(8), bytes(5000), bytes(1 << 15)])
            file.seek(at)
            file.write(what[: used - at])


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_damaged(kind, path, seed):
    """What had been handed out is not new; what is said to be lost is, and, if it is said so, no more than that."""
    choose = random.Random(seed)
    handed, there = a_life(kind, path, choose)
    harm(path, choose)
    try:
        report = STORES[kind].repair(path)
    except StoreCorrupt as error:
        assert "there is no entry of a store" in str(error)
        return
    if not report.damage:
        return
    taken, history = opened(kind, path)
    assert all(redelivered and count >= 2 for id, (redelivered, count) in taken.items() if id in handed)
    left = report.remains.get(1)
    if left is None:
        assert report.quarantine is None or not taken
        return
    assert (left.messages, left.history) == (len(taken) + len(history), len(history))
    missing = len(there - set(taken) - history)
    if left.lost is not None:
        assert left.lost <= missing
        assert left.lost == missing or not left.exact


@pytest.mark.parametrize("rest", [0, 1, 8, 15, 17, 100])
def test_a_file_cut_in_the_middle_of_a_page(tmp_path, rest):
    path = str(tmp_path / "orders")
    make("lmdb", path, 0)
    count, page_bytes = pages_in_use(path)
    os.truncate(data_file(path), (count - 20) * page_bytes + rest)
    assert LmdbStore.repair(path).damage
    assert LmdbStore.check(path).damage == []


def test_pages_with_the_same_fault_are_one_line(tmp_path):
    path = str(tmp_path / "orders")
    make("lmdb", path, MESSAGES)
    count, page_bytes = pages_in_use(path)
    os.truncate(data_file(path), count * 9 // 10 * page_bytes)
    damage = LmdbStore.check(path).damage
    (run,) = (one.what for one in damage if "is named" in one.what and "pages between" in one.what)
    assert int(run.split()[0]) > 10
    assert run.endswith(f"each is named, of {count * 9 // 10} pages")
    assert len(damage) < 10


def stats_of(run, path):
    """Of a damaged one."""
    status, out, err = run("stats", path, "--json")
    assert status == 1
    assert "is damaged, and damaged records are left out" in err
    return json.loads(out)


def test_a_queue_whose_record_is_lost_has_its_messages(run, kind, path):
    make(kind, path, 0)
    with open(data_file(path), "r+b") as file:
        data = file.read()
        file.seek(0)
        file.write(data.replace(b"jobs", b"jibs"))
    assert list(stats_of(run, path)["queues"]) == ["recovered-1", "other"]
    report = STORES[kind].repair(path)
    assert any("it is now called 'recovered-1'" in one.what for one in report.damage)
    assert report.remains[1].name == "recovered-1"
    with Engine() as engine:
        engine.create_store("s", kind, path=path)
        assert list(engine.queues) == ["recovered-1", "other"]
        assert engine.queues["recovered-1"].ready == MESSAGES


def test_what_opening_mends_needs_no_repair(run, tmp_path):
    """Only one of them is said: opening mends heads, repair takes out records."""
    path = str(tmp_path / "orders")
    make("ring", path, 0)
    zero(path, 40, 8)
    status, out, _ = run("check", path)
    assert status == 1
    assert f"Nothing is lost. Opening the store repairs it, and so does: xump repair {path}\n" in out
    assert "To take out" not in out
    flip(path, b"job.1500" + b"x" * 200, -100)
    status, out, _ = run("check", path)
    assert status == 1
    assert "opening the store" not in out
    assert f"To take out the damaged records and keep the others: xump repair {path}\n" in out


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_what_is_put_aside_is_for_whom_the_store_is(kind, path, mode):
    make(kind, path, 0)
    os.chmod(data_file(path), mode)
    flip(path, b"job.1500" + b"x" * 200, -100)
    report = STORES[kind].repair(path)
    assert stat.S_IMODE(os.stat(report.quarantine).st_mode) == mode
    assert stat.S_IMODE(os.stat(data_file(path)).st_mode) == mode
    STORES[kind].compact(path)
    assert stat.S_IMODE(os.stat(data_file(path)).st_mode) == mode


def test_both_say_the_same_of_what_is_no_store(kind, path):
    """A directory for a file, a file for a directory; and a store that is open already."""
    if kind == "ring":
        os.mkdir(path)
    else:
        shutil.copy(__file__, path)
    for use in (STORES[kind].check, STORES[kind].view, lambda path: STORES[kind]("s", path=path)):
        with pytest.raises(StoreCorrupt, match="is a directory" if kind == "ring" else "is a file"):
            use(path)
    store = STORES[kind]("s", path=f"{path}.other")
    try:
        with pytest.raises(StoreLocked, match=f"open in this process already, pid {os.getpid()}.*; a store is open once"):
            STORES[kind]("s", path=f"{path}.other")
    finally:
        store.close()
