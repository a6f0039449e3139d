"""A disk that is full for real: a small file system of its own, if this process may mount one; else a limit on the size of files.

The stores are filled until they say StoreFull, others fill the rest of the disk, and then every message must still be settled."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xump
from tests.faults.programs import kind_of
from xump import always, deliver

DISK_BYTES = 96 << 20
OPTIONS = {"ring": {"segment_bytes": 1 << 16, "min_bytes": 0}, "lmdb": {}}


@contextmanager
def small_disk() -> Iterator[tuple[Path, str]]:
    """A folder on a small disk, and what kind of disk it is. It is taken away again."""
    with tempfile.TemporaryDirectory(prefix="xump-full-") as place:
        image, folder = Path(place, "image"), Path(place, "disk")
        folder.mkdir()
        image.touch()
        os.truncate(image, DISK_BYTES)
        ways = [(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], "tmpfs")]
        if done("mkfs.ext4", "-q", "-m", "0", str(image)):
            ways.insert(0, (["mount", "-o", "loop", str(image), str(folder)], "ext4 on a loop device"))
        for command, kind in ways:
            if done(*command):
                try:
                    yield folder, kind
                finally:
                    subprocess.run(["umount", str(folder)], check=True)
                return
        with limited_files():
            yield folder, "no disk of its own, as this process may not mount one, but RLIMIT_FSIZE"


@contextmanager
def limited_files() -> Iterator[None]:
    """No file gets longer than the disk would be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def done(*command: str) -> bool:
    """Whether a command was there, and did what it should."""
    environment = os.environ | {"PATH": f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin"}
    try:
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def told() -> tuple[str, list[str]]:
    """A sentence for the report, and the violations."""
    problems: list[str] = []
    with small_disk() as (folder, kind):
        counts = []
        # A limit on files is not in `statvfs`, from which an lmdb store knows that the disk is full: it fails then, as it should.
        for store in OPTIONS if os.path.ismount(folder) else ["ring"]:
            counts.append(f"{store} took {fill(store, folder, problems):,} messages of 4,000 bytes")
            for path in folder.glob(f"{store}*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return (f"A real full disk ({kind}, {DISK_BYTES >> 20} MiB): {'; '.join(counts)}, until `StoreFull`; then another program "
            "filled the rest, and every message was taken, acked and gone, also after opening again."), problems


def opened(store: str, folder: Path) -> xump.Engine:
    engine = xump.Engine()
    engine.create_store(store, kind_of(store), path=str(folder / store), **OPTIONS[kind_of(store)])
    with engine.building():
        engine.create_queue("jobs", store=store)
        engine.create_selector("jobs", when=always, do=deliver("worker"), credit=500)
    return engine


def fill(store: str, folder: Path, problems: list[str]) -> int:
    """Returns how many messages went in."""
    try:
        with opened(store, folder) as engine:
            count = publish_all(engine)
            with open(folder / f"{store}-others", "wb", buffering=0) as others:
                fill_up(others)
            settled = settle(engine, count // 2)
        with opened(store, folder) as engine:
            left = engine.queues["jobs"].ready + engine.queues["jobs"].outstanding
            if left != count - settled:
                problems.append(f"full disk, {store}: {left} messages are left, and should be {count - settled}")
            settle(engine, left)
            engine.check()
        return count
    except (xump.XumpError, OSError) as error:
        problems.append(f"full disk, {store}: {type(error).__name__}: {error}".replace(str(folder), "PLACE"))
        return 0


def publish_all(engine: xump.Engine) -> int:
    count = 0
    while True:
        try:
            engine.publish("jobs", "x", os.urandom(4_000))
            count += 1
            if count % 100 == 0:
                engine.sync()
        except xump.StoreFull:
            return count


def settle(engine: xump.Engine, least: int) -> int:
    settled = 0
    while settled < least and (taken := engine.take(250, "worker")):
        engine.ack(taken)
        settled += len(taken)
    engine.sync()
    return settled


def fill_up(file) -> None:
    """Takes what is left of the disk."""
    for size in (1 << 20, 1 << 12, 1):
        try:
            while True:
                file.write(bytes(size))
        except OSError:
            continue
