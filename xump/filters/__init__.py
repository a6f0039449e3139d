"""Filters: what `where()` takes. `compile` makes of it a form that can be compared, and the tree that the core evaluates."""

from xump.filters.tree import Pairs, compile, equalities

__all__ = ["Pairs", "compile", "equalities"]
