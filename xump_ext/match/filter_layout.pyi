"""Checks the tree of a filter and lays it out in rows, for the compiled evaluator only."""

from typing import Any, final

filter_depth_max: int
UNARY: dict[str, int]
BINARY: dict[str, int]
SYSTEM: dict[str, int]
ELEMENTS: dict[str, int]

@final
class Row: ...

@final
class Layout: ...

def sort_key(key: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]: ...
