"""Tries an installed Xump: run by `make dist` in the environment it was installed into, far from this tree."""

import doctest
import sys
from importlib.metadata import distribution, entry_points
from pathlib import Path

import xump
import xump.stores.lmdb
import xump.stores.ram
import xump.stores.ring
import xump.testing
import xump_ext.engine.core


def try_it():
    for module in (xump, xump.stores.ram, xump.stores.lmdb, xump.stores.ring, xump.testing, xump_ext.engine.core):
        assert module.__file__ is not None
        assert Path(module.__file__).is_relative_to(sys.prefix), f"{module.__name__} is not the installed one: {module.__file__}"
    assert doctest.testmod(xump).failed == 0
    assert {entry.name for entry in entry_points(group="xump.stores")} == {"lmdb", "ram", "ring"}

    files = [file.as_posix() for file in distribution("xump").files or ()]
    assert not [file for file in files if file.endswith((".c", ".pyx"))], "sources of the core are in the wheel"
    for package in ("xump", "xump/stores", "xump_ext"):
        assert f"{package}/py.typed" in files, f"{package} is not marked as typed"
    assert "xump_ext/engine/core.pyi" in files
    print(f"xump {distribution('xump').version} works, installed in {sys.prefix}")


if __name__ == "__main__":
    try_it()
