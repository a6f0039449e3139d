"""How the packages are laid out: what imports what, what is compiled, what is shipped.

One way only: `broker`, `spark`, `sql` and `zeromq` import `xump`, `xump` and the stores import `xump_ext`, and that imports
neither. The layers inside `xump_ext` are in `test_layers.py`.
"""

import ast
import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import xump_ext
from tests.layers import imports, module_of

ROOT = Path(__file__).parent.parent
PACKAGES = ("stores", "xump", "xump_ext")
APART = ("broker", "spark", "sql", "zeromq")
"""Sub-packages of xump that nothing else imports: their dependencies are extras."""
CLIENT = ("xump.broker.answers", "xump.broker.client", "xump.broker.columns", "xump.broker.taken")
"""The client of a broker, which the Spark connector is one of."""

SOURCES = sorted(
    path
    for package in PACKAGES
    for suffix in ("py", "pyi", "pyx", "pxd")
    for path in (ROOT / package).rglob(f"*.{suffix}")
)
COMPILED = sorted(module_of(path) for path in (ROOT / "xump_ext").rglob("*.pyx"))
IMPORT = re.compile(r"^\s*(?:cimport\s+|import\s+|from\s+)([\w.]+)", re.MULTILINE)


def imported(text):
    return set(IMPORT.findall(text))


def within(name, package):
    return name == package or name.startswith(f"{package}.")


def allowed(importer, name, stub=False):
    """Whether the module `importer` may import `name`. A stub, which only type checkers read, may name classes of `xump`."""
    if within(importer, "xump_ext"):
        if stub:
            return not within(name, "xump.stores")
        return not within(name, "xump") and not within(name, "stores")
    if within(importer, "xump.stores"):
        return not within(name, "xump") or within(name, "xump.stores")
    if within(importer, "xump.spark") and name in CLIENT:
        return True
    if importer == "pyspark_xump":
        return not within(name, "xump") or within(name, "xump.spark")
    own = [apart for apart in APART if within(importer, f"xump.{apart}")]
    return not any(within(name, f"xump.{apart}") for apart in APART if apart not in own) and not within(name, "stores")


def test_the_rule_is_read_as_it_is_meant():
    assert allowed("xump.engine", "xump_ext.engine.core")
    assert allowed("xump.stores.ram", "xump_ext.errors")
    assert allowed("xump.broker.server", "xump")
    assert not allowed("xump_ext.engine.core", "xump.errors")
    assert allowed("xump_ext.engine.core", "xump.errors", stub=True)
    assert not allowed("xump.stores.ram", "xump")
    assert not allowed("xump.engine", "xump.broker")
    assert allowed("xump.spark.writer", "xump.broker.client")
    assert not allowed("xump.spark.writer", "xump.broker.broker")
    assert imported("from a.b import c\n    import d\nfrom e cimport f\ncimport g") == {"a.b", "d", "e", "g"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path):
    wrong = [name for name in sorted(imported(path.read_text())) if not allowed(module_of(path), name, path.suffix == ".pyi")]
    assert not wrong, f"{path.relative_to(ROOT)} must not import {', '.join(wrong)}"


@pytest.mark.parametrize("path", [path for path in SOURCES if path.suffix == ".py"], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_store_is_imported_by_a_module(path):
    """Inside functions only: stores load by name."""
    if within(module_of(path), "xump.stores"):
        return
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert not any(within(name, "xump.stores") for name in imported(ast.unparse(node)))


def loaded_by(statement):
    """The modules that a new interpreter has loaded after `statement`."""
    program = f"import json, sys; before = set(sys.modules); {statement}; print(json.dumps(sorted(set(sys.modules) - before)))"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def test_importing_xump_loads_nothing_heavy():
    loaded = loaded_by("import xump")
    assert "xump_ext.engine.core" in loaded
    heavy = (
        "asyncio", "concurrent", "duckdb", "importlib.metadata", "lmdb", "multiprocessing", "numpy", "pandas", "polars",
        "pyarrow", "pyspark", "rich", "socket", "sqlite3", "tomllib", "typing_extensions", "xump.aio", "xump.cli.main",
        "xump.demo.flights",
        "xump.stores",
    )
    assert [name for name in loaded for package in heavy if within(name, package)] == []
    assert [name for name in loaded for apart in APART if within(name, f"xump.{apart}")] == []


def test_the_core_loads_without_xump():
    loaded = loaded_by("; ".join(f"import {name}" for name in COMPILED))
    assert [name for name in loaded if within(name, "xump") or within(name, "stores")] == []


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_modules_are_compiled(name):
    module = importlib.import_module(name)
    assert module.__file__.endswith(tuple(EXTENSION_SUFFIXES)), f"{module.__file__} is not compiled"


def test_compiled_modules_that_python_imports_have_stubs_that_say_something():
    """A module that only compiled ones import has declarations (`.pxd`), and no stub."""
    wanted = {name for path in SOURCES if path.suffix == ".py" for name in imports(path)} & set(COMPILED)
    stubs = {module_of(path): ast.parse(path.read_text()) for path in (ROOT / "xump_ext").rglob("*.pyi")}
    assert wanted - set(stubs) == set()
    assert [name for name, stub in stubs.items() if not ast.get_docstring(stub) or len(stub.body) == 1] == []
    assert set(stubs) <= set(COMPILED)


def test_no_extension_is_left_over():
    extensions = {module_of(path.with_name(path.name.partition(".")[0])) for path in (ROOT / "xump_ext").rglob("*.so")}
    assert extensions <= set(COMPILED), "run make clean"


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if path.suffix in (".py", ".pyx", ".pxd")], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_module_says_what_it_is_for(path):
    text = path.read_text()
    if path.name == "__init__.py" and not text.strip():
        return
    assert text.startswith('"""'), f"{path.relative_to(ROOT)} does not begin with a docstring"


def test_the_tree_in_the_readme_is_whole():
    """It has every package, and the layers of the core from the lowest up."""
    tree = (ROOT / "README.md").read_text().partition("## Where things are")[2]
    found, names = {}, []
    for folder, inside in re.findall(r"^(?: {4}(\w+)/| {6}(\S.*?) {2})", tree, re.MULTILINE):
        if folder:
            names = found.setdefault(folder, [])
        else:
            names += inside.split(", ")
    for package in ("xump", "xump_ext"):
        inside = {path.parent.name for path in (ROOT / package).glob("*/*.py*")}
        assert inside <= set(found[package]), f"{package}/: {inside - set(found[package])} are missing in the README"
    assert [name for name in found["xump_ext"] if name in xump_ext.LAYERS] == list(xump_ext.LAYERS)


NAMED = re.compile(r"(?:[\w.]+/)*\w+\.(?:pyx|pxd|py|md)\b")
ELSEWHERE = {"CHANGELOG.md", "PEERS.md", "page.md", "plugged_in.py", "setup.py", "source.py", "test_leaves.py"}
"""Files outside the folders that are read, and files that tests write."""


def test_files_that_a_text_names_exist():
    """In docstrings, comments and pages: a name alone is that of any file, one with folders a path from the root, from a package
    or from the folder of the text."""
    folders = (*PACKAGES, "tests", "benchmarks", "docs")
    texts = [ROOT / "README.md"] + [path for folder in folders for path in (ROOT / folder).rglob("*")
                                    if path.suffix in (".py", ".pyx", ".pxd", ".pyi", ".md")]
    names = {path.name for path in texts} | ELSEWHERE
    wrong = []
    for path in texts:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            for name in NAMED.findall(line):
                bases = (ROOT, path.parent, *(ROOT / package for package in PACKAGES))
                if not (name in names if "/" not in name else any((base / name).exists() for base in bases)):
                    wrong.append(f"{path.relative_to(ROOT)}:{number}: {name}")
    assert wrong == []


def test_what_is_packaged():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")}
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted(module_of(folder / "__init__.py") for folder in folders)
    assert set(project["tool"]["setuptools"]["package-data"]) >= {"xump", "xump.stores", "xump_ext"}
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").exists()
    assert {"test", "demo", "bench", "docs", "broker", "spark"} <= set(project["project"]["optional-dependencies"])


def test_entry_points_name_what_exists():
    for group in ("xump.stores", "xump.operators"):
        for entry in importlib.metadata.entry_points(group=group):
            assert callable(entry.load())
    scripts = [entry for entry in importlib.metadata.entry_points(group="console_scripts") if entry.name == "xump"]
    assert [entry.value for entry in scripts] == ["xump.cli.main:main"]
    assert callable(scripts[0].load())


def test_nothing_generated_is_in_git():
    if not (ROOT / ".git").exists():
        return
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    generated = re.compile(r"\.(c|cpp|so|o|pyc)$|(^|/)__pycache__/|^(build|dist|\.venv)/|\.egg-info")
    by_hand = ["tests/faults/shim.c"]
    assert [file for file in files if generated.search(file)] == by_hand


def test_aio_is_there_when_it_is_asked_for():
    program = ("import sys, xump; assert 'asyncio' not in sys.modules; "
               "assert xump.aio.deliveries and 'asyncio' in sys.modules; xump.nothing")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "module 'xump' has no attribute 'nothing'" in done.stderr, done.stderr
