"""Threads that publish and consume, and books of what each message met."""

import collections
import threading


from xump import Engine
from xump.errors import Closed


THREADS = 8
EACH = 2000


class Crew:
    """Threads that start together; what one of them raises comes out when they are joined."""

    def __init__(self):
        self.threads, self.errors, self.start_together = [], [], threading.Event()

    def add(self, call, *arguments):
        def run():
            self.start_together.wait()
            try:
                call(*arguments)
            except BaseException as error:
                self.errors.append(error)
        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def start(self):
        self.start_together.set()

    def join(self):
        self.start()
        for thread in self.threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


class Watched(Engine):
    """Counts how often those who wait look for deliveries, and tells when they have begun to."""

    def __init__(self, **options):
        super().__init__(**options)
        self.looks = collections.Counter()
        self.waits = threading.Semaphore(0)

    def _wait(self, take, destination, timeout):
        def look():
            self.looks[threading.get_ident()] += 1
            taken = take()
            if not taken:
                self.waits.release()        # in the list of those who wait, and about to
            return taken
        return super()._wait(look, destination, timeout)

    def when_waiting(self, count):
        """Returns when that many have looked in vain."""
        for _ in range(count):
            self.waits.acquire()


class Ledger:
    """What consumers have settled."""

    def __init__(self, wanted):
        self.lock, self.settled, self.nacked, self.left = threading.Lock(), collections.Counter(), set(), wanted
        self.done = threading.Event()

    def settle(self, delivery):
        """Acks, or the first time for some nacks."""
        key = (delivery.destination, delivery.message.message_id)
        with self.lock:
            nack = int(delivery.message.message_id) % 7 == 0 and key not in self.nacked
            if nack:
                self.nacked.add(key)
            else:
                self.settled[key] += 1
        if nack:
            delivery.nack()
            return
        delivery.ack()
        with self.lock:
            self.left -= 1
            if self.left == 0:
                self.done.set()


def consume_by_take(engine, ledger, destination):
    try:
        while True:
            for delivery in engine.take(3, destination, timeout=None):
                ledger.settle(delivery)
    except Closed:
        pass


def consume_by_iterator(engine, ledger, destination):
    try:
        while True:     # what was nacked is not seen again by this iteration, so begin another
            for delivery in engine.deliveries(destination, timeout=0.001):
                ledger.settle(delivery)
    except Closed:
        pass
