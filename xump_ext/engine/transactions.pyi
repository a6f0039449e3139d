"""Transactions, of which all operations are carried out or none: the fifth part of the engine's class."""

from typing import Any

from xump_ext.engine.publishers import EnginePublishers

class EngineTransactions(EnginePublishers):
    """The fifth part of the engine's class: transactions."""

    def _commit(self, transaction: Any) -> None: ...
