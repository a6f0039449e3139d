"""The calls that are open. Each has a thread of Flight's, and Flight cannot end one that waits for its client.

So the broker ends the connection of a client that says nothing, or reads nothing, for too long. It does the same with all when it
ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyarrow import flight

from xump.broker.exchange_graph import PREFIX
from xump.broker.flight import access
from xump.broker.flight.connections import Connections, host_and_port_of, peers, shut
from xump.broker.flight.interceptor import MIDDLEWARE
from xump.broker.flight.problems import Gone, Refused, Unknown
from xump.broker.permissions import why_not, why_not_deliver, why_not_take
from xump.errors import QueueNotFound

if TYPE_CHECKING:
    from xump.broker.flight.server import Flight
    from xump.broker.users import User, Users
    from xump.broker.vhost import Vhost
    from xump.engine import Engine
    from xump.queue import Queue

BUSY_SECONDS = 0.2
"""So long after its end a call still stands for a client that will call again."""

LOOK_SECONDS = 0.5
"""How often a call that waits for the engine looks whether its client is still there."""


class Call:
    """A call of a client: who it is, what for, and since when it waits for the client."""

    def __init__(self, listener: Flight, context: flight.ServerCallContext) -> None:
        self.listener = listener
        """The listener."""
        self.peer: str = context.peer()
        """The caller, as gRPC names it."""
        self.waits_since: float | None = None
        """Since when it waits for the client, monotonic; None: it does not."""
        self.stages = False
        """Whether it stages rows, or commits them: see `Calls.busy`."""
        self.is_out = False
        """Whether its user has other permissions by now, or none."""
        self._context = context
        self._headers = context.get_middleware(MIDDLEWARE)
        self.user: User = listener.access.user_of(self._headers.get("authorization"), access.is_here(self.peer))
        """Whose it is."""
        self.vhost: Vhost = vhost_for(listener, self.user, access.vhost_of(self._headers.get("xump-vhost")))
        """The virtual host that it is for."""

    @property
    def engine(self) -> Engine:
        """The engine of the virtual host."""
        return self.vhost.engine

    def queues(self) -> list[Queue]:
        """The queues that there are now; other threads create and delete some meanwhile."""
        queues = self.engine.queues
        return [queue for name in list(queues) if (queue := queues.get(name)) is not None]

    def may(self, permission: str, name: str) -> bool:
        """Whether the user has this permission for a queue; nobody has one for what is staged."""
        return why_not(self.vhost, permission, name) is None and self.user.may(
            self.vhost.name, permission, name.removeprefix(PREFIX))

    def check(self, permission: str, name: str) -> None:
        """Raise `Refused` unless the user has this permission for a queue. The queue of an exchange is the exchange."""
        why = why_not(self.vhost, permission, name)
        if why is not None:
            raise Refused(why)
        access.check(self.user, self.vhost.name, permission, name.removeprefix(PREFIX))

    def check_takes(self, name: str) -> None:
        """Raise `Refused` unless messages of a queue that the user may read may be taken from here."""
        why = why_not_take(self.vhost, name)
        if why is not None:
            raise Refused(why)

    def check_destination(self, permission: str, name: str) -> None:
        """Raise `Refused` unless the user has this permission for a destination, or a window, of this name."""
        why = why_not_deliver(name)
        if why is not None:
            raise Refused(why)
        access.check(self.user, self.vhost.name, permission, name)

    def queue(self, permission: str, name: str) -> Queue:
        """A queue. Raises `Refused` and `QueueNotFound`."""
        self.check(permission, name)
        queue = self.engine.queues.get(name)
        if queue is None:
            raise QueueNotFound(f"no queue {name!r} in the virtual host {self.vhost.name!r}")
        return queue

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A block that waits for the client."""
        self.waits_since = time.monotonic()
        try:
            yield
        finally:
            self.waits_since = None

    def check_open(self) -> None:
        """Raise `Gone` if the client is gone, or the broker ends."""
        if self.listener.ending:
            raise Gone("the broker ends")
        if self.is_out:
            raise Unknown(f"user {self.user.name!r} has other permissions now, or is none any more: call again")
        if self._context.is_cancelled():
            raise Gone("the call was cancelled")

    def durable(self, timeout: float | None = None) -> None:
        """Wait until all that was done before is durable. Raises `StoreFailed`, `Gone` and `TimeoutError`."""
        wait_durable(self.engine, self.check_open, timeout)


def vhost_for(listener: Flight, user: User, name: str) -> Vhost:
    """The virtual host. Raises `Refused`."""
    vhost = listener.broker.vhosts.get(name)
    if vhost is None or not user.may_enter(name):
        raise Refused(f"user {user.name!r} has no virtual host {name!r}")
    return vhost


def wait_durable(engine: Engine, check_open: object, timeout: float | None = None) -> None:
    """Wait until all that was done before is durable; `check_open()` may raise meanwhile."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def told(error: BaseException | None) -> None:
        if error is not None:
            failures.append(error)
        ended.set()

    engine.when_durable(told)
    deadline = None if timeout is None else time.monotonic() + timeout
    while not ended.wait(LOOK_SECONDS):
        check_open()            # type: ignore[operator]
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(f"not durable after {timeout:g} seconds")
    if failures:
        raise failures[0]


class Calls:
    """All open calls."""

    def __init__(self, listener: Flight) -> None:
        self._listener = listener
        self._open: dict[Call, None] = {}
        self._connections = Connections(listener.limits)
        self._lock = threading.Lock()
        self._others = 0                # open calls that do not stage
        self._other_ended = -BUSY_SECONDS
        self._were_there = False        # since `were_there` was asked

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def open(self, context: flight.ServerCallContext) -> Iterator[Call]:
        """A call, as long as it is open. Raises what `Call` raises."""
        call = self.begin(context)
        try:
            yield call
        finally:
            self.end(call)

    def begin(self, context: flight.ServerCallContext) -> Call:
        """A call begins."""
        if self._listener.ending:
            raise Gone("the broker ends")
        call = Call(self._listener, context)
        with self._lock:
            self._open[call] = None
            self._connections.called(host_and_port_of(call.peer), time.monotonic())
            self._others += 1
            self._were_there = True
        return call

    def staging(self, call: Call) -> None:
        """It turned out that a call stages."""
        with self._lock:
            call.stages = True
            self._others -= 1

    def busy(self) -> bool:
        """Whether clients call now, or did a moment ago, other than those that stage: they must not wait for what enters."""
        return self._others > 0 or time.monotonic() - self._other_ended < BUSY_SECONDS

    def were_there(self) -> bool:
        """Whether there have been calls since the last time that this was asked, and there are none now."""
        with self._lock:
            were = self._were_there and not self._open
            if were:
                self._were_there = False
            return were

    def end(self, call: Call) -> None:
        """It has ended."""
        with self._lock:
            if call not in self._open:
                return
            del self._open[call]
            self._connections.called(host_and_port_of(call.peer), time.monotonic())
            if not call.stages:
                self._others -= 1
                self._other_ended = time.monotonic()

    def look_after(self, now: float) -> None:
        """End the connections of clients that have said, or read, nothing for too long, or make no calls, or are too many."""
        idle = self._listener.limits.flight_idle_seconds
        there = peers(self._listener.address[1])
        with self._lock:
            calling = {host_and_port_of(call.peer) for call in self._open}
            ends = {host_and_port_of(call.peer) for call in self._open
                    if call.waits_since is not None and now - call.waits_since >= idle}
            ends |= self._connections.too_long(there, calling, now)
        if ends:
            shut(self._listener.address[1], ends)

    def change_users(self, users: Users) -> None:
        """End the calls of users who may do something else from now on, or nothing."""
        with self._lock:
            out = [call for call in self._open
                   if (user := users.get(call.user.name)) is None or user.vhosts != call.user.vhosts]
            for call in out:
                call.is_out = True
        if out:
            shut(self._listener.address[1], {host_and_port_of(call.peer) for call in out})

    def shut_all(self) -> None:
        """End the connections of all clients, those without an open call, too: Flight's own end would wait for them to agree."""
        shut(self._listener.address[1], None)
