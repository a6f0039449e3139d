"""Clauses: the conditions of a queue, compiled; for the compiled modules only."""

from typing import Any, final

@final
class Predicate: ...

@final
class Clause:
    @property
    def key(self) -> tuple[Any, ...]: ...
