"""Requests: what comes to the queue of replies is for who waits for it (section 9)."""

from tests.model.entries import READY
from tests.model import books
from tests.model.values import count
from xump import errors

REPLIES = "xump.replies"


class NoReply(errors.XumpError, TimeoutError):
    """Nobody replied in time: under the name that the model has for it, until Xump has one."""


RequestTimeout = getattr(errors, "RequestTimeout", NoReply)


class Request:
    """Somebody who waits for a reply."""

    def __init__(self, message_id):
        self.message_id = message_id
        self.answer = None


def hand_out_replies(engine):
    """Whether there were any: each goes to the request that waits for it, else it is dropped."""
    queue = engine.queues.get(REPLIES)
    if not engine.request_count or queue is None:
        return False
    found = [e for e in queue.entries if e.state in READY and e.state != "bound"]
    for entry in found:
        message = entry.message
        of_bounced = message.message_id if "xump_reason" in message.headers else None
        waiting = [r for r in engine.requests if r.message_id in (message.correlation_id, of_bounced)]
        if waiting:
            waiting[0].answer = message
            engine.requests.remove(waiting[0])
            books.settle(engine, entry)
        else:
            books.remove(engine, entry)
            count(queue.dropped, "late")
            books.pay_supplier(engine, entry)
    return bool(found)
