"""The thread that gives hints: one for all that ask, none after a failure until somebody asks again, and its end."""

import threading
from contextlib import contextmanager

import pytest

from xump.sql.sender import Sender


class Line:
    """A connection that counts its hints; `broken` makes opening it fail, `cut` the next look after it."""

    def __init__(self):
        self.opened, self.closed, self.given, self.failures = 0, 0, 0, []
        self.broken = self.cut = False
        self.told = threading.Condition()
        self.sender = Sender("test-hints", self.connected, self.failed)

    @contextmanager
    def connected(self):
        with self.told:
            self.opened += 1
            self.told.notify_all()
        if self.broken:
            raise ConnectionRefusedError("broken")
        try:
            yield self
        finally:
            with self.told:
                self.closed += 1
                self.told.notify_all()

    def give(self):
        with self.told:
            self.given += 1
            self.told.notify_all()

    def look_after(self):
        if self.cut:
            self.cut = False
            raise ConnectionResetError("cut")

    def failed(self, error):
        with self.told:
            self.failures.append(str(error))
            self.told.notify_all()

    def wait(self, condition):
        with self.told:
            assert self.told.wait_for(condition, 60)

    def ended(self):
        thread = self.sender._thread
        if thread is not None:
            thread.join(60)
        return self.sender._thread is None


@pytest.fixture
def line(monkeypatch):
    for name in ("LISTEN_SECONDS", "REOPEN_SECONDS"):
        monkeypatch.setattr(f"xump.sql.sender.{name}", 0.01)
    monkeypatch.setattr("xump.sql.sender.IDLE_SECONDS", 0.1)
    return Line()


def test_a_thread_that_nobody_asks_ends_with_its_connection_and_begins_again_when_one_does(line):
    for n in (1, 2):
        line.sender.ask()
        line.wait(lambda n=n: line.closed == n)
        assert line.ended() and (line.opened, line.given, line.failures) == (n, n, [])


def test_what_cannot_be_reached_is_tried_once_for_all_that_ask(line):
    line.broken = True
    line.sender.ask()
    assert line.ended() and (line.opened, line.given, line.failures) == (1, 0, ["broken"])
    line.broken = False
    line.sender.ask()
    line.wait(lambda: line.given == 1)
    assert line.ended()


def test_a_connection_that_was_cut_is_opened_anew_for_the_next_that_asks(line, monkeypatch):
    monkeypatch.setattr("xump.sql.sender.IDLE_SECONDS", 60)
    line.sender.ask()
    line.wait(lambda: line.given == 1)
    line.cut = True
    line.wait(lambda: line.failures == ["cut"])
    assert line.ended()
    line.sender.ask()
    line.wait(lambda: line.given == 2)
    line.cut = True
    assert line.ended() and line.opened == line.closed == 2
