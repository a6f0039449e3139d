"""Imports go down the layers of `xump_ext.LAYERS` and never round in a circle; docs/internals.md has the map of them."""

import pytest

from tests.layers import BELOW, PAGE, ROOT, circle, graph, imports, layer_map, layer_of, module_of, page_with_map, sources
from xump_ext import LAYERS

CORE = sources("xump_ext")
BUILT_OVER = {("xump.engine", "xump.topology")}
"""`Engine.topology()`, `apply()` and `to_mermaid()` import, when they are called, what is built over an engine."""


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path):
    own = module_of(path)
    if own == "xump_ext":
        return
    up = [name for name in sorted(imports(path)) if name.startswith("xump_ext.") and layer_of(name) > layer_of(own)]
    assert not up, f"{path.relative_to(ROOT)} is below {', '.join(up)}"


def test_the_list_names_the_folders():
    assert sorted(LAYERS) == sorted(path.parent.name for path in (ROOT / "xump_ext").glob("*/__init__.py"))
    assert sorted(BELOW) == sorted(path.stem for path in (ROOT / "xump_ext").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("folders", [("xump_ext",), ("xump", "stores")], ids="+".join)
def test_no_modules_import_each_other_in_a_circle(folders):
    edges = {name: {other for other in found if (name, other) not in BUILT_OVER} for name, found in graph(*folders).items()}
    assert circle(edges) is None


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def test_the_map_is_complete_and_current():
    """`python -m tests.layers --write` makes it anew."""
    text = PAGE.read_text()
    assert text == page_with_map(text)
    for path in CORE:
        if path.suffix in (".pyx", ".pxd") or path.stem in BELOW:
            assert f"`{path.stem}`" in layer_map()
