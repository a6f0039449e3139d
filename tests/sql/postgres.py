"""PostgreSQL as Debian has it (`apt-get install postgresql`), started for a session of tests: in a folder of its own, as an
unprivileged user, on a free port."""

import contextlib
import getpass
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.ports import free_port

USER = "postgres"
CLIENTS = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
"""The other processes that serve a client."""


def folder_of_programs():
    """The newest that is installed, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb else None


def is_installed():
    return folder_of_programs() is not None


class Server:
    """A cluster that can be stopped and started again: without a port, which another program could take meanwhile."""

    def __init__(self, folder, fsync, has_port=True):
        self.has_port = has_port
        self.folder, self.port, self.programs = Path(folder), free_port(), folder_of_programs()
        self.as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"] if os.geteuid() == 0 else []
        if self.as_user:
            shutil.chown(folder, USER, USER)
        self.user = USER if self.as_user else getpass.getuser()
        self._run("initdb", "-D", f"{folder}/data", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", "-U", self.user)
        with open(f"{folder}/data/postgresql.conf", "a") as file:
            listens = "127.0.0.1" if has_port else ""
            file.write(f"port = {self.port}\nlisten_addresses = '{listens}'\nunix_socket_directories = '{folder}'\n"
                       f"fsync = {'on' if fsync else 'off'}\nmax_connections = 100\nmax_prepared_transactions = 10\n"
                       "shared_buffers = 64MB\nclient_connection_check_interval = '500ms'\ndeadlock_timeout = '100ms'\n")

    def _run(self, program, *arguments):
        done = subprocess.run([*self.as_user, self.programs / program, *arguments], capture_output=True, text=True, check=False,
                              cwd="/", env={**os.environ, "LC_ALL": "C"})
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout}{done.stderr}")

    def start(self):
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-w", "-l", f"{self.folder}/data/log", "start")

    def stop(self, mode="immediate"):
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-w", "-m", mode, "stop")

    def url(self, database="postgres"):
        if not self.has_port:
            return f"postgresql+psycopg://{self.user}@/{database}?host={self.folder}&port={self.port}"
        return f"postgresql+psycopg://{self.user}@127.0.0.1:{self.port}/{database}"


@contextlib.contextmanager
def running(fsync=False):
    """A server; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="xump-postgres-", dir="/tmp") as folder:
        server = Server(folder, fsync)
        server.start()
        try:
            yield server
        finally:
            server.stop()
