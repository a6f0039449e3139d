"""The layers of the core and who imports whom, read from the sources: `python -m tests.layers` prints the map that stands in
docs/internals.md, `--write` puts it there.

`xump_ext.LAYERS` is the one list. Imports of every kind count, `cimport` and those inside functions too; what only a type checker
reads does not.
"""

import ast
import re
import sys
from pathlib import Path

from xump_ext import LAYERS

ROOT = Path(__file__).parents[1]
BELOW = ("death", "errors", "infinite", "outcome", "store")
"""Modules of `xump_ext` beside its packages: plain Python that every layer may import."""
PAGE = ROOT / "docs" / "internals.md"
BEGIN, END = "<!-- map: python -m tests.layers --write -->\n", "<!-- end of map -->\n"
CIMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\s+(\([^)]*\)|[^\n]*)|c?import\s+([\w., ]+))", re.MULTILINE)


def module_of(path):
    """The dotted name under which users import a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    if parts[:3] == ("xump", "spark", "discovery"):
        return ".".join(parts[3:])
    return ".".join(("xump", *parts) if parts[0] == "stores" else parts)


def sources(*folders, suffixes=(".py", ".pyx", ".pxd", ".pyi")):
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes)


MODULES = {module_of(path) for path in sources("xump_ext", "xump", "stores")}


def resolved(module, names):
    """`from package import module` imports that module, any other name what it comes from."""
    for name in names:
        yield f"{module}.{name}" if f"{module}.{name}" in MODULES else module


def imports(path):
    """The modules that a file imports, as dotted names."""
    text = path.read_text()
    if path.suffix in (".pyx", ".pxd"):
        found = set()
        for module, names, plain in CIMPORT.findall(text):
            if module:
                found.update(resolved(module, [name.split()[0] for name in names.strip("()").split(",") if name.split()]))
            else:
                found.update(name.strip() for name in plain.split(","))
        return found
    own, found = module_of(path), set()
    for node in runtime_nodes(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = own.split(".")[: -node.level] if node.level else []
            module = ".".join([*package, *([node.module] if node.module else [])])
            found.update(resolved(module, [alias.name for alias in node.names]))
    return found


def runtime_nodes(node):
    """All nodes but those under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from runtime_nodes(child)


def layer_of(module):
    """The place of a module of the core in `LAYERS`; -1 below all of them."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] in BELOW:
        return -1
    return LAYERS.index(parts[1])


def graph(*folders):
    """{module: the modules of these folders that it imports}, whatever its files: `.py`, `.pyx`, `.pxd`."""
    edges = {}
    for path in sources(*folders, suffixes=(".py", ".pyx", ".pxd")):
        edges.setdefault(module_of(path), set()).update(imports(path))
    return {module: {name for name in found if name in edges and name != module} for module, found in edges.items()}


def circle(edges):
    """A list of modules that import each other in a ring, or None."""
    done, path = set(), []

    def visit(module):
        if module in path:
            return [*path[path.index(module):], module]
        if module in done:
            return None
        path.append(module)
        for name in sorted(edges[module]):
            if found := visit(name):
                return found
        path.pop()
        done.add(module)
        return None

    for module in sorted(edges):
        if found := visit(module):
            return found
    return None


def sorted_by_import(modules, edges):
    """Imported modules come before those that import them; otherwise by name."""
    left, placed = sorted(modules), []
    while left:
        module = next(name for name in left if not (edges[name] & set(left)))
        left.remove(module)
        placed.append(module)
    return placed


def purpose(path):
    """The first sentence of what a file says of itself."""
    text = re.match(r'"""(.*?)"""', path.read_text(), re.DOTALL)[1]
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.:;?]) (?=[A-Z`])|:$", paragraph)[0].rstrip(".:;")


def file_of(module):
    """The file that says what a module of the core is for: its code, else its declarations."""
    stem = ROOT / module.replace(".", "/")
    return next(path for suffix in (".pyx", ".py", ".pxd") if (path := stem.with_suffix(suffix)).exists())


def layer_map():
    """The table of docs/internals.md: every module of the core, lowest first."""
    edges = graph("xump_ext")
    lines = ["| layer | module | what it is for |", "|---|---|---|"]
    lines += [f"| | `{name}` | {purpose(file_of(f'xump_ext.{name}'))} |" for name in BELOW]
    for layer in LAYERS:
        package = f"xump_ext.{layer}"
        modules = [name for name in edges if name.startswith(f"{package}.")]
        lines.append(f"| **`{layer}`** | | {purpose(ROOT / 'xump_ext' / layer / '__init__.py')} |")
        lines += [f"| | `{name.rpartition('.')[2]}` | {purpose(file_of(name))} |" for name in sorted_by_import(modules, edges)]
    return "\n".join(lines) + "\n"


def page_with_map(text):
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + layer_map() + END + rest.partition(END)[2]


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page_with_map(PAGE.read_text()))
    else:
        print(layer_map(), end="")
