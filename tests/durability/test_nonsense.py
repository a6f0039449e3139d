"""Stores whose records are whole, and say what no engine writes: they are refused with a reason, or open and hold the laws. Logs
at random are in `tests/faults/fuzz_recovery.py`."""

import pytest

from tests.durability.log_in_memory import LOGS, SALT
from xump import Engine, StoreCorrupt, StoreFull, always, deliver
from xump.testing import records_by_hand as hand
from xump_ext.records.kinds import ROUTED

TOO_HIGH = 2**64 - 1
STAGED = 4      # among the options of a QUEUE


@pytest.fixture
def opened():
    """Opens an engine over these records; `s` is the store."""
    def opened(*records):
        LOGS["odd"] = [[hand.Log(SALT).group(*records)], 1]
        engines.append(Engine())
        engines[-1].create_store("s", "log shelf", path="odd")
        return engines[-1]

    engines = []
    yield opened
    for engine in engines:
        engine.close()
    LOGS.clear()


def staged(number, name="rows"):
    return hand.queue(number, name, options=STAGED)


# ---- refused

@pytest.mark.parametrize(("record", "reason"), [
    (hand.queue(0, "q"), "queue number 0, and numbers begin with 1"),
    (hand.enter(1, 0), "the ENTER at position .*, of queue number 1, names id 0, and ids begin with 1"),
    (hand.enter(1, TOO_HIGH), "the ENTER .* names id 18446744073709551615"), (hand.state(1, 0), "the STATE .* id 0"),
    (hand.state(1, TOO_HIGH), "id 18446744073709551615"), (hand.adopt(1, 1, [[2]], first_id=TOO_HIGH), "id 18446744073709551615"),
    (hand.adopt(1, 0, [[2]]), "the ADOPT .* id 0"), (hand.meta(1, 0, {"a": b"1"}), "the META .* id 0"),
    ((*hand.meta(1, 1, {"a": b"1"})[:4], b"\1\0\0\0\x0a\0\0\0\1\0\0\0\2\0\0\0a1" + bytes(6), b""),
     "the META .* does not say what its length is made of"),
    ((*hand.adopt(1, 1, [[2]])[:4], bytes(8) + b"\7" + bytes(15), b""), "the ADOPT .* does not say what its length is made of"),
    ((*hand.queue(1, "q")[:4], hand.queue(1, "q")[4].replace(b"q", b"\xff"), b""), "the QUEUE .* a text that is not UTF-8"),
    (hand.adopt(2, 1, [[1]]), "queue 'rows' is staged, and has adopted others"),
    (hand.queue(1, "q", ttl=-1), "properties that no queue may have"),
    (hand.queue(1, "q", dedup_limit=0), "properties that no queue may have"),
    (hand.queue(1, "q", delivery_limit=70_000), "properties that no queue may have"),
    (hand.queue(1, "q", retry_delays=(5, -5)), "properties that no queue may have"),
    (hand.queue(1, "q", priority=3, options=STAGED), "properties that no queue may have"),
    (hand.queue(1, "q", dedup_limit=TOO_HIGH), "properties that no queue may have: dedup_limit"),
    (hand.queue(1, "q", dead_letter=""), "properties that no queue may have"),
    (hand.queue(1, "q", group="nonsense"), "properties that no queue may have: unknown field 'nonsense'"),
    (hand.queue(1, ""), "the QUEUE at position .* has no name"),
    (hand.settle(1, 1, 0), "the SETTLE at position .*, of queue number 1, ends 0 messages from id 1 on"),
    (hand.settle(1, 2, TOO_HIGH), "the SETTLE .* ends 18446744073709551615 messages from id 2 on"),
    (hand.enter(1, 1, origin=(0, 1, 1)), "message 1 of queue number 1 is its own origin"),
])
def test_what_no_engine_writes_is_refused_and_says_why(opened, record, reason):
    with pytest.raises(StoreCorrupt, match=f"store 's'.*{reason}"):
        opened(hand.queue(1, "jobs"), staged(2), record)


# ---- opened

def test_a_message_whose_headers_are_none_can_be_deleted(opened):
    """Whatever is wrong with it is told when it is read, by its id."""
    wrong = [
        hand.enter(1, 1, headers=b"\5\1\0n\xff\xff\xff\x7fx", header_count=1),      # a longer text than there is
        hand.enter(1, 2, headers=b"\1\1\0n\1", header_count=2),                     # the second one is cut
        hand.enter(1, 3, headers=b"\7\1\0n", header_count=1),                       # of no type
        hand.enter(1, 4, headers=b"\1\1\0n", header_count=2),                       # counted wrong
        hand.enter(1, 5, headers=b"\1\1\0\xff", header_count=1),                    # a name that is not UTF-8
        hand.enter(1, 6, headers=b"\5\1\0n\1\0\0\0\xff", header_count=1),           # nor its text
        (*hand.enter(1, 7, "a")[:5], b"\xff" + bytes(7)),                           # nor the address
    ]
    engine = opened(hand.queue(1, "jobs"), *wrong, hand.enter(1, 8, headers=b"\5\2\0\xc3\xb6\2\0\0\0\xc3\xa4", header_count=1))
    queue = engine.queues["jobs"]
    for id in range(1, 8):
        with pytest.raises(StoreCorrupt, match=f"message {id} of queue 'jobs' is damaged; delete it by its id"):
            list(queue.browse())
        assert queue.delete(id)
    assert [dict(message.headers) for message in queue.browse()] == [{"ö": "ä"}]
    engine.check()


def test_an_adopted_queue_that_is_empty_was_not_deleted(opened):
    """A repair that lost the end of a queue leaves this. Here two queues have adopted it."""
    engine = opened(hand.queue(1, "jobs"), hand.queue(2, "other"), staged(3), hand.adopt(1, 1, [[3, 3]]), hand.adopt(2, 1, [[3]]))
    assert list(engine.queues) == ["jobs", "other"]
    engine.check()


def test_the_ids_of_what_an_adoption_let_in_are_not_issued_again(opened):
    """A repair that lost what entered leaves this: it is known that ids below 8 were issued."""
    engine = opened(hand.queue(1, "jobs"), hand.enter(1, 3), staged(2), hand.enter(2, 1), hand.adopt(1, 1, [[2]], first_id=8))
    engine.check()
    queue = engine.queues["jobs"]
    assert engine.enter(queue, 1) == 1 and [message.id for message in queue.browse()] == [3, 8]
    assert queue.publish() == 9


def test_a_staged_queue_waits_as_it_came(opened):
    """Whatever else its records say of routing and time."""
    engine = opened(hand.queue(1, "jobs"), staged(2), hand.state(2, 4, frontier=3, dropped=(1, *[0] * 15)),
                    hand.enter(2, 1, due=2**62), hand.enter(2, 2, flags=ROUTED), hand.enter(2, 3), hand.mark(2, 3, 2))
    queue = engine.queues["rows"]
    assert (queue.ready, queue.delayed) == (3, 0)
    engine.check()
    engine.adopt("jobs", [("rows", 3)])
    with engine.building():
        engine.create_selector("jobs", when=always, do=deliver("worker"), credit=9)
    assert engine.enter("jobs", 9) == 3
    assert len(engine.take(9)) == 2 and engine.queues["jobs"].delayed == 1
    engine.check()


def test_a_queue_gets_no_number_beyond_the_last(opened):
    engine = opened(hand.queue(2**32 - 1, "last"))
    engine.publish("last")
    with pytest.raises(StoreFull, match="has given all its 4294967295 numbers"):
        engine.create_queue("next", store="s")
    assert list(engine.queues) == ["last"]
    engine.check()


def test_what_ended_is_counted_anew_where_the_counts_are_more_than_there_was(opened):
    engine = opened(hand.queue(1, "jobs"), hand.enter(1, 3), hand.state(1, 4, deleted=TOO_HIGH, dropped=(1, *[0] * 15)))
    stats = engine.stats()["queues"]["jobs"]
    assert (stats["entered"], stats["ready"], stats["settled"], stats["deleted"], stats["dropped"]) == (3, 1, 2, 0, {})
    engine.check()
