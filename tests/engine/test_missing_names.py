"""An error says what was meant perhaps. That costs a look at all names, so it is put together only if somebody reads it."""

import copy
import pickle

import pytest

import xump
from xump import Engine, _names
from xump.errors import Closed, NotFound, QueueNotFound, SelectorNotFound


@pytest.fixture
def looks(monkeypatch):
    """The names that were compared with all that there are."""
    names = []
    compared = _names.get_close_matches

    def counted(name, *rest):
        names.append(name)
        return compared(name, *rest)

    monkeypatch.setattr(_names, "get_close_matches", counted)
    return names


@pytest.fixture
def engine():
    with Engine() as engine:
        engine.create_queue("jobs")
        yield engine


TEXT = "no queue 'jbos' in this engine; did you mean 'jobs'?"


def test_nothing_is_compared_while_no_text_is_read(engine, looks):
    assert engine.queues.get("jbos") is None and engine.queues.get("jbos", 1) == 1 and "jbos" not in engine.queues
    assert engine.selectors.get(9) is None and engine.selectors.get("audit") is None
    assert engine.stores.get("dsik") is None and engine.windows.get("w") is None
    with pytest.raises(QueueNotFound):
        engine.queues["jbos"]
    with pytest.raises(QueueNotFound):
        engine.get("jbos")
    assert looks == []


def test_the_text_is_made_once(engine, looks):
    with pytest.raises(QueueNotFound) as caught:
        engine.queues["jbos"]
    assert str(caught.value) == TEXT and caught.value.args == (TEXT,) and repr(caught.value) == f"QueueNotFound({TEXT!r})"
    assert looks == ["jbos"]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("read", [False, True])
def test_a_copy_has_the_text(engine, copied, read):
    with pytest.raises(QueueNotFound) as caught:
        engine.queues["jbos"]
    if read:
        str(caught.value)
    other = copied(caught.value)
    assert type(other) is QueueNotFound and str(other) == TEXT and other.args == (TEXT,)


def test_other_errors_of_these_classes_are_as_any():
    error = NotFound("a", 1)
    assert error.args == ("a", 1) and NotFound().args == () and isinstance(error, KeyError)
    error.args = ("b",)
    assert str(error) == "b" and repr(error) == "NotFound('b')"
    later = NotFound.told_later(lambda: "never read")
    later.args = ("set",)
    assert str(later) == "set"


def test_a_selector_is_got_by_its_name(engine):
    made = engine.create_selector("jobs", when=xump.always, do=xump.discard, name="audit")
    assert engine.selectors.get("audit") is engine.selectors.get(made.id) is made
    with pytest.raises(SelectorNotFound, match="no selector 'adit' in this engine"):
        engine.selectors["adit"]


def test_nothing_is_there_once_the_engine_is_closed(engine):
    engine.close()
    with pytest.raises(Closed):
        engine.queues.get("jbos")


def test_a_text_tells_of_the_moment_of_the_error(engine):
    """Most are read later, when the engine is closed."""
    missing = []
    for call in (lambda: engine.queues["jbos"], lambda: engine.get("jbos"), lambda: engine.queues["new"]):
        with pytest.raises(QueueNotFound) as raised:
            call()
        missing.append(raised.value)
    engine.create_queue("new")
    engine.close()
    assert [str(error) for error in missing] == [
        TEXT, "queue: no queue 'jbos' in this engine; did you mean 'jobs'?", "no queue 'new' in this engine; there is 'jobs'"]


def test_a_class_of_the_program_may_have_other_arguments():
    class Gone(QueueNotFound):
        def __init__(self, queue, why):
            super().__init__(f"{queue}: {why}")

    error = Gone("jobs", "it was deleted")
    error.args = ("another text",)
    assert str(error) == "another text" and error.args == ("another text",)
