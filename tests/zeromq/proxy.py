"""A cable that can be cut: forwards TCP connections to a port, until it is cut, and again when it is mended."""

import itertools
import os
import selectors
import socket
import sys
import threading

FIRST_PORT = 20_000
_ports = itertools.count(FIRST_PORT)


def own_host():
    """A loopback address that no other process has: on Linux all of 127.0.0.0/8 is this machine's, and a process number has 22
    bits. So what is free here stays free until it is bound, however many tests run beside this one."""
    number = os.getpid()
    return f"127.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}" if sys.platform == "linux" else "127.0.0.1"


def free_endpoint():
    """An endpoint that can be bound at once, and that was not given out before.

    A port that the system chooses could be chosen again before it is bound, and a socket of ZeroMQ would give it back some time
    after it was closed.
    """
    host = own_host()
    for port in _ports:
        try:
            socket.create_server((host, port)).close()
        except OSError:
            continue                        # somebody listens there; the next one
        return f"tcp://{host}:{port}"
    raise AssertionError("all ports are taken")


END = b"e"


class Cable:
    """Listens at `endpoint`, and forwards to another one. `cut` lets nothing through, and says nothing to either end."""

    def __init__(self, to):
        host, port = to.removeprefix("tcp://").rsplit(":", 1)
        self._to = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ear, self._bell = socket.socketpair()
        self._whole, self._cuts = True, False
        self._other = {}
        self._selector = selectors.DefaultSelector()
        for one in (self._listener, self._ear):
            self._selector.register(one, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def cut(self):
        """What is under way is lost, as are its connections: TCP would send it again when the cable is whole."""
        self._whole, self._cuts = False, True
        self._bell.send(b"!")

    def mend(self):
        self._whole = True
        self._bell.send(b"!")

    def close(self):
        self._bell.send(END)                # no flag: the thread would see it, and close its end, before it is sent
        self._thread.join()
        self._bell.close()

    def _run(self):
        ends = False
        while not ends:
            for key, _ in self._selector.select():
                if key.fileobj is self._ear:
                    ends = END in self._ear.recv(100)
                    if self._cuts:          # also if it was mended meanwhile
                        self._cuts = False
                        for one in list(self._other):
                            self._drop(one)
                elif key.fileobj is self._listener:
                    self._connect(self._listener.accept()[0])
                elif key.fileobj in self._other:
                    self._forward(key.fileobj)
        for one in (*self._other, self._listener, self._ear):
            one.close()
        self._selector.close()

    def _connect(self, near):
        try:
            far = socket.create_connection(self._to) if self._whole else None
        except ConnectionRefusedError:
            far = None
        if far is None:
            near.close()
            return
        self._other[near], self._other[far] = far, near
        for one in (near, far):
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, one):
        try:
            data = one.recv(65536)
            if data:
                self._other[one].sendall(data)
                return
        except OSError:
            data = b""
        self._drop(one)

    def _drop(self, one):
        other = self._other.pop(one, None)
        if other is not None:
            del self._other[other]
            for end in (one, other):
                self._selector.unregister(end)
                end.close()
