"""The maps of queues and stores: small mappings of texts to bytes, kept with what they belong to.

Each change writes one META with the whole map, which says all that there is to say: of several, the newest one counts. So a
change is atomic, and nothing has to be replayed. A map that changes again while its record is the last one of the open group
takes that record's place: a program that sets many names one by one writes each group's last state.

An empty map has a record, too, as long as its queue lives: it stands for the ones before.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from xump_ext.log.live_sizes cimport live_add, live_remove
from xump_ext.log.writer cimport charge_of, record_new
from xump_ext.message.headers cimport checked_utf8, raw_text_of
from xump_ext.records.kinds cimport META
from xump_ext.records.record cimport padded

MAP_BYTES_MAX = 65536
"""The names and values of one map together: a change writes all of them."""


cdef class Map:
    """The names and values of a queue or store."""

    def __cinit__(self):
        self.items = {}

    cdef int become(self, dict items) except -1:
        self.bytes = map_bytes(items)
        self.items = items
        return 0


cdef Map queue_map(const queue_t* queue):
    return None if queue.meta == NULL else <Map> queue.meta


cdef Map queue_map_made(queue_t* queue):
    if queue.meta == NULL:
        map = Map.__new__(Map)
        Py_INCREF(map)
        queue.meta = <void*> map
    return <Map> queue.meta


cdef uint64_t map_bytes(dict items) except? 0:
    cdef uint64_t bytes = 0
    cdef Py_ssize_t size
    for name, value in items.items():
        raw_text_of(name, &size)
        bytes += <uint64_t> size + <uint64_t> PyBytes_GET_SIZE(value)
    return bytes


cdef uint64_t map_length(dict items) except 0:
    return padded(sizeof(meta_record_t) + map_bytes(items) + 2 * sizeof(uint32_t) * <uint64_t> len(items))


cdef int map_change(Map map, dict items, store_t* store, uint32_t number) except -1:
    map.become(items)
    if store == NULL:
        return 0
    if map.charge:
        live_remove(store, map.charge)
    map_come(map, store)
    return map_write(map, store, number)


cdef void map_come(Map map, store_t* store) noexcept:
    map.charge = charge_of(map_length(map.items))
    live_add(store, map.charge)


cdef int map_write(Map map, store_t* store, uint32_t number) except -1:
    cdef meta_record_t* record = <meta_record_t*> (store.data + map.start)
    cdef uint64_t length = map_length(map.items)
    cdef char* at
    if map.group == store.group and map.start + record.head.length == store.size and not store.failed:
        store.room += <int64_t> record.head.length
        store.size = map.start
        store.records -= 1
    map.group, map.start = store.group, store.size
    map.number += 1
    record = <meta_record_t*> record_new(store, META, 0, length, number, map.number)
    if record == NULL:
        return 0
    at = <char*> (record + 1)
    record.count = <uint32_t> len(map.items)
    for name, value in map.items.items():
        at = item_put(at, name, value)
    record.bytes = <uint32_t> (at - <char*> (record + 1))
    memset(at, 0, <char*> record + length - at)
    return 0


cdef char* item_put(char* at, object name, object value) except NULL:
    cdef Py_ssize_t size
    cdef const char* text = raw_text_of(name, &size)
    cdef uint32_t[2] sizes
    sizes[0], sizes[1] = <uint32_t> size, <uint32_t> PyBytes_GET_SIZE(value)
    memcpy(at, sizes, sizeof(sizes))        # items follow each other without gaps
    at += sizeof(sizes)
    memcpy(at, text, size)
    memcpy(at + size, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    return at + size + PyBytes_GET_SIZE(value)


cdef void map_leave(queue_t* queue) noexcept:
    cdef Map map = queue_map(queue)
    if map is not None and map.charge:
        live_remove(queue.store, map.charge)
        map.charge = 0


cdef bint map_read(Map map, const meta_record_t* record) except -1:
    cdef const char* at = <const char*> (record + 1)
    cdef const char* end = at + record.bytes
    cdef uint64_t name_bytes, value_bytes
    cdef dict items = {}
    cdef uint32_t sizes[2]
    if record.head.id < map.number:
        return True
    if padded(sizeof(meta_record_t) + <uint64_t> record.bytes) != record.head.length:
        return False
    while at < end:
        if end - at < <int64_t> sizeof(sizes):
            return False
        memcpy(sizes, at, sizeof(sizes))
        at += sizeof(sizes)
        name_bytes, value_bytes = sizes[0], sizes[1]
        if name_bytes + value_bytes > <uint64_t> (end - at):
            return False
        items[PyUnicode_DecodeUTF8(at, name_bytes, NULL)] = PyBytes_FromStringAndSize(at + name_bytes, value_bytes)
        at += name_bytes + value_bytes
    if <uint32_t> len(items) != record.count:
        return False
    map.number = record.head.id
    map.become(items)
    return True


# ---- what a program asks for

def map_changed(dict items not None, changes, str whose not None):
    """A copy of the items with these changes, (name, value) each, None for a name that goes. Raises TypeError and ValueError.

    O(items): a map is small.
    """
    cdef dict changed = dict(items)
    cdef uint64_t bytes
    for name, value in changes:
        if value is None:
            changed.pop(name, None)
        else:
            changed[name] = value
    bytes = map_bytes(changed)
    if bytes > MAP_BYTES_MAX:
        raise ValueError(f"the map of {whose} would have {bytes} bytes of names and values, allowed are {MAP_BYTES_MAX}; keep "
                         "larger things in messages, or in a file")
    return changed


def checked_item(name, value):
    """A name and a value of a map, as an exact str and exact bytes; None: no value. Raises TypeError and ValueError."""
    cdef Py_ssize_t size
    if not isinstance(name, str):
        raise TypeError(f"the name in a map must be a str, got {type(name).__name__}")
    name = str.__str__(name)
    checked_utf8(name, "the name in a map", &size)
    if value is None:
        return name, None
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"the value of {name!r} in a map must be bytes, got {type(value).__name__}"
                        + ("; encode it first" if isinstance(value, str) else ""))
    value = bytes(value)
    if size + len(value) > MAP_BYTES_MAX:
        raise ValueError(f"{name!r} and its value have {size + len(value)} bytes, allowed are {MAP_BYTES_MAX} in the whole map")
    return name, value
