"""Sleepers: threads and tasks that wait until a call of somebody else brings them something."""

from collections.abc import Callable
from typing import Self

class Sleeper:
    """One that waits."""

    call: Callable[[], object] | None
    def __new__(cls) -> Self: ...
    @property
    def served(self) -> bool: ...
