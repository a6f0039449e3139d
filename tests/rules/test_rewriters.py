"""Dead letters that a registered rewriter rewrites; and what bars queues to them. Each rule for the model and the engine."""

import pytest

import tests.model.vocabulary       # noqa: F401  it registers the rewriters
from xump import RewriterNotFound, always, copy_to, deliver, default, field, match, move_to

STAMP, BAR = "test stamp", "test bar"


def refused(engine, queue):
    """The first message of a queue is taken and rejected."""
    engine.get(queue).reject()


def test_a_rewriter_makes_the_dead_letter(engine, clock):
    engine.create_queue("dead")
    engine.create_queue("jobs", dead_letter="dead", rewriter=[STAMP, "argument"])
    engine.publish("jobs", "a", b"body", {"n": 1}, reply_to="r", ttl=1000, correlation_id="c", priority=3)
    entered = clock.now
    clock.now += 5
    engine.get("jobs").reject("because")
    [letter] = engine.queues["dead"].browse()
    assert (letter.address, letter.body, letter.reply_to, letter.correlation_id, letter.priority, letter.expires) == (
        "a", b"body", None, "c", 3, None)
    assert dict(letter.headers) == {
        "n": 1, "deaths": " rejected in jobs argument", "died": clock.now, "entered": entered, "hops": 0, "detail": "because"}
    assert engine.stats()["queues"]["jobs"]["dead_lettered"] == {"rejected": 1}


@pytest.mark.parametrize("rewriter", [None, STAMP, [BAR, "elsewhere"]], ids=str)
def test_the_letter_keeps_the_destination_that_was_stamped_on_the_message(engine, rewriter):
    engine.create_queue("dead")
    engine.create_queue("private", dead_letter="dead", rewriter=rewriter)
    engine.create_queue("jobs")
    engine.create_selector("jobs", when=always, do=deliver("ann", "private"))
    engine.publish("jobs", "a")
    refused(engine, "private")
    [letter] = engine.queues["dead"].browse()
    assert letter.destination == "ann"


def test_without_a_dead_letter_queue_it_is_not_asked(engine):
    engine.create_queue("jobs", rewriter=STAMP)
    engine.publish("jobs", "a")
    refused(engine, "jobs")
    assert engine.stats()["queues"]["jobs"]["dropped"] == {"rejected": 1}


def test_it_belongs_to_the_queue_that_names_the_dead_letter_queue(engine_of):
    """Not to the queue where the message dies, and not to the dead letters of the engine."""
    engine = engine_of(dead_letter="lost")
    for name in ("lost", "dead"):
        engine.create_queue(name)
    engine.create_queue("up", dead_letter="dead", rewriter=STAMP)
    engine.create_queue("down", rewriter=[STAMP, "not asked"])
    engine.create_selector("up", when=always, do=move_to("down"))
    engine.publish("up", "a")
    refused(engine, "down")
    assert [message.headers["deaths"] for message in engine.queues["dead"].browse()] == [" rejected in down "]
    engine.publish("down", "b")
    refused(engine, "down")
    assert [message.headers["xump_reason"] for message in engine.queues["lost"].browse()] == ["rejected"]


@pytest.mark.parametrize("reason", ["expired", "overflow", "refused", "copy refused", "unroutable", "hops", "delivery-limit"])
def test_for_each_reason(engine_of, clock, reason):
    engine = engine_of(hop_limit=2)
    engine.create_queue("dead")
    jobs = {"dead_letter": "dead", "rewriter": STAMP}
    if reason == "expired":
        engine.create_queue("jobs", ttl=5e-9, **jobs)
        engine.publish("jobs", "a")
        clock.now += 10
        engine.tick()
    elif reason == "overflow":
        engine.create_queue("jobs", limit=1, when_full="drop_oldest", **jobs)
        engine.publish_many("jobs", [("a",), ("a",)])
    elif reason == "refused":
        engine.create_queue("jobs", limit=0, **jobs)
        assert engine.publish("jobs", "a") == 0
    elif reason == "copy refused":
        engine.create_queue("jobs", limit=0, **jobs)
        engine.create_queue("in")
        engine.create_selector("in", when=always, do=copy_to("jobs"))
        engine.publish("in", "a")
    elif reason == "unroutable":
        engine.create_queue("jobs", transit=True, **jobs)
        engine.publish("jobs", "a")
    elif reason == "hops":
        engine.create_queue("jobs", **jobs)
        engine.create_queue("other", **jobs)
        engine.create_selector("jobs", when=always, do=move_to("other"), credit=5)
        engine.create_selector("other", when=always, do=move_to("jobs"), credit=5)
        engine.publish("jobs", "a")
    else:
        engine.create_queue("jobs", delivery_limit=1, **jobs)
        engine.publish("jobs", "a")
        engine.get("jobs").nack()
    letters = list(engine.queues["dead"].browse())
    said = {"refused": "overflow", "copy refused": "overflow"}.get(reason, reason)
    assert [letter.headers["deaths"] for letter in letters] == [f" {said} in jobs "]


def test_barred_queues_are_not_entered_on_the_way_from_there(engine):
    """As an exchange for dead letters that leads back into the queue where the message died."""
    for name in ("q1", "q2", "q3"):
        engine.create_queue(name)
    engine.create_queue("exchange", transit=True)
    for name in ("q1", "q2", "q3"):
        engine.create_selector("exchange", when=always, do=copy_to(name))
    engine.create_queue("jobs", dead_letter="exchange", rewriter=[BAR, "q1 q3"])
    engine.publish("jobs", "a")
    refused(engine, "jobs")
    assert [engine.queues[name].ready for name in ("q1", "q2", "q3")] == [0, 1, 0]
    assert [message.address for message in engine.queues["q2"].browse()] == ["q3"]


def test_a_dead_letter_queue_that_is_barred_itself_is_none(engine):
    engine.create_queue("q1")
    engine.create_queue("jobs", dead_letter="q1", rewriter=[BAR, "q1"])
    engine.publish("jobs", "a")
    refused(engine, "jobs")
    assert engine.queues["q1"].ready == 0 and engine.stats()["queues"]["jobs"]["dropped"] == {"rejected": 1}


def test_whoever_bars_begins_a_trip(engine):
    """A dead letter that the engine makes goes nowhere where its message was in that run; one with barred queues does."""
    for name, rewriter in (("plain", None), ("stamped", STAMP), ("barring", [BAR, "q1"])):
        engine.create_queue(f"{name} in")
        engine.create_queue(f"{name} log")
        engine.create_queue(f"{name} exchange", transit=True)
        engine.create_queue(f"{name} full", limit=0, dead_letter=f"{name} exchange", rewriter=rewriter)
        for target in ("log", "full"):
            engine.create_selector(f"{name} in", when=always, do=copy_to(f"{name} {target}"))
        engine.create_selector(f"{name} exchange", when=always, do=copy_to(f"{name} log"))
        engine.publish(f"{name} in", "a")
    assert [engine.queues[f"{name} log"].ready for name in ("plain", "stamped", "barring")] == [1, 1, 2]


def test_the_retry_loop_through_a_dead_letter_exchange_runs_as_long_as_the_program_rejects(engine):
    engine.create_queue("exchange", transit=True)
    engine.create_queue("jobs", dead_letter="exchange", rewriter=STAMP)
    engine.create_selector("exchange", when=match("topic", "#"), do=copy_to("jobs"))
    engine.publish("exchange", "a")
    for _round in range(100):
        refused(engine, "jobs")
    [message] = engine.queues["jobs"].browse()
    assert message.headers["deaths"].count("rejected") == 100 and message.hops == 1


def test_it_is_a_property_like_others(engine):
    queue = engine.create_queue("jobs", dead_letter="dead", rewriter=STAMP)
    assert engine.create_queue("jobs", dead_letter="dead", rewriter=[STAMP, ""]) is queue
    with pytest.raises(RewriterNotFound, match="no rewriter 'nobody'"):
        engine.create_queue("other", rewriter="nobody")
    assert "other" not in engine.queues


def test_what_is_kept_for_later_is_rewritten_then(engine):
    """A transaction's rejection, and a dead letter into a queue that its address names."""
    engine.create_queue("exchange", transit=True)
    engine.create_selector("exchange", when=default, do=copy_to(field("address")))
    engine.create_queue("q2")
    engine.create_queue("jobs", dead_letter="exchange", rewriter=[BAR, "q1 q2"])
    engine.publish("jobs", "a")
    engine.create_selector("jobs", when=always, do=deliver("d"))
    [delivery] = engine.take(1)
    with engine.transaction() as tx:
        tx.reject(delivery)
    assert engine.queues["q2"].ready == 0 and engine.stats()["queues"]["jobs"]["dead_lettered"] == {"rejected": 1}
