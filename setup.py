"""Builds the Cython core, in parallel. XUMP_BUILD selects a variant: empty (release), `asan`, `count`, whose blocks are counted
(`tests/builds/costs.py`), or `canary-NAME`, the release with the defect of that name compiled in (`tests/builds/canaries.py`)."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

JOBS = os.cpu_count() or 1
# No debug sections in a release: they are most of the file and a third of the compiler's time.
RELEASE = ["-O3", "-g0"]
# The run is one large function, in which gcc stops inlining before it comes to what every message passes. clang ignores these.
RUN = ["--param=large-function-growth=1000", "--param=large-function-insns=20000"]
COUNT = ["-O1", "-g0", "-fsanitize-coverage=trace-pc"]
SANITIZED = ["-fsanitize=address,undefined"]
ASAN = ["-O1", "-g", *SANITIZED, "-fno-omit-frame-pointer"]

variant = os.environ.get("XUMP_BUILD", "")
if variant not in ("", "asan", "count") and not variant.startswith("canary-"):
    raise SystemExit(f"unknown XUMP_BUILD={variant!r}; allowed are '', 'asan', 'count' and 'canary-NAME'")

compile_args = {"asan": ASAN, "count": COUNT}.get(variant, RELEASE)
compile_args += ["-fno-strict-aliasing", "-Wno-unused-function", "-Wno-maybe-uninitialized", "-Wno-sign-compare"]
link_args = SANITIZED if variant == "asan" else []
if variant.startswith("canary-"):
    compile_args.append(f"-DXUMP_CANARY_{variant.removeprefix('canary-').upper()}=1")


def extension(path: Path) -> Extension:
    """A module of the core. Those of `Engine.check()`, which is for tests, are not optimized: that takes a third of the time."""
    optimized = compile_args + (["-O1"] if path.parent.name == "check" and not variant else [])
    if path.stem == "routing" and variant not in ("asan", "count"):
        optimized += RUN
    name = ".".join(path.with_suffix("").parts)
    return Extension(name, [str(path)], extra_compile_args=optimized, extra_link_args=link_args)


class BuildCore(build_ext):
    """Turns the .pyx files into C only when C is wanted: a source distribution has none."""

    def run(self) -> None:
        if self.inplace:
            # Else an editable install compiles in a temporary directory, each time everything.
            self.build_lib, self.build_temp = "build/lib", "build/temp"
        made = cythonize(
            [Extension(extension.name, extension.sources) for extension in self.extensions],
            nthreads=JOBS,
            force=self.force or None,
            build_dir="build/cython",
            compiler_directives={
                "language_level": 3,
                "binding": False,       # plain method descriptors, which the interpreter calls without detours
                "boundscheck": False,
                "wraparound": False,
                "initializedcheck": False,
                "cdivision": True,
                "embedsignature": True,
                "embedsignature.format": "clinic",      # what help() and inspect.signature() read
                "freethreading_compatible": False,
            },
        )
        sources = {extension.name: extension.sources for extension in made}
        for extension in self.extensions:
            extension.sources = sources[extension.name]
        super().run()


if __name__ == "__main__":
    setup(
        cmdclass={"build_ext": BuildCore},
        options={"build_ext": {"parallel": JOBS}},
        ext_modules=[extension(path) for path in sorted(Path("xump_ext").rglob("*.pyx"))],
    )
