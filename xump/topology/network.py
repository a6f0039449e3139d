"""A network that outlives its process: the stores, queues and selectors of an engine as a plain dict, and back.

`describe` gives the state as it is now: the window that grants have made, enabled or not. What is at its default is left
out, and so are messages, holds and starts: a description says what the graph is, not what happened in it. The format
is explained in `xump.topology.schema` and `xump.topology.codec`.

`apply` adds what is described and not there yet; it takes nothing away and changes nothing that is there. A selector is there if

- it has a name, and one of that name has the same source, condition and action, and was created with that credit and
  enabled so, or is so now; with other properties it is a `Conflict`;
- it has no name, and one without a name is the same in all of this. Each stands for one only: two alike, and one of them
  there, makes one more.

The whole description is rehearsed beforehand, in an engine of its own in RAM, so that whatever the API would refuse is found
before anything is done. Only stores must be opened to know what is in them; one that was opened in vain is closed again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from xump.conditions import Role
from xump.errors import Conflict, XumpError
from xump.store_types import factory_of
from xump.topology.codec import NoSpelling, spell_action, spell_condition, spell_credit, spell_option
from xump.topology.lint import findings
from xump.topology.schema import ALL_HISTORY, QUEUE_DEFAULTS, VERSION, Description, QueueItem, SelectorItem, StoreItem, read

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.selector import Selector
    from xump.store_types import Store


# ---- out of an engine

def describe(engine: Engine) -> dict[str, Any]:
    """The stores, queues and selectors of an engine, in the order of their creation, as a dict that TOML can hold.

    Raises `Conflict` naming every selector with a callable condition, and every store with an option, that cannot be written.
    """
    engine._check_open()
    refused: list[str] = []
    with engine._build_lock:
        described = {
            "version": VERSION,
            "stores": {name: _describe_store(store, refused) for name, store in engine.stores.items() if name != "ram"},
            "queues": {name: _describe_queue(queue) for name, queue in engine.queues.items()},
            "selectors": [_describe_selector(selector, refused) for selector in engine.selectors.values()],
        }
    if refused:
        raise Conflict(f"the topology cannot be described: {'; '.join(refused)}")
    return described


def _describe_store(store: Store, refused: list[str]) -> dict[str, Any]:
    described = {} if store.type == "ram" else {"type": store.type}
    for option, value in store.options.items():
        try:
            described[option] = spell_option(value)
        except NoSpelling as error:
            refused.append(f"store {store.name!r}: option {option} = {error}")
    return described


def _properties(queue: Queue) -> dict[str, Any]:
    return {key: queue.store.name if key == "store" else getattr(queue, key) for key in QUEUE_DEFAULTS}


def _describe_queue(queue: Queue) -> dict[str, Any]:
    return {
        key: ALL_HISTORY if key == "history_limit" and value is None else value
        for key, value in _properties(queue).items() if value != QUEUE_DEFAULTS[key]
    }


def _describe_selector(selector: Selector, refused: list[str]) -> dict[str, Any]:
    described: dict[str, Any] = {"source": selector.source.name}
    if selector.name is not None:
        described["name"] = selector.name
    try:
        described["when"] = spell_condition(selector.when)
    except NoSpelling as error:
        refused.append(f"selector {_title(selector)}: {error}")
    described["do"] = spell_action(selector.do)
    if selector.credit != 1:
        described["credit"] = spell_credit(selector.credit)
    if not selector.enabled:
        described["enabled"] = False
    return described


def _title(selector: Selector) -> str:
    name = "" if selector.name is None else f"{selector.name!r}, "
    return f"{selector.id} ({name}of queue {selector.source.name!r})"


# ---- into an engine

def apply(engine: Engine, mapping: Mapping[str, Any]) -> None:
    """Create what is described and not there yet, in one building block.

    Raises `Conflict` with everything that is wrong with the description, or contradicts what is there; TypeError if it is no
    mapping; what a store raises when it is opened. Then nothing changed. Costs as creating what is missing twice, and a look at
    every queue and selector.
    """
    if not isinstance(mapping, Mapping):
        raise TypeError(f"a topology is a mapping, got {type(mapping).__name__}")
    description = read(mapping)
    engine._check_open()
    # The block is left last: its run goes without the lock, so that other threads may build meanwhile.
    with ExitStack() as block, engine._build_lock, ExitStack() as undo:
        missing = _agree(description, engine, undo)
        block.enter_context(engine.building())
        for queue in description.queues.values():
            if queue.name not in engine.queues:
                engine.create_queue(queue.name, **queue.properties)
                undo.callback(engine.delete_queue, queue.name)
        for selector in missing:
            _create(engine, selector)
        undo.pop_all()


def _create(engine: Engine, item: SelectorItem) -> None:
    engine.create_selector(item.source, when=item.when, do=item.do, credit=item.credit, enabled=item.enabled, name=item.name)


def _agree(description: Description, engine: Engine, undo: ExitStack) -> list[SelectorItem]:
    """The selectors that are missing, once all is known to fit. Stores are open then: what queues they bring is part of that."""
    closed = [store for store in description.stores.values() if store.name not in engine.stores]
    brings = any(getattr(factory_of(store.type), "durable", True) for store in closed) if not description.faults else False
    missing = _rehearse(description, engine, brings)
    for store in closed:
        engine.create_store(store.name, store.type, **store.options)
        undo.callback(engine.delete_store, store.name)
    return _rehearse(description, engine) if brings else missing


def _rehearse(description: Description, engine: Engine | None, brings: bool = False) -> list[SelectorItem]:
    """The selectors that are missing. Raises `Conflict` with every fault."""
    missing, faults = rehearse(description, engine, brings)
    if faults:
        raise Conflict("the topology is wrong: " + "; ".join(faults))
    return missing


def sketch(mapping: Mapping[str, Any]) -> Engine:
    """An engine in RAM with the graph that is described, to look at: no store is opened. Raises `Conflict` as `apply` does."""
    description = read(mapping)
    missing = _rehearse(description, None)
    engine = _paper()
    for store in description.stores.values():
        engine.create_store(store.name)
    for queue in description.queues.values():
        engine.create_queue(queue.name, **queue.properties)
    for selector in missing:
        _create(engine, selector)
    return engine


def refusals(mapping: Mapping[str, Any]) -> list[str]:
    """Why `apply` refuses a description: what `check` gives first. Nothing is opened."""
    return rehearse(read(mapping), None)[1]


def check(mapping: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with a description, as sentences: faults, for which `apply` refuses it, then what is suspicious.

    It is looked at by itself: every queue that it names must be in it. Nothing is opened.

    >>> check({"version": 1, "queues": {"jobs": {"dead_letter": "dead"}}})  # doctest: +NORMALIZE_WHITESPACE
    ["queue 'jobs' has the dead letter queue 'dead', which is not described: it counts as none",
     "queue 'jobs' stands alone: no selector takes from it, and none puts into it"]
    """
    description = read(mapping)
    faults = rehearse(description, None)[1]
    return faults + findings(description, complete=not faults)


# ---- the rehearsal

def rehearse(description: Description, engine: Engine | None, brings: bool = False) -> tuple[list[SelectorItem], list[str]]:
    """The selectors that are missing in `engine` (None: all), and all that is wrong.

    `brings`: stores that will be opened may bring queues, so a name that is not known may be right.
    """
    faults = list(description.faults)
    if engine is not None:
        faults += _store_conflicts(description, engine)
        faults += _queue_conflicts(description, engine)
    missing = description.selectors if engine is None else _recognise(description, engine, faults)
    faults += _single_conflicts(missing, engine)
    with _paper() as paper:
        _rehearse_queues(paper, description, engine, faults)
        for item in missing:
            faults += _rehearse_selector(paper, item, brings)
    return missing, faults


def _paper() -> Engine:
    """An engine to try things out in."""
    from xump.engine import Engine

    return Engine()


def _store_conflicts(description: Description, engine: Engine) -> list[str]:
    faults = []
    for item in description.stores.values():
        store = engine.stores.get(item.name)
        if store is not None and not _same_store(store, item):
            faults.append(f"store {item.name!r} exists with type {store.type!r} and options {store.options}; "
                          f"described are {item.type!r} and {item.options}")
    return faults


def _same_store(store: Store, item: StoreItem) -> bool:
    try:
        had, described = store.placed(store.options, created=True), store.placed(item.options)
        return store.type == item.type and spell_option(had) == spell_option(described)
    except NoSpelling:
        return False


def _queue_conflicts(description: Description, engine: Engine) -> list[str]:
    faults = []
    for item in description.queues.values():
        queue = engine.queues.get(item.name)
        had = {} if queue is None else _properties(queue)
        for key, value in had.items():
            if value != item.properties[key]:
                faults.append(f"queue {item.name!r} exists with {key}={value!r}; described is {item.properties[key]!r}")
    return faults


def _recognise(description: Description, engine: Engine, faults: list[str]) -> list[SelectorItem]:
    """The selectors that are not there; faults of those that are there with other properties."""
    named = {selector.name: selector for selector in engine.selectors.values() if selector.name is not None}
    missing = []
    for item in description.selectors:
        selector = None if item.name is None else named.get(item.name)
        if selector is None:
            missing.append(item)
        elif item.key not in (_now(selector), _at_first(selector)):
            faults.append(f"{item} exists with other properties: {selector!r}, credit={selector.credit!r}, "
                          f"enabled={selector.enabled}")
    unnamed = [selector for selector in engine.selectors.values() if selector.name is None and _is_plain(selector)]
    for key_of in (_now, _at_first):
        missing, unnamed = _pair_off(missing, unnamed, key_of)
    return sorted(missing, key=lambda item: item.position)


def _now(selector: Selector) -> tuple[Any, ...]:
    return selector.source.name, selector.when, selector.do, selector.credit, selector.enabled


def _at_first(selector: Selector) -> tuple[Any, ...]:
    created: tuple[Any, ...] = selector.created[:5]
    return created


def _pair_off(
    items: list[SelectorItem], selectors: list[Selector], key_of: Callable[[Selector], tuple[Any, ...]]
) -> tuple[list[SelectorItem], list[Selector]]:
    """Those of both lists that found no partner with the same key. O(length of both)."""
    there: dict[tuple[Any, ...], deque[Selector]] = {}
    for selector in selectors:
        there.setdefault(key_of(selector), deque()).append(selector)
    left = []
    for item in items:
        alike = there.get(item.key) if item.name is None else None
        if alike:
            alike.popleft()
        else:
            left.append(item)
    return left, [selector for alike in there.values() for selector in alike]


def _is_plain(selector: Selector) -> bool:
    """Whether it can be described at all: a callable may not even have a hash."""
    try:
        spell_condition(selector.when)
    except NoSpelling:
        return False
    return True


def _single_conflicts(missing: list[SelectorItem], engine: Engine | None) -> list[str]:
    """A queue has at most one enabled default and one enabled overflow selector."""
    faults, taken = [], {}
    for selector in [] if engine is None else engine.selectors.values():
        if selector.enabled and isinstance(selector.when, Role):
            taken[selector.source.name, selector.when.name] = f"selector {_title(selector)} that is there"
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
                paper.create_queue(item.name)       # what is wrong with it is said; its selectors may be right
    for name in engine.queues if engine is not None else ():
        if name not in paper.queues:
            paper.create_queue(name)


def _wrong_properties(paper: Engine, item: QueueItem) -> list[str]:
    """What is said of each property alone, for creating stops at the first; once, where it is about the name."""
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
                faults.append(f"{item}: its {what} {name!r} is neither described nor there")
    if faults:
        return faults
    try:
        paper.create_selector(item.source, when=item.when, do=item.do, credit=item.credit, enabled=False, name=item.name)
    except (XumpError, TypeError, ValueError) as error:
        return [f"{item}: {error}"]
    return []
