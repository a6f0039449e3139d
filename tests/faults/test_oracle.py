"""The judge of two stores: what it allows, and what it finds."""

from collections import Counter
from types import SimpleNamespace

import pytest

from tests.faults import shrinking
from tests.faults.oracle import Moment, Observed, Violation, check_pair
from tests.faults.power import Steps

STORES = {"a": "one", "b": "one", "c": "two"}


def message(id, body=b"1.1 x", hops=0):
    return id, "x", body, {}, None, None, None, 0, hops


def sight(history_limit=None, entered=(), **queues):
    """`queues`: by name, the messages that are ready, or of a history. `entered`: ids issued, where more than are there."""
    messages = {name.removesuffix("_history"): {"ready": [], "history": []} for name in queues}
    for name, found in queues.items():
        messages[name.removesuffix("_history")]["history" if name.endswith("_history") else "ready"] += found
    counts = {name: max([dict(entered).get(name, 0), *(one[0] for found in states.values() for one in found)])
              for name, states in messages.items()}
    return {"messages": messages, "queues": {name: {"entered": count} for name, count in counts.items()},
            "properties": {name: (STORES.get(name, "one"), None, history_limit) for name in messages}}


def moment(*args, copies=None, made=None, **queues):
    """`copies`: how often a body was copied within its store. `made`: which queue of its name each is, if not the first one."""
    held = {name: SimpleNamespace(made=(made or {}).get(name, 1)) for name in queues if name in STORES}
    return Moment(SimpleNamespace(strayed=set(), copies=Counter(copies or {}), queues=held), sight(*args, **queues))


def delivered(queue, one, redelivered):
    return one, None, queue, redelivered, 1


def judge(now, *moments, emptied=None, **options):
    check_pair(Observed(now, emptied), list(moments), **options)


def test_a_queue_that_was_never_there():
    judge(sight(a=[]), moment(a=[]))
    judge(sight(**{"a": [], "a (deleted 1)": []}), moment(a=[]))
    with pytest.raises(Violation, match="queue 'b' was never there"):
        judge(sight(a=[], b=[]), moment(a=[]))
    judge(sight(a=[], b=[]), moment(a=[]), earlier=[moment(a=[], b=[])])


def test_what_is_over_may_be_there_where_a_disk_failed():
    before, now = moment(a=[message(1)]), sight(a=[message(1)])
    over = moment(a=[], entered={"a": 1}.items())
    with pytest.raises(Violation, match="message 1 of queue 'a' is there again"):
        judge(now, over)
    judge(now, over, earlier=[before])
    with pytest.raises(Violation, match="message 1 of queue 'a' is .*, and was"):
        judge(sight(a=[message(1, b"1.2 y")]), over, earlier=[before])


def test_a_message_may_be_back_in_its_queue_if_it_left_the_one_it_was_moved_to():
    """It was moved from a to b within a store, and a call was taking it back to move it to c of another store."""
    before = moment(a=[], b=[message(1)], c=[], entered={"a": 1}.items())
    after = moment(a=[], b=[], c=[message(1)], entered={"a": 1, "b": 1}.items())
    judge(sight(a=[message(1)], b=[], c=[], entered={"b": 1}.items()), before, after)
    with pytest.raises(Violation, match="message 1 of queue 'a' is there again"):
        judge(sight(a=[message(1)], b=[message(1)], c=[]), before)
    with pytest.raises(Violation, match="message 1 of queue 'a' is there again"):
        judge(sight(a=[message(1)], b=[], c=[message(1)], entered={"b": 1}.items()), after)


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("queues", [("a", "b"), ("a", "c")])
def test_what_is_there_twice_is_marked(queues, marked):
    """In one store, too."""
    first, second = queues
    before = moment(**{first: [message(1)], second: []})
    now = sight(**{first: [message(1)], second: [message(1)]})
    after = moment(**{first: [], second: [message(1)]}, entered={first: 1}.items())
    emptied = [delivered(first, message(1), False), delivered(second, message(1), marked)]
    if marked:
        judge(now, before, after, emptied=emptied)
    else:
        with pytest.raises(Violation, match="twice, and not marked as redelivered"):
            judge(now, before, after, emptied=emptied)


def test_a_copy_in_its_own_store_needs_no_mark_though_the_original_is_back():
    """That went on into another store, and its end waited for that."""
    before, now = moment(a=[message(1)], b=[], c=[]), sight(a=[message(1)], b=[message(1)], c=[])
    emptied = [delivered("a", message(1), False), delivered("b", message(1), False)]
    ended = {"a": 1, "c": 1}.items()
    judge(now, before, moment(a=[], b=[message(1)], c=[], entered=ended, copies={message(1)[2]: 1}), emptied=emptied)
    with pytest.raises(Violation, match="twice, and not marked as redelivered"):
        judge(now, before, moment(a=[], b=[message(1)], c=[], entered=ended), emptied=emptied)


def test_each_store_may_have_come_to_a_moment_of_its_own():
    """1 waited in both stores; in the first it was copied and moved, in the second it ended, and that was not durable."""
    before = moment(a=[message(1)], b=[], c=[message(1)])
    now = sight(a=[], b=[message(1), message(2)], c=[message(1)], entered={"a": 1}.items())
    ended = {"a": 1, "c": 1}.items()
    emptied = [delivered("b", message(1), False), delivered("b", message(2), False), delivered("c", message(1), False)]
    judge(now, before, moment(a=[], b=[message(1), message(2)], c=[], entered=ended, copies={message(1)[2]: 1}), emptied=emptied)
    with pytest.raises(Violation, match="twice, and not marked as redelivered"):
        judge(now, before, moment(a=[], b=[message(1), message(2)], c=[], entered=ended), emptied=emptied)


def test_what_passed_through_a_queue_that_was_made_anew():
    """Message 1 of the first queue was there in the middle of a call only."""
    passed, later = message(1, b"1.1 x"), message(1, b"1.2 y")
    before = moment(a=[], b=[])
    judge(sight(a=[passed], b=[]), before, moment(a=[later], b=[], made={"a": 2}))
    with pytest.raises(Violation, match="message 1 of queue 'a' is .*, and was"):
        judge(sight(a=[passed], b=[]), before, moment(a=[later], b=[]))


def test_a_history_is_trimmed_by_id():
    """2 was processed before 1, and would have been the next to go; its end waited for another store, so 1 went."""
    one, two, three = (message(id, b"1.%d x" % id) for id in (1, 2, 3))
    before, after = moment(2, a_history=[two, one]), moment(2, a_history=[one, three])
    judge(sight(2, a_history=[two, three]), before, after)
    with pytest.raises(Violation, match="message 1 of queue 'a' is lost"):
        judge(sight(2, a_history=[three]), before, after)
    with pytest.raises(Violation, match="message 3 of queue 'a' is lost"):
        judge(sight(2, a_history=[one, two]), moment(2, a_history=[one, three]), earlier=[before])


def test_what_ended_in_between_is_trimmed_too():
    """1 was ready, and ended; then it was the next to go from the history."""
    one, two, three = (message(id, b"1.%d x" % id) for id in (1, 2, 3))
    ready, ended = moment(2, a=[one], a_history=[two]), moment(2, a_history=[two, one])
    judge(sight(2, a_history=[two, three]), ready, ended, moment(2, a_history=[one, three]))
    with pytest.raises(Violation, match="message 1 of queue 'a' is lost"):
        judge(sight(2, a_history=[two, three]), ready, ready)


def test_what_was_copied_and_moved_within_its_store_may_wait_there_twice():
    """It was copied and moved into b, whose selector copied both into c of another store, which is full: they ended, and that was
    not durable."""
    first, second = message(1), message(2)
    ended = {"a": 1, "b": 2}.items()
    before, now = moment(a=[first], b=[], c=[]), sight(a=[], b=[first, second], c=[], entered=ended)
    emptied = [delivered("b", first, False), delivered("b", second, False)]
    judge(now, before, moment(a=[], b=[], c=[], entered=ended, copies={first[2]: 1}), emptied=emptied)
    with pytest.raises(Violation, match="twice, and not marked as redelivered"):
        judge(now, before, moment(a=[], b=[], c=[], entered=ended), emptied=emptied)


def test_what_came_twice_into_a_queue_may_wait_there_twice():
    """By a COPY and a MOVE. Both ended in the same call, but what they became was not durable."""
    first, second = message(1), message(2)
    before, after = moment(a=[message(1)], b=[]), moment(a_history=[message(1)], b_history=[first, second])
    emptied = [delivered("b", first, False), delivered("b", second, False)]
    judge(sight(a_history=[message(1)], b=[first, second]), before, after, emptied=emptied)
    with pytest.raises(Violation, match="twice, and not marked as redelivered"):
        judge(sight(a_history=[message(1)], b=[first, second]), before,
              moment(a_history=[message(1)], b_history=[first], entered={"b": 2}.items()), emptied=emptied)


def test_a_chain_that_does_not_fail_again_shows_what_it_was(tmp_path):
    said = shrinking.told(lambda left_out, folder: ([], Steps()), tmp_path, tries=2, evidence=lambda: "the calls:\npublish()")
    assert said.endswith("it does not fail when it is run again; what it was:\nthe calls:\npublish()")
