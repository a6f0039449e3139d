"""A connection that is cut at one exact step: before a request goes on, or when it is done and its answer comes back."""

import socket
import threading


class Tap:
    """Listens at `port`, and forwards to another one on this machine, byte for byte, until what `arm` says comes by."""

    def __init__(self, to):
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._patterns, self._tails = {}, {}
        self._threads, self._ends = [], []
        self.cut = threading.Event()
        """Set when the connection was cut."""
        self._start(self._accept)

    def arm(self, *, request=None, answer=None):
        """Cut at the first request, or the first answer, that has these bytes; it does not go on. Once."""
        self.cut.clear()
        self._tails = {}
        self._patterns = {"request": request, "answer": answer}

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._ends:
            self._shut(end)
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()

    def _start(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            self._ends += [near, far]
            self._start(self._forward, "request", near, far)
            self._start(self._forward, "answer", far, near)

    def _forward(self, way, one, other):
        while True:
            try:
                data = one.recv(65536)
                wanted = self._patterns.get(way)
                seen = self._tails.get(one, b"") + data
                if wanted and wanted in seen:
                    self._patterns = {}
                    data = b""
                    self.cut.set()
                if not data:
                    break
                self._tails[one] = seen[-100:]      # first: whoever gets the data may arm it anew
                other.sendall(data)
            except OSError:
                break
        self._shut(one)
        self._shut(other)

    @staticmethod
    def _shut(end):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass                    # the other end did it
