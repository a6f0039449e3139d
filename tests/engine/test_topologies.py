"""Housecat, Parrot and Wolfpack: which recipients get a message, joining and leaving, and that a wolf leaves nothing behind."""

import sys
import threading
import time

import pytest

import xump
from xump import INFINITE, Conflict, Housecat, Parrot, Wolfpack, always, deliver


@pytest.fixture
def engine(clock):
    with xump.Engine(clock=clock) as engine:
        yield engine
        if not engine.closed:
            engine.check()


def addresses(deliveries):
    return [delivery.message.address for delivery in deliveries]


def received(recipient):
    """What there is now; it is acked."""
    seen = []
    for delivery in recipient.deliveries():
        with delivery as message:
            seen.append(message.address)
    return seen


def shape(engine):
    return {name: queue.auto_delete for name, queue in engine.queues.items()}, [
        (selector.source.name, repr(selector.when), repr(selector.do), selector.credit) for selector in engine.selectors.values()]


# ---- the graphs of the notes

def test_housecat_is_built_as_the_notes_say(engine):
    recipient = Housecat(engine, "housecat").join("alice", credit=3)
    assert shape(engine) == ({"housecat": False, "alice": True}, [
        ("housecat", "match('eq', 'alice')", "copy_to('alice')", 3), ("alice", "always", "deliver('alice')", 3)])
    assert (recipient.name, recipient.destination, recipient.queue) == ("alice", "alice", "alice")
    assert (recipient.supply.id, recipient.outlet.id) == (1, 2)
    assert repr(recipient) == "<Recipient 'alice' of 'housecat'>"


def test_parrot_is_built_as_the_notes_say(engine):
    Parrot(engine, "parrot").join("polly", "news.#")
    assert shape(engine) == ({"parrot": False, "polly": True}, [
        ("parrot", "match('topic', 'news.#')", "copy_to('polly')", 1), ("polly", "always", "deliver('polly')", 1)])


def test_wolfpack_is_built_as_the_notes_say(engine):
    Wolfpack(engine, "pack").join("wolf", credit=2)
    assert shape(engine) == ({"pack": False, "wolf": True}, [
        ("pack", "always", "move_to('wolf')", 2), ("wolf", "always", "deliver('wolf')", 2)])


def test_with_infinite_credit_each_selector_says_what_it_has(engine):
    cat = Housecat(engine, "housecat").join("a", credit=INFINITE)
    parrot = Parrot(engine, "parrot").join("b", "#", credit=INFINITE)
    wolf = Wolfpack(engine, "pack").join("c", credit=INFINITE)
    assert {cat.supply.credit, cat.outlet.credit, parrot.supply.credit, parrot.outlet.credit} == {INFINITE}
    assert (wolf.supply.credit, wolf.outlet.credit) == (2**62, INFINITE)
    engine.publish("pack", "kept")
    assert (wolf.supply.outstanding, engine.queues["pack"].outstanding) == (1, 1)
    wolf.leave()
    assert engine.queues["pack"].ready == 1


# ---- who gets what

def test_housecat_delivers_to_the_addressed(engine):
    cat = Housecat(engine, "cat")
    alice, bob, robert = cat.join("alice", credit=9), cat.join("bob", credit=9), cat.join("robert", "bob", credit=9)
    for address in ("alice", "bob", "carol", "alice"):
        cat.queue.publish(address)
    assert received(alice) == ["alice", "alice"]
    assert received(bob) == received(robert) == ["bob"]
    assert cat.queue.ready == 0
    assert cat.queue.counters()["dropped"] == {"unroutable": 1}


def test_an_empty_address_is_an_address(engine):
    cat = Housecat(engine, "cat")
    nobody = cat.join("nobody", "")
    engine.publish("cat")
    assert received(nobody) == [""]


def test_parrot_delivers_to_all_who_asked(engine):
    parrot = Parrot(engine, "parrot")
    every, chess = parrot.join("every", "#", credit=INFINITE), parrot.join("chess", "sports.chess.*", credit=INFINITE)
    for address in ("sports.chess.london", "sports.go", "news"):
        parrot.queue.publish(address)
    assert received(every) == ["sports.chess.london", "sports.go", "news"]
    assert received(chess) == ["sports.chess.london"]


def test_wolves_share_the_work_in_turn(engine):
    pack = Wolfpack(engine, "pack")
    wolves = [pack.join(f"wolf-{n}", credit=2) for n in range(3)]
    for n in range(7):
        pack.queue.publish(str(n))
    assert pack.queue.ready == 1
    held = [engine.take(9, wolf.destination) for wolf in wolves]
    assert [addresses(taken) for taken in held] == [["0", "3"], ["1", "4"], ["2", "5"]]
    held[1][0].ack()
    assert addresses(engine.take(9, "wolf-1")) == ["6"]


def test_credit_bounds_what_a_recipient_holds(engine):
    parrot = Parrot(engine, "parrot")
    slow = parrot.join("slow", "#", credit=2)
    for n in range(5):
        parrot.queue.publish(str(n))
    taken = engine.take(9, "slow")
    assert addresses(taken) == ["0", "1"]
    assert (slow.queue.ready, slow.queue.outstanding) == (3, 2)
    engine.ack(taken)
    assert received(slow) == ["2", "3", "4"]


def test_deliveries_can_wait(engine):
    recipient = Parrot(engine, "parrot").join("polly", "#")
    assert list(recipient.deliveries(timeout=0.01)) == []
    with pytest.raises(ValueError):
        recipient.deliveries(timeout=-1)


# ---- leaving

def test_what_a_wolf_holds_returns_to_the_pack_in_its_old_place(engine):
    pack = Wolfpack(engine, "pack")
    leaving = pack.join("leaving", credit=4)
    for n in range(6):
        pack.queue.publish(str(n))
    taken = engine.take(2, "leaving")
    taken[0].ack()
    leaving.leave()
    assert "leaving" not in engine.queues
    assert list(engine.selectors) == []
    assert [(message.id, message.address) for message in pack.queue.browse()] == [(n + 1, str(n)) for n in range(1, 6)]
    with pytest.raises(xump.StaleDelivery):
        taken[1].ack()
    other = pack.join("other", credit=9)
    again = engine.take(9, "other")
    assert addresses(again) == ["1", "2", "3", "4", "5"]
    assert [delivery.redelivered for delivery in again] == [True, False, False, False, False]
    assert other.queue.outstanding == 5


def test_what_a_wolf_holds_goes_to_the_other_wolves(engine):
    pack = Wolfpack(engine, "pack")
    grey, white = pack.join("grey", credit=3), pack.join("white", credit=9)
    for n in range(4):
        pack.queue.publish(str(n))
    engine.take(9, "grey")
    grey.leave()
    assert received(white) == ["1", "3", "0", "2"]
    counters = pack.queue.counters()
    assert (counters["entered"], counters["settled"], counters["dropped"], counters["deleted"]) == (4, 4, {}, 0)


def test_a_wolf_of_infinite_credit_loses_nothing_either(engine):
    pack = Wolfpack(engine, "pack")
    grey = pack.join("grey", credit=INFINITE)
    for n in range(5):
        pack.queue.publish(str(n))
    [first] = engine.take(1, "grey")
    first.ack()
    grey.leave()
    assert [message.address for message in pack.queue.browse()] == ["1", "2", "3", "4"]
    white = pack.join("white", credit=INFINITE)
    assert received(white) == ["1", "2", "3", "4"]
    assert (pack.queue.ready, pack.queue.outstanding) == (0, 0)


def test_copies_go_with_the_queue(engine):
    for kind, more in ((Housecat, ("a",)), (Parrot, ("a",))):
        topology = kind(engine, kind.__name__)
        stays, leaves = topology.join("stays", *more, credit=9), topology.join("leaves", *more, credit=1)
        topology.queue.publish("a")
        topology.queue.publish("a")
        [taken] = engine.take(9, "leaves")
        leaves.leave()
        with pytest.raises(xump.StaleDelivery):
            taken.ack()
        assert received(stays) == ["a", "a"]
        stays.leave()
        assert list(engine.queues) == [kind.__name__]
        engine.delete_queue(topology.queue)


def test_leaving_is_idempotent_and_the_name_is_free_again(engine):
    pack = Wolfpack(engine, "pack")
    first = pack.join("wolf")
    first.leave()
    second = pack.join("wolf")
    first.leave()
    assert list(engine.queues) == ["pack", "wolf"]
    engine.publish("pack", "x")
    assert received(second) == ["x"]


def test_more_selectors_into_the_queue_leave_with_it(engine):
    parrot = Parrot(engine, "parrot")
    polly = parrot.join("polly", "a", credit=5)
    engine.create_selector("parrot", when=xump.match("eq", "b"), do=xump.copy_to(polly.queue))
    for address in "abc":
        parrot.queue.publish(address)
    assert received(polly) == ["a", "b"]
    polly.leave()
    assert list(engine.selectors) == []


def test_leaving_when_the_pack_is_gone(engine):
    pack = Wolfpack(engine, "pack")
    wolf = pack.join("wolf")
    engine.delete_queue("pack")
    wolf.leave()
    assert list(engine.queues) == []


def test_inside_a_building_block(engine):
    with engine.building():
        pack = Wolfpack(engine, "pack")
        grey = pack.join("grey", credit=9)
        pack.queue.publish("a")
        white = pack.join("white", credit=9)
        grey.leave()
    assert received(white) == ["a"]


# ---- joining

def test_joining_twice_is_a_conflict(engine):
    pack, cat = Wolfpack(engine, "pack"), Housecat(engine, "cat")
    wolf = pack.join("wolf")
    before = engine.topology()
    for topology, name in ((pack, "wolf"), (cat, "wolf"), (pack, "pack")):
        with pytest.raises(Conflict, match="there is a queue of that name already"):
            topology.join(name, credit=5)
        assert engine.topology() == before
    wolf.leave()
    cat.join("wolf")


@pytest.mark.parametrize(("join", "error"), [
    (lambda cat, parrot, pack: parrot.join("x", "a.b*"), xump.InvalidPattern),
    (lambda cat, parrot, pack: parrot.join("x", None), TypeError),
    (lambda cat, parrot, pack: cat.join("x", 1), TypeError),
    (lambda cat, parrot, pack: cat.join("x", credit=-1), ValueError),
    (lambda cat, parrot, pack: pack.join("x", credit="2"), TypeError),
    (lambda cat, parrot, pack: pack.join(""), ValueError),
    (lambda cat, parrot, pack: pack.join(None), TypeError),
])
def test_what_is_wrong_changes_nothing(engine, join, error):
    topologies = Housecat(engine, "cat"), Parrot(engine, "parrot"), Wolfpack(engine, "pack")
    before = engine.topology()
    with pytest.raises(error):
        join(*topologies)
    assert engine.topology() == before


def test_the_queue_for_routing_may_be_there_already(engine):
    queue = engine.create_queue("pack", limit=1, history_limit=None)
    pack = Wolfpack(engine, "pack")
    assert pack.queue is queue
    assert (pack.name, repr(pack)) == ("pack", "<Wolfpack 'pack'>")
    assert Wolfpack(engine, "pack").queue is queue
    queue.publish("first")
    with pytest.raises(xump.QueueFull):
        queue.publish("second")
    assert received(pack.join("wolf")) == ["first"]


def test_what_waited_for_a_recipient_is_given_to_it(engine):
    pack = Wolfpack(engine, "pack")
    pack.queue.publish("early")
    assert received(pack.join("wolf")) == ["early"]


def test_a_topology_can_be_saved_with_its_recipients(engine, clock):
    Wolfpack(engine, "pack").join("wolf", credit=INFINITE)
    Parrot(engine, "parrot").join("polly", "#", credit=2)
    engine.create_selector("parrot", when=always, do=deliver("log"))
    with xump.Engine(clock=clock) as other:
        other.apply(engine.topology())
        assert other.topology() == engine.topology()


def test_while_a_join_waits_for_who_changes_the_graph_messages_go_on(engine):
    """A store that is opened is read as a whole, which may take long."""
    news = Parrot(engine, "news")
    reader = news.join("reader", "#")
    thread = threading.Thread(target=news.join, args=("other", "#"))
    with engine._graph_lock:
        thread.start()
        while sys._current_frames()[thread.ident].f_code.co_name != "_join":
            time.sleep(0.001)
        for _ in range(20):
            time.sleep(0.001)       # it waits by now
            news.queue.publish("now")
            assert received(reader) == ["now"]
    thread.join()
    assert "other" in engine.queues


def test_after_the_end(engine):
    pack = Wolfpack(engine, "pack")
    wolf = pack.join("wolf")
    engine.close()
    for call in (wolf.leave, wolf.deliveries, lambda: pack.join("other")):
        with pytest.raises(xump.Closed):
            call()
