"""Copies of this tree under build/, with the core compiled another way: `python -m tests.builds.variants asan`.

The variants are those that `setup.py` knows. A copy is made current each time and compiled where it changed. For a canary, which
differs in one module, and for the one that counts, all else is taken over compiled.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "docs", "stores", "tests", "xump", "xump_ext")
FILES = ("CHANGELOG.md", "Makefile", "README.md", "pyproject.toml", "setup.py")
# What has to be compiled anew to count: where the loops are that a call may run.
COUNTED = (
    "engine/core", "engine/engine_lock", "engine/queue_edit", "engine/selector_edit", "engine/sleepers", "engine/staging",
    "log/adopt", "memory/radix", "route/due", "route/entering", "route/gather", "route/ledger", "route/letters",
    "route/offering", "route/ready", "route/settling", "route/requeue", "route/routing", "select/clause", "select/credit",
    "select/groups", "select/lanes", "select/plan", "select/waiting", "state/group_line", "state/index", "state/offers",
    "state/returned_heap", "state/run_queue", "state/schedule", "state/window",
)
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.so")


@contextmanager
def alone(variant):
    """For the block, other processes that want this variant wait: each makes the copy current before it uses it."""
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / f"{variant}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(variant, changed=()):
    """The folder of the copy, whose modules a Python started in it imports. Those that are `changed` are compiled anew; none are
    named: all."""
    copy = ROOT / "build" / variant
    for folder in FOLDERS:
        shutil.rmtree(copy / folder, ignore_errors=True)
        shutil.copytree(ROOT / folder, copy / folder, ignore=LEFT_OUT)
    flags = (copy / "setup.py").read_bytes() if (copy / "setup.py").exists() else None
    for file in FILES:
        shutil.copy2(ROOT / file, copy / file)
    (copy / "xump" / "stores").symlink_to(Path("..", "stores"))     # else the installed ones are imported, from the tree itself
    if changed:
        take_over(copy, changed)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    if not changed and flags not in (None, (copy / "setup.py").read_bytes()):
        command.append("--force")       # perhaps with other flags
    variables = os.environ | {"XUMP_BUILD": variant}
    run = subprocess.run(command, check=False, cwd=copy, env=variables, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{variant} could not be built:\n{run.stdout}{run.stderr}")
    return copy


def take_over(copy, changed):
    """Copies what is compiled in the tree and newer than in the copy, except for the modules that are `changed`."""
    for folder in ("cython", "lib"):
        for file in (ROOT / "build" / folder).rglob("*.*"):
            module = str(file.relative_to(ROOT / "build" / folder / "xump_ext")).partition(".")[0]
            taken = copy / file.relative_to(ROOT)
            current = taken.exists() and taken.stat().st_mtime >= file.stat().st_mtime
            if file.is_file() and module not in changed and not current:
                taken.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, taken)


if __name__ == "__main__":
    print(build(sys.argv[1]))
