"""Read-only mappings: the queues, selectors and stores of an engine as a program sees them."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Protocol, TypeVar, overload

from xump._names import plain, what_is_there
from xump.errors import NotFound

Key = TypeVar("Key")
Thing = TypeVar("Thing")
Other = TypeVar("Other")


class Registry(Mapping[Key, Thing]):
    """A read-only, live view of a dict.

    A missing key raises an error of Xump's that is a KeyError too, and names the key. Every method is a single operation of the
    dict, so `list(registry.values())` is safe while another thread creates queues.
    """

    __slots__ = ("_check_open", "_missing", "_things", "_what")

    def __init__(
        self, things: dict[Key, Thing], missing: type[NotFound], what: str, check_open: Callable[[], object] = bool
    ) -> None:
        """`check_open` raises `Closed` once the engine is closed: then nothing is there, whatever its name."""
        self._things = things
        self._missing = missing
        self._what = what
        self._check_open = check_open

    def __getitem__(self, key: Key) -> Thing:
        try:
            return self._things[key if type(key) is str else plain(key)]
        except KeyError:
            raise self._not_there(key) from None

    def _not_there(self, key: Key) -> NotFound:
        """The error for a missing key. It is made here, since a name that the lambda keeps costs each call of its function."""
        self._check_open()
        what, there = self._what, list(self._things)
        return self._missing.told_later(lambda: f"no {what} {key!r} in this engine{what_is_there(key, there)}")

    @overload
    def get(self, key: Key) -> Thing | None:
        """The thing that has this key, or None."""

    @overload
    def get(self, key: Key, default: Other) -> Thing | Other:
        """The thing that has this key, or the default."""

    def get(self, key: Any, default: Any = None) -> Any:
        """The thing that has this key, or the default. It makes no error: a broker asks so for each name that a client says."""
        if type(key) is not str:
            key = plain(key)
        found = self._things.get(key)
        if found is None:
            self._check_open()
        return default if found is None else found

    def __contains__(self, key: object) -> bool:
        return (key if type(key) is str else plain(key)) in self._things

    def __iter__(self) -> Iterator[Key]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)

    def keys(self) -> KeysView[Key]:
        """The keys, as a live view in the order of creation."""
        return self._things.keys()

    def values(self) -> ValuesView[Thing]:
        """The values, as a live view in the order of creation."""
        return self._things.values()

    def items(self) -> ItemsView[Key, Thing]:
        """The (key, value) pairs, as a live view in the order of creation."""
        return self._things.items()

    def __reversed__(self) -> Iterator[Key]:
        return reversed(self._things)

    def __repr__(self) -> str:
        return repr(self._things)


class HasId(Protocol):
    """A thing with a number."""

    @property
    def id(self) -> int:
        """The number."""


Numbered = TypeVar("Numbered", bound=HasId)


class SelectorRegistry(Registry[int, Numbered]):
    """The selectors of an engine by id; those that have a name, by name, too."""

    __slots__ = ("_named",)

    def __init__(self, things: dict[int, Numbered], named: dict[str, Numbered], missing: type[NotFound],
                 check_open: Callable[[], object]) -> None:
        super().__init__(things, missing, "selector", check_open)
        self._named = named

    def __getitem__(self, key: int | str) -> Numbered:
        return super().__getitem__(self._id(key))

    def get(self, key: int | str, default: Any = None) -> Any:
        """The selector that has this id or name, or the default."""
        return super().get(self._id(key), default)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(self._id(key))

    def _id(self, key: object) -> Any:
        """The id for a name; the key itself if no selector has that name."""
        if type(key) is int:
            return key
        key = plain(key)
        return self._named[key].id if isinstance(key, str) and key in self._named else key
