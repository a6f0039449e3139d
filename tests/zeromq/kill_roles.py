"""What the processes of `tests.zeromq.kills` do: brokers, workers, servers and clients of all systems, for ever.

A client asks with the numbers 0, 1, 2 …, each until it is answered, and writes down each answer; the next client goes on behind
what is written down. Workers write down each number that they do. What is written with one `write` is there, also after SIGKILL.
"""

import asyncio
import os
from dataclasses import dataclass

import zmq

from xump import Engine
from xump.errors import RequestTimeout
from xump.zeromq import Client, LazyPirate, MajordomoBroker, Pair, PirateBroker, Replies, Worker, aio, idempotent
from xump.zeromq.freelance import Addressed, FreelanceServer, OneAtATime, Shotgun
from xump.zeromq.majordomo import ServiceRule

BEATS = {"heartbeat": 0.1, "liveness": 5}
AGAIN = {"timeout": 0.3, "retries": 100_000}
AGAIN_STORED = {"timeout": 2.0, "retries": 100_000}
"""Of a broker that syncs before it answers. If the disk takes longer than a try, no try is ever answered, and each is stored."""
LINK_SECONDS = 1.0
"""A server that gets no turn for two of these is right to end, so they are long beside those of a busy machine."""
WINDOW = 10
"""Requests that the asynchronous client has out."""
NONE = b"none"
"""The answer that is written down for a request that is not asked again."""


@dataclass(frozen=True)
class Place:
    """Where the processes of a system meet."""

    ends: tuple
    """Endpoints, as many as any system needs."""
    folder: str

    def write(self, name, *words):
        """Add a line to a file."""
        file = os.open(os.path.join(self.folder, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, b" ".join(words) + b"\n")
        os.close(file)

    def lines(self, name):
        """The words of each line of a file."""
        try:
            with open(os.path.join(self.folder, name), "rb") as file:
                return [line.split() for line in file]
        except FileNotFoundError:
            return []

    def done(self, body):
        """What workers do."""
        self.write("done", body[-1])
        return [b"done", body[-1]]


# ---- brokers and servers


def simple_broker(place):
    PirateBroker(*place.ends[:2], paranoid=False).run()


def paranoid_broker(place):
    PirateBroker(*place.ends[:2], **BEATS).run()


def majordomo_broker(place):
    MajordomoBroker(place.ends[0], **BEATS).run()


def careful_broker(place):
    MajordomoBroker(place.ends[0], rule=ServiceRule(redispatch=False), **BEATS).run()


def titanic_broker(place):
    MajordomoBroker(place.ends[0], titanic=os.path.join(place.folder, "titanic"), **BEATS).run()


def star_broker(place, at):
    pair = Pair(("primary", "backup")[at], place.ends[2 + at], place.ends[3 - at], heartbeat=LINK_SECONDS)
    server = MajordomoBroker(place.ends[at], pair=pair, **BEATS)
    server.star.changed = lambda state: place.write(f"states-{at}", state.name.encode())
    server.run()


def primary(place):
    star_broker(place, 0)


def backup(place):
    star_broker(place, 1)


def server(place):
    FreelanceServer(place.ends[0], place.done).run()


def other_server(place):
    FreelanceServer(place.ends[1], place.done).run()


def numbered_server(place):
    FreelanceServer(place.ends[0], place.done, numbered=True).run()


def other_numbered_server(place):
    FreelanceServer(place.ends[1], place.done, numbered=True).run()


# ---- workers


def simple_worker(place):
    """A REQ socket that says READY again, over a fresh socket, when nothing comes for a while: its queue may be a new one."""
    context = zmq.Context()
    while True:
        with context.socket(zmq.REQ) as socket:
            socket.linger, socket.rcvtimeo = 0, 500
            socket.connect(place.ends[1])
            socket.send(b"\1")
            try:
                while True:
                    address, _, *body = socket.recv_multipart()
                    socket.send_multipart([address, b"", *place.done(body)])
            except zmq.Again:
                continue


def _worker(place, endpoint, protocol="mdp2", function=None):
    Worker(endpoint, b"s", protocol=protocol, back_off=(0.02, 0.1), **BEATS).run(function or place.done)


def paranoid_worker(place):
    _worker(place, place.ends[1], "ppp")


def majordomo_worker(place):
    _worker(place, place.ends[0])


def old_worker(place):
    _worker(place, place.ends[0], "mdp")


def star_worker(place):
    _worker(place, place.ends[:2])


def once_worker(place):
    """Does each request once: what it did, and its reply, are one transaction on disk."""
    engine = Engine()
    engine.create_store("disk", "ring", path=os.path.join(place.folder, "once"), min_bytes=0)
    engine.create_queue("ledger", store="disk", unmatched="keep")

    @idempotent(Replies(engine, "replies", store="disk"), with_transaction=True)
    def once(body, tx):
        tx.publish("ledger", "", body[0])
        return [b"done", body[0]]

    _worker(place, place.ends[0], function=once)


def ledger(place):
    """The numbers that `once_worker` did. Call it when no such worker is there."""
    with Engine() as engine:
        engine.create_store("disk", "ring", path=os.path.join(place.folder, "once"))
        return [message.body for message in engine.queues["ledger"].browse()]


# ---- clients


def _ask_on(place, ask):
    for number in range(len(place.lines("answers")), 1 << 60):
        word = b"%d" % number
        place.write("answers", word, *ask(word))


def lazy_client(place):
    with LazyPirate(place.ends[0], **AGAIN) as client:
        _ask_on(place, client.request)


def majordomo_client(place):
    with Client(place.ends[0], **AGAIN) as client:
        _ask_on(place, lambda word: client.request(b"s", word))


def old_client(place):
    with Client(place.ends[0], version="0.1", **AGAIN) as client:
        _ask_on(place, lambda word: client.request(b"s", word))


def star_client(place):
    with Client(*place.ends[:2], **AGAIN) as client:
        _ask_on(place, lambda word: client.request(b"s", word))


def once_client(place):
    with Client(place.ends[0], **AGAIN) as client:
        _ask_on(place, lambda word: client.request(b"s", b"identity " + word, word))


def careful_client(place):
    """Asks once, and takes no answer for an answer."""
    with Client(place.ends[0], timeout=1.0, retries=0) as client:
        def ask(word):
            try:
                return client.request(b"s", word)
            except RequestTimeout:
                return [NONE]
        _ask_on(place, ask)


def titanic_client(place):
    """Asks, writes down what was accepted, and comes back for the answer, also after its death."""
    with Client(place.ends[0], **AGAIN_STORED) as client:
        def ask(word):
            accepted = place.lines("accepted")
            if not accepted or accepted[-1][0] != word:
                status, *uuid = client.request(b"titanic.request", b"s", word)
                if status != b"200":
                    return [b"refused", status]
                place.write("accepted", word, *uuid)
                accepted = [[word, *uuid]]
            while (reply := client.request(b"titanic.reply", accepted[-1][1])) == [b"300"]:
                pass
            return reply[1:]
        _ask_on(place, ask)


def asynchronous_client(place):
    async def main():
        async with aio.Client(place.ends[0], in_flight=WINDOW, **AGAIN) as client:
            async def ask(word):
                place.write("answers", word, *await client.request(b"s", word))

            answered = {words[0] for words in place.lines("answers")}
            first = len(answered) // WINDOW * WINDOW
            while True:
                words = [b"%d" % number for number in range(first, first + WINDOW)]
                await asyncio.gather(*(ask(word) for word in words if word not in answered))
                first += WINDOW
    asyncio.run(main())


def first_client(place):
    with OneAtATime(*place.ends[:2], timeout=0.3, rounds=100_000) as client:
        _ask_on(place, client.request)


def second_client(place):
    with Shotgun(*place.ends[:2], timeout=60.0) as client:
        _ask_on(place, client.request)


def third_client(place):
    with Addressed(*place.ends[:2], ping=0.1, ttl=0.5, timeout=0.3, tries=100_000) as client:
        _ask_on(place, client.request)
