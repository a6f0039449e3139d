"""Two durable stores that nothing writes but the test, one at a time, and what a crash at that moment leaves."""

import shutil

from tests.durability.unhurried import unhurried
from xump import Engine


def make_stores(engine, kind, folder, names=("a", "b"), **options):
    """Stores of these names, which no thread writes while the test lasts."""
    for name in names:
        unhurried(engine.create_store(name, kind, path=f"{folder}/{name}", **options))


def commit(engine, name):
    """Write and sync one store alone."""
    errors = []
    for committer in engine._committers():
        if committer.name == name:
            committer.flush(errors)
    assert errors == []


def crashed(kind, folder, tmp_path, names=("a", "b")):
    """An engine with the stores of a copy of the files, in which no close has written anything."""
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    engine = Engine()
    for name in names:
        engine.create_store(name, kind, path=f"{copy}/{name}")
    engine.check()
    return engine
