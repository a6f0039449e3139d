"""The vocabulary of the tests: `xump.workloads.TIGHT`, with rewriters, which a test has to register."""

from dataclasses import replace
from functools import wraps

from tests.model.entries import bounced
from xump import register_rewriter
from xump.workloads import TIGHT

ENDS = []
"""(queue, id, reason) of messages that ended for their time or their delivery limit, in the order in which rewriters were
called."""


def bounce(message, death):
    """A rewriter that does what is done without one."""
    return bounced(message, death.reason, death.queue, death.detail)


def stamp(message, death):
    """A rewriter that leaves the address as it is, and writes down all deaths."""
    return message.replace(reply_to=None, headers={
        **message.headers, "deaths": f"{message.headers.get('deaths', '')} {death.reason} in {death.queue} {death.argument}",
        "died": death.time, "entered": message.timestamp, "hops": message.hops, "detail": death.detail or ""})


def bar(message, death):
    """A rewriter that bars the queues that its argument names, and sends to the last of them."""
    return message.replace(address=death.argument.split()[-1]), death.argument.split()


def noting(function):
    """The rewriter, which adds to `ENDS` what has entered its queue."""
    @wraps(function)
    def rewriter(message, death):
        if message.id and death.reason in ("expired", "delivery-limit"):
            ENDS.append((death.queue, message.id, death.reason))
        return function(message, death)
    return rewriter


for function in (bounce, stamp, bar):
    register_rewriter(f"test {function.__name__}", noting(function))

VOCABULARY = replace(TIGHT, rewriters=[
    "test stamp", ["test stamp", "x"], ["test bar", "q1"], ["test bar", "q2 q3"], ["test bar", "q0 nowhere q4"]])
QUEUES, DESTINATIONS, ADDRESSES = VOCABULARY.queues, VOCABULARY.destinations, VOCABULARY.addresses
CONDITIONS, ACTIONS, CREDITS, STARTS = VOCABULARY.conditions, VOCABULARY.actions, VOCABULARY.credits, VOCABULARY.starts
REWRITERS, WINDOWS = VOCABULARY.rewriters, VOCABULARY.windows
MAP_NAMES, MAP_VALUES = VOCABULARY.map_names, VOCABULARY.map_values
