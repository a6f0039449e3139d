"""Calls that do all of their work or nothing."""

from contextlib import contextmanager

from tests.model import deliveries, letters, maps, publishing, staging, told
from tests.model.entries import Message
from tests.model.values import name_of
from xump.errors import StaleDelivery, TransactionError


def check_stores(engine, work, plans):
    """What a transaction enters, and what its answers settle or send away, upstream too, is in one durable store."""
    queues = []
    for verb, *arguments in work:
        if verb == "publish":
            queues.append(engine.queues.get(name_of(arguments[0])))
        elif not arguments[0].settled:
            entry = arguments[0].entry
            queues += [above.queue for above in entry.chain]
            if verb == "reject" or (verb == "nack" and deliveries.is_at_its_limit(engine, entry)):
                queues.append(letters.dead_letter_of(engine, entry)[0])
    stores = {queue.store for queue in queues if queue is not None and queue.durable}
    stores |= {store for _, _, store in plans if store != "ram"}
    if len(stores) > 1:
        raise TransactionError(f"a transaction in more than one store: {sorted(stores)}")


def commit(engine, work, in_one_store=False, metas=()):
    """All of it, in order, then one run; or an error and none of it."""
    ids = []
    with engine._call(), all_or_nothing(engine):
        plans = maps.planned(engine, metas)
        answered = [arguments[0] for verb, *arguments in work if verb != "publish" and not arguments[0].settled]
        for i, delivery in enumerate(answered):
            deliveries.check_fresh(engine, delivery)
            if delivery in answered[:i]:
                raise StaleDelivery(f"delivery {delivery.id} of queue {delivery.queue.name!r} is given twice")
        for verb, *arguments in work:
            if verb == "publish" and name_of(arguments[0]) in engine.queues:
                staging.check_publish(engine, engine.queues[name_of(arguments[0])], arguments[2].delay)
        if in_one_store:
            check_stores(engine, work, plans)
        into = [engine.queues[name_of(arguments[0])] for verb, *arguments in work
                if verb == "publish" and name_of(arguments[0]) in engine.queues]
        dying = [dies for verb, *arguments in work if verb in ("nack", "reject") and not arguments[0].settled
                 and (dies := deliveries.dies(engine, arguments[0].entry, verb, arguments[1]))]
        into += [place for dies in dying for place in letters.places(engine, *dies)]
        told.check(engine, "transaction", *into, *(maps.Place(store) for _, _, store in plans),
                   answered=[entry.message for entry, _ in dying])
        for verb, *arguments in work:
            if verb == "publish":
                ids.append(publishing.publish(engine, *arguments, in_turn=True))
            else:
                deliveries.answer(engine, verb, *arguments)
        for items, new, _ in plans:
            items.clear()
            items.update(new)
    return ids


@contextmanager
def all_or_nothing(engine):
    """When the block raises, every object and every list holds again what it held before."""
    things = [engine, *engine.queues.values(), *engine.selectors.values(), *engine.windows.values(), *engine.outlets]
    things += engine.taken
    things += [entry for queue in engine.queues.values() for entry in queue.entries]
    before = [(thing, dict(vars(thing))) for thing in things]
    containers = [value for _, values in before for value in values.values() if isinstance(value, (list, dict))]
    contents = [(container, container.copy()) for container in containers]
    ended = engine.told and engine.told.ended
    try:
        yield
    except BaseException:
        if engine.told is not None:
            engine.told.ended = ended
        for thing, values in before:
            vars(thing).update(values)
        for container, content in contents:
            container.clear()
            container.extend(content) if isinstance(container, list) else container.update(content)
        raise


class Transaction:
    def __init__(self, engine):
        self.engine = engine
        self.work = []                  # ("publish", queue, message, terms) or (verb, delivery, argument)
        self.metas = []                 # (owner, name, value)
        self.ended = False
        self.ids = None

    def publish(self, queue, address="", body=b"", headers=None, *, reply_to=None, message_id=None, **terms):
        self._check_open()
        message = Message(address, body, dict(headers or {}), reply_to, message_id)
        self.work.append(("publish", queue, message, publishing.terms_of(**terms)))

    def ack(self, deliveries):
        self._answer(deliveries, "ack", None)

    def nack(self, delivery, *, requeue=True, delay=None):
        self._answer(delivery, *deliveries.nacked(requeue, delay))

    def reject(self, delivery, reason="rejected"):
        self._answer(delivery, *deliveries.rejected(reason))

    def set_meta(self, owner, name, value):
        self._check_open()
        self.metas.append((owner, name, value))

    def _answer(self, given, verb, argument):
        self._check_open()
        self.work += [(verb, delivery, argument) for delivery in (given if isinstance(given, list) else [given])]

    def _check_open(self):
        if self.ended:
            raise TransactionError("the transaction has ended")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.ended = True
        if kind is None:
            self.ids = commit(self.engine, self.work, in_one_store=True, metas=self.metas)
