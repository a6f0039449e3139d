"""Filters and operators that raise, and what is looked at afterwards."""



from xump.operators import operator_names, register_operator


class Odd(Exception):
    """What the user's code raises."""


def operator(name, matches):
    """Registers an operator, or says that the one of that name now does this."""
    if name not in operator_names():
        register_operator(name, lambda pattern, value: bool(OPERATORS[name](pattern, value)))
    OPERATORS[name] = matches
    return name


OPERATORS = {}


def names(engine, *queues):
    for queue in queues:
        engine.create_queue(queue)


def held_in(engine, name):
    return [message.address for message in engine.queues[name].browse()]


def errors_of(engine, *selectors):
    return [engine.stats()["selectors"][selector.id]["errors"] for selector in selectors]


def raises_odd(message):
    raise Odd(message.address)


def commit(engine, delivery):
    with engine.transaction() as tx:
        tx.ack(delivery)
        tx.publish("q", "a")
