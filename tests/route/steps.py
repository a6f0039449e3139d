"""Short words for what the tests of the rules do and look at."""


def queues(engine, *names, **properties):
    return [engine.create_queue(name, **properties) for name in names]


def addresses(messages):
    return [message.address for message in messages]


def held_in(engine, name, state=None):
    """The addresses in a queue, oldest first."""
    return addresses(engine.queues[name].browse(state=state))


def take(engine, n=100, destination=None):
    """The addresses of what your program is given now; it keeps all of it."""
    return [delivery.message.address for delivery in engine.take(n, destination)]


def drain(engine, destination=None):
    """The same, acked one by one."""
    seen = []
    for delivery in engine.deliveries(destination):
        with delivery as message:
            seen.append(message.address)
    return seen


def publish(engine, name, *addresses, **message):
    return [engine.publish(name, address, **message) for address in addresses]


def name_of(thing):
    return getattr(thing, "name", thing)


def nothing_changes(engine):
    """A context: whatever is raised in it, the engine's state is as before."""
    return _Unchanged(engine)


class _Unchanged:
    def __init__(self, engine):
        self.engine = engine

    def state(self):
        held = {name: list(queue.browse()) for name, queue in self.engine.queues.items()}
        return self.engine.stats(), [[(m.id, m.address, m.timestamp) for m in held[name]] for name in sorted(held)]

    def __enter__(self):
        self.before = self.state()

    def __exit__(self, kind, error, traceback):
        assert self.state() == self.before


def queue_stats(engine, name):
    return engine.stats()["queues"][name]


def selector_stats(engine, selector):
    return engine.stats()["selectors"][selector.id]
