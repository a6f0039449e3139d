"""What your program refused begins a new trip in its dead letter queue. Each test is one sentence of docs/decisions.md."""

import pytest

from tests.rules.seen import addresses, reasons, stats, taken, worker
from xump import INFINITE, always, copy_to, deliver, discard, field, match, move_to, where

ROUNDS = 1_000


def retry_loop(engine):
    """Work queue → reject → exchange → copy to the retry queue → reject → exchange → copy to the work queue."""
    with engine.building():
        engine.create_queue("exchange")
        for name, other in (("work", "retry"), ("retry", "work")):
            engine.create_queue(name, dead_letter="exchange")
            engine.create_selector("exchange", when=where({"xump_bounced_from": other}), do=copy_to(name))
            worker(engine, name)


@pytest.mark.parametrize("refuse", ["reject", "nack"])
def test_170_a_retry_loop_through_copies_runs_as_long_as_it_is_refused(engine, refuse):
    retry_loop(engine)
    engine.publish("work", "job")
    for i in range(ROUNDS):
        delivery, = engine.take(1)
        assert delivery.destination == ("retry" if i % 2 else "work")
        assert delivery.message.hops == (1 if i else 0)
        delivery.reject() if refuse == "reject" else delivery.nack(requeue=False)
    engine.take(1)[0].ack()
    assert engine.take(1) == []
    assert stats(engine, "work")["settled"] == ROUNDS // 2 + 1


def test_170_a_nack_at_the_delivery_limit_starts_anew(engine_of):
    engine = engine_of(hop_limit=2)
    engine.create_queue("exchange")
    engine.create_queue("work", dead_letter="exchange", delivery_limit=1)
    engine.create_selector("exchange", when=always, do=copy_to("work"))
    worker(engine, "work")
    engine.publish("work", "job")
    for _ in range(9):
        engine.take(1)[0].nack()
    assert engine.take(1)[0].message.headers["xump_reason"] == "delivery-limit"


def test_170_a_deadline_that_passes_at_the_limit_starts_anew(engine_of, clock):
    engine = engine_of(hop_limit=2)
    engine.create_queue("exchange")
    engine.create_queue("work", dead_letter="exchange", delivery_limit=1)
    engine.create_selector("exchange", when=always, do=copy_to("work"))
    worker(engine, "work", ack_timeout=1)
    engine.publish("work", "job")
    for _ in range(9):
        assert taken(engine) == ["job"]
        clock.tick(2)
    assert taken(engine) == ["job"]


def test_170_by_a_transaction_and_by_hand(engine):
    engine.create_queue("exchange")
    engine.create_queue("work", dead_letter="exchange")
    engine.create_selector("exchange", when=always, do=copy_to("work"))
    engine.publish("work", "job")
    for _ in range(5):
        with engine.transaction() as tx:
            tx.reject(engine.get("work"))
    assert addresses(engine, "work") == ["job"] and stats(engine, "work")["dead_lettered"] == {"rejected": 5}


def test_170_the_visited_set_has_the_dead_letter_queue_in_it(engine):
    """Else copies in a cycle would not end."""
    for name in ("exchange", "mirror", "work"):
        engine.create_queue(name, dead_letter="exchange" if name == "work" else None)
    engine.create_selector("exchange", when=always, do=copy_to("mirror"))
    engine.create_selector("mirror", when=always, do=copy_to("exchange"))
    worker(engine, "work")
    engine.publish("work", "job")
    engine.take(1)[0].reject()
    assert stats(engine, "exchange")["entered"] == stats(engine, "mirror")["entered"] == 1


def test_170_a_move_may_go_home_too(engine_of):
    engine = engine_of(hop_limit=3)
    engine.create_queue("letters")
    engine.create_queue("work", dead_letter="letters")
    engine.create_selector("letters", when=always, do=move_to("work"), credit=INFINITE)
    worker(engine, "work")
    engine.publish("work", "job")
    for _ in range(9):
        engine.take(1)[0].reject()
    assert engine.take(1)[0].message.hops == 1


def test_170_what_the_engine_dead_letters_by_itself_keeps_both(engine_of, clock):
    engine = engine_of(hop_limit=4)
    engine.create_queue("exchange")
    engine.create_queue("q", dead_letter="exchange")
    engine.create_selector("exchange", when=always, do=copy_to(field("address")))
    engine.create_selector("q", when=match("eq", "never"), do=discard)
    engine.publish("q", "q")
    assert reasons(engine, "exchange") == [] and addresses(engine, "q") == []        # it has been there in this run
    assert stats(engine, "exchange")["settled"] == 1 and stats(engine, "q")["dead_lettered"] == {"unroutable": 1}


def test_170_a_refused_one_that_nothing_takes_is_dropped_in_its_dead_letter_queue(engine_of):
    engine = engine_of(dead_letter="last")
    engine.create_queue("last")
    engine.create_queue("exchange")
    engine.create_selector("exchange", when=match("eq", "never"), do=discard)
    engine.create_queue("work", dead_letter="exchange")
    engine.create_selector("work", when=always, do=deliver("w"))
    engine.publish("work", "job")
    engine.take(1)[0].reject()
    assert stats(engine, "exchange")["dropped"] == {"unroutable": 1} and addresses(engine, "last") == []
