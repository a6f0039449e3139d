"""What people stumbled over who used Xump for the first time: it works as they thought, or says what to do."""

import inspect
import warnings

import pytest

import xump
from xump import INFINITE, Closed, Conflict, Engine, Message, always, default, deliver, field, move_to, where
from xump.topology import check


@pytest.fixture
def engine():
    with Engine() as engine:
        yield engine


@pytest.mark.parametrize(("text", "passes"), [
    ("headers.size > 1", True), ("headers.size == 2", True), ("size != 2", False), ("headers.user.name == 'ann'", True),
    ("headers.missing IS NULL AND size = headers.size", True), ('"headers.size" > 1', False)])
def test_filters_are_read_as_people_write_them(engine, text, passes):
    engine.create_queue("q")
    engine.create_selector("q", when=where(text), do=deliver("yes"))
    engine.create_selector("q", when=default, do=deliver("no"))
    engine.publish("q", headers={"size": 2, "user.name": "ann"})
    assert engine.take(1)[0].destination == ("yes" if passes else "no")


def test_selectors_are_found_by_name(engine):
    engine.create_queue("q")
    audit = engine.create_selector("q", when=always, do=deliver("d"), name="audit")
    assert engine.selectors["audit"] is audit is engine.selectors[audit.id] and "audit" in engine.selectors
    assert list(engine.selectors) == [audit.id]
    with pytest.raises(xump.SelectorNotFound, match="'other'"):
        engine.selectors["other"]
    audit.delete()
    assert "audit" not in engine.selectors and engine.selectors.get("audit") is None


def test_what_is_gone_with_the_engine_says_so():
    with Engine() as engine:
        engine.create_queue("jobs")
    for mapping, key in ((engine.queues, "jobs"), (engine.selectors, 1), (engine.selectors, "audit"), (engine.stores, "disk")):
        with pytest.raises(Closed):
            mapping[key]


def test_a_history_limit_in_words(engine):
    with pytest.raises(TypeError, match="history_limit must be an int, or None to keep all messages, got str"):
        engine.create_queue("q", history_limit="all")


def test_the_engine_s_dead_letter_takes_no_overflow():
    with Engine(dead_letter="dead") as engine:
        engine.create_queue("dead")
        engine.create_queue("small", limit=0)
        with pytest.raises(xump.QueueFull):
            engine.publish("small")
    assert "that a full queue turns away" in Engine.__doc__


def test_a_misspelt_dead_letter_is_told(engine):
    engine.create_queue("jobs", dead_letter="daed")
    engine.create_queue("dead")
    engine.create_selector("jobs", when=always, do=deliver("d"))
    assert any("'daed', which is not described" in warning for warning in check(engine.topology()))


# ---- forgotten acks, mistyped destinations

def test_a_forgotten_ack_is_said_once(engine):
    engine.create_queue("jobs")
    engine.create_selector("jobs", when=always, do=deliver("worker"), credit=2)
    engine.publish_many("jobs", [("x",)] * 5)
    assert len(engine.take(10, "worker")) == 2
    with pytest.warns(UserWarning, match="has 2 of its deliveries from queue 'jobs', and messages wait there: 3. Ack each"):
        assert engine.take(10, "worker") == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [engine.take(10) for _ in range(9)] == [[]] * 9


def test_a_selector_that_another_thread_deletes_meanwhile_is_passed_over(engine):
    engine.create_queue("jobs")
    deleted = engine.create_selector("jobs", when=always, do=deliver("worker"))
    deleted.delete()
    engine._selectors[deleted.id] = deleted     # as in the copy of them that the look goes over
    try:
        assert engine.take(1) == []
    finally:
        del engine._selectors[deleted.id]


@pytest.mark.parametrize("credit", [9, INFINITE])
def test_who_has_credit_left_has_forgotten_nothing(engine, credit):
    engine.create_queue("jobs")
    engine.create_selector("jobs", when=always, do=deliver("worker"), credit=credit)
    engine.publish("jobs")
    engine.take(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert engine.take(1, "worker") == []


@pytest.mark.parametrize("call", ["take", "take_batch"])
def test_a_mistyped_destination_is_said_once(engine, call):
    engine.create_queue("jobs")
    engine.create_selector("jobs", when=always, do=deliver("worker")).delete()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(getattr(engine, call)(1, "worker")) == 0         # one delivered to it, once
    with pytest.warns(UserWarning, match="no selector delivers to 'wroker'; the destinations are 'worker'"):
        assert len(getattr(engine, call)(1, "wroker")) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(getattr(engine, call)(1, "wroker", timeout=0.001)) == 0
        engine.create_selector("jobs", when=always, do=deliver(field("address")))
        assert len(getattr(engine, call)(1, "any")) == 0


def test_the_destination_of_an_outlet_is_not_taken_for_its_letters(engine):
    with pytest.raises(TypeError, match=r"write \['worker'\]"):
        engine.outlet(print, "worker")


def test_what_is_offered_counts_apart_from_what_is_outstanding(engine):
    jobs = engine.create_queue("jobs")
    engine.create_queue("next")
    worker = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=3)
    mover = engine.create_selector("next", when=always, do=move_to("jobs"), credit=1)
    engine.publish_many("jobs", [("x",)] * 4)
    engine.publish("next")
    engine.take(1)

    def counts(of):
        stats = engine.stats()[of]
        return {key: (stats[key]["outstanding"], stats[key]["offered"]) for key in stats}

    assert counts("queues") == {"jobs": (3, 2), "next": (1, 0)}
    assert counts("selectors") == {worker.id: (3, 2), mover.id: (1, 0)}
    engine.create_selector("next", when=always, do=deliver("worker"), credit=INFINITE)
    engine.publish("next")
    assert counts("queues")["next"] == (1, 1) and jobs.outstanding == 3


# ---- messages and deliveries

def test_a_message_is_published_as_it_is(engine):
    jobs = engine.create_queue("jobs")
    engine.create_selector("jobs", when=always, do=deliver("d"), credit=9)
    message = Message("resize", b"cat.png", {"size": 3}, reply_to="back", message_id="m")
    assert (engine.publish("jobs", message), jobs.publish(message)) == (1, 2)
    with engine.transaction() as tx:
        tx.publish("jobs", message)
    assert [(d.address, d.body, dict(d.headers), d.message.reply_to, d.message.message_id) for d in engine.take(9)] == [
        ("resize", b"cat.png", {"size": 3}, "back", "m")] * 3
    for wrong in ({"body": b"x"}, {"headers": {}}, {"reply_to": "a"}, {"message_id": "a"}):
        with pytest.raises(TypeError, match="published as it is"):
            engine.publish("jobs", message, **wrong)
        with pytest.raises(TypeError, match="published as it is"), engine.transaction() as tx:
            tx.publish("jobs", message, **wrong)
    assert engine.stats()["queues"]["jobs"]["entered"] == 3


def test_one_default_timeout():
    for call in (Engine.take, Engine.take_batch, Engine.deliveries, xump.aio.take):
        assert inspect.signature(call).parameters["timeout"].default == 0.0


@pytest.mark.parametrize(("made", "opened"), [("lmdb", "ring"), ("ring", "lmdb")])
def test_a_store_of_another_type_is_not_damaged(tmp_path, made, opened):
    with Engine() as engine:
        engine.create_store("s", made, path=tmp_path / "s")
    with Engine() as engine, pytest.raises(Conflict, match=f"is a store of type '{made}', not '{opened}'"):
        engine.create_store("s", opened, path=tmp_path / "s")
