"""Describes the stores, queues and selectors of an engine as a plain dict, and creates them from such a description.

`describe` says what the graph is now: the credit with all grants, and whether a selector is enabled. Properties that have their
default value are left out. So are messages, holds and starts, which are events rather than properties. `xump.topology.schema` and
`xump.topology.codec` explain the format.

`apply` creates what is described and does not exist yet. It deletes and changes nothing. A described selector exists already if

- it has a name, and the selector of that name has the same source, condition and action, and has (or was created with) the same
  credit and the same `enabled`; a selector of that name with other properties is a `Conflict`;
- it has no name, and a selector without a name is the same in all of these. Each existing selector counts once: if two equal ones
  are described and one exists, one more is created.

The whole description is rehearsed first, in another engine in RAM, so that every mistake that the API would refuse is found
before anything is done. A store has to be opened to know which queues it has; if the description is refused then, it is closed
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from xump._names import REPLIES
from xump._queue_properties import CHECKS, QUEUE_DEFAULTS
from xump.conditions import Role
from xump.errors import Conflict, XumpError
from xump.store_types import factory_of
from xump.topology.codec import NotEncodable, encode_action, encode_condition, encode_credit, encode_name, encode_option
from xump.topology.lint import lint
from xump.topology.recognition import is_known, without_selector
from xump.topology.schema import ALL_HISTORY, VERSION, Description, QueueItem, SelectorItem, StoreItem, read
from xump_ext.engine.building_block import GraphChange

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.selector import Selector
    from xump.store_types import Store


# ---- out of an engine

def describe(engine: Engine) -> dict[str, Any]:
    """Describe the stores, queues and selectors of an engine, in the order of their creation, as a dict that TOML can hold.

    Raises `Conflict` if a condition is a Python function or a store has an option that is no plain value; it names them all.
    """
    engine._check_open()
    refused: list[str] = []
    with engine._graph_lock:
        joined = {name for selector in list(engine.selectors.values()) for name in (selector.source.name, selector.do.queue)}
        described = {
            "version": VERSION,
            "stores": {name: _describe_store(store, refused) for name, store in list(engine.stores.items()) if name != "ram"},
            "queues": {name: _describe_queue(queue) for name, queue in list(engine.queues.items())
                       if (name != REPLIES or name in joined) and not queue.staged},
            "selectors": [_describe_selector(selector, refused) for selector in list(engine.selectors.values())],
        }
        if engine.windows:
            described["windows"] = {name: {"credit": window.credit} for name, window in list(engine.windows.items())}
    if refused:
        raise Conflict(f"the topology cannot be described: {'; '.join(refused)}")
    return described


def _describe_store(store: Store, refused: list[str]) -> dict[str, Any]:
    described = {} if store.type == "ram" else {"type": store.type}
    for option, value in store.options.items():
        try:
            described[option] = encode_option(value)
        except NotEncodable as error:
            refused.append(f"store {store.name!r}: option {option} = {error}")
    return described


def _properties(queue: Queue) -> dict[str, Any]:
    return {key: queue.store.name if key == "store" else getattr(queue, key) for key in QUEUE_DEFAULTS}


def _describe_queue(queue: Queue) -> dict[str, Any]:
    return {
        key: ALL_HISTORY if key == "history_limit" and value is None else encode_name(value) if key == "group" else value
        for key, value in _properties(queue).items() if value != QUEUE_DEFAULTS[key]
    }


def _describe_selector(selector: Selector, refused: list[str]) -> dict[str, Any]:
    described: dict[str, Any] = {"source": selector.source.name}
    if selector.name is not None:
        described["name"] = selector.name
    try:
        described["when"] = encode_condition(selector.when)
    except NotEncodable as error:
        refused.append(f"selector {_title(selector)}: {error}")
    described["do"] = encode_action(selector.do)
    if selector.credit != 1:
        described["credit"] = encode_credit(selector.credit)
    if not selector.enabled:
        described["enabled"] = False
    if selector.ack_timeout is not None:
        described["ack_timeout"] = selector.ack_timeout
    if selector.rank:
        described["rank"] = selector.rank
    if selector.ahead is not None:
        described["ahead"] = selector.ahead
    if selector.window is not None:
        described["window"] = selector.window.name
    return described


def _title(selector: Selector) -> str:
    name = "" if selector.name is None else f"{selector.name!r}, "
    return f"{selector.id} ({name}of queue {selector.source.name!r})"


# ---- into an engine

def apply(engine: Engine, mapping: Mapping[str, Any]) -> None:
    """Create what is described and does not exist yet, in one building block.

    Raises `Conflict` with everything that is wrong with the description or contradicts what exists, TypeError if it is not a
    mapping, and what a store raises when it is opened. Then nothing in the engine has changed; the files of a store that it has
    made stay. Cost: that of creating what is missing, twice, and O(queues + selectors).
    """
    if not isinstance(mapping, Mapping):
        raise TypeError(f"a topology is a mapping, got {type(mapping).__name__}")
    description = read(mapping)
    engine._check_open()
    with GraphChange(engine) as change, engine._graph_lock, ExitStack() as undo:
        missing = _agree(description, engine, undo)
        change.begin()
        for queue in description.queues.values():
            if queue.name not in engine.queues:
                engine.create_queue(queue.name, **queue.properties)
                undo.callback(engine.delete_queue, queue.name)
        for name, credit in description.windows.items():
            if name not in engine.windows:
                engine.create_window(credit, name=name)
                undo.callback(engine.delete_window, name)
        for selector in missing:
            _create(engine, selector)
        undo.pop_all()


def _create(engine: Engine, item: SelectorItem) -> None:
    engine.create_selector(item.source, when=item.when, do=item.do, credit=item.credit, enabled=item.enabled,
                           ack_timeout=item.ack_timeout, rank=item.rank, ahead=item.ahead, window=item.window, name=item.name)


def _agree(description: Description, engine: Engine, undo: ExitStack) -> list[SelectorItem]:
    """The selectors to create, once the description is known to fit the engine, and the queues of stores that it opens."""
    closed = [store for store in description.stores.values() if store.name not in engine.stores]
    brings = any(getattr(factory_of(store.type), "durable", True) for store in closed) if not description.faults else False
    missing = _rehearse(description, engine, brings)
    for store in closed:
        engine.create_store(store.name, store.type, **store.options)
        undo.callback(engine.delete_store, store.name)
    return _rehearse(description, engine) if brings else missing


def _rehearse(description: Description, engine: Engine | None, brings: bool = False) -> list[SelectorItem]:
    """The selectors to create. Raises `Conflict` with every fault."""
    missing, faults = rehearse(description, engine, brings)
    if faults:
        raise Conflict("the topology is wrong: " + "; ".join(faults))
    return missing


def sketch(mapping: Mapping[str, Any]) -> Engine:
    """Create an engine in RAM with the graph that is described. Opens no store. Raises `Conflict` as `apply` does."""
    description = read(mapping)
    missing = _rehearse(description, None)
    engine = _new_engine()
    for store in description.stores.values():
        engine.create_store(store.name)
    for queue in description.queues.values():
        engine.create_queue(queue.name, **queue.properties)
    for name, credit in description.windows.items():
        engine.create_window(credit, name=name)
    for selector in missing:
        _create(engine, selector)
    return engine


def refusals(mapping: Mapping[str, Any]) -> list[str]:
    """The mistakes for which `apply` refuses a description, as sentences. Opens no store."""
    return rehearse(read(mapping), None)[1]


def check(mapping: Mapping[str, Any]) -> list[str]:
    """Check a description. Returns sentences: first the mistakes that `apply` refuses, then what is probably one.

    The description is checked by itself: every queue that it names must be in it. Opens no store.

    >>> check({"version": 1, "queues": {"jobs": {"dead_letter": "dead"}}})  # doctest: +NORMALIZE_WHITESPACE
    ["queue 'jobs' has the dead letter queue 'dead', which is not described: until that exists, it has none",
     "queue 'jobs' stands alone: it has no selector, and is the target of none"]
    """
    description = read(mapping)
    faults = rehearse(description, None)[1]
    return faults + lint(description, complete=not faults)


# ---- the rehearsal

def rehearse(description: Description, engine: Engine | None, brings: bool = False) -> tuple[list[SelectorItem], list[str]]:
    """The selectors to create in `engine` (None: all that are described), and the faults.

    `brings`: stores that are still to be opened may bring queues, so an unknown name is no fault yet.
    """
    faults = list(description.faults)
    if engine is not None:
        faults += _store_conflicts(description, engine)
        faults += _queue_conflicts(description, engine)
        faults += _window_conflicts(description, engine)
    missing = description.selectors if engine is None else _recognise(description, engine, faults)
    faults += _single_conflicts(missing, engine)
    with _new_engine() as paper:
        _rehearse_queues(paper, description, engine, faults)
        for item in missing:
            faults += _rehearse_selector(paper, item, brings)
    return missing, faults


def _new_engine() -> Engine:
    """An engine in RAM to rehearse in, or to draw."""
    from xump.engine import Engine

    return Engine()


def _store_conflicts(description: Description, engine: Engine) -> list[str]:
    faults = []
    for item in description.stores.values():
        store = engine.stores.get(item.name)
        if store is not None and not _same_store(store, item):
            faults.append(f"store {item.name!r} exists with type {store.type!r} and options {store.options}; "
                          f"the topology says type {item.type!r} and options {item.options}")
    return faults


def _same_store(store: Store, item: StoreItem) -> bool:
    try:
        had, described = store.unusual(store.options, created=True), store.unusual(item.options)
        return store.type == item.type and encode_option(had) == encode_option(described)
    except NotEncodable:
        return False


def _queue_conflicts(description: Description, engine: Engine) -> list[str]:
    faults = []
    for item in description.queues.values():
        queue = engine.queues.get(item.name)
        had = {} if queue is None else _properties(queue)
        for key, value in had.items():
            wanted = item.properties[key]
            if value != wanted and not _same_property(queue, key, wanted):
                faults.append(f"queue {item.name!r} exists with {key}={value!r}; the topology says {key}={wanted!r}")
    return faults


def _window_conflicts(description: Description, engine: Engine) -> list[str]:
    return [f"window {name!r} exists with credit={engine.windows[name].credit}; the topology says credit={credit}"
            for name, credit in description.windows.items()
            if name in engine.windows and credit not in (engine.windows[name].credit, engine.windows[name]._first)]


def _same_property(queue: Queue | None, key: str, wanted: Any) -> bool:
    """Whether the queue has the property, though it may be written in another way: retry_delay = 1 and [1.0], say."""
    try:
        return queue is not None and key in CHECKS and bool(queue._properties()[key] == CHECKS[key](wanted))
    except (XumpError, TypeError, ValueError):
        return False


def _recognise(description: Description, engine: Engine, faults: list[str]) -> list[SelectorItem]:
    """The selectors that do not exist yet. Adds a fault for each that exists with other properties."""
    named = {selector.name: selector for selector in list(engine.selectors.values()) if selector.name is not None}
    missing: list[SelectorItem] = []
    unknown: list[SelectorItem] = []
    for item in description.selectors:
        selector = None if item.name is None else named.get(item.name)
        if selector is None:
            (unknown if item.name is None else missing).append(item)
        elif not is_known(item, selector):
            faults.append(f"{item} exists with other properties: {selector!r}, credit={selector.credit!r}, "
                          f"enabled={selector.enabled}, ack_timeout={selector.ack_timeout}, rank={selector.rank}, "
                          f"ahead={selector.ahead}, window={selector.window and selector.window.name!r}")
    unnamed = [selector for selector in list(engine.selectors.values()) if selector.name is None and _is_plain(selector)]
    missing += without_selector(unknown, unnamed)
    return sorted(missing, key=lambda item: item.position)


def _is_plain(selector: Selector) -> bool:
    """Whether the selector can be described. If not, its condition is a Python function, which may not even have a hash."""
    try:
        encode_condition(selector.when)
    except NotEncodable:
        return False
    return True


def _single_conflicts(missing: list[SelectorItem], engine: Engine | None) -> list[str]:
    """A queue has at most one enabled default and one enabled overflow selector."""
    faults, taken = [], {}
    for selector in [] if engine is None else engine.selectors.values():
        if selector.enabled and isinstance(selector.when, Role):
            taken[selector.source.name, selector.when.name] = f"selector {_title(selector)} in the engine"
    for item in missing:
        if item.enabled and isinstance(item.when, Role) and item.when.name != "always":
            other = taken.setdefault((item.source, item.when.name), str(item))
            if other != str(item):
                faults.append(f"{item}: queue {item.source!r} has an enabled {item.when.name} selector already, {other}")
    return faults


def _rehearse_queues(paper: Engine, description: Description, engine: Engine | None, faults: list[str]) -> None:
    for store in {**description.stores, **(engine.stores if engine is not None else {})}:
        try:
            paper.create_store(store)
        except (XumpError, ValueError) as error:
            faults.append(f"store {store!r}: {error}")
    for item in description.queues.values():
        try:
            paper.create_queue(item.name, **item.properties)
        except (XumpError, TypeError, ValueError) as error:
            found = _wrong_properties(paper, item) or [str(error)]
            faults += [f"queue {item.name!r}: {said}" for said in found]
            with suppress(ValueError):
                paper.create_queue(item.name)       # its faults are known now; its selectors may be right
    for name in list(engine.queues) if engine is not None else ():
        if name not in paper.queues:
            queue = engine.queues[name] if engine is not None else None
            paper.create_queue(name, transit=queue is not None and queue.transit, staged=queue is not None and queue.staged)
    for name in {**(engine.windows if engine is not None else {}), **description.windows}:
        try:
            paper.create_window(0, name=name)
        except ValueError as error:
            faults.append(f"window {name!r}: {error}")


def _wrong_properties(paper: Engine, item: QueueItem) -> list[str]:
    """The fault of each property by itself, because `create_queue` raises for the first one only. A wrong name is said once."""
    said = []
    for key, value in item.properties.items():
        try:
            paper.create_queue(item.name, **{key: value})
            paper.delete_queue(item.name)
        except (XumpError, TypeError, ValueError) as error:
            said.append(str(error))
    return list(dict.fromkeys(said))


def _rehearse_selector(paper: Engine, item: SelectorItem, brings: bool) -> list[str]:
    faults = []
    for what, name in (("source", item.source), ("target", item.do.queue)):
        if isinstance(name, str) and name not in paper.queues:
            if brings:
                paper.create_queue(name)
            else:
                faults.append(f"{item}: its {what} {name!r} is neither in the topology nor in the engine")
    if item.window is not None and item.window not in paper.windows:
        faults.append(f"{item}: its window {item.window!r} is neither in the topology nor in the engine")
    if faults:
        return faults
    try:
        paper.create_selector(item.source, when=item.when, do=item.do, credit=item.credit, enabled=False,
                              ack_timeout=item.ack_timeout, rank=item.rank, ahead=item.ahead, window=item.window, name=item.name)
    except (XumpError, TypeError, ValueError) as error:
        return [f"{item}: {error}"]
    return []
