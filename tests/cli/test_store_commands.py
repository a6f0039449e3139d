"""The commands for stores on disk: what they say, their exit status, and that those which only look change no byte."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import lmdb
import pytest

from tests.stores.toy_store import ToyStore
from xump import Engine, always, deliver, register_store
from xump.cli import main as cli
from xump import store_types as store
from xump._queue_properties import QUEUE_DEFAULTS
from xump.cli import store_report
from xump.store_types import types_of
from xump.stores.lmdb_content import META_KEY
from xump.stores.ring_file import COPY_AT, SUPERBLOCK, VERSION, Head
from xump.testing.conformance import everything

KINDS = ("ring", "lmdb")
OPTIONS = {"ring": {"segment_bytes": 1 << 16, "min_bytes": 1 << 18}, "lmdb": {}, "toy": {}}
LOOKING = (["check"], ["stats"], ["stats", "--json"], ["browse", "jobs"])
COMMANDS = (*LOOKING, ["repair"], ["compact"])


@pytest.fixture(autouse=True)
def a_plug_in(monkeypatch):
    monkeypatch.setattr(store, "_registered", dict(store._registered))
    register_store("toy", ToyStore)


@pytest.fixture
def run(capsys):
    def run(*arguments):
        try:
            status = cli.main([str(argument) for argument in arguments])
        except SystemExit as exit:
            status = exit.code
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run


def on(path, command):
    """The words of a command line about that store."""
    return [command[0], path, *command[1:]]


def fill(kind, path, messages=20, clock=lambda: 1_700_000_000_123_456_789):
    """jobs: `messages`, of which two were handed out and one is in the history; dead: one with everything in it."""
    with Engine(clock=clock) as engine:
        engine.create_store("s", kind, path=str(path), **OPTIONS[kind])
        engine.create_queue("jobs", store="s", limit=1000, history_limit=3, dead_letter="dead")
        engine.create_queue("dead", store="s", auto_delete=True, delivery_limit=5)
        numbers = range(1, messages + 1)
        engine.publish_many("jobs", [(f"resize.{n}", b"cat%d.png" % n, {"n": n, "what": "a b"}) for n in numbers])
        engine.publish("dead", "", b"\0\xff", {"nan": float("nan"), "raw": b"\1"}, reply_to="me", message_id="m")
        engine.create_selector("jobs", when=always, do=deliver("worker"), credit=2)
        engine.take(1)[0].ack()
    return str(path)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def path(kind, tmp_path):
    return fill(kind, tmp_path / f"orders.{kind}")


def data_file(kind, path):
    return path if kind == "ring" else os.path.join(path, "data.mdb")


def flip(kind, path, text):
    """One bit of what stands behind a text, everywhere."""
    with open(data_file(kind, path), "r+b") as file:
        data = bytearray(file.read())
        at = data.find(text)
        assert at >= 0
        while at >= 0:
            data[at + len(text)] ^= 1
            at = data.find(text, at + 1)
        file.seek(0)
        file.write(data)


# ---- looking

def test_looking_at_a_store(run, kind, path, tmp_path):
    before = everything(tmp_path)
    status, out, err = run("check", path)
    assert (status, err) == (0, "")
    assert out.startswith(f"{path} is whole: a store of type {kind}, ")
    assert out.count("\n") == 1
    status, out, err = run("stats", path)
    assert (status, err) == (0, "")
    first, _, head, jobs, dead, total = out.splitlines()
    assert first.startswith(f"{path}: a store of type {kind}, 2 queues; ")
    assert head.split() == ["queue", "ready", "delayed", "history", "bytes", "last", "id", "properties"]
    assert jobs.startswith("jobs      19        0        1  ")
    assert jobs.endswith(" 20  limit 1,000, keeps 3, dead letters to 'dead'")
    assert dead.endswith("  1  delivered at most 5 times, deletes itself")
    assert total.startswith("          20        0        1  ")
    assert everything(tmp_path) == before


def test_stats_for_programs(run, kind, path):
    status, out, err = run("stats", path, "--json")
    assert (status, err) == (0, "")
    stats = json.loads(out)
    assert (stats["path"], stats["type"], list(stats["queues"])) == (path, kind, ["jobs", "dead"])
    jobs, dead = stats["queues"]["jobs"], stats["queues"]["dead"]
    assert stats["live_bytes"] == jobs["bytes"] + dead["bytes"]
    assert 0 < stats["live_bytes"] < stats["file_bytes"]
    assert 20 * 100 < jobs.pop("bytes") < 20 * 400
    defaults = {name: value for name, value in QUEUE_DEFAULTS.items() if name != "store"}
    assert jobs == {"ready": 19, "delayed": 0, "history": 1, "last_id": 20, **defaults, "limit": 1000, "history_limit": 3,
                    "dead_letter": "dead", "entering": 0, "adopted_by": None, "meta": {}}


def ids(out):
    return [int(line.split()[0]) for line in out.splitlines()]


@pytest.mark.parametrize(("options", "expected"), [
    ([], [*range(1, 21)]), (["--limit", "3"], [1, 2, 3]), (["--limit", "0"], []), (["--state", "history"], [1]),
    (["--state", "ready", "--limit", "1"], [2]), (["--state", "outstanding"], []), (["--start", "19"], [19, 20]),
    (["--reverse", "--limit", "2"], [20, 19]), (["--start", "2", "--reverse"], [2, 1]), (["--where", "n > 18"], [19, 20]),
    (["--where", "what = 'c'"], []), (["--start", "2023-11-14T22:13:20.123Z", "--limit", "1"], [1]), (["--start", "current"], []),
    (["--start", "2023-11-14T22:13:21+00:00"], []), (["--where", "sys.address = 'resize.7'"], [7]),
])
def test_browsing(run, kind, path, tmp_path, options, expected):
    before = everything(tmp_path)
    status, out, err = run("browse", path, "jobs", *options)
    assert (status, err) == (0, "")
    assert ids(out) == expected
    assert everything(tmp_path) == before


def test_lines_of_messages(run, path):
    assert run("browse", path, "jobs", "--limit", 1)[1] == (
        "       1  history  2023-11-14T22:13:20.123Z  resize.1  8 B  n=1 what='a b'  cat1.png\n")
    assert run("browse", path, "dead")[1] == (
        "       1  ready    2023-11-14T22:13:20.123Z  ''  2 B  reply_to=me  message_id=m  nan=nan raw=b'\\x01'  b'\\x00\\xff'\n")


def test_a_dead_letter_says_first_why_it_is_one(run, kind, tmp_path):
    with Engine(clock=lambda: 0) as engine:
        engine.create_store("s", kind, path=str(tmp_path / "s"), **OPTIONS[kind])
        engine.create_queue("jobs", dead_letter="dead")
        engine.create_queue("dead", store="s")
        engine.create_selector("jobs", when=always, do=deliver("worker"))
        engine.publish("jobs", "resize", b"cat.png", {"long": "x" * 100, "n": 1})
        [delivery] = engine.take(1)
        delivery.reject("no such picture")
    assert run("browse", tmp_path / "s", "dead")[1] == (
        "       1  ready    1970-01-01T00:00:00.000Z  resize  7 B  "
        "xump_reason=rejected xump_bounced_from=jobs xump_detail='no such picture' xump_original_address=res…  "
        f"long={'x' * 54}…  cat.png\n")


def test_messages_for_programs(run, path):
    status, out, err = run("browse", path, "dead", "--json")
    assert (status, err, out.count("\n")) == (0, "", 1)
    assert json.loads(out) == {
        "id": 1, "state": "ready", "until": None, "timestamp": 1_700_000_000_123_456_789, "time": "2023-11-14T22:13:20.123Z",
        "address": "", "correlation_id": None, "expires": None, "priority": 0,
        "headers": {"nan": {"float": "nan"}, "raw": {"base64": "AQ=="}}, "reply_to": "me", "message_id": "m", "destination": None,
        "hops": 0, "annex": None, "body": {"base64": "AP8="},
    }
    assert [json.loads(line)["body"] for line in run("browse", path, "jobs", "--json", "--limit", 2)[1].splitlines()] == [
        "cat1.png", "cat2.png"]


def test_long_messages_have_short_lines(run, kind, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with Engine(clock=lambda: 0) as engine:
        engine.create_store("s", kind, path=str(tmp_path / "s"), **OPTIONS[kind])
        engine.create_queue("q", store="s")
        engine.publish("q", "a", ("é\n" * 5000).encode(), {"long": "x" * 500})
        engine.publish("q", "a b", "日本".encode() * 1000)
    long, wide = run("browse", tmp_path / "s", "q")[1].splitlines()
    assert len(long) <= 141      # 100, but 20 characters of the body at the least
    assert long.endswith(r"é\né\né\né\né…")
    assert "'a b'" in wide
    assert wide.endswith(("日…", "本…"))


def test_a_reader_that_leaves_is_no_error(path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "xump", "browse", path, "jobs"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_letters_that_the_terminal_does_not_have(kind, tmp_path):
    with Engine() as engine:
        engine.create_store("s", kind, path=str(tmp_path / "s"), **OPTIONS[kind])
        engine.create_queue("größer", store="s")
        engine.publish("größer", "a.é", "日本".encode())
    for command, said in ((["stats"], "gr\\xf6\\xdfer"), (["browse", "größer"], "a.\\xe9"),
                          (["browse", "größer", "--json"], "a.\\u00e9")):        # JSON has escapes of its own
        done = subprocess.run([sys.executable, "-m", "xump", *on(str(tmp_path / "s"), command)], capture_output=True, text=True,
                              check=False, env=os.environ | {"PYTHONIOENCODING": "ascii"})
        assert (done.returncode, done.stderr) == (0, "")
        assert said in done.stdout


# ---- wrong usage

@pytest.mark.parametrize(("arguments", "said"), [
    (["stats"], "required: PATH"), (["browse", "P"], "required: QUEUE"),
    (["browse", "P", "jobs", "--limit", "-1"], "number of messages"),
    (["browse", "P", "jobs", "--limit", "many"], "number of messages"),
    (["browse", "P", "jobs", "--state", "new"], "invalid choice"),
    (["browse", "P", "jobs", "--start", "yesterday"], "must be head, current, an id, or a date"),
    (["browse", "P", "jobs", "--start", "9" * 30], "start must be an id from 0"),
    (["browse", "P", "jobs", "--where", "n >"], "expected a value"),
    (["check", "P", "--type", "tape"], "no store type 'tape'"), (["stats", "P", "--type", "ram"], "not on disk"),
    (["repair", "P", "--fly"], "unrecognized arguments"),
])
def test_wrong_usage(run, tmp_path, arguments, said):
    path = fill("ring", tmp_path / "orders")
    before = everything(tmp_path)
    status, out, err = run(*(path if argument == "P" else argument for argument in arguments))
    assert (status, out) == (2, "")
    assert said in err
    assert everything(tmp_path) == before


def test_a_queue_that_is_not_there(run, path, tmp_path):
    before = everything(tmp_path)
    assert run("browse", path, "jbos") == (1, "", f"xump: {path} has no queue 'jbos'; its queues: 'jobs', 'dead'\n")
    assert everything(tmp_path) == before


# ---- what is no store, or one that cannot be had

def nothing(path):
    return "does not exist"


def something_else(path):
    path.write_bytes(b"\x89PNG something else")
    return "is no store of the types that are installed ("


def an_empty_file(path):
    path.touch()
    return "is an empty file"


def an_empty_directory(path):
    path.mkdir()
    return "is an empty directory"


def a_directory(path):
    path.mkdir()
    (path / "letter.txt").touch()
    return "is a directory with letter.txt in it, and no store"


def a_foreign_environment(path):
    with lmdb.open(str(path)) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"key", b"value")
    return "is a directory with data.mdb, lock.mdb in it, and no store"


def a_newer_ring(path):
    fill("ring", path)
    with open(path, "r+b") as file:
        for at in (0, COPY_AT):
            head = Head.read(os.pread(file.fileno(), 64, at), SUPERBLOCK)
            os.pwrite(file.fileno(), replace(head, version=VERSION + 1).packed(), at)
    return f"version {VERSION + 1}"


def a_newer_lmdb(path):
    fill("lmdb", path)
    with lmdb.open(str(path)) as environment, environment.begin(write=True) as transaction:
        meta = transaction.get(META_KEY)
        transaction.put(META_KEY, meta[:8] + b"\4\0\0\0" + meta[12:])
    return "version 4"


def a_ring_cut_off(path):
    fill("ring", path)
    os.truncate(path, 5000)
    return "was cut off"


def an_lmdb_cut_to_nothing(path):
    fill("lmdb", path)
    os.truncate(path / "data.mdb", 0)
    return "the file is empty"


def an_lmdb_without_its_file(path):
    fill("lmdb", path)
    (path / "data.mdb").unlink()
    return "has no data.mdb any more"


@pytest.mark.parametrize("make", [
    nothing, something_else, an_empty_file, an_empty_directory, a_directory, a_foreign_environment, a_newer_ring, a_newer_lmdb,
    a_ring_cut_off, an_lmdb_cut_to_nothing, an_lmdb_without_its_file,
])
def test_what_cannot_be_had(run, tmp_path, make):
    said = make(tmp_path / "orders")
    before = everything(tmp_path)
    for command in COMMANDS:
        status, out, err = run(*on(tmp_path / "orders", command))
        assert (status, out) == (1, ""), command
        assert err.startswith("xump: "), command
        assert said in err, command
        assert err.count("\n") == 1, command
        assert everything(tmp_path) == before, command


def test_one_type_taken_for_the_other(run, tmp_path):
    ring, folder = fill("ring", tmp_path / "a"), fill("lmdb", tmp_path / "b")
    before = everything(tmp_path)
    for command in COMMANDS:
        for path, kind, said in ((ring, "lmdb", "is a file; an lmdb store is a directory"),
                                 (folder, "ring", "is a directory; a ring store is one file")):
            status, out, err = run(*on(path, command), "--type", kind)
            assert (status, out) == (1, ""), command
            assert said in err
    assert everything(tmp_path) == before


def test_a_store_that_another_process_owns(run, kind, path, tmp_path):
    pid = os.fork()
    if pid == 0:
        try:
            engine = Engine()
            engine.create_store("s", kind, path=path, **OPTIONS[kind])
            (tmp_path / "open").touch()
            time.sleep(60)
        finally:
            os._exit(1)
    try:
        while not (tmp_path / "open").exists():
            assert os.waitpid(pid, os.WNOHANG) == (0, 0)
            time.sleep(0.001)
        before = everything(tmp_path)
        for command in COMMANDS:
            status, out, err = run(*on(path, command))
            assert (status, out) == (1, ""), command
            assert f"{pid}; " in err, command
            assert ("ask it" in err) == (command in LOOKING)
            assert everything(tmp_path) == before, command
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_two_may_look_at_the_same_time(run, kind, path):
    viewed = store.factory_of(kind).view(path)
    try:
        for command in (*LOOKING, ["repair"]):
            done = subprocess.run([sys.executable, "-m", "xump", *on(path, command)], capture_output=True, text=True, check=False)
            if command in LOOKING:
                assert (done.returncode, done.stderr) == (0, "")
            else:
                assert (done.returncode, done.stdout) == (1, "")
                assert f" {os.getpid()}; " in done.stderr
    finally:
        viewed.close()


def test_a_store_that_cannot_be_written_to(run, kind, path, tmp_path, monkeypatch):
    """It can be looked at; what would change it says so."""
    really = os.open

    def reads_only(path, flags, *more, **options):
        if flags & (os.O_WRONLY | os.O_RDWR) and str(path).startswith(str(tmp_path)):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return really(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", reads_only)
    before = everything(tmp_path)
    for command in COMMANDS:
        status, out, err = run(*on(path, command))
        assert (status, bool(out)) == ((0, True) if command in LOOKING else (1, False)), command
        if status:
            assert err.startswith(f"xump: {path}")
            assert "Permission denied" in err
    assert everything(tmp_path) == before


# ---- damage

def test_damage_is_found_and_repaired(run, kind, path, tmp_path):
    flip(kind, path, b"resize.7")
    flip(kind, path, b"cat13")
    before = everything(tmp_path)
    status, out, err = run("check", path)
    assert (status, err) == (1, "")
    lines = out.splitlines()
    assert lines[0].startswith(f"{path} is damaged: 2 faults, beside ")
    assert lines[1].startswith("  queue 'jobs', message 7: ")
    assert lines[2].startswith("  queue 'jobs', message 13: ")
    assert lines[0].endswith(" records that are whole; at least 2 records are lost.")
    assert lines[3:5] == ["  queue 'jobs': 18 messages are whole: 17 ready, 1 in the history; 2 are lost",
                          "  1 other queue has all messages"]
    assert lines[5] == f"To take out the damaged records and keep the others: xump repair {path}"
    status, out, err = run("compact", path)
    assert (status, out) == (1, "")
    assert f"run: xump repair {path}\n" in err
    whole = [n for n in range(1, 21) if n not in (7, 13)]
    for command in (["stats"], ["stats", "--json"], ["browse", "jobs"]):
        status, out, err = run(*on(path, command))
        assert status == 1
        assert err.startswith(f"xump: {path} is damaged, and damaged records are left out: 2 faults, of which the first is: ")
        assert err.endswith(f"; to see them all: xump check {path}\n")
        if command[0] == "browse":
            assert ids(out) == whole
        elif command == ["stats"]:
            assert out.splitlines()[3].startswith("jobs      17        0        1  ")
        else:
            assert json.loads(out)["queues"]["jobs"]["ready"] == 17
    assert everything(tmp_path) == before

    status, out, err = run("repair", path)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"{path} was damaged, and is repaired: 2 faults."
    assert [line.partition(": ")[0] for line in lines[1:3]] == ["  queue 'jobs', message 7", "  queue 'jobs', message 13"]
    assert lines[3] == f"The damaged records are in {path}.quarantine-1"
    assert os.path.getsize(f"{path}.quarantine-1") > 0
    assert [line.rpartition("; ")[2] for line in lines[4:6]] == ["2 are lost", "  1 other queue has all messages"]
    assert lines[6].startswith("Checked again, the store is whole: ")
    assert run("check", path)[0] == 0
    assert run("browse", path, "jobs")[0] == 0
    assert ids(run("browse", path, "jobs")[1]) == whole
    before = everything(tmp_path)
    assert run("repair", path) == (0, f"{path} is whole: there is nothing to repair, and nothing was changed.\n", "")
    assert everything(tmp_path) == before


def test_the_command_that_is_told_can_be_pasted(run, kind, tmp_path):
    path = fill(kind, tmp_path / "my orders")
    flip(kind, path, b"resize.7")
    assert f"xump repair '{path}'\n" in run("check", path)[1]


def test_a_torn_tail_is_no_damage(run, kind, path, tmp_path):
    """A process that was killed leaves one in a ring."""
    pid = os.fork()
    if pid == 0:
        engine = Engine()
        engine.create_store("s", kind, path=path, durability="process", **OPTIONS[kind])
        engine.publish("jobs", "last", b"torn")
        os._exit(0)
    os.waitpid(pid, 0)
    torn = kind == "ring"
    if torn:
        flip(kind, path, b"tor")
    before = everything(tmp_path)
    status, out, err = run("check", path)
    assert (status, err) == (0, "")
    assert ("a crash interrupted a write" in out) == torn
    assert ids(run("browse", path, "jobs", "--reverse", "--limit", 1)[1]) == [20 if torn else 21]
    assert everything(tmp_path) == before


def test_compacting(run, kind, path):
    with Engine() as engine:
        engine.create_store("s", kind, path=path, **OPTIONS[kind])
        engine.publish_many("jobs", [("x", bytes(10_000))] * 300)
    with Engine() as engine:
        engine.create_store("s", kind, path=path, **OPTIONS[kind])
        engine.queues["jobs"].purge()
    before = os.path.getsize(data_file(kind, path))
    status, out, err = run("compact", path)
    assert (status, err) == (0, "")
    assert os.path.getsize(data_file(kind, path)) < before
    assert out.startswith(f"{path}: ")
    assert " before, " in out
    assert " after, " in out
    assert run("check", path)[0] == 0


@pytest.mark.parametrize("command", ["compact", "repair"])
def test_a_link_stays_a_link(run, kind, path, tmp_path, command):
    link = tmp_path / "elsewhere" / "link"
    link.parent.mkdir()
    link.symlink_to(path)
    if command == "repair":
        flip(kind, path, b"cat7.png")
    assert run(command, link)[0] == 0
    assert os.listdir(link.parent) == ["link"] and link.is_symlink()
    for name in (link, path):
        assert run("check", name)[0] == 0


# ---- types

def test_plug_ins_are_asked(run, tmp_path):
    path = fill("toy", tmp_path / "toy")
    assert types_of(path) == (["toy"], [])
    assert run("check", path)[1].startswith(f"{path} is whole: a store of type toy, ")
    assert ids(run("browse", path, "jobs", "--limit", 2)[1]) == [1, 2]
    assert run("stats", path)[0] == 0


def test_two_types_that_want_it(run, tmp_path):
    class Twin(ToyStore):
        type = "twin"

    register_store("twin", Twin)
    path = fill("toy", tmp_path / "toy")
    status, out, err = run("stats", path)
    assert (status, out, err) == (2, "", f"xump: {path} may be a store of type toy or twin; say which: --type toy\n")
    assert run("stats", path, "--type", "twin")[0] == 0


def test_a_plug_in_that_cannot_be_loaded_is_told_where_it_might_be_wanted(run, path, tmp_path, monkeypatch):
    class Broken:
        def load(self):
            raise ImportError("no module named 'tape'")

    installed = dict(store._installed())
    monkeypatch.setattr(store, "_installed", lambda: installed | {"tape": Broken()})
    assert run("stats", path)[0] == 0
    (tmp_path / "other").write_text("?")
    status, out, err = run("stats", tmp_path / "other")
    assert (status, out) == (1, "")
    assert err.endswith("; stores of type 'tape' cannot be loaded: no module named 'tape'\n")
    assert run("stats", path, "--type", "tape")[0] == 2


def test_a_plug_in_that_does_not_say_what_is_its_own(run, tmp_path):
    """It must be named; without a view it can be checked only."""
    class Shy:
        def __init__(self, name, path):
            self.name = name

        check = ToyStore.check

    register_store("shy", Shy)
    path = fill("toy", tmp_path / "toy")
    assert run("check", path, "--type", "shy")[0] == 0
    del store._registered["shy"]

    class Closed(ToyStore):
        type = "closed"

        @classmethod
        def view(cls, path):
            return super(ToyStore, cls).view(path)

    register_store("closed", Closed)
    status, out, err = run("stats", path, "--type", "closed")
    assert (status, out, err) == (2, "", "xump: stores of type 'closed' cannot be looked at without being opened\n")


def test_a_store_is_checked_whatever_its_name(run, kind, tmp_path):
    path = fill(kind, tmp_path / "orders.toml")
    assert run("check", path, "--type", kind)[0] == 0
    moved = shutil.move(path, tmp_path / "orders")
    assert run("check", moved)[0] == 0


# ---- progress

def test_progress_on_a_terminal(run, path, monkeypatch):
    monkeypatch.setattr(store_report, "PATIENCE_SECONDS", 0.0)
    assert run("check", path)[2] == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    status, _, err = run("check", path)
    assert status == 0
    assert err.startswith(f"\rchecking {path}"[:20])
    assert "% of " in err
    assert err.endswith("\r\x1b[K")
    monkeypatch.setattr(store_report, "PATIENCE_SECONDS", 1e9)
    assert run("check", path)[2] == ""
