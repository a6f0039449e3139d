"""Transactions, of which all operations are carried out or none: a part of the engine's class."""

from typing import Any

from xump_ext.engine.publishers import EnginePublishers, Publisher

class Planned:
    """The steps of a transaction."""

class EngineTransactions(EnginePublishers):
    """A part of the engine's class: transactions."""

    def _commit(self, transaction: Any) -> None: ...
    def _enter_later(self, held: list[Publisher], wake: Any, target: str) -> Publisher: ...
    def _commit_later(self, held: list[Publisher], wake: Any, transaction: Any) -> Publisher: ...
