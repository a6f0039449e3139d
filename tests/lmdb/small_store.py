"""An `lmdb` store for tests, its file, and programs that run in a process of their own."""

import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path


from xump_ext.records import kinds
from xump.testing import records_by_hand as hand
from xump.stores.lmdb import LmdbStore
from xump.testing.driver import Driver


def a_store(path, groups=20, durability="process", **options):
    """Makes and closes a store with messages of some sizes in two queues; returns its model."""
    store = LmdbStore("mine", path=path, durability=durability, **options)
    driver, choose = Driver(store), random.Random(7)
    driver.write(hand.queue(1, "jobs"), hand.state(1, 1), hand.queue(2, "größer"), hand.state(2, 1))
    for group in range(groups):
        driver.write(*(hand.enter(queue, 20 * group + id, "a.b", choose.randbytes(choose.choice((10, 100, 700, 9000))))
                       for queue in (1, 2) for id in range(1, 21)),
                     hand.mark(1, 20 * group + 3, 2, kinds.REDELIVERED), hand.state(1, 20 * group + 21),
                     *([hand.settle(1, 20 * group - 15, 2)] if group else []))
    close_and_cut(store)
    return driver.model


def close_and_cut(store):
    """Leaves a file that ends with the last page, without the space kept ahead, which is never read."""
    size = (store._environment.info()["last_pgno"] + 1) * store._page_bytes
    store.close()
    os.truncate(data_of(store.path), size)


def data_of(path):
    return Path(path) / "data.mdb"


def everything(path):
    return {str(file): file.read_bytes() if file.is_file() else None for file in sorted(path.rglob("*"))}


def run_child(program, *arguments):
    """Runs a program in a new interpreter; returns its output."""
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)], capture_output=True, text=True,
                         cwd=Path(__file__).parents[2], check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout
