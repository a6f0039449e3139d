"""Which of the selectors that a topology describes are in an engine already.

Credit changes, and so does whether a selector is enabled. So a description of any moment since then is of the same selector, and
one that exists may stand for several that are described. Each can be only one of them: this is a matching, and as few as can be
are left without one. Else `apply` would create again what is there.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xump.selector import Selector
    from xump.topology.schema import SelectorItem

Key = tuple[Any, ...]
"""All that is described of a selector but its name."""
Kind = tuple[Key, ...]
"""The keys by which a selector is known, the best one first. Selectors of a kind stand for each other."""


def is_known(item: SelectorItem, selector: Selector) -> bool:
    """Whether the description may be of this selector."""
    return item.key in _kind(selector)


def without_selector(items: Iterable[SelectorItem], selectors: Iterable[Selector]) -> list[SelectorItem]:
    """The described selectors that none of these can be. One that is as described now goes before one that was so.

    Cost: O(length of both) if no two kinds share a key; else that times the kinds that do."""
    free = Counter(map(_kind, selectors))
    held: dict[Kind, Counter[Key]] = {kind: Counter() for kind in free}
    left = list(items)
    for known in range(1, len(KEYS) + 1):
        there: dict[Key, dict[Kind, None]] = {}
        for kind in free:
            for key in kind[:known]:
                there.setdefault(key, {})[kind] = None
        left = [item for item in left if not _finds_one(item.key, there, free, held)]
    return left


def _finds_one(key: Key, there: Mapping[Key, Iterable[Kind]], free: Counter[Kind], held: dict[Kind, Counter[Key]]) -> bool:
    """Whether there is a selector for one more of this key, perhaps if others change theirs (an augmenting path)."""
    gives_up: dict[Key, Kind | None] = {key: None}
    asked_by: dict[Kind, Key] = {}
    asking = deque([key])
    while asking:
        one = asking.popleft()
        for kind in there.get(one, ()):
            if kind in asked_by:
                continue
            asked_by[kind] = one
            if free[kind]:
                free[kind] -= 1
                _hand_over(kind, asked_by, gives_up, held)
                return True
            for holder in held[kind]:
                if holder not in gives_up:
                    gives_up[holder] = kind
                    asking.append(holder)
    return False


def _hand_over(
    kind: Kind | None, asked_by: Mapping[Kind, Key], gives_up: Mapping[Key, Kind | None], held: dict[Kind, Counter[Key]]
) -> None:
    """Along the path, each key gets the kind that it asked for, and gives its own to the one before."""
    while kind is not None:
        key = asked_by[kind]
        held[kind][key] += 1
        kind = gives_up[key]
        if kind is not None:
            held[kind] -= Counter([key])


def _kind(selector: Selector) -> Kind:
    return tuple(key_of(selector) for key_of in KEYS)


def _now(selector: Selector) -> Key:
    return (selector.source.name, selector.when, selector.do, selector.credit, selector.enabled, selector.ack_timeout,
            selector.rank, selector.ahead, selector.window and selector.window.name)


def _at_first(selector: Selector) -> Key:
    created: Key = selector._created[:9]
    return created


def _enabled_at_first(selector: Selector) -> Key:
    key = _now(selector)
    return (*key[:4], _at_first(selector)[4], *key[5:])


def _enabled_now(selector: Selector) -> Key:
    key = _at_first(selector)
    return (*key[:4], selector.enabled, *key[5:])


KEYS: tuple[Callable[[Selector], Key], ...] = (_now, _at_first, _enabled_at_first, _enabled_now)
