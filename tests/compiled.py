"""Modules for tests that are written in Cython, beside the test that uses them; nothing of them is shipped."""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETUP = """
import sys
from Cython.Build import cythonize
from setuptools import Extension, setup
root, name = sys.argv[1:]
flags = ["-O0", "-g0", "-fno-strict-aliasing", "-w"]
extension = Extension(name, [f"{name}.pyx"], extra_compile_args=flags)
setup(name=name, script_args=["-q", "build_ext", "--inplace"],
      ext_modules=cythonize([extension], include_path=[root], language_level=3, quiet=True))
"""


def compiled(source):
    """The module, compiled if it or any declaration of the core has changed since. `source` is its path."""
    name = source.stem
    sources = [source, *sorted((ROOT / "xump_ext").rglob("*.pxd"))]
    content = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + SETUP.encode()).hexdigest()[:16]
    folder = ROOT / "build" / f"{name}-{content}"
    if not folder.exists():
        build(source, folder)
    spec = importlib.util.spec_from_file_location(name, next(folder.glob(f"{name}*.so")))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(source, folder):
    """Compiles `source` apart and puts it in its place at once: other processes may be building the same."""
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as made:
        shutil.copy(source, made)
        command = [sys.executable, "-c", SETUP, str(ROOT), source.stem]
        run = subprocess.run(command, check=False, cwd=made, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
        whole = Path(made, "whole")
        whole.mkdir()
        for module in Path(made).glob(f"{source.stem}*.so"):
            module.rename(whole / module.name)
        try:
            whole.rename(folder)
        except OSError:
            assert folder.exists()  # another process was faster
