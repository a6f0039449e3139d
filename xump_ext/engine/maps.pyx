"""Changes of the maps of queues and stores: planned, checked, and then carried out together.

`log/meta.pyx` has the maps, and records them.
"""

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.errors import QueueNotFound, StoreFull, StoreNotFound, no_queue
from xump_ext.log.meta cimport Map, map_change, map_length, queue_map_made
from xump_ext.log.meta import map_changed
from xump_ext.log.room cimport COMES_IN, kept_bytes
from xump_ext.log.writer cimport charge_of
from xump_ext.route.routing cimport go_on


def change_map(EngineStores core not None, owner, list changes not None):
    """Changes the map of a queue or store: (name, value) each, None for a name that goes; all of them, or none."""
    cdef MapChanges planned = MapChanges(core, [(owner, changes)])
    core.begin_call()
    try:
        planned.make_room(0)
        planned.plan()
        planned.check()
        planned.carry_out()
        go_on(&core.e)
    finally:
        core.unlock()


cdef class MapChanges:
    """Changes that one call makes, of any number of maps."""

    def __cinit__(self, EngineStores core not None, list given not None):
        self.core = core
        self.given = given

    cdef int plan(self) except -1:
        """Works out what each map will be. Raises for an owner that is not there, or a map that would be too large."""
        cdef Map map
        cdef Journal journal
        self.owners = {}
        self.journal, self.bytes, self.largest = None, 0, 0
        for owner, changes in self.given:
            if isinstance(owner, str):
                if owner not in self.core._queues:
                    raise no_queue(owner)
                owner = self.core._queues[owner]
            found = self.owners.get(id(owner)) or self.found(owner)
            map = found[1]
            whose = f"{'queue' if isinstance(owner, QueueHandle) else 'store'} {owner.name!r}"
            self.owners[id(owner)] = (*found[:4], map_changed(found[4], changes, whose))
        for key, (owner, map, journal, number, items) in list(self.owners.items()):
            if items == map.items:
                del self.owners[key]
            elif journal is not None:
                self.journal = journal
                self.bytes += map_charge(items)
                self.largest = max(self.largest, map_charge(items))
        return 0

    def found(self, owner):
        cdef QueueHandle handle
        if isinstance(owner, QueueHandle):
            handle = owner
            handle.live()
            if self.core._queues.get(handle.name) is not handle:
                raise QueueNotFound(f"queue {handle.name!r} belongs to another engine")
            journal = owner.store.journal
            return owner, queue_map_made(handle.queue), journal, handle.queue.number, queue_map_made(handle.queue).items
        if self.core._stores.get(owner.name) is not owner:
            raise StoreNotFound(f"store {owner.name!r} was deleted")
        return owner, owner._map, owner.journal, 0, owner._map.items

    cdef int make_room(self, int64_t more) except -1:
        """Lets the store clean its log if it has no room for the changes and so many bytes beside them."""
        self.plan()
        if self.journal is not None:
            self.core.make_room(self.journal, self.bytes + more + kept_bytes(&self.journal.store, self.largest, COMES_IN))
        return 0

    cdef int check(self) except -1:
        """Raises unless the stores have room."""
        for owner, _, journal, _, items in self.owners.values():
            if journal is not None:
                check_map_fits(journal, map_charge(items), self.bytes, owner.name)
        return 0

    cdef int carry_out(self) except -1:
        cdef Journal journal
        for _, map, journal, number, items in self.owners.values():
            map_change(map, items, NULL if journal is None else &journal.store, number)
        return 0


cdef int check_map_fits(Journal journal, int64_t largest, int64_t all, object whose) except -1:
    cdef int64_t left = journal.store.room - kept_bytes(&journal.store, largest, COMES_IN)
    journal.must_write()
    if left < all:
        raise StoreFull(f"store {journal.name!r} is full: {max(left, 0)} bytes are left, and the map of {whose!r} takes {all}; "
                        "take messages out, or allow it more bytes")
    return 0


cdef int64_t map_charge(dict items) except -1:
    return <int64_t> charge_of(map_length(items))


cdef int map_begin(queue_t* queue, dict items) except -1:
    return map_change(queue_map_made(queue), items, queue.store, queue.number)
