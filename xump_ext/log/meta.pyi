"""The maps of queues and stores: small mappings of texts to bytes, kept with what they belong to."""

import builtins
from collections.abc import Iterable

MAP_BYTES_MAX: int

class Map:
    """The names and values of a queue or store."""

    @property
    def items(self) -> dict[str, builtins.bytes]: ...
    @property
    def bytes(self) -> int: ...

def map_changed(
    items: dict[str, bytes], changes: Iterable[tuple[str, bytes | None]], whose: str
) -> dict[str, bytes]:
    """A copy of the items with these changes."""

def checked_item(name: object, value: object) -> tuple[str, bytes | None]:
    """A name and a value of a map, as an exact str and exact bytes."""
