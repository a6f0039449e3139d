"""The maps of queues and stores, as a program sees them: small mappings of texts to bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from xump._names import shown
from xump_ext.engine.maps import change_map
from xump_ext.log.meta import checked_item, map_changed

if TYPE_CHECKING:
    from xump.queue import Queue
    from xump.store_types import Store

Changes = list[tuple[str, bytes | None]]


class Meta(MutableMapping[str, bytes]):
    """The map of a queue or store: names and values of your own, which are as durable as what they belong to.

    Its names and values have at most 64 KiB together. Each change writes all of them, so `update` is one change, and atomic; a
    change of a single name costs as much. An iteration sees the map as it was when the iteration began.

    >>> from xump import Engine
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs", meta={"owner": b"shop"})
    ...     jobs.meta["binding/1"] = b"orders.#"
    ...     jobs.meta.update({"binding/2": b"mail.#", "owner": b"post"})
    ...     del jobs.meta["binding/1"]
    ...     dict(jobs.meta)
    {'owner': b'post', 'binding/2': b'mail.#'}
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: Queue | Store) -> None:
        self._owner = owner

    def __getitem__(self, name: str) -> bytes:
        return self._owner._items()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._owner._items())

    def __len__(self) -> int:
        return len(self._owner._items())

    def __contains__(self, name: object) -> bool:
        return name in self._owner._items()

    def __setitem__(self, name: str, value: bytes) -> None:
        self._change([checked_value(name, value)])

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._change([checked_item(name, None)])

    def update(self, other: Mapping[str, bytes] | Iterable[tuple[str, bytes]] = (), /, **values: bytes) -> None:    # type: ignore[override]
        """Set many names at once: all of them, or none.

        Args:
            other: A mapping, or an iterable of (name, value).
            values: More of them, by name.

        Raises:
            QueueNotFound, StoreNotFound: The queue or store was deleted.
            StoreFull, StoreFailed: The store cannot write.
            TypeError, ValueError: A name or value is wrong, or the map would be too large.

        If it raises, nothing has changed. Cost: O(names and values in the map).
        """
        self._change([checked_value(name, value) for name, value in dict(other, **values).items()])

    def clear(self) -> None:
        """Delete all names, at once."""
        self._change([(name, None) for name in self])

    def __repr__(self) -> str:
        return repr(self._owner._items())

    def _change(self, changes: Changes) -> None:
        owner: Any = self._owner
        change_map(owner._core(), owner, changes)


def checked_value(name: object, value: object) -> tuple[str, bytes | None]:
    """A name and its value, as exact objects. Raises TypeError and ValueError."""
    if value is None:
        raise TypeError(f"the value of {name!r} in a map must be bytes, got NoneType; to delete the name: del meta[{name!r}]")
    return checked_item(name, value)


def first_items(queue: str | None, meta: object) -> dict[str, bytes]:
    """The contents of the map of a new queue. Raises TypeError and ValueError."""
    return map_changed({}, [checked_value(name, value) for name, value in mapping_of(meta).items()], f"queue {queue!r}")


def mapping_of(meta: object) -> Mapping[Any, Any]:
    """The names and values that are given for a map."""
    if not isinstance(meta, Mapping):
        raise TypeError(f"meta must be a mapping of str to bytes, got {shown(meta)}")
    return meta
