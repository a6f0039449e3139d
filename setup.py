"""Builds the Cython core. XUMP_BUILD selects a variant: empty (release), `asan`, `trace` (line coverage) or a canary."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

VARIANTS = {
    "": ["-O3"],
    "asan": ["-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer"],
}
variant = os.environ.get("XUMP_BUILD", "")
compile_args = [*VARIANTS.get(variant, ["-O3"]), "-fno-strict-aliasing", "-Wno-unused-function", "-Wno-maybe-uninitialized"]
if variant.startswith("canary-"):
    compile_args.append(f"-DXUMP_CANARY_{variant.removeprefix('canary-').upper()}")
link_args = ["-fsanitize=address"] if variant == "asan" else []

extensions = [
    Extension(f"xump_ext.{path.stem}", [str(path)], extra_compile_args=compile_args, extra_link_args=link_args)
    for path in sorted(Path("xump_ext").glob("*.pyx"))
]

setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=cythonize(
        extensions,
        nthreads=os.cpu_count() or 1,
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
            "embedsignature": False,
            "freethreading_compatible": False,
        },
    ),
)
