"""The maps of queues and stores: names and values of the program's own (docs/servers.md)."""

from collections.abc import MutableMapping

from xump.errors import QueueNotFound

BYTES_MAX = 65536


def checked(items):
    size = sum(len(name.encode()) + len(value) for name, value in items.items())
    if size > BYTES_MAX:
        raise ValueError(f"a map of {size} bytes, allowed are {BYTES_MAX}")
    return items


def changed(items, changes):
    """A copy of the items with these changes; None deletes."""
    new = {**items, **{name: value for name, value in changes if value is not None}}
    for name in [name for name, value in changes if value is None]:
        new.pop(name, None)
    return checked(new)


class Place:
    """A store that has a map."""

    def __init__(self, store):
        self.store = store


class Meta(MutableMapping):
    """What a program sees. `items` gives the dict, or raises; `call` is a public call of the engine; `check` raises if the store
    has no room for a change."""

    def __init__(self, items, call, check, store=None):
        self.items_now, self.call, self.check, self.store = items, call, check, store

    def __getitem__(self, name):
        return self.items_now()[name]

    def __iter__(self):
        return iter(list(self.items_now()))

    def __len__(self):
        return len(self.items_now())

    def __setitem__(self, name, value):
        self.update({name: value})

    def __delitem__(self, name):
        self[name]
        self._change([(name, None)])

    def update(self, other=(), /, **values):
        self._change(list(dict(other, **values).items()))

    def clear(self):
        self._change([(name, None) for name in self])

    def _change(self, changes):
        self.items_now()
        with self.call():
            new = changed(self.items_now(), changes)
            if new != self.items_now():
                self.check()
            self.items_now().clear()
            self.items_now().update(new)


def owner_of(engine, given):
    """The dict of a queue, by its name or as such, or of a store; and the store that it is in."""
    if isinstance(given, Meta):
        return engine.store_maps[given.store], given.store
    name = getattr(given, "name", given)
    if name not in engine.queues:
        raise QueueNotFound(f"no queue {name!r}")
    return engine.queues[name].items, engine.queues[name].store


def planned(engine, changes):
    """(dict, new items, its store) of each map that these (owner, name, value) change, in order."""
    plans = []
    for owner, name, value in changes:
        items, store = owner_of(engine, owner)
        plan = next((plan for plan in plans if plan[0] is items), None)
        if plan is None:
            plan = [items, items, store]
            plans.append(plan)
        plan[1] = changed(plan[1], [(name, value)])
    return [plan for plan in plans if plan[0] != plan[1]]
