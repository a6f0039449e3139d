"""Passwords are hashed beside the loop, a few at a time: other clients do not wait for that."""

import threading

import pika
import pytest

from tests.broker.raw_client import Link
from xump.broker import Broker, Limits, Users, passwords, users
from xump.broker.users import User, guest, hash_password

EVERYWHERE = guest()._users["guest"].vhosts
BERTA = {"berta": User("berta", hash_password("secret", 2), EVERYWHERE)}
WAIT = 60


@pytest.fixture
def broker(engine):
    with Broker(engine, amqp="127.0.0.1:0", users=Users(BERTA), limits=Limits(handshake_seconds=10 * WAIT)) as broker:
        yield broker


class Gate:
    """Passwords come here to be hashed."""

    def __init__(self):
        self.opened = threading.Event()
        self.opened.set()
        self.lock = threading.Lock()
        self.inside = threading.Semaphore(0)        # one for each that has come
        self.now = self.most = self.count = 0
        self.threads = set()

    def hashed(self, password, stored):
        with self.lock:
            self.threads.add(threading.get_ident())
            self.count += 1
            self.now += 1
            self.most = max(self.now, self.most)
        self.inside.release()
        assert self.opened.wait(WAIT)
        with self.lock:
            self.now -= 1
        return self.holds(password, stored)


@pytest.fixture
def gate(monkeypatch):
    gate = Gate()
    gate.holds = users.password_holds
    monkeypatch.setattr(users, "password_holds", gate.hashed)
    yield gate
    gate.opened.set()


@pytest.fixture
def logs_in(broker):
    """Makes a client that has sent its password."""
    links = []

    def made(password="secret"):
        links.append(Link("a", broker.address, []))
        links[-1].socket.sendall(b"AMQP\0\0\x09\x01")
        links[-1].read_until({"connection.start"})
        links[-1].send(0, "connection.startok", mechanism="PLAIN", response=f"\0berta\0{password}", locale="en_US",
                       client_properties={})
        return links[-1]

    yield made
    for link in links:
        link.socket.close()


def connected(broker):
    return pika.BlockingConnection(pika.ConnectionParameters(
        *broker.address, heartbeat=0, credentials=pika.PlainCredentials("berta", "secret")))


def test_the_loop_hashes_none(broker, gate):
    with connected(broker) as connection:
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.ConnectionParameters(
                *broker.address, credentials=pika.PlainCredentials("berta", "wrong")))
        connection.update_secret("secret", "anew")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="New secret was refused"):
            connection.update_secret("wrong", "anew")
    assert gate.count == 3 and broker.thread not in gate.threads


def test_others_are_served_while_passwords_are_checked(broker, gate, logs_in):
    with connected(broker) as connection:
        gate.opened.clear()
        links = [logs_in("wrong") for _ in range(3 * passwords.CHECKS_MAX)]
        for _ in range(passwords.CHECKS_MAX + 1):           # the first is that of the connection
            assert gate.inside.acquire(timeout=WAIT)
        connection.channel().queue_declare("jobs")
        with connected(broker) as other:                    # a password that was right is not hashed again
            other.channel().queue_declare("jobs", passive=True)
        gate.opened.set()
        for link in links:
            assert not link.read_until({"connection.tune"})
    assert gate.most == passwords.CHECKS_MAX


def test_a_password_is_not_hashed_for_a_client_that_is_no_longer_there(broker, gate, logs_in):
    gate.opened.clear()
    links = [logs_in("wrong") for _ in range(passwords.CHECKS_MAX)]
    for _ in links:
        assert gate.inside.acquire(timeout=WAIT)
    links.append(logs_in("wrong"))
    last = logs_in()                                  # behind that in line
    ended = threading.Event()

    def end():
        if not all(connection.held for connection in broker.connections):
            broker.loop.call_later(0.01, end)               # one is not in line yet
            return
        for connection in list(broker.connections)[:-1]:
            connection.abort()
        ended.set()

    broker.loop.call_soon_threadsafe(end)
    assert ended.wait(WAIT)
    gate.opened.set()
    assert last.read_until({"connection.tune"})
    assert gate.count == passwords.CHECKS_MAX + 1


def test_users_that_change_while_a_password_is_checked(broker, gate, logs_in):
    gate.opened.clear()
    link = logs_in()
    assert gate.inside.acquire(timeout=WAIT)
    changed = threading.Event()
    broker.loop.call_soon_threadsafe(lambda: (broker.change_users(Users({})), changed.set()))
    assert changed.wait(WAIT)
    gate.opened.set()
    assert not link.read_until({"connection.tune"})
    assert gate.count == 2
