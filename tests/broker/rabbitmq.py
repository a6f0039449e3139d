"""RabbitMQ as Debian has it (`apt-get install rabbitmq-server`), started for a test: on free ports, with folders of its own."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.ports import free_port
from tests.patience import PATIENCE

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def is_installed():
    return SERVER.exists()


@contextlib.contextmanager
def running():
    """A server; gives its address."""
    with tempfile.TemporaryDirectory(prefix="rabbitmq-") as folder:
        port, epmd = free_port(), free_port()
        Path(folder, "rabbitmq.conf").write_text("disk_free_limit.absolute = 1MB\n")
        Path(folder, "plugins").write_text("[].")
        environment = {
            **os.environ, "HOME": folder, "RABBITMQ_NODENAME": f"xump{port}@localhost", "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_DIST_PORT": str(free_port()), "ERL_EPMD_PORT": str(epmd),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia", "RABBITMQ_LOG_BASE": f"{folder}/log", "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": f"{folder}/pid", "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
        }
        with open(f"{folder}/out", "w") as out:
            # In a session of its own: the server is several processes, and all of them end with it.
            server = subprocess.Popen([SERVER], env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            wait_for("127.0.0.1", port, server, Path(folder, "out"))
            yield "127.0.0.1", port
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(PATIENCE)
            subprocess.run(["epmd", "-port", str(epmd), "-kill"], env=environment, capture_output=True, check=False)


def wait_for(host, port, server, out):
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1) as one:
            one.sendall(b"AMQP\0\0\x09\x01")
            if one.recv(1):
                return
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"RabbitMQ did not start:\n{out.read_text()}")
        time.sleep(0.1)
