"""HTTP beside the framework alone: publishing, a webhook, and a scrape of many queues. `python -m benchmarks.http`.

- Publish: 100 bytes by `POST /queues/NAME`, each answered before the next one is sent, beside an empty POST to bare aiohttp.
  Both are processes of their own, and the client is a socket with prebuilt requests. Bar: half of the bare server's rate.
- Webhook: from the publish to the arrival at a target on this machine, beside httpx that posts the same to the same target.
- Scrape: `/metrics` of 10,000 queues, and the slowest publish meanwhile. Bar: 100 ms.
"""

from __future__ import annotations

import re
import socket
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter_ns
from urllib.parse import urlsplit

from benchmarks.harness import BODY, compare, describe, parser_of, speed_table, take_turns, verdict

QUEUES = 10_000
BARE = """
import asyncio
from aiohttp import web

async def empty(request):
    await request.read()
    return web.Response(status=201)

async def main():
    application = web.Application()
    application.router.add_post("/queues/{name}", empty)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print("bare: HTTP on http://127.0.0.1:%d/" % runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
SERVE = ["-m", "xump", "serve", "--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0"]


@contextmanager
def process(*arguments: str) -> Iterator[tuple[str, int]]:
    """A server; where it listens."""
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        said = re.search(r"HTTP on (\S+)", server.stdout.readline())
        assert said is not None
        place = urlsplit(said[1])
        try:
            yield place.hostname or "", place.port or 80
        finally:
            server.terminate()


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """A request as it goes over the wire."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def ask(link: socket.socket, sent: bytes) -> bytes:
    """Send a request, and read the whole answer."""
    link.sendall(sent)
    found = b""
    while b"\r\n\r\n" not in found:
        found += link.recv(1 << 16)
    head, _, body = found.partition(b"\r\n\r\n")
    size = re.search(rb"Content-Length: (\d+)", head)
    while size is not None and len(body) < int(size[1]):
        body += link.recv(1 << 20)
    if not head.startswith(b"HTTP/1.1 20"):
        raise RuntimeError(head.decode())
    return body


def publish(place: tuple[str, int], count: int) -> float:
    """Nanoseconds a publish."""
    with socket.create_connection(place) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = request("POST", "/queues/benchmark", BODY)
        begun = perf_counter_ns()
        for _ in range(count):
            ask(link, sent)
        return (perf_counter_ns() - begun) / count


class Target(threading.Thread):
    """A server that says when a request came."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/"
        self.came = threading.Semaphore(0)
        self.start()

    def run(self) -> None:
        while True:
            link, _ = self.socket.accept()
            threading.Thread(target=self.talk, args=(link,), daemon=True).start()

    def talk(self, link: socket.socket) -> None:
        found = b""
        while data := link.recv(1 << 16):
            found += data
            while BODY in found:
                found = found[found.index(BODY) + len(BODY):]
                self.came.release()
                link.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


def webhooks(count: int) -> dict[str, list[int]]:
    """Nanoseconds from the publish to the arrival, message by message."""
    import httpx

    import xump
    from xump.broker import Broker

    target = Target()
    times: dict[str, list[int]] = {"webhook": [], "httpx": []}
    with (xump.Engine() as engine, Broker(engine, "127.0.0.1:0", http="127.0.0.1:0", private_targets=True) as broker,
          httpx.Client(trust_env=False) as client):
        assert broker.http is not None
        queue = engine.create_queue("benchmark")
        client.put(f"{broker.http.url}webhooks/benchmark", json={"queue": "benchmark", "url": target.url}).raise_for_status()
        for _ in range(count):
            begun = perf_counter_ns()
            queue.publish("", BODY)
            target.came.acquire()
            times["webhook"].append(perf_counter_ns() - begun)
            begun = perf_counter_ns()
            client.post(target.url, content=BODY)
            times["httpx"].append(perf_counter_ns() - begun)
            target.came.acquire()
    return {name: taken[count // 10:] for name, taken in times.items()}


def scrape(rounds: int) -> tuple[float, float]:
    """Milliseconds of the median scrape, and of the slowest publish of another connection meanwhile."""
    with process(*SERVE) as place, socket.create_connection(place) as link, socket.create_connection(place) as other:
        for number in range(QUEUES):
            ask(link, request("PUT", f"/queues/queue-{number}", b"{}"))
        slowest, ended, taken = [0.0], threading.Event(), []

        def publishing() -> None:
            while not ended.is_set():
                begun = perf_counter_ns()
                ask(other, request("POST", "/queues/queue-0", BODY))
                slowest[0] = max(slowest[0], (perf_counter_ns() - begun) / 1e6)

        publisher = threading.Thread(target=publishing)
        publisher.start()
        for _ in range(rounds):
            begun = perf_counter_ns()
            ask(link, request("GET", "/metrics"))
            taken.append((perf_counter_ns() - begun) / 1e6)
        ended.set()
        publisher.join()
    return statistics.median(taken), slowest[0]


def main(arguments: list[str] | None = None) -> None:
    options = parser_of(__doc__).parse_args(arguments)
    count = 500 if options.quick else 3_000
    describe("aiohttp", "httpx")
    with ExitStack() as servers:
        places = {"xump": servers.enter_context(process(*SERVE)), "bare aiohttp": servers.enter_context(process("-c", BARE))}
        with socket.create_connection(places["xump"]) as link:
            ask(link, request("PUT", "/queues/benchmark", b"{}"))
        times = take_turns({name: partial(publish, place, count) for name, place in places.items()}, options.rounds)
    table = speed_table()
    compare(table, times, "bare aiohttp", ["xump"], 0.5)
    arrived = webhooks(count)
    for name, taken in arrived.items():
        print(f"{name}: p50 {statistics.median(taken) / 1e3:.0f} µs, p99 {statistics.quantiles(taken, n=100)[98] / 1e3:.0f} µs")
    took, slowest = scrape(options.rounds)
    print(f"scrape of {QUEUES:,} queues: {took:.0f} ms {verdict(took < 100)}; slowest publish meanwhile {slowest:.1f} ms")


if __name__ == "__main__":
    main()
