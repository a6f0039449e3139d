"""Drawings of a graph: what they show, and that any name can be in one."""

import os
import re

import pytest

import xump
from xump import INFINITE, Conflict, always, bounce_to, copy_to, default, deliver, discard, field, match, move_to, topology, where
from xump.topology import drawing


@pytest.fixture
def engine(clock):
    with xump.Engine(clock=clock) as engine:
        yield engine
        engine.check()


AWKWARD = [
    'a"b', "back\\slash\\", "line\nbreak", "<b>&amp;</b>", "%% comment", "#35;", "`code` *bold* _it_", "1. list", "- list", "end",
    " ", "===", "style:#x;", "\u202eright to left", "日本", "\\N", "x" * 200, "'", "]", '"]; n1 --> n2', "\0", "{}",
]


@pytest.mark.parametrize("name", AWKWARD, ids=ascii)
def test_any_name_can_be_drawn(engine, name):
    """Between the quotes of a label there is nothing that either language would read."""
    engine.create_queue(name, dead_letter=name + "?")
    engine.create_selector(name, when=match("eq", name), do=deliver(name, queue=name), name=name)
    engine.create_selector(name, when=where({name: name}), do=deliver(field(f"headers.{name}")))
    engine.create_selector(name, when=always, do=deliver(name))
    mermaid, dot = engine.to_mermaid(), engine.to_dot()
    for line in mermaid.splitlines():
        parts = line.split('"')
        assert len(parts) in (1, 3)
        if len(parts) == 3:
            for label in parts[1].split("<br/>"):
                assert not set(label) & set('<>&`%{}[]|\\*~$^@:'), label
                assert label[:1] not in "-+=" or not label
                assert label.isprintable()
    assert len(mermaid.splitlines()) == 1 + 4 + 4 + 2
    assert len(dot.splitlines()) == 4 + 4 + 4 + 1
    for line in dot.splitlines()[4:-1]:
        label = line.split('[label="')[1].rsplit('", ', 1)[0].replace("\\\\", "").replace('\\"', "").replace("\\n", "")
        assert '"' not in label
        assert "\\" not in label
        assert label.isprintable()


def test_labels_show_the_name_again():
    """Undoing the escapes, as the readers of both languages do, gives the text back."""
    for name in AWKWARD:
        plain = name.replace("\n", "").replace("\0", "").replace("\u202e", "")
        mermaid = drawing.mermaid_text(plain)
        shown = re.sub(r"#(\d+);", lambda found: chr(int(found[1])), mermaid)
        assert shown == plain
        dot = drawing.dot_text(plain)
        assert dot.replace("&amp;", "&").replace('\\"', '"').replace("\\\\", "\\") == plain


def test_the_drawing_says_what_is_there(engine):
    engine.create_store("cold")
    engine.create_queue("dead", history_limit=None)
    engine.create_queue("jobs", store="cold", limit=100, history_limit=10, dead_letter="dead")
    engine.create_queue("wolf", auto_delete=True)
    engine.create_selector("jobs", when=always, do=move_to("wolf"), credit=10, name="to the wolf")
    engine.create_selector("jobs", when=match("topic", "a.*.#") & where("size > 100"), do=copy_to(field("headers.to")))
    engine.create_selector("jobs", when=where("n = 1"), do=bounce_to("dead"), credit=INFINITE)
    engine.create_selector("jobs", when=default, do=deliver(field("address"), queue="wolf"), enabled=False)
    engine.create_selector("wolf", when=always, do=deliver("wolf"))
    engine.queues["wolf"].hold()
    engine.queues["dead"].publish("x")
    for _ in range(11):
        engine.publish("jobs", "x", headers={"n": 7})
    text = engine.to_dot()
    assert 'label="jobs\\nin cold, limit 100\\n11 entered, 1 ready, 10 outstanding"' in text
    assert 'label="wolf\\ndeletes itself, held\\n10 entered, 10 ready"' in text
    assert "1 to the wolf, always\\nmove 10, 0 of 10 credits left" in text
    assert "2, match('topic', 'a.*.#') & where('size > 100')\\ncopy 0\"".replace("&", "&amp;") in text
    assert "deliver to address 0, 1 of 1 credits left, disabled" in text
    assert "bounce 0, credit INFINITE" in text
    assert text.count("style=dashed]") == 1
    assert text.count("shape=diamond") == 0
    assert text.count("shape=hexagon") == 1
    mermaid = engine.to_mermaid()
    assert 'n1["dead<br/>keeps all history<br/>1 entered, 1 ready"]' in mermaid
    assert '-.->|"dead letters"| n1' in mermaid
    assert '{{"the queue named by<br/>headers.to"}}' in mermaid
    assert '(["wolf"])' in mermaid


def test_blocked_and_missing_and_callables_are_shown(engine):
    engine.create_queue("a", dead_letter="nowhere")
    engine.create_queue("b", limit=1).publish("x")
    engine.create_selector("a", when=where(os.path.exists) & match("eq", "x"), do=discard)
    engine.create_selector("a", when=always, do=move_to("b"), credit=2)
    engine.publish("a", "y")
    text = engine.to_mermaid()
    assert "where(exists) #38; match('eq', 'x')" in text
    assert "move 0, 2 of 2 credits left, blocked" in text
    assert 'n4["nowhere<br/>no such queue"]' in text
    assert "class n4 missing" in text


def test_dead_letters_of_the_engine_are_shown_where_there_were_any():
    with xump.Engine(dead_letter="dead") as engine:
        for name, letters in (("dead", None), ("a", None), ("b", None), ("c", "dead"), ("d", "none")):
            engine.create_queue(name, dead_letter=letters)
        for name in "ad":
            engine.create_selector(name, when=match("eq", "x"), do=discard)
            engine.queues[name].publish("y")
        lines = [line for line in engine.to_mermaid().splitlines() if "dead letters" in line]
        assert lines == [
            '    n2 -.->|"dead letters<br/>1 unroutable"| n1',
            '    n4 -.->|"dead letters"| n1',
            '    n5 -.->|"dead letters"| n7',
            '    n5 -.->|"dead letters<br/>1 unroutable"| n1',
        ]
        assert [line for line in drawing.to_mermaid(engine, counts=False).splitlines() if "-.->" in line] == [
            '    n4 -.->|"dead letters"| n1', '    n5 -.->|"dead letters"| n7',
        ]


def test_a_description_is_drawn_without_an_engine():
    description = {"version": 1, "stores": {"cold": {}}, "queues": {"jobs": {"store": "cold", "limit": 5, "history_limit": 7}},
                   "selectors": [{"source": "jobs", "when": "always", "do": {"move_to": "jobs"}, "credit": 5}]}
    with topology.sketch(description) as engine:
        text = drawing.to_mermaid(engine, counts=False)
    assert 'n1["jobs<br/>in cold, limit 5, keeps 7"]' in text
    assert "move, credit 5" in text
    with pytest.raises(Conflict):
        topology.sketch({"version": 3})
