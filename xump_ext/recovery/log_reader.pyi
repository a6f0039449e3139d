"""Reads the log of a store that is opened."""

from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

from xump_ext.log.journal import Journal
from xump_ext.records.kinds import NAMES as NAMES

class Recovered: ...

class Recovery:
    def __new__(cls, journal: Journal, create: Callable[..., Any]) -> Recovery: ...
    @property
    def records(self) -> int: ...
    @property
    def empty(self) -> list[Any]: ...
    def feed(self, data: Buffer) -> None: ...
    def names(self) -> list[str]: ...
