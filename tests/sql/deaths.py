"""Processes that die at one exact step, and what is looked at afterwards.

The child is a fork that opens its own connections and stores, and dies by SIGKILL. Leases are ended by hand, not waited for.
"""

import os
import signal

from sqlalchemy import text
from sqlalchemy.pool import NullPool

import xump
from tests.sql.conftest import count, engine_of, until
from tests.sql.postgres import CLIENTS
from xump.sql import Outbox
from xump.sql.targets import EngineTarget

RELAY = ["r1_before_query", "r2_after_query", "r3_send_failed_not_sent", "r4_single_sent_confirm_lost",
         "r5_single_confirmed_then_died", "r6_batch_died_between", "r7_batch_sent_confirm_lost", "r8_batch_confirmed_then_died",
         "r9_after_begin", "r10_after_delete_before_commit", "r11_after_commit"]
NOT_SENT = ("r1_", "r2_", "r3_", "r6_")


def die(*arguments, **named):
    os.kill(os.getpid(), signal.SIGKILL)


def backends(url):
    """The processes of a PostgreSQL server that have a client; none of SQLite."""
    database = engine_of(url, poolclass=NullPool)
    if database.dialect.name == "sqlite":
        return set()
    with database.connect() as connection:
        return set(connection.execute(text(f"SELECT pid {CLIENTS}")).scalars())


def killed(url, work):
    """The child does this and dies. Its server has seen that, and has rolled back, when this returns: a row of its is free."""
    there = backends(url)
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child did not come to the point at which it dies"
    until(lambda: backends(url) <= there)


def before(owner, name):
    setattr(owner, name, die)


def after(owner, name):
    whole = getattr(owner, name)

    def and_die(*arguments, **named):
        whole(*arguments, **named)
        die()

    setattr(owner, name, and_die)


class Deadly:
    """A row that kills as soon as it is looked at."""

    def __getattr__(self, name):
        die()


def opened(tmp_path):
    engine = xump.Engine()
    engine.create_store("disk", "ring", path=tmp_path / "store.xump")
    engine.create_queue("orders", store="disk", dedup=3600)
    return engine


def bodies(engine):
    return [message.body for message in engine.queues["orders"].browse()]


def relay_dying_at(point, tmp_path, url, **options):
    relay = Outbox().relay(opened(tmp_path), engine=engine_of(url), **options)
    target, step = relay._target, int(point[1:].partition("_")[0])
    if step == 6:
        target._send_all = lambda rows: EngineTarget._send_all(target, [*rows[:1], Deadly()])
    elif step == 11:
        counted = relay._count

        def count_and_die(sent, deleted):
            counted(sent, deleted)
            return die() if deleted else True

        relay._count = count_and_die
    else:
        point_of_death, owner, name = {
            1: (before, relay, "_read"), 2: (after, relay, "_read"), 3: (before, target, "send"), 4: (after, target, "_send_all"),
            5: (after, target, "send"), 7: (after, target, "_send_all"), 8: (after, target, "send"),
            9: (before, relay, "_settle"), 10: (after, relay, "_settle")}[step]
        point_of_death(owner, name)
    return relay


def sent_after_all(database, made, tmp_path, point, rows):
    """What a dead relay left is sent by the next one: in order, and what was sent before enters the queue no second time."""
    with database.begin() as connection:
        connection.execute(made.slot.update().values(until=0))      # the dead relay's lease is over
        connection.execute(made.relay.delete())
    with opened(tmp_path) as engine:
        if point.startswith(NOT_SENT):
            assert bodies(engine) == []
        Outbox().relay(engine, engine=database).drain()
        assert bodies(engine) == [b"%d" % number for number in range(rows)]
        engine.check()
    assert count(database, made.outbox) == 0
