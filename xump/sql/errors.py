"""The errors that `xump.sql` raises beside those of the database, which reach you unchanged."""

from __future__ import annotations

from xump.errors import XumpError


class SqlError(XumpError):
    """The base of the errors of this package."""


class SchemaMismatch(SqlError):
    """The tables are not there, or are those of another version."""


class ConfigurationError(SqlError):
    """The connection would not keep what is promised; the message says what to change."""


class TransactionAborted(SqlError):
    """A statement failed in the transaction, the error was swallowed, and the commit would have been a rollback."""


class MissingId(SqlError, ValueError):
    """A message has no id by which a copy could be recognised."""
