"""Types of stores: the ones that are installed, and those that a program registers.

A type is a name and a callable `factory(name, **options)` that returns an open store. Packages offer types by the entry point
group `xump.stores`, whose names are the types. `xump_ext.store` is the contract that a store fulfils.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from xump._meta import Meta
from xump.errors import Conflict, StoreCorrupt, StoreNotFound
from xump_ext.engine.stores import EngineStores, ram_bytes
from xump_ext.log.meta import Map

if TYPE_CHECKING:
    from xump.durability.committer import Committer
    from xump_ext.log.journal import Journal

Factory = Callable[..., Any]

BACKEND_CALLS = ("scan", "write", "sync", "fetch", "room", "oldest", "release", "close")
"""The methods that a durable store must have. A store that is not durable needs `close` only."""

_registered: dict[str, Factory] = {}
_lock = threading.RLock()


def register_store(type: str, factory: Factory) -> None:
    """Register a type of store, so that `Engine.create_store(name, type, **options)` calls `factory(name, **options)`.

    Args:
        type: The name of the type.
        factory: Returns an open store; `xump_ext.store` says what a store does.

    Raises:
        Conflict: There is such a type already.
        TypeError: `type` is not a non-empty str, or `factory` is not callable.

    If it raises, nothing is registered. The type is registered for this process. Cost: O(1).

    >>> from xump import Engine, register_store
    >>> class Scratch:
    ...     def __init__(self, name):
    ...         self.name = name
    ...     def close(self):
    ...         pass
    >>> register_store("scratch", Scratch)
    >>> with Engine() as engine:
    ...     engine.create_store("temporary", "scratch")
    <Store 'temporary' of type 'scratch'>
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
    """The names of all types of stores, sorted."""
    return sorted({*_registered, *_installed()})


def factory_of(type: str) -> Factory:
    """The factory of a type. Raises `StoreNotFound`, which names the types that exist."""
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
    from importlib.metadata import entry_points  # imported here: it would be a third of the time that importing xump takes

    return {entry.name: entry for entry in entry_points(group="xump.stores")}


def usual_options(factory: Factory) -> dict[str, Any]:
    """The defaults of a factory's options, as far as its signature tells."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:
        return {}
    return {option.name: option.default for option in parameters if option.default is not option.empty}


def wrong_options(factory: Factory, name: str, options: Mapping[str, Any]) -> str | None:
    """The fault in the names of options for a factory; None: nothing. The factory checks their values itself."""
    try:
        signature = inspect.signature(factory)
    except ValueError:      # a compiled factory may have no signature: the call itself will raise
        return None
    try:
        signature.bind_partial(name, **options)     # names an unknown option before a missing one
        signature.bind(name, **options)
    except TypeError as error:
        from difflib import get_close_matches

        allowed = list(signature.parameters)[1:]
        like = [close for option in options if option not in allowed for close in get_close_matches(option, allowed, 1)]
        on_disk = "; for a store on disk give its type: " + " or ".join(
            repr(other) for other in store_types() if other != "ram") if "path" in options and "path" not in allowed else ""
        return (f"{error}{f' (did you mean {like[0]!r}?)' if like else ''}; its options are {', '.join(allowed) or 'none'}"
                f"{on_disk}")
    return None


def types_of(path: str) -> tuple[list[str], list[str]]:
    """The types of stores that recognise a path; and a sentence for each type that could not be loaded."""
    found, failed = [], []
    types = store_types()
    for type in types:
        try:
            factory = factory_of(type)
        except ImportError as error:
            failed.append(f"stores of type {type!r} cannot be loaded: {error}")
            continue
        own = getattr(factory, "type", type)
        if own != type and own in types:        # another name for a type that is asked itself
            continue
        recognises = getattr(factory, "recognises", None)
        if recognises is not None and recognises(path):
            found.append(type)
    return found, failed


def file_bytes(path: str | None) -> int:
    """The size of a file, or of all files in a directory; 0 if there is none."""
    if path is None or not os.path.exists(path):
        return 0
    if os.path.isdir(path):
        with os.scandir(path) as files:
            return sum(file.stat().st_size for file in files if file.is_file())
    return os.path.getsize(path)


class Store:
    """A store of an engine, which keeps the messages of its queues. Created by `Engine.create_store`.

    A store is equal to its name, so either can stand for the other.

    >>> from xump import Engine
    >>> with Engine() as engine:
    ...     store = engine.stores["ram"]
    ...     store.name, store.type, store.options
    ('ram', 'ram', {})
    """

    def __init__(self, name: str, type: str, options: Mapping[str, Any], backend: Any = None) -> None:
        self.name = name
        """The store's name, unique in its engine."""
        self.type = type
        """The type of the store: `"ram"`, `"lmdb"`, `"ring"`, or one that was registered."""
        self.options = dict(options)
        """The options that the store was opened with."""
        self.journal: Journal | None = None
        """The core's journal of a durable store, which gathers changes; None: not durable. For the engine only."""
        self.committer: Committer | None = None
        """The committer of a durable store, which writes what was gathered; None: not durable. For the engine only."""
        self.backend = self._open(factory_of(type)) if backend is None else backend
        """The object that the factory of the type returned: the store itself, as `xump_ext.store` describes it."""
        self._engine: EngineStores | None = None
        self._ram_map = Map()
        self.path: str | None = getattr(self.backend, "path", None)
        """The absolute path of the store on disk, also if the process has changed its directory since; None: it has none."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the store's files, with the space that it keeps for later messages; in RAM, `live_bytes`.

        The operating system may hold less: a file may have holes. Cost: a look at the files; in RAM O(messages).
        """
        return self.live_bytes if self.journal is None else file_bytes(self.path)

    @property
    def live_bytes(self) -> int:
        """About how many bytes the messages in the store take, each with its body, headers and some 60 bytes of its own.

        A message that is in several queues counts in each. In a store on disk it is what `xump compact` would leave; to free it,
        settle or delete messages. Cost: O(1); in RAM, where queues share bodies and may take less, O(messages).
        """
        if self._engine is None:
            return 0
        self._engine._check_open()
        return ram_bytes(self._engine, self) if self.journal is None else self.journal.live_bytes

    @property
    def error(self) -> BaseException | None:
        """Why the store has failed: an fsync or a write did not succeed. None: it has not."""
        return None if self.committer is None else self.committer.error

    @property
    def syncs(self) -> int:
        """How often the store was synced to disk since it was opened; 0 in RAM."""
        return 0 if self.committer is None else self.committer.syncs

    @property
    def sync_seconds(self) -> float:
        """How many seconds its syncs took in all."""
        return 0.0 if self.committer is None else self.committer.sync_seconds

    @property
    def meta(self) -> Meta:
        """Names and values of your own, which belong to the store: a mapping of str to bytes, which you may change. At most
        64 KiB; as durable as the store's messages."""
        return Meta(self)

    @property
    def _map(self) -> Map:
        return self._ram_map if self.journal is None else self.journal.map

    def _core(self) -> EngineStores:
        if self._engine is None:
            raise StoreNotFound(f"store {self.name!r} is of no engine")
        return self._engine

    def _items(self) -> dict[str, bytes]:
        self._core()._check_open()
        return self._map.items

    def _open(self, factory: Factory) -> Any:
        wrong = wrong_options(factory, self.name, self.options)
        if wrong is not None:
            raise TypeError(f"store type {self.type!r}: {wrong}")
        try:
            backend = factory(self.name, **self.options)
        except StoreCorrupt as error:
            path = self.options.get("path")
            found = types_of(os.fspath(path))[0] if isinstance(path, (str, os.PathLike)) else []
            if not found or self.type in found:
                raise
            raise Conflict(
                f"{path} is a store of type {found[0]!r}, not {self.type!r}: give that type, or another path") from error
        needed = BACKEND_CALLS if getattr(backend, "durable", False) else ("close",)
        missing = [call for call in needed if not callable(getattr(backend, call, None))]
        if missing:
            try:
                if "close" not in missing:
                    backend.close()
            finally:
                raise TypeError(f"store type {self.type!r}: its factory returned {backend!r}, which is not a store: it has no "
                                f"{', '.join(missing)}; xump_ext.store lists the methods of a store")
        return backend

    def placed(self, options: Mapping[str, Any], *, created: bool = False) -> dict[str, Any]:
        """Options with an absolute path, to compare. `created`: they are the store's own, so the path is where the store is."""
        path = options.get("path")
        if not isinstance(self.path, str) or not os.path.isabs(self.path) or not isinstance(path, (str, os.PathLike)):
            return dict(options)
        return {**options, "path": self.path if created else os.path.abspath(os.fspath(path))}

    def was_made_with(self, type: str, options: Mapping[str, Any]) -> bool:
        """Whether the store has this type, and was opened with these options."""
        return self.type == type and self.unusual(self.options, created=True) == self.unusual(options)

    def unusual(self, options: Mapping[str, Any], *, created: bool = False) -> dict[str, Any]:
        """`placed`, without those that have their default, to compare."""
        usual, placed = usual_options(factory_of(self.type)), self.placed(options, created=created)
        return {name: value for name, value in placed.items() if name not in usual or value != usual[name]}

    def __eq__(self, other: object) -> bool:
        return self.name == other if isinstance(other, str) else self is other

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Store {self.name!r} of type {self.type!r}>"
