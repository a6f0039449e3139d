"""Peers written for comparison, compiled when a benchmark first asks for them (into build/peers, with Cython)."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def build(name: str = "flat_trie") -> ModuleType:
    """The module of a peer, built anew when its sources, or what it includes of ours, are newer.

    `flat_trie` has the class FlatTrie: `add(bytes, int)`, `match(str) -> list`, `match_cached(str) -> list`.
    """
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    out = ROOT / "build" / "peers"
    sources = [*HERE.glob(f"{name}.*"), *(ROOT / "xump_ext").rglob("*.pxd")]
    directives = {"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True}
    before = os.getcwd()
    os.chdir(ROOT)
    try:
        extension = Extension(
            name,
            [str((HERE / f"{name}.pyx").relative_to(ROOT))],
            include_dirs=[str(HERE)],
            depends=[str(path) for path in sources],
            extra_compile_args=["-O3", "-fno-strict-aliasing", *(["-std=c++20"] if (HERE / f"{name}.hpp").exists() else [])],
        )
        extensions = cythonize(
            [extension], build_dir=str(out / "cython"), include_path=[str(ROOT)], compiler_directives=directives, quiet=True
        )
        command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(out), str(out / "temp")
        command.ensure_finalized()
        command.run()
        path = command.get_ext_fullpath(name)
    finally:
        os.chdir(before)
    return load(name, path)


def load(name: str, path: str) -> ModuleType:
    """The module that was built at this path."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
