"""Docstrings of the stubs: `python -m tests.stubs --write` copies those of the compiled classes into the `.pyi` files.

An editor reads a stub instead of the compiled module, and shows its docstrings. The text is written once, in the `.pyx` file;
`test_help.py` holds the copies equal to it.
"""

import ast
import importlib
import inspect
import sys
from pathlib import Path

from tests.layers import ROOT, module_of

MODULES = ("arrow.batch", "engine.core", "engine.delivery", "engine.handles", "engine.publish", "engine.reading",
           "engine.outlet", "engine.taking", "engine.windows", "message.message")
STUBS = [(ROOT / "xump_ext" / Path(*name.split("."))).with_suffix(".pyi") for name in MODULES]
"""The stubs of classes that a program meets."""


def with_docstrings(path):
    """The text of a stub in which everything public has the docstring of what it describes."""
    lines = path.read_text().splitlines()
    module = importlib.import_module(module_of(path))
    for node, value in reversed(list(described(ast.parse(path.read_text()).body, module))):
        put(lines, node, inspect.getdoc(value))
    return "\n".join(lines) + "\n"


def described(body, owner):
    """(node, run-time value) of the public classes, methods and properties, in the order of the file; of overloads the first."""
    seen = set()
    for node in body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_") or node.name in seen:
            continue
        seen.add(node.name)
        value = getattr(owner, node.name, None)
        if getattr(value, "__doc__", None):
            yield node, value
        if isinstance(node, ast.ClassDef):
            yield from described(node.body, value)


def put(lines, node, text):
    """Replace the docstring of a node, or give it one."""
    indent = " " * (node.col_offset + 4)
    quoted = text.replace("\\", "\\\\").replace('"""', r"\"\"\"")
    quoted += "\n" if "\n" in text else ""
    docstring = [f"{indent}{line}".rstrip() for line in f'"""{quoted}"""'.split("\n")]
    first, old = node.body[0], ast.get_docstring(node) is not None
    if old:
        lines[first.lineno - 1:first.end_lineno] = docstring
    elif isinstance(node, ast.ClassDef):
        lines[first_line(first) - 1:first_line(first) - 1] = [*docstring, ""]
    else:
        lines[first.lineno - 1] = lines[first.lineno - 1][:first.col_offset].rstrip()
        lines[first.lineno:first.lineno] = docstring


def first_line(node):
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])


if __name__ == "__main__":
    for stub in STUBS:
        text = with_docstrings(stub)
        if "--write" in sys.argv:
            stub.write_text(text)
        else:
            print(text, end="")
