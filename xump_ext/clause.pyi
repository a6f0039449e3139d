"""Clauses: conditions of a queue, compiled; for the compiled modules only."""

from typing import Any

class Predicate: ...

class Clause:
    @property
    def key(self) -> tuple[Any, ...]: ...
