"""A plugin of pytest for `make asan`: programs that are not Python start without the sanitizer. They were not built for it, and
some of them, PostgreSQL among them, do not start with it."""

import os
import shutil
import subprocess
import sys

SHELLS = {"bash", "make", "sh"}       # they start Python


def runs_python(program):
    found = shutil.which(program)
    if found is None or os.path.basename(program) in SHELLS or os.path.realpath(found) == os.path.realpath(sys.executable):
        return True
    with open(found, "rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first


class Popen(subprocess.Popen):
    def __init__(self, args, *more, env=None, **named):
        program = args if isinstance(args, str | bytes | os.PathLike) else args[0]
        if not named.get("shell") and not runs_python(os.fspath(program)):
            env = {name: value for name, value in (os.environ if env is None else env).items() if name != "LD_PRELOAD"}
        super().__init__(args, *more, env=env, **named)


def pytest_configure():
    subprocess.Popen = Popen
