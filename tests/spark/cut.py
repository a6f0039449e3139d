"""A broker in a process of its own, which a test kills; and a wire to it, which a test cuts when a commit passes."""

import re
import socket
import subprocess
import sys
import threading

READY = re.compile(r"grpc(?:\+tls)?://([\d.]+):(\d+)")

TOPOLOGY = """
[stores.disk]
type = "ring"
path = "{folder}/disk.xump"
[queues.q]
store = "disk"
history_limit = 1000000
"""


class Process:
    """`xump serve`; it comes back on the same port."""

    def __init__(self, folder):
        self._folder = folder
        self._file = folder / "network.toml"
        self._file.write_text(f"version = 1\n{TOPOLOGY.format(folder=folder)}")
        self.port = 0
        self.start()

    def start(self):
        listens = "--amqp", "127.0.0.1:0", "--flight", f"127.0.0.1:{self.port}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "xump", "serve", str(self._file), *listens],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = ""
        for line in self._process.stdout:
            said += line
            if found := READY.search(line):
                self.port = int(found.group(2))
                return
        raise AssertionError(f"the broker has ended: {said}")

    @property
    def url(self):
        return f"grpc://127.0.0.1:{self.port}"

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


class Wire:
    """Passes connections on to a port of this machine. When a commit of a client passes for the first time, `at_commit` is called
    with the function that sends it on; after that the connection is cut, so that the client has no answer."""

    def __init__(self, port, at_commit):
        self._target, self._at_commit = port, at_commit
        self._once = threading.Lock()
        self._seen = False
        self.error = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open = [self._listening]
        self._threads = []
        self.url = f"grpc://127.0.0.1:{self._listening.getsockname()[1]}"
        self._start(self._accept)

    def _start(self, target, *arguments):
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self._threads[-1].start()

    def close(self):
        for one in self._open:
            hang_up(one)
        for thread in self._threads:
            thread.join(60)
        for one in self._open:
            one.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            self._open += [client, broker]
            self._start(self._pass_on, client, broker, True)
            self._start(self._pass_on, broker, client, False)

    def _pass_on(self, source, to, watched):
        try:
            while data := source.recv(1 << 16):
                if watched and b'"winners"' in data and self._is_first():
                    self._at_commit(lambda data=data: to.sendall(data))
                    break
                to.sendall(data)
        except OSError:
            pass        # the other side is gone: this one hears of it below
        except BaseException as error:
            self.error = error
        hang_up(source)
        hang_up(to)

    def _is_first(self):
        with self._once:
            first, self._seen = not self._seen, True
            return first


def hang_up(end):
    """End a connection, or a wait for one; whatever waits for it hears of that."""
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return      # it has ended already
