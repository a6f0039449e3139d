"""A store is deleted, fails, or cannot be read: the engine goes on with its other stores, and the file keeps all that it had."""

import pytest

from tests.durability.one_store import bodies
from tests.durability.test_durable import two_shelves
from xump import INFINITE, Engine, StoreFailed, always, deliver, move_to, where

pytestmark = pytest.mark.usefixtures("empty_shelves")


def test_a_store_is_deleted_with_what_is_in_its_file_only(opened):
    with opened() as engine:
        for name in ("q1", "q2"):
            engine.create_queue(name, store="d")
            engine.publish_many(name, [("x", b"body", {"n": n}) for n in range(5)])
    with opened() as engine:
        with engine.building():
            engine.create_queue("ram", limit=5)
            for name in ("q1", "q2"):
                engine.create_selector(name, when=where("n >= 0"), do=move_to("ram"), credit=10)
        engine.delete_store("d")
        assert list(engine.queues) == ["ram"] and engine.queues["ram"].ready == 0
        engine.check()
    with opened() as engine:
        assert {name: len(found) for name, found in bodies(engine).items()} == {"q1": 5, "q2": 5}


def test_nothing_goes_on_out_of_a_store_that_is_deleted():
    with two_shelves() as engine:
        for name, store in (("q1", "left"), ("q2", "left")):
            engine.create_queue(name, store=store)
        engine.create_queue("r", store="right", limit=2)
        engine.create_selector("q1", when=always, do=move_to("r"), credit=10)
        engine.create_selector("q2", when=always, do=move_to("r"), credit=INFINITE)
        for name in ("q1", "q2"):
            engine.publish_many(name, [("", b"x")] * 3)
        engine.delete_store("left")
        assert bodies(engine) == {"r": []}
        engine.check()


def test_what_a_deleted_store_lent_is_in_its_file_only():
    with two_shelves() as engine:
        engine.create_queue("l", store="left")
        for name in ("ram", "ram2"):
            engine.create_queue(name)
        engine.create_selector("l", when=always, do=move_to("ram"), credit=INFINITE)
        engine.publish("l", body=b"1")
        engine.delete_store("left")
        engine.create_selector("ram", when=always, do=move_to("ram2"), credit=INFINITE)
        engine.check()
        assert bodies(engine) == {"ram": [], "ram2": []}
    with two_shelves() as engine:
        assert bodies(engine) == {"l": [b"1"]}


def test_a_queue_in_ram_is_deleted_with_what_it_was_lent():
    with two_shelves() as engine:
        engine.create_queue("l", store="left")
        engine.create_queue("ram")
        engine.create_selector("l", when=always, do=move_to("ram"), credit=INFINITE)
        engine.publish("l", body=b"1")
        engine.delete_queue("ram")
        engine.check()
    with two_shelves() as engine:
        assert bodies(engine) == {"l": []}


def no_disk(*_):
    raise OSError(5, "the disk is gone")


def test_a_failed_store_takes_no_other_one_with_it():
    engine = two_shelves(durability="sync")
    for name, store in (("l", "left"), ("l2", "left"), ("r", "right")):
        engine.create_queue(name, store=store)
    engine.create_selector("r", when=always, do=move_to("l"), credit=INFINITE)
    engine.stores["right"].backend.sync = no_disk
    with pytest.raises(StoreFailed):
        engine.publish("r")
    for id in (1, 2, 3):
        assert engine.publish("l2") == id and engine.queues["l2"].durable_id == id
    engine.check()
    assert engine.delete_store("left") and engine.delete_store("right")
    engine.check()
    engine.close()


def test_a_message_that_cannot_be_read_holds_up_nobody_else(tmp_path, caplog):
    path = tmp_path / "ring"
    with Engine() as engine:
        engine.create_store("d", "ring", path=str(path))
        engine.create_queue("q", store="d")
        engine.publish_many("q", [("x", b"BODY%d" % n * 10, {"n": n}) for n in range(5)])
    with Engine() as engine:
        engine.create_store("d", "ring", path=str(path))
        at = path.read_bytes().index(b"BODY2" * 10)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"X")
        engine.create_queue("ram")
        with engine.building():
            engine.create_selector("q", when=where("n >= 0"), do=deliver("d"), credit=10)
        assert engine.publish("ram") == 1
        assert engine.queues["q"].held and "damaged" in caplog.text
        engine.check()
