"""Writes deliveries into Arrow columns."""

from collections.abc import Iterable

from xump_ext.arrow.export import ArrowBatch
from xump_ext.message.message import Message

def write_batch(
    deliveries: Iterable[tuple[Message, int, str | None, str | None]], *, small_bytes_max: int = 2147483647
) -> ArrowBatch: ...
