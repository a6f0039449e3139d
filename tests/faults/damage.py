"""Damage: a store with one thing wrong in its files is opened, checked, looked at by the commands, repaired, and opened again.

A `Specimen` is a small store, closed in order or copied while it was open, and what every message that it ever had said. A
`Damage` changes its file: a bit, a run of zeros, another length. `Trial` is what has to hold then:

    payload     whatever comes out, by opening, `browse` or after a repair, is a message that was published under that id
    silence     what is not as it was, is told: opening raises or logs, `check` lists damage, `repair` reports it
    signal      nothing ends the process, and nothing goes on for ever: each trial is made in a forked child
"""

from __future__ import annotations

import io
import json
import logging
import mmap
import os
import pkgutil
import random
import shutil
import signal
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import xump
from tests.faults.oracle import Seen, seen
from tests.faults.programs import OPTIONS, tended
from tests.faults.repairs import FILES
from xump import always, copy_to, deliver
from xump.cli import main as cli
from xump.stores.lmdb_content import META_KEY
from xump.stores.lmdb_files import meta_of
from xump.stores.lmdb_pages import FREE_LIST, MAIN, Pages
from xump.stores.ring_file import COPY_AT, HEAD_BYTES, SLOTS_AT
from xump_ext.records import kinds

PAGE, META_BYTES = 4096, 152
KINDS = {(FREE_LIST, 2): "free-list pages", (MAIN, 1): "branch pages", (MAIN, 2): "leaf pages"}
RUNS = (512, PAGE)          # bytes that are zeroed at once
STEP = 64 << 10
ZEROS = bytes(STEP)
PATIENCE = 60               # seconds for one trial
MESSAGES = 13               # the last is only published: that is one group
BATCH = 50                  # trials for one child
MARKS = struct.Struct("<Q")
QUEUES = ("jobs", "copies", "dead")


@dataclass(frozen=True)
class Damage:
    """Something wrong in a file."""

    kind: str
    """What the report calls it."""
    at: int
    bit: int = 0
    """The number of the bit; of zeros, how many."""

    def do(self, path: Path) -> None:
        """Change the file."""
        with path.open("r+b") as file:
            if self.kind == "cut":
                file.truncate(self.at)
                return
            file.seek(self.at)
            data = file.read(self.bit if self.kind == "zeros" else 1)
            file.seek(self.at)
            file.write(bytes(len(data)) if self.kind == "zeros" else bytes([data[0] ^ 1 << self.bit]))

    def __str__(self) -> str:
        return f"{self.kind} at {self.at}" + (f", {self.bit}" if self.kind != "cut" else "")


class Specimen:
    """A store with messages in every state. `closed`: in order; else as a kill leaves it, and then what was written last may be
    a torn tail."""

    def __init__(self, store: str, closed: bool, seed: int, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.chance = random.Random(f"{seed} {store} {closed}")
        self.truth: dict[tuple[str, int], Any] = {}
        base = folder / "base"
        base.mkdir(parents=True)
        copies = list(self.made(base, closed))
        self.files = files_of(copies[-1])
        self.data = self.files[FILES[store]]
        self.last_at = last_group(self.data) if store == "ring" else 0
        self.moments = [self.opened(copy)[0] for copy in copies]

    def made(self, base: Path, closed: bool) -> Iterator[Path]:
        """The folder after each call; of one that is closed, at the end."""
        engine = xump.Engine(clock=lambda: 1_000)
        engine.create_store(self.store, self.store, path=str(base / self.store), durability="sync", **OPTIONS[self.store])
        with engine.building():
            for name in QUEUES:
                engine.create_queue(name, store=self.store, history_limit=3, dead_letter="dead" if name == "jobs" else None)
            engine.create_selector("jobs", when=always, do=deliver("worker"), credit=3)
            engine.create_selector("jobs", when=always, do=copy_to("copies"))
        engine.queues["jobs"].meta["what"] = b"of the queue"
        for call in self.calls(engine):
            if not closed:
                yield copied(base, self.folder / f"copy after {call}")
        engine.close()
        if closed:
            yield base

    def calls(self, engine: xump.Engine) -> Iterator[str]:
        """Makes them; yields each one's name."""
        for number in range(1, MESSAGES + 1):
            body = self.chance.randbytes(2_100 if number == 4 else self.chance.choice([0, 20, 60, 200]))
            engine.publish("jobs", f"a.{number}", body, {"n": number, "text": "größe"}, reply_to="r", message_id=f"m{number}")
            self.learn(engine)
            yield f"publish {number}"
            if number % 3 == 0:
                delivery, = engine.take(1, "worker")
                yield f"take {number}"
                delivery.reject("no") if number % 2 else delivery.ack()
                self.learn(engine)
                yield f"end {number}"

    def torn(self, damage: Damage) -> list[Seen]:
        """The moments that a torn tail may leave: that before the last group. Only that group tells that those before it were
        synced, so if zeros take its head, they are a torn tail as well."""
        zeros = self.store == "ring" and damage.kind == "zeros"
        headless = zeros and damage.at < self.last_at + kinds.HEAD.size and self.last_at < damage.at + damage.bit
        return self.moments[:-1] if headless else self.moments[-2:-1]

    def learn(self, engine: xump.Engine) -> None:
        for name in QUEUES:
            for message in engine.queues[name].browse():
                self.truth[name, message.id] = told_by(message)

    def opened(self, folder: Path) -> tuple[Seen, list[str]]:
        """What opening it shows, and what it logs."""
        said: list[str] = []
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: said.append(record.getMessage())
        logger = logging.getLogger("xump")
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)
        try:
            with xump.Engine(clock=lambda: 2_000) as engine:
                engine.create_store(self.store, self.store, path=str(folder / self.store), durability="none",
                                    **OPTIONS[self.store])
                engine.check()
                return seen(engine), said
        finally:
            logger.setLevel(level)
            logger.removeHandler(handler)

    # ---- what can be damaged

    def places(self) -> dict[str, list[int]]:
        """The bytes that say something, by what they are."""
        if self.store == "ring":
            used = len(self.data.rstrip(b"\0"))
            log_at = SLOTS_AT + HEAD_BYTES
            heads = [at for start in (0, COPY_AT, SLOTS_AT) for at in range(start, start + HEAD_BYTES)]
            return {"bits of heads": heads, "bits of the log": list(range(log_at, used)),
                    "bits between": [at for at in range(0, SLOTS_AT, 37) if at not in heads]}
        return self.pages()

    def pages(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {"bits of meta pages": [start + at for start in (0, PAGE) for at in range(META_BYTES)]}
        path = self.folder / "pages"
        write(path, self.files)
        with Pages(str(path / FILES["lmdb"])) as pages:
            walk = pages.walk()
            while walk.next_records(meta_of(str(path / "lmdb")).salt, META_KEY):
                pass
            pages.free()
            for number, reached in enumerate(pages.reached):
                flags, lower, upper = struct.unpack_from("<HHH", self.data, PAGE * number + 10)
                kind = KINDS.get((reached, flags))
                if kind is not None:
                    inside = (*range(lower), *range(upper, PAGE))
                    found.setdefault(f"bits of {kind}", []).extend(PAGE * number + at for at in inside)
                elif reached == MAIN and number > 1:
                    found.setdefault("bits of overflow pages", []).extend(range(PAGE * number, PAGE * (number + 1)))
        shutil.rmtree(path)
        return found

    def all_damages(self) -> list[Damage]:
        """Each bit; runs of zeros at every 512 bytes; every length of what is in use, and a few beyond."""
        used = len(self.data.rstrip(b"\0")) + 8
        bits = [Damage(kind, at, bit) for kind, places in self.places().items() for at in places for bit in range(8)]
        zeros = [Damage("zeros", at, size) for size in RUNS for at in range(0, used, 512)]
        zeros += [Damage("zeros", at, 16) for at in range(0, used, 16)]
        cuts = [Damage("cut", size) for size in (*range(used), *range(used, len(self.data), 4001))]
        return bits + [one for one in zeros if any(self.data[one.at : one.at + one.bit])] + cuts


@contextmanager
def looked_up_once() -> Iterator[None]:
    """A command builds its parser and looks for plug-ins anew. Over hundreds of thousands of trials that is most of the time."""
    with ExitStack() as stack:
        for name in ("xump.cli.main._parser", "xump.store_types._installed"):
            stack.enter_context(patch(name, cache(pkgutil.resolve_name(name))))
        yield


def last_group(data: bytes) -> int:
    """The byte of a ring of one segment where the last group begins."""
    at = last = SLOTS_AT + HEAD_BYTES
    while data[at + kinds.MAGIC_AT : at + kinds.KIND_AT] == kinds.MAGIC_BYTES:
        last = at
        at += kinds.U64.unpack_from(data, at + kinds.GROUP_SIZE_AT)[0]
    return last


def told_by(message: Any) -> Any:
    """What never changes of a message."""
    return message.address, bytes(message.body), dict(message.headers), message.reply_to, message.message_id


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write(folder: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(memoryview(data)[: used_in(data)])
            file.truncate(len(data))


def used_in(data: bytes) -> int:
    """Bytes before the zeros at the end, to `STEP`: most of a file is zeros, which need not be written."""
    end = len(data)
    while end > STEP and data.startswith(ZEROS, end - STEP):
        end -= STEP
    return end


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


class Trial:
    """One damage, and what becomes of it; `problems` are violations, `came` what it counts as."""

    def __init__(self, specimen: Specimen, damage: Damage, folder: Path) -> None:
        self.specimen, self.folder = specimen, folder
        self.store, self.path = specimen.store, str(folder / specimen.store)
        self.damage = damage
        self.problems: list[str] = []

    def run(self) -> str:
        self.make(self.folder)
        damage = self.checked()
        self.look()
        opened = self.opens(damage)
        self.make(self.folder)
        lost = self.repaired(damage, opened)
        return "unseen" if opened == "same" else "torn tail" if opened == "cut" else "lost some" if lost else "lost none"

    def make(self, folder: Path) -> None:
        write(folder, self.specimen.files)
        self.damage.do(folder / FILES[self.store])

    def checked(self) -> bool:
        """Whether `check` tells that something is wrong which opening does not mend by itself."""
        try:
            report = tended("check", self.store, self.folder)
        except (xump.XumpError, OSError) as error:
            self.expect(bool(str(error)), "check raises without a word")
            return True
        return any(not one.harmless for one in report.damage)

    def look(self) -> None:
        """The commands end with a sentence, and show nothing that was not published."""
        self.command("check", self.path)
        self.command("stats", self.path)
        for name in QUEUES:
            _, out = self.command("browse", self.path, name, "--json")
            for line in out.splitlines():
                message = json.loads(line)
                expected = self.specimen.truth.get((name, message["id"]))
                wanted = None if expected is None else (expected[0], expected[3], expected[4], expected[2]["n"])
                found = message["address"], message["reply_to"], message["message_id"], message["headers"].get("n")
                self.expect(wanted == found, f"browse {name} shows a wrong message: {line[:300]}")

    def command(self, *words: str) -> tuple[int, str]:
        out, errors = io.StringIO(), io.StringIO()
        status: Any
        with redirect_stdout(out), redirect_stderr(errors):
            try:
                status = cli.main(list(words))
            except SystemExit as error:
                status = error.code
        said = errors.getvalue()
        self.expect(status in (0, 1, 2) and "Traceback" not in said, f"{words[0]} ends with {status}: {said}")
        self.expect(status == 0 or bool(out.getvalue() + said), f"{words[0]} ends with {status} and no word")
        return status, out.getvalue()

    def opens(self, damage: bool) -> str:
        """"told": it says what is wrong; "cut": a torn tail is cut off; "same": all is there."""
        try:
            now, said = self.specimen.opened(self.folder)
        except (xump.XumpError, OSError) as error:
            if not damage:
                self.problems.append(f"check finds nothing, and opening says {type(error).__name__}: {error}")
            return "told"
        self.right(now, "opened")
        if now == self.specimen.moments[-1]:
            self.expect(not damage, "check finds damage, and opening none")
            return "same"
        if now in self.specimen.torn(self.damage):
            self.expect(bool(said), "opens as it was before the last groups, and says nothing")
            return "cut"
        self.problems.append(f"opens with something else{' and says ' + said[0] if said else ', silently'}")
        return "told"

    def repaired(self, damage: bool, opened: str) -> bool:
        """Returns whether messages are lost."""
        try:
            report = tended("repair", self.store, self.folder)
        except (xump.XumpError, OSError) as error:
            self.expect(damage, f"repair fails where check finds nothing: {error}")
            before = self.folder / "before"
            after = files_of(self.folder)
            self.make(before)
            self.expect(after == files_of(before), "repair fails, and has changed the files")
            return True
        self.expect(bool(report.damage) or not damage, "check finds damage, repair none")
        try:
            again = tended("check", self.store, self.folder)
            now, _ = self.specimen.opened(self.folder)
        except (xump.XumpError, OSError) as error:
            self.problems.append(f"repaired, it does not open: {type(error).__name__}: {error}")
            return True
        self.expect(not again.damage, f"repaired, it is damaged: {again.damage[:2]}")
        self.right(now, "repaired")
        if now in [*self.specimen.torn(self.damage), self.specimen.moments[-1]]:
            return False
        self.expect(bool(report.damage), "repair changes what is there, and reports nothing")
        last = self.specimen.moments[-1]
        there = {(name, message[0]) for name, states in now["messages"].items() for found in states.values() for message in found}
        lost = {(name, message[0]) for name, states in last["messages"].items() for found in states.values() for message in found
                if name in QUEUES} - there
        return bool(lost)

    def right(self, now: Seen, when: str) -> None:
        """No payload is wrong."""
        for name, states in now["messages"].items():
            for message in [message for found in states.values() for message in found]:
                known = self.specimen.truth.get((name, message[0]))
                if name not in QUEUES:          # a queue whose name was lost
                    known = next((one for one in self.specimen.truth.values() if one == message[1:6]), None)
                problem = f"{when}, {name} has a wrong payload under {message[0]}: {repr(message[1:6])[:300]}"
                self.expect(known == message[1:6], problem)

    def expect(self, held: bool, problem: str) -> None:
        if not held:
            self.problems.append(problem)


class Tried:
    """Trials in forked children, which share a page of memory: a child that ends before its end is told with its damage."""

    def __init__(self, specimen: Specimen, folder: Path) -> None:
        self.specimen, self.folder = specimen, folder
        self.came: Counter[tuple[str, str]] = Counter()
        self.violations: list[str] = []
        self.shared = mmap.mmap(-1, PAGE)

    def all(self, damages: Sequence[Damage], told: Callable[[], None] = lambda: None) -> None:
        start = 0
        while start < len(damages):
            start += self.batch(damages[start : start + BATCH])
            told()

    def batch(self, damages: Sequence[Damage]) -> int:
        """Returns how many are done."""
        MARKS.pack_into(self.shared, 0, 0)
        answer = self.folder / "answer"
        answer.unlink(missing_ok=True)
        self.folder.mkdir(exist_ok=True)
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                self.child(damages, answer)
                os._exit(0)
            os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        for line in answer.read_text().splitlines() if answer.exists() else ():
            kind, came, problems = json.loads(line)
            self.came[kind, came] += 1
            self.violations += problems
        if code == 0:
            return len(damages)
        number, = MARKS.unpack_from(self.shared)
        damage = damages[number]
        why = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        self.came[damage.kind, "ended the process"] += 1
        self.violations.append(f"{self.specimen.store}, {damage}: the process ended: {why}")
        return number + 1

    def child(self, damages: Sequence[Damage], answer: Path) -> None:
        with answer.open("w", buffering=1) as out, patch("os.fsync", lambda fd: None), looked_up_once():
            for number, damage in enumerate(damages):
                MARKS.pack_into(self.shared, 0, number)
                signal.alarm(PATIENCE)
                trial = Trial(self.specimen, damage, self.folder / f"state-{os.getpid()}")
                try:
                    came = trial.run()
                except Exception as error:
                    came = "raised"
                    trial.problems.append(f"raised {type(error).__name__}: {error}")
                problems = [f"{self.specimen.store}, {damage}: {problem}" for problem in trial.problems[:3]]
                out.write(json.dumps([damage.kind, came, problems]) + "\n")
            signal.alarm(0)
            shutil.rmtree(self.folder / f"state-{os.getpid()}", ignore_errors=True)
