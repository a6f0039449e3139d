"""Messages with further routing keys, of CC and BCC: a transit queue routes them by each, and they come out as they were."""

import pytest
from hypothesis import given, strategies as st

import xump
from xump import Message, always, copy_to, default, discard, field, match, where
from xump.broker import properties_of
from xump.broker.envelope import annex, envelope_of, join
from xump.broker.tables import Typed, encode_table
from xump_ext.amqp.envelope import KEYS_KIND

PROPERTIES = join({"headers": encode_table({"n": Typed("I", 7)}), "app_id": b"\x01a"})


@pytest.fixture
def engine():
    with xump.Engine() as engine:
        engine.create_queue("x", transit=True)
        for name in ("a", "b", "c"):
            engine.create_queue(name)
        yield engine
        engine.check()


def message(*keys):
    return Message(keys[0], b"body", annex=annex(b"news", PROPERTIES, tuple(key.encode() for key in keys[1:])))


def counts(engine):
    return {name: engine.queues[name].ready for name in ("a", "b", "c")}


def test_a_queue_gets_one_copy_by_whichever_keys(engine):
    for name, pattern in (("a", "1"), ("a", "2"), ("b", "2"), ("c", "4")):
        engine.create_selector("x", when=match("eq", pattern), do=copy_to(name))
    engine.publish("x", message("1", "2", "3"))
    assert counts(engine) == {"a": 1, "b": 1, "c": 0}
    [copy] = engine.queues["b"].browse()
    assert copy.address == "1" and copy.body == b"body" and dict(copy.headers) == {"n": 7}
    assert envelope_of(copy).exchange == b"news" and properties_of(copy)["app_id"] == "a"


def test_each_key_names_a_queue(engine):
    engine.create_selector("x", when=always, do=copy_to(field("address")))
    engine.publish("x", message("a", "none", "c", "a"))
    assert counts(engine) == {"a": 1, "b": 0, "c": 1}


def test_through_several_exchanges_all_keys_count(engine):
    engine.create_queue("y", transit=True)
    engine.create_selector("x", when=match("eq", "1"), do=copy_to("y"))
    engine.create_selector("y", when=match("eq", "2"), do=copy_to("a"))
    engine.publish("x", message("1", "2"))
    assert counts(engine) == {"a": 1, "b": 0, "c": 0}


def test_the_default_has_what_no_key_matches(engine):
    engine.create_selector("x", when=match("eq", "2"), do=copy_to("a"))
    engine.create_selector("x", when=default, do=copy_to("b"))
    engine.publish("x", message("1", "2"))
    engine.publish("x", message("1", "3"))
    assert counts(engine) == {"a": 1, "b": 1, "c": 0}


def test_what_no_key_leads_anywhere_is_unroutable_once(engine):
    engine.create_selector("x", when=match("eq", "2"), do=copy_to("a"))
    engine.publish("x", message("1", "3"))
    assert engine.stats()["queues"]["x"]["dropped"] == {"unroutable": 1}


def test_a_discard_counts_as_well(engine):
    engine.create_selector("x", when=match("eq", "2"), do=discard)
    engine.publish("x", message("1", "2"))
    assert engine.stats()["queues"]["x"]["dropped"] == {}


@pytest.mark.parametrize("turn", [1, 2])
def test_a_condition_that_is_interrupted(engine, turn):
    """The next call goes on, and makes no copy twice."""
    turns = []

    def interrupted(_message):
        turns.append(0)
        if len(turns) == turn:
            raise KeyboardInterrupt
        return True

    engine.create_selector("x", when=match("eq", "1"), do=copy_to("a"))
    engine.create_selector("x", when=where(interrupted), do=copy_to("b"))
    with pytest.raises(KeyboardInterrupt):
        engine.publish("x", message("1", "2"))
    engine.tick()
    engine.publish("x", "other")
    assert counts(engine)["a"] == 1 and counts(engine)["b"] >= 1


def test_a_store_keeps_the_keys(tmp_path):
    for number in range(2):
        with xump.Engine() as engine:
            with engine.building():
                engine.create_store("disk", "ring", path=tmp_path / "ring")
                engine.create_queue("x", transit=True)
                engine.create_queue("a")
                engine.create_selector("x", when=match("eq", "2"), do=copy_to("a"))
                engine.create_queue("jobs", store="disk", dead_letter="x", rewriter="amqp")
            if number == 0:
                engine.publish("jobs", message("1", "2"))
                continue
            engine.get("jobs").reject()
            assert engine.queues["a"].fetch(1).annex[0] == KEYS_KIND
            engine.check()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@given(data=st.binary(max_size=40))
def test_bytes_that_are_no_annex(data):
    with xump.Engine() as engine:
        engine.create_queue("x", transit=True)
        engine.create_queue("jobs", dead_letter="x", rewriter="amqp")
        engine.create_queue("a")
        engine.create_selector("x", when=match("eq", "1"), do=copy_to("a"))
        engine.publish("x", Message("1", b"body", annex=(KEYS_KIND, data)))
        engine.publish("jobs", Message("1", b"body", annex=(KEYS_KIND, data)))
        engine.get("jobs").reject()
        assert engine.queues["a"].ready == 2
        engine.check()
