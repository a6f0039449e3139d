"""What tests of the rules look at, in words that fit on a line."""

from xump import always, deliver

SECOND = 1_000_000_000


def addresses(engine, name, state=None):
    """The addresses in a queue, by id."""
    return [message.address for message in engine.queues[name].browse(state=state)]


def taken(engine, n=100, destination=None):
    """The addresses of what your program is given now; it keeps all of it."""
    return [delivery.message.address for delivery in engine.take(n, destination)]


def reasons(engine, name):
    return [message.headers.get("xump_reason") for message in engine.queues[name].browse()]


def stats(engine, name):
    return engine.stats()["queues"][name]


def worker(engine, name, credit=10, **options):
    """A selector that delivers all of a queue, under its name."""
    return engine.create_selector(name, when=always, do=deliver(name), credit=credit, **options)
