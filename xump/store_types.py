"""Stores by type: the ones that are installed, and those that a program registers.

A store type is a callable `factory(name, **options)`. Plug-ins register by the entry point group `xump.stores`, whose names are
the types. What a store has to do is the contract in `xump_ext`; here is only who is who.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from xump.errors import Conflict, StoreNotFound

if TYPE_CHECKING:
    from xump.durability.committer import Committer
    from xump_ext.log.journal import Journal

Factory = Callable[..., Any]

BACKEND_CALLS = ("scan", "write", "sync", "fetch", "room", "oldest", "release", "close")
"""What the engine calls of a durable store; of another one, `close` only."""

_registered: dict[str, Factory] = {}
_lock = threading.RLock()


def register_store(type: str, factory: Factory) -> None:
    """Make `create_store(name, type, **options)` call `factory(name, **options)`.

    Raises `Conflict` for a type that exists, TypeError for what is not callable; nothing is registered then.
    """
    if not isinstance(type, str) or not type:
        raise TypeError(f"a store type is a non-empty str, got {type!r}")
    type = str.__str__(type)
    if not callable(factory):
        raise TypeError(f"store type {type!r} must be callable as factory(name, **options), got {factory.__class__.__name__}")
    with _lock:
        if type in store_types():
            raise Conflict(f"store type {type!r} exists already; there are {', '.join(store_types())}")
        _registered[type] = factory


def store_types() -> list[str]:
    """All types that can be created, sorted."""
    return sorted({*_registered, *_installed()})


def factory_of(type: str) -> Factory:
    """The factory of a type. Raises `StoreNotFound`, naming those that exist."""
    with _lock:
        if type not in _registered:
            if type == "ram":
                from xump.stores.ram import RamStore

                _registered[type] = RamStore
            elif type in _installed():
                _registered[type] = _installed()[type].load()
            else:
                raise StoreNotFound(f"no store type {type!r}; there are {', '.join(store_types())}")
        return _registered[type]


def _installed() -> Mapping[str, Any]:
    from importlib.metadata import entry_points  # a third of the time that importing xump would take

    return {entry.name: entry for entry in entry_points(group="xump.stores")}


def wrong_options(factory: Factory, name: str, options: Mapping[str, Any]) -> str | None:
    """What is wrong with options for a factory, and what was meant, perhaps; None: nothing. Their values are its own to check."""
    try:
        signature = inspect.signature(factory)
    except ValueError:      # compiled, and without one: the call will tell
        return None
    try:
        signature.bind_partial(name, **options)     # says what is unknown before what is missing
        signature.bind(name, **options)
    except TypeError as error:
        from difflib import get_close_matches

        allowed = list(signature.parameters)[1:]
        like = [close for option in options if option not in allowed for close in get_close_matches(option, allowed, 1)]
        return f"{error}{f', meant is perhaps {like[0]}' if like else ''}; its options are {', '.join(allowed) or 'none'}"
    return None


class Store:
    """A store of an engine: what `Engine.create_store` returns. It is equal to its name."""

    def __init__(self, name: str, type: str, options: Mapping[str, Any], backend: Any = None) -> None:
        self.name = name
        self.type = type
        self.options = dict(options)
        self.journal: Journal | None = None
        self.committer: Committer | None = None
        self.backend = self._open(factory_of(type)) if backend is None else backend
        self.path: str | None = getattr(self.backend, "path", None)
        """Where it is, whatever directory the process has gone to since."""

    def _open(self, factory: Factory) -> Any:
        wrong = wrong_options(factory, self.name, self.options)
        if wrong is not None:
            raise TypeError(f"store type {self.type!r}: {wrong}")
        backend = factory(self.name, **self.options)
        needed = BACKEND_CALLS if getattr(backend, "durable", False) else ("close",)
        missing = [call for call in needed if not callable(getattr(backend, call, None))]
        if missing:
            try:
                if "close" not in missing:
                    backend.close()
            finally:
                raise TypeError(f"store type {self.type!r}: its factory gave {backend!r}, which is no store: it has no "
                                f"{', '.join(missing)}; xump_ext.store says what a store has")
        return backend

    def placed(self, options: Mapping[str, Any], *, created: bool = False) -> dict[str, Any]:
        """Options with the path as this store has it, absolute; `created`: its own, whose path is where it was then."""
        path = options.get("path")
        if not isinstance(self.path, str) or not os.path.isabs(self.path) or not isinstance(path, (str, os.PathLike)):
            return dict(options)
        return {**options, "path": self.path if created else os.path.abspath(os.fspath(path))}

    def was_made_with(self, type: str, options: Mapping[str, Any]) -> bool:
        return self.type == type and self.placed(self.options, created=True) == self.placed(options)

    def __eq__(self, other: object) -> bool:
        return self.name == other if isinstance(other, str) else self is other

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Store {self.name!r} of type {self.type!r}>"
