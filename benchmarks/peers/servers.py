"""Message brokers as Debian packages them, run for comparison: on loopback, on free ports, files in a directory of ours, and
ended with all their children. One that is not installed is None.

    redis       redis-server; every write is on the disk before it is answered (`appendfsync always`), once a second, or never
    rabbitmq    rabbitmq-server, one node; Erlang's name server beside it, on a port of its own
    nats        nats-server with JetStream
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from benchmarks.ports import free_port

START_SECONDS = 90
STOP_SECONDS = 15
# Where Debian puts servers; RabbitMQ's own script, not the one that changes the user.
PLACES = "/usr/lib/rabbitmq/bin", *os.get_exec_path(), "/usr/sbin", "/usr/local/sbin"


def find(program: str) -> str | None:
    """The path of a program, if it is installed."""
    return shutil.which(program, path=os.pathsep.join(PLACES))


class Server:
    """Processes that were started, and the port that the last of them listens on."""

    def __init__(self, directory: Path, port: int, *commands: list[str], environment: dict[str, str] | None = None) -> None:
        self.port = port
        self._processes: list[subprocess.Popen[bytes]] = []
        self._log = directory / "log"
        try:
            with self._log.open("wb") as log:
                for command in commands:
                    self._processes.append(subprocess.Popen(
                        command, env={**os.environ, **(environment or {})}, cwd=directory, stdin=subprocess.DEVNULL, stdout=log,
                        stderr=log, start_new_session=True))
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError as error:
                ended = [process for process in self._processes if process.poll() is not None]
                if ended or time.monotonic() > deadline:
                    what = self._log.read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"{self._processes[-1].args!r} does not listen on port {self.port}: {what}") from error
                time.sleep(0.1)

    def stop(self) -> None:
        """Idempotent. Their children are in their process groups."""
        while self._processes:
            process = self._processes.pop()
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                    process.wait(STOP_SECONDS)
                except ProcessLookupError:
                    break
                except subprocess.TimeoutExpired:
                    continue
            process.wait()


def redis(directory: Path, fsync: str | None = "always") -> Server | None:
    """`fsync`: None keeps everything in memory."""
    program = find("redis-server")
    if program is None:
        return None
    port = free_port()
    return Server(directory, port, [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory), "--save", "",
                                    "--appendonly", "yes" if fsync else "no", "--appendfsync", fsync or "no",
                                    "--daemonize", "no"])


def nats(directory: Path) -> Server | None:
    program = find("nats-server")
    if program is None:
        return None
    port = free_port()
    return Server(directory, port, [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory / "jetstream")])


def rabbitmq(directory: Path) -> Server | None:
    program, names = find("rabbitmq-server"), find("epmd")
    if program is None or names is None:
        return None
    port, names_port = free_port(), free_port()
    environment = {
        "HOME": str(directory), "ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": str(names_port),
        "RABBITMQ_NODENAME": "benchmark@localhost", "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()), "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "logs"), "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_PID_FILE": str(directory / "pid"), "RABBITMQ_CONFIG_FILE": str(directory / "none"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none-either"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    return Server(directory, port, [names, "-address", "127.0.0.1", "-port", str(names_port)], [program], environment=environment)
