"""Filters: what `where()` accepts. `compile` turns it into a form that can be compared, and a tree that the core evaluates."""

from xump.filters.tree import Pairs, compile, equalities

__all__ = ["Pairs", "compile", "equalities"]
