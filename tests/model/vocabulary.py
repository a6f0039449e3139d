"""The few names, conditions and actions of which the state machine and others make graphs."""

import datetime

from xump import INFINITE, bounce_to, copy_to, deliver, discard, field, match, move_to, where
from xump import always, default, overflow, register_rewriter

QUEUES = ["q0", "q1", "q2", "q3", "q4"]
DESTINATIONS = ["d0", "d1", "q1"]
ADDRESSES = ["", "a", "a.b", "a.b.c", "b", "q1", "q2", "q3", "nowhere"]


def even(message):
    """A callable condition."""
    return message.headers.get("n", 1) % 2 == 0


def fails(message):
    """A callable that raises for some."""
    if message.headers["n"] == 3:
        raise ValueError("three")
    return True


CONDITIONS = [
    always, always, always, default, overflow,
    match("eq", "a"), match("eq", "b"), match("topic", "a.#"), match("topic", "*.b"), match("prefix", "a."),
    match("eq", "q2", field="reply_to"), match("eq", "q1", field="headers.to"), match("topic", "#", field="headers.to"),
    where("n > 2"), where("n = 1"), where("to IS NOT NULL AND n < 4"), where({"n": 2}), where({"n": [1, 3]}),
    where("sys.address = 'b'"), where("sys.delivery_count > 0"), where(even), where(fails),
    match("topic", "a.*") & where("n > 1"), match("eq", "a") & where(even), where({"n": 1}) & where("to = 'q2'"),
]
FIELDS = ["address", "reply_to", "destination", "headers.to"]
TARGETS = [*QUEUES, *(field(name) for name in FIELDS)]
ACTIONS = (
    [copy_to(target) for target in TARGETS] + [move_to(target) for target in TARGETS] + [bounce_to(target) for target in TARGETS]
    + [deliver(name) for name in DESTINATIONS] * 2 + [deliver(field(name)) for name in FIELDS]
    + [deliver("d0", queue=target) for target in TARGETS] + [deliver(field("headers.to"), queue="q3"), discard, discard]
)


def stamp(message, death):
    """A rewriter that leaves the address as it is, and writes down all deaths."""
    return message.replace(reply_to=None, headers={
        **message.headers, "deaths": f"{message.headers.get('deaths', '')} {death.reason} in {death.queue} {death.argument}",
        "died": death.time, "entered": message.timestamp, "hops": message.hops, "detail": death.detail or ""})


def bar(message, death):
    """A rewriter that bars the queues that its argument names, and sends to the last of them."""
    return message.replace(address=death.argument.split()[-1]), death.argument.split()


for function in (stamp, bar):
    register_rewriter(f"test {function.__name__}", function)
REWRITERS = ["test stamp", ["test stamp", "x"], ["test bar", "q1"], ["test bar", "q2 q3"], ["test bar", "q0 nowhere q4"]]
CREDITS = [0, 1, 1, 2, 3, INFINITE]
STARTS = ["current", "current", "tail", "head", 2, datetime.datetime(1970, 1, 1, 0, 0, 0, 11, tzinfo=datetime.UTC)]
WINDOWS = ["w0", "w1"]
MAP_NAMES = ["m", "n", "größe"]
MAP_VALUES = [b"", b"1", b"22", 40_000]      # the last is so many bytes: two of them are too much
NANOSECOND = 1e-9       # moments lie close together
