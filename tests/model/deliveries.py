"""Deliveries: how they are taken, and what your program says of them (rules 8 and 10; section 9: retry, deadlines, by hand)."""

from tests.model import books, due, letters, routing, told
from tests.model.order import is_first_of_its_key, key_of, rank
from tests.model.values import after, duration
from xump.errors import StaleDelivery


def take_one(engine, destination, nack_count):
    """`next_one`, in a call of its own."""
    with engine._call():
        return next_one(engine, destination, nack_count)


def next_one(engine, destination, nack_count):
    """The oldest offer that was not nacked since; what INFINITE credit bound is settled by that."""
    for entry in engine.offers:
        if is_wanted(entry.offered_to, destination) and entry.nack_number <= nack_count:
            return hand_over(engine, entry)
    return None


def is_wanted(offered_to, destination):
    """`destination`: one, several, or None for any."""
    if destination is None or isinstance(destination, str):
        return destination in (None, offered_to)
    return offered_to in destination


def hand_over(engine, entry):
    engine.offers.remove(entry)
    selector = entry.selector
    delivery = count_delivery(engine, entry)
    if delivery.settled:
        books.settle(engine, entry)
    else:
        keep_delivery(engine, entry, delivery)
        if selector.ack_timeout is not None:
            entry.answer_by = after(engine.time, selector.ack_timeout)
    return delivery


def get(engine, queue):
    """The first ready message that nobody has a claim to."""
    with engine._call():
        for entry in sorted(queue.entries, key=rank):
            is_ready = entry.state == "waiting" or (entry.state == "unrouted" and not routing.is_routable(entry))
            if is_ready and is_first_of_its_key(entry):
                entry.home, entry.state, entry.by_hand, entry.offered_to = entry.state, "outstanding", True, None
                books.hand(engine, entry)
                delivery = count_delivery(engine, entry)
                keep_delivery(engine, entry, delivery)
                return delivery
    return None


def count_delivery(engine, entry):
    entry.delivery_count += 1
    return Delivery(engine, entry, entry.selector)


def keep_delivery(engine, entry, delivery):
    entry.delivery = delivery
    engine.taken.append(delivery)
    if delivery.redelivered:
        books.tell_again(engine, entry)


def answer(engine, verb, delivery, argument):
    """What your program says of a delivery: "ack"; "nack", with a delay in ns or None; "reject", with a text or None."""
    if delivery.settled:
        return
    check_fresh(engine, delivery)
    entry = delivery.entry
    if verb == "ack":
        books.pay(engine, entry)
        return
    if verb == "reject":
        told.check(engine, "answer", *letters.places(engine, entry, "rejected"), answered=[entry.message])
    delivery.answered = True
    engine.nack_count += 1
    entry.nack_number = engine.nack_count
    if verb == "nack":
        send_back(engine, entry, argument)
    else:
        refuse(engine, entry, "rejected", argument)


def dies(engine, entry, verb, argument):
    """(entry, reason) of what is dead-lettered by the answer, or dropped; None: nothing is."""
    if verb == "reject":
        return entry, "rejected"
    if is_at_its_limit(engine, entry):
        return entry, "delivery-limit"
    holder = entry if argument is not None else retry_of(entry)[0]
    return (holder, "expired") if due.is_past(engine, holder) else None


def send_back(engine, entry, delay):
    """Rule 10. The credit is given back; the message goes home, after a delay, or was delivered often enough."""
    if is_at_its_limit(engine, entry) and not letters.lacks_room(engine, entry, "delivery-limit"):
        refuse(engine, entry, "delivery-limit", None)
    elif delay is not None:
        books.bring_home(engine, entry, 0 if entry.queue.transit else delay)
    else:
        books.bring_home(engine, *retry_of(entry))


def refuse(engine, entry, reason, detail):
    books.give_back(engine, entry)
    letters.dead_letter(engine, entry, reason, detail)


def retry_of(entry):
    """Where it waits to be tried again, and how long: as the nearest queue says that has a word on it, upstream too."""
    for above in entry.chain:
        delays = above.queue.retry_delays
        if delays is not None:
            return above, delays[min(entry.delivery_count, len(delays)) - 1]
    return entry, 0


def check_fresh(engine, delivery):
    if delivery.entry.delivery is not delivery:
        raise StaleDelivery(f"delivery {delivery.id} of queue {delivery.queue.name!r} was settled or taken back")


def is_at_its_limit(engine, entry):
    limit = delivery_limit(engine, entry)
    return limit is not None and entry.delivery_count >= limit


def delivery_limit(engine, entry):
    """That of the entry's queue, else of the nearest queue upstream that waits for its payment."""
    while entry is not None and entry.queue.delivery_limit is None:
        entry = entry.parent
    return entry and entry.queue.delivery_limit


def nacked(requeue, delay):
    """The verb and argument of `nack`."""
    if delay is not None:
        delay = duration("delay", delay)
        if not requeue:
            raise ValueError("delay is for what is delivered again; requeue=False sends it away")
    return ("nack", delay) if requeue else ("reject", None)


def rejected(reason):
    return "reject", None if reason == "rejected" else reason


class Delivery:
    """A message in your program's hands."""

    def __init__(self, engine, entry, selector):
        self.engine = engine
        self.entry = entry
        self.message = entry.message
        self.destination = entry.offered_to
        self.queue = entry.queue
        self.selector = selector
        self.id = entry.id
        self.delivery_count = entry.delivery_count
        self.redelivered = entry.delivery_count > 1 or entry.redelivered
        self.group = key_of(entry)
        self.settled = selector is not None and selector.infinite   # by having been taken
        self.answered = False               # acked, paid, nacked or rejected

    def ack(self):
        if not self.settled:
            self.engine.ack([self])

    def nack(self, *, requeue=True, delay=None):
        self._answer(*nacked(requeue, delay))

    def reject(self, reason="rejected"):
        self._answer(*rejected(reason))

    def _answer(self, verb, argument):
        if self.settled:
            return
        with self.engine._call():
            answer(self.engine, verb, self, argument)

    def extend(self, seconds):
        """The deadline, anew from now."""
        time = duration("seconds", seconds)
        with self.engine._call():
            if not self.settled:
                check_fresh(self.engine, self)
            if self.settled or self.entry.answer_by is None:
                raise ValueError("only what a selector with ack_timeout delivered has a deadline")
            self.entry.answer_by = after(self.engine.time, time)

    def reply(self, body=b"", headers=None):
        message = self.message
        if message.reply_to is None:
            raise ValueError(f"message {message.id} of queue {self.queue.name!r} names no queue to reply to")
        known_by = message.correlation_id if message.message_id is None else message.message_id
        return self.engine.publish(message.reply_to, "", body, headers, correlation_id=known_by)

    def __enter__(self):
        if not self.settled:
            check_fresh(self.engine, self)
        return self.message

    def __exit__(self, kind, error, traceback):
        if kind is None and not self.answered:
            self.ack()
        elif kind is not None and self.entry.delivery is self:
            try:
                self.nack()
            except StaleDelivery:       # its deadline was over: the error on its way counts
                return
