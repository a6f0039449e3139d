"""Match operators that packages bring: each is loaded when it is asked for, and harms nobody else."""

import logging

import pytest

from xump import Conflict, Engine, InvalidPattern, discard, match, operators, register_operator

MODULE = """
number = 5

def suffix(pattern, value):
    return value.endswith(pattern)
"""
PACKAGES = {
    "first": "suffix = plugged_in:suffix\nnowhere = no_such_module:f\nlost = plugged_in:lost\nnumber = plugged_in:number",
    "second": "topic = plugged_in:suffix\nnowhere = plugged_in:suffix\nzuffix = plugged_in:suffix",
}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    (tmp_path / "plugged_in.py").write_text(MODULE)
    for name, entries in PACKAGES.items():
        folder = tmp_path / f"{name}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (folder / "entry_points.txt").write_text(f"[xump.operators]\n{entries}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(operators, "_registered", {})
    operators._installed.cache_clear()
    yield
    operators._installed.cache_clear()


def test_operators_of_packages_are_loaded_one_by_one(installed):
    assert {"suffix", "zuffix", "nowhere"} <= set(operators.operator_names())
    for name, said in (("nowhere", "'nowhere' of the package first cannot be loaded from 'no_such_module:f': ModuleNotFound"),
                       ("lost", "'lost' of the package first cannot be loaded.*AttributeError"),
                       ("number", "'number' of the package first must be callable as matches.pattern, value., got int")):
        for _ in range(2):
            with pytest.raises(InvalidPattern, match=said):
                match(name, "x")
    with Engine() as engine:
        engine.create_queue("q")
        for number, name in enumerate(("suffix", "zuffix"), 1):
            engine.create_selector("q", when=match(name, ".png"), do=discard)
            engine.publish("q", "cat.png")
            assert engine.stats()["queues"]["q"]["settled"] == number
    with pytest.raises(InvalidPattern, match="unknown operator 'missing'; there are eq, topic, prefix, suffix, "):
        match("missing", "x")


def test_a_name_that_two_have_is_told_once(installed, caplog):
    with caplog.at_level(logging.ERROR, "xump"):
        match("zuffix", "x")
        match("topic", "x")
        operators.operator_names()
    assert sorted(record.getMessage() for record in caplog.records if record.name == "xump") == [
        "operator 'nowhere' of the package second is left out: there is one of that name, of the package first",
        "operator 'topic' of the package second is left out: there is one of that name, built in",
    ]


def test_a_program_cannot_take_the_name_of_an_installed_operator(installed):
    with pytest.raises(Conflict, match="'suffix' exists already, in the package first; there are eq, topic, prefix, "):
        register_operator("suffix", str.endswith)
    register_operator("own", str.endswith)
    assert match("own", "x") and match("suffix", "x")


@pytest.mark.parametrize("error", [KeyError("no such word"), TypeError(), ZeroDivisionError("by nought")])
def test_whatever_validate_raises_is_about_the_pattern(installed, error):
    def validate(pattern):
        raise error

    register_operator("picky", str.endswith, validate)
    with pytest.raises(InvalidPattern, match=f"'picky' does not accept 'x': .*{str(error) or 'TypeError'}") as raised:
        match("picky", "x")
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("name", ["\ud800", "", "x" * 70_000])
def test_names_that_no_operator_has(name):
    with pytest.raises(ValueError, match="the name of an operator"):
        register_operator(name, str.endswith)
    assert name not in operators.operator_names()


@pytest.mark.parametrize("operator", ["eq", "topic", "prefix"])
def test_a_pattern_is_text_that_a_message_can_have(operator):
    with pytest.raises(InvalidPattern, match="lone surrogate at 1") as raised:
        match(operator, "a\ud800")
    assert raised.value.position == 1
