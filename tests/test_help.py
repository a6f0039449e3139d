"""`help()` says what everything public is: every name of `xump`, and every attribute of the classes that a program meets.

The classes of the compiled core are looked at too. Attributes that exist in instances only (`self.x = ...`, the fields of
dataclasses) have no docstring at run time; for them the source is read, where a text stands behind the assignment.
"""

import ast
import copy
import doctest
import inspect
import pickle
import pydoc
import re
import sys
from pathlib import Path

import pytest

import xump
import xump.aio
from xump.actions import Action, Field
from xump.conditions import All, Condition, Match, Role, Where
from tests.stubs import STUBS, with_docstrings
from xump.transaction import Transaction
from xump_ext.arrow.batch import DeliveryBatch
from xump_ext.engine.core import Core
from xump_ext.engine.delivery import Delivery
from xump_ext.engine.publish import EnginePublish
from xump_ext.engine.taking import DeliveryIterator
from xump_ext.message.message import Headers, Message

ROOT = Path(__file__).parent.parent
CHARS_MIN = 20
SMALL_WORDS = {"a", "an", "and", "is", "it", "its", "of", "or", "the", "this", "that"}

RETURNED = (
    Action, All, Condition, DeliveryBatch, DeliveryIterator, Field, Headers, Match, Role, Transaction, Where, xump.aio.Deliveries,
)
"""Classes that are not in `xump.__all__`, and that calls return."""

CLASSES = [value for name in xump.__all__ if isinstance(value := getattr(xump, name), type)] + list(RETURNED)
VALUES = [name for name in xump.__all__ if not isinstance(value := getattr(xump, name), type) and not inspect.isroutine(value)]


def says_something(doc, *names):
    """Whether a docstring is long enough, and has words beside those of the name."""
    if not isinstance(doc, str) or len(doc.strip()) < CHARS_MIN:
        return False
    known = SMALL_WORDS | {word for name in names for word in words(name)}
    return len([word for word in words(doc) if word not in known]) >= 2


def words(text):
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())


def is_ours(kind):
    return kind.__module__.partition(".")[0] in ("xump", "xump_ext", "stores")


def own_doc(value):
    """The docstring of a thing itself, and not that of its class."""
    doc = object.__getattribute__(value, "__doc__") if not isinstance(value, type) else vars(value).get("__doc__")
    return None if not isinstance(value, type) and not inspect.isroutine(value) and doc == type(value).__doc__ else doc


def attributes():
    """(class, name, docstring) of every public attribute that a class has at run time, its own or inherited."""
    for kind in CLASSES:
        in_source = source_attributes(kind)
        for name in dir(kind):
            definer = next((base for base in kind.__mro__ if name in vars(base)), None)
            if name.startswith("_") or definer is None or not is_ours(definer):
                continue
            if name not in in_source:       # the default value of a field is no attribute to be documented
                yield kind, name, getattr(vars(definer)[name], "__doc__", None)
        for name, doc in in_source.items():
            yield kind, name, doc


def source_attributes(kind):
    """{name: the text behind it} of the attributes that a class and its bases set in their bodies and in `__init__`."""
    found = {}
    for base in reversed(kind.__mro__):
        if is_ours(base) and (tree := class_tree(base)) is not None:
            for body in bodies(tree):
                found |= documented_assignments(body)
    return found


def class_tree(kind):
    """The syntax tree of a class, or None if it is compiled."""
    path = getattr(sys.modules[kind.__module__], "__file__", None)
    if path is None or not path.endswith(".py"):
        return None
    for file in (Path(path), ROOT / "xump_ext" / "errors.py"):        # errors say that they are of `xump.errors`
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                return node
    return None


def bodies(tree):
    yield tree.body
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield node.body


def documented_assignments(body):
    """{name: the text behind the assignment, or None} of the public names that these statements set."""
    found = {}
    for at, node in enumerate(body):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        behind = body[at + 1] if at + 1 < len(body) else None
        text = behind.value.value if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant) else None
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                name = target.attr
            else:
                name = getattr(target, "id", "_")
            if not name.startswith("_"):
                found[name] = text
    return found


@pytest.mark.parametrize("name", xump.__all__)
def test_every_name_says_what_it_is(name):
    assert says_something(own_doc(getattr(xump, name)), name)


def test_every_class_that_calls_return_says_what_it_is():
    assert [kind.__name__ for kind in RETURNED if not says_something(own_doc(kind), kind.__name__)] == []


@pytest.mark.parametrize(("kind", "name", "doc"), [
    pytest.param(kind, name, doc, id=f"{kind.__name__}.{name}") for kind, name, doc in attributes()])
def test_every_attribute_says_what_it_is(kind, name, doc):
    assert says_something(doc, name), f"{kind.__name__}.{name} has the docstring {doc!r}"


@pytest.mark.parametrize("name", ["deliveries", "take"])
def test_functions_for_asyncio_say_what_they_do(name):
    assert says_something(getattr(xump.aio, name).__doc__, name)


# ---- values

def test_these_names_are_values():
    assert VALUES == ["INFINITE", "always", "default", "discard", "overflow"]


@pytest.mark.parametrize("name", VALUES)
def test_help_of_a_value_is_its_own(name):
    text = pydoc.render_doc(getattr(xump, name), renderer=pydoc.plaintext)
    assert f"\n{name}\n    " in text, "the value and its docstring, not the page of its class"
    assert "Method resolution order" not in text


@pytest.mark.parametrize("name", VALUES)
def test_the_example_of_a_value_runs(name):
    """pytest collects the examples of functions and classes only."""
    example = doctest.DocTestParser().get_doctest(getattr(xump, name).__doc__, {}, name, None, 0)
    failures = []
    result = doctest.DocTestRunner(verbose=False).run(example, out=failures.append)
    assert result.attempted and not result.failed, "".join(failures)


@pytest.mark.parametrize("name", VALUES)
def test_a_docstring_is_no_part_of_a_value(name):
    value = getattr(xump, name)
    for other in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert other == value
        assert hash(other) == hash(value)
        assert repr(other) == name
    assert {value: 1}[value] == 1
    bare = {"discard": lambda: Action("discard"), "INFINITE": lambda: value}.get(name, lambda: Role(name))()
    assert bare == value
    assert hash(bare) == hash(value)


# ---- the sources of the package

SOURCES = [path for path in sorted((ROOT / "xump").rglob("*.py")) if not {"demo", "testing"} & set(path.relative_to(ROOT).parts)]


def undocumented(path):
    """The public attributes, properties and methods of public classes, and the public functions, that have no docstring."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, (*functions, ast.ClassDef)) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None:
            yield node.name
        if isinstance(node, ast.ClassDef):
            for body in bodies(node):
                yield from (f"{node.name}.{name}" for name, text in documented_assignments(body).items() if text is None)
            methods = [part for part in ast.walk(node) if isinstance(part, functions) and not part.name.startswith("_")]
            yield from (f"{node.name}.{method.name}" for method in methods if ast.get_docstring(method) is None)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_everything_public_in_the_sources_is_documented(path):
    assert list(undocumented(path)) == []


# ---- compiled classes

@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.stem)
def test_stubs_have_the_docstrings_of_what_they_describe(path):
    """`python -m tests.stubs --write` copies them. Editors read the stubs, not the compiled modules."""
    assert path.read_text() == with_docstrings(path)


@pytest.mark.parametrize("kind", [Delivery, DeliveryBatch, DeliveryIterator, Headers, Message, Core, EnginePublish])
def test_examples_of_compiled_classes_run(kind):
    """pytest collects the examples of sources in Python only."""
    values = [kind, *(value for name, value in vars(kind).items() if not name.startswith("_"))]
    failures = []
    for value in values:
        example = doctest.DocTestParser().get_doctest(inspect.getdoc(value) or "", {}, kind.__name__, None, 0)
        doctest.DocTestRunner(verbose=False).run(example, out=failures.append)
    assert failures == []


def test_calls_say_what_they_take_and_raise():
    calls = [Core.ack, EnginePublish.publish, EnginePublish.publish_many, Delivery.ack, Delivery.nack, Delivery.reject,
             DeliveryBatch.ack, DeliveryBatch.nack, Message.replace]
    lacking = [call.__name__ for call in calls for part in ("Raises:\n", "Cost: ") if part not in call.__doc__]
    assert lacking == []


def test_what_says_nothing_is_seen(tmp_path):
    assert not says_something("The queue's name of it.", "name", "queue")
    assert not says_something("Short.", "name")
    assert not says_something(None, "name")
    assert says_something("How many messages wait in the queue.", "ready")
    source = tmp_path / "source.py"
    source.write_text("class A:\n    x: int\n    y: int\n    'A text.'\n\n    def f(self):\n        pass\n\ndef g(): pass\n")
    assert list(undocumented(source)) == ["A", "A.x", "A.f", "g"]
