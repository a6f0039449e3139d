"""A broker with its HTTP API, and targets for webhooks."""

import http.client
import json
import queue
import socket
import threading
from contextlib import suppress
from urllib.parse import quote, urlsplit

import pytest

from xump.broker import Broker


class Asked:
    """An answer: status, headers and body."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.raw = response.read()

    @property
    def json(self):
        return json.loads(self.raw)


class Client:
    """Asks a server."""

    def __init__(self, url):
        self.url = url
        self.place = urlsplit(url)

    def __call__(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.place.hostname, self.place.port)
        try:
            if isinstance(body, dict):
                body = json.dumps(body).encode()
            connection.request(method, quote(path, safe="/?=&%+:#"), body, headers or {})
            return Asked(connection.getresponse())
        finally:
            connection.close()


@pytest.fixture
def web(engine):
    """An engine's broker, which may call targets on this machine."""
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0", private_targets=True) as broker:
        client = Client(broker.http.url)
        client.broker = broker
        yield client


class Target:
    """A server that keeps what it is asked, and answers what it is told to: bytes, or what a function makes of the request."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = queue.SimpleQueue()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/hook"
        self.held = []
        self.lock = threading.Lock()
        self.is_closed = False
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection):
        with connection, connection.makefile("rb") as lines, suppress(ConnectionError):
            while line := lines.readline():
                method, path, _ = line.decode().split(" ", 2)
                headers = http.client.parse_headers(lines)
                body = lines.read(int(headers.get("Content-Length", 0)))
                told = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                answer = told(method, path) if callable(told) else told
                if answer is None:          # it hangs
                    self.hold(connection)
                self.asked.put((method, path, headers, body))
                if answer is None:
                    return
                connection.sendall(answer)
                if b"close" in answer:
                    return

    def next(self):
        return self.asked.get(timeout=30)

    def hold(self, connection):
        with self.lock:
            if not self.is_closed:      # else it was asked once more while the test ended
                self.held.append(connection.dup())

    def close(self):
        self.socket.close()
        with self.lock:
            self.is_closed = True
            for connection in self.held:
                connection.close()


@pytest.fixture
def target():
    """Makes targets."""
    made = []

    def make(*answers):
        made.append(Target(*answers))
        return made[-1]

    yield make
    for one in made:
        one.close()


OK = b"HTTP/1.1 204 No Content\r\n\r\n"


def answer(status, body=b"", *headers):
    """The bytes of an answer."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body
