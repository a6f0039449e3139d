"""Ports for servers that are started beside others, and after a kill once more at the same place."""

import fcntl
import itertools
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Below those that systems give to connections: a connection of another program could have such a one when the server starts.
PORTS = range(16_384, 32_768)
BLOCK = 64


class Ports:
    """A block of ports that no other process has which asks here: so a port stays free between two starts of a server."""

    def __init__(self) -> None:
        self.process = 0
        self.numbers: Iterator[int]

    def take_block(self) -> None:
        starts = PORTS[::BLOCK]
        for start in random.sample(starts, len(starts)):
            lock = os.open(Path(tempfile.gettempdir(), f"xump-ports-{os.getuid()}-{start}"), os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)    # as long as the process lives
            except BlockingIOError:
                os.close(lock)
                continue
            self.process, self.numbers = os.getpid(), itertools.cycle(range(start, start + BLOCK))
            return
        raise OSError(f"other processes have all {len(starts)} blocks of ports")

    def free(self) -> int:
        if self.process != os.getpid():         # a fork shares its parent's lock
            self.take_block()
        for port in itertools.islice(self.numbers, BLOCK):
            try:
                socket.create_server(("127.0.0.1", port)).close()
            except OSError:
                continue
            return port
        raise OSError(f"none of {BLOCK} ports is free")


_ports = Ports()


def free_port() -> int:
    """A port of the loopback address that is free, and that no other process gets here as long as this one lives."""
    return _ports.free()
